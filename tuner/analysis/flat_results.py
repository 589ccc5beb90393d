"""Results and configurations with nested entries under flattened names, such as ``a/b``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.core.result import CONFIG, DELIMITER, flatten


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters as ``{"config/lr": 0.1, "config/model/depth": 3}``.

    Example:
        >>> flat_config({"lr": 0.1, "model": {"depth": 3}})
        {'config/lr': 0.1, 'config/model/depth': 3}
    """
    return {f"{CONFIG}{DELIMITER}{key}": value for key, value in flatten(config).items()}


def flat_metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with nested metrics flattened to ``"a/b"`` and without its ``config``."""
    return flatten({key: value for key, value in result.items() if key != CONFIG})


def value_at(result: Mapping[str, Any], metric: str) -> Any:
    """Return the value of a metric, ``"a/b"`` for a nested one; None if the result lacks it."""
    value = result.get(metric)
    return flatten(result).get(metric) if value is None and DELIMITER in metric else value
