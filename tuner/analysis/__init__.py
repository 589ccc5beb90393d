"""Reading results: which trial was best, what every trial reported, as objects and as data frames."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .earlier import points_from
    from .experiment_analysis import ExperimentAnalysis
    from .result import Result
    from .result_grid import ResultGrid
    from .rows import JournalRows, MemoryRows, Rows

__all__ = ["ExperimentAnalysis", "JournalRows", "MemoryRows", "Result", "ResultGrid", "Rows", "points_from"]

_HOMES = {
    "ExperimentAnalysis": "experiment_analysis",
    "JournalRows": "rows",
    "MemoryRows": "rows",
    "Result": "result",
    "ResultGrid": "result_grid",
    "Rows": "rows",
    "points_from": "earlier",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: an experiment needs few of them, and not before its trials run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
