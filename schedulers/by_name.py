"""Schedulers by their short names."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from .scheduler import Scheduler

_CLASSES: Mapping[str, str] = {
    "fifo": "FIFOScheduler",
    "asha": "ASHAScheduler",
    "async_hyperband": "AsyncHyperBandScheduler",
    "asynchyperband": "AsyncHyperBandScheduler",
    "pasha": "PASHAScheduler",
    "moasha": "MOASHAScheduler",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "pbt": "PopulationBasedTraining",
    "pbt_replay": "PopulationBasedTrainingReplay",
    "pb2": "PB2",
    "mf_pbt": "MFPopulationBasedTraining",
    "resource_changing": "ResourceChangingScheduler",
}


def create_scheduler(name: str, **kwargs: Any) -> Scheduler:
    """Construct a scheduler by its short name, e.g. from a command line.

    Args:
        name: ``"fifo"``; ``"asha"``, ``"async_hyperband"`` or ``"asynchyperband"``, which are the same; ``"pasha"``, ``"moasha"``,
            ``"hyperband"`` (or ``"hb_bohb"``), ``"median_stopping_rule"`` (or ``"medianstopping"``), ``"pbt"``, ``"pbt_replay"``,
            ``"pb2"``, ``"mf_pbt"`` or ``"resource_changing"``.
        **kwargs: The arguments of its class.

    Raises:
        TypeError: If the scheduler has no such argument.
        ValueError: If there is no such scheduler, or it refuses an argument's value.

    Example:
        >>> create_scheduler("asha", metric="loss", mode="min", max_t=10).debug_string()
        'AsyncHyperBandScheduler: 0 stopped'

    Departures:
        Ray Tune drops arguments it does not know without a word.
    """
    if name not in _CLASSES:
        raise ValueError(f"name must be one of {_listed(_CLASSES)}, got {name!r}{_suggestion(name, _CLASSES)}")
    scheduler: type[Scheduler] = getattr(importlib.import_module(__package__), _CLASSES[name])
    accepted = inspect.signature(scheduler).parameters
    for argument in kwargs:
        if argument not in accepted:
            takes = f"the arguments {_listed(accepted)}" if accepted else "no arguments"
            raise TypeError(f"{scheduler.__name__} takes {takes}, got {argument!r}{_suggestion(argument, accepted)}")
    return scheduler(**kwargs)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _suggestion(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
