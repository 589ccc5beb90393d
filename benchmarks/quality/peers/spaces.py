"""Search spaces in the format of ConfigSpace, which SMAC3 and DEHB use."""

from __future__ import annotations

from typing import Any

from ConfigSpace import CategoricalHyperparameter, ConfigurationSpace, UniformIntegerHyperparameter


def configuration_space(space: list[dict[str, Any]], seed: int) -> ConfigurationSpace:
    """Return the space with a seeded random generator."""
    result = ConfigurationSpace(seed=seed)
    result.add([_hyperparameter(axis) for axis in space])
    return result


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
