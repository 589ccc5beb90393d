"""Search spaces in the format of ConfigSpace, which SMAC3 and DEHB use."""

from __future__ import annotations

from typing import Any

from ConfigSpace import (
    CategoricalHyperparameter,
    ConfigurationSpace,
    InCondition,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)


def configuration_space(space: list[dict[str, Any]], seed: int) -> ConfigurationSpace:
    """Return the space with a seeded random generator."""
    result = ConfigurationSpace(seed=seed)
    result.add([_hyperparameter(axis) for axis in space])
    result.add(
        [
            InCondition(result[axis["name"]], result[axis["when"][0]], axis["when"][1])
            for axis in space
            if "when" in axis
        ]
    )
    return result


def plain(config: Any, space: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the active parameters of a configuration as JSON values."""
    given = dict(config)
    values = {axis["name"]: given[axis["name"]] for axis in space if axis["name"] in given}
    return {
        name: value.item() if hasattr(value, "item") else value for name, value in values.items()
    }


def _hyperparameter(axis: dict[str, Any]) -> Any:
    if axis["scale"] == "choice":
        return CategoricalHyperparameter(axis["name"], axis["values"])
    kind = UniformFloatHyperparameter if axis["scale"] == "float" else UniformIntegerHyperparameter
    return kind(axis["name"], lower=axis["low"], upper=axis["high"], log=axis.get("log", False))
