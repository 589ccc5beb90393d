"""Tell where a scheduler had nothing to decide, since trials ended before its first comparison."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import schedulers
from schedulers.metric_reader import as_float
from schedulers.scheduler import Scheduler
from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import TerminationReason, Trial
from tuner.errors import StorageError
from tuner.storage.declaration import is_experiment, read_declaration

_WRAPPED: Final = "base_scheduler"
_CLASS: Final = "@"


def why_undecided(scheduler: Scheduler, trials: Iterable[Trial]) -> str:
    """Return that no trial of an experiment came as far as the scheduler's first comparison; empty where one did, or none completed.

    Args:
        scheduler: The scheduler, as it was constructed.
        trials: All trials of the experiment.
    """
    while isinstance(wrapped := scheduler.declared_arguments.get(_WRAPPED), Scheduler):
        scheduler = wrapped
    trials = list(trials)
    shortfall = _Shortfall.of(type(scheduler), scheduler.declared_arguments)
    if shortfall is None or not any(
        trial.ending is TerminationReason.COMPLETED for trial in trials
    ):
        return ""
    return shortfall.told(trials, "compared no trials: the longest one")


def why_not_decided_about(trial: Trial, directory: Path) -> str:
    """Return that a trial never came as far as the first comparison of the scheduler that is recorded; empty where it did.

    Args:
        trial: The trial.
        directory: The experiment's directory.
    """
    try:
        noted = (
            read_declaration(directory)["tune_config"]["scheduler"]
            if is_experiment(directory)
            else None
        )
        while isinstance(
            wrapped := noted[_WRAPPED] if noted and _WRAPPED in noted else None, Mapping
        ):
            noted = wrapped
        if not noted or noted[_CLASS] not in schedulers.__all__:
            return ""
        kind = getattr(schedulers, noted[_CLASS])
    except (
        StorageError,
        KeyError,
        TypeError,
    ):  # written by another release or program; there is nothing to tell then
        return ""
    shortfall = (
        _Shortfall.of(kind, noted)
        if isinstance(kind, type) and issubclass(kind, Scheduler)
        else None
    )
    return (
        shortfall.told([trial], "never compared this trial: it")
        if shortfall and trial.is_finished
        else ""
    )


class _Shortfall:
    """The first comparison of a scheduler: from which value of which entry of a result on."""

    def __init__(self, kind: type[Scheduler], argument: str, first: float, time_attr: str) -> None:
        self._kind = kind
        self._argument = argument
        self._first = first
        self._time_attr = time_attr

    @classmethod
    def of(cls, kind: type[Scheduler], given: Mapping[str, Any]) -> _Shortfall | None:
        """Return that of a scheduler with these arguments; None for one that does not tell."""
        argument = kind.first_comparison
        arguments = {
            name: parameter.default
            for name, parameter in inspect.signature(kind).parameters.items()
        } | dict(given)
        first, time_attr = arguments.get(argument or ""), arguments.get("time_attr")
        if argument is None or not isinstance(first, int | float) or not isinstance(time_attr, str):
            return None
        return cls(kind, argument, first, time_attr)

    def told(self, trials: Iterable[Trial], whom: str) -> str:
        """Return that none of the trials came as far; empty where one did, or none told how far it came."""
        times = [as_float(flatten(trial.last_result).get(self._time_attr, "")) for trial in trials]
        longest = max(
            (time for time in times if time is not None and math.isfinite(time)), default=None
        )
        if longest is None or longest >= self._first:
            return ""
        other = (
            ""
            if self._time_attr == TRAINING_ITERATION
            else f", or count in iterations with time_attr={TRAINING_ITERATION!r}"
        )
        return (
            f"{self._kind.__name__} {whom} came to {self._time_attr}={longest:.4g}, and its first comparison is at "
            f"{self._argument}={self._first:g}; give a smaller {self._argument}{other}"
        )
