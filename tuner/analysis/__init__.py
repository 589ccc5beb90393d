"""Results of an experiment as objects, data frames, charts and a report.

`ResultGrid` holds the results of all trials and `Result` those of one; `open_experiment` and
`trial_files` read them from directories, `charts` and `report` show them. Nothing here changes an
experiment.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .experiment_analysis import ExperimentAnalysis
    from .result import Result
    from .result_grid import ResultGrid
    from .warm_start import points_from
__all__ = ["ExperimentAnalysis", "Result", "ResultGrid", "points_from"]

_HOMES = {
    "ExperimentAnalysis": "experiment_analysis",
    "Result": "result",
    "ResultGrid": "result_grid",
    "points_from": "warm_start",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, to keep ``import tuner`` fast."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
