"""The space in ConfigSpace's words, which SMAC3 and DEHB understand."""

from __future__ import annotations

from typing import Any

from ConfigSpace import CategoricalHyperparameter, ConfigurationSpace, UniformIntegerHyperparameter


def configuration_space(space: list[dict[str, Any]], seed: int) -> ConfigurationSpace:
    """Return the space with its own chance seeded."""
    made = ConfigurationSpace(seed=seed)
    made.add([_hyperparameter(axis) for axis in space])
    return made


def plain(config: Any, space: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration as JSON values."""
    values = {axis["name"]: config[axis["name"]] for axis in space}
    return {
        name: value.item() if hasattr(value, "item") else value for name, value in values.items()
    }


def _hyperparameter(axis: dict[str, Any]) -> Any:
    if axis["scale"] == "choice":
        return CategoricalHyperparameter(axis["name"], axis["values"])
    return UniformIntegerHyperparameter(axis["name"], lower=axis["low"], upper=axis["high"])
