"""Schedulers judge results: facts in, decisions out. They never import the engine that hosts them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from .asha import ASHAScheduler, AsyncHyperBandScheduler
from .decisions import Decision, Pause, Reason, Resume, Save, Stop
from .fifo import FIFOScheduler
from .scheduler import Scheduler, TrialView

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "Decision",
    "FIFOScheduler",
    "Pause",
    "Reason",
    "Resume",
    "Save",
    "Scheduler",
    "Stop",
    "TrialView",
    "create_scheduler",
]

_BY_NAME: Mapping[str, type[Scheduler]] = {
    "fifo": FIFOScheduler,
    "asha": ASHAScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
}


def create_scheduler(name: str, **kwargs: Any) -> Scheduler:
    """Construct a scheduler by its short name, e.g. from a command line.

    Args:
        name: ``"fifo"``, or one of ``"asha"``, ``"async_hyperband"`` and ``"asynchyperband"``, which are the same.
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
    if name not in _BY_NAME:
        raise ValueError(f"name must be one of {_listed(_BY_NAME)}, got {name!r}{_suggestion(name, _BY_NAME)}")
    scheduler = _BY_NAME[name]
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
