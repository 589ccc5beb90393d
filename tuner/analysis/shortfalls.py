"""Lines about experiments whose trials reported nothing, were not compared or not validated."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import schedulers
from schedulers.metric import as_float
from schedulers.scheduler import Scheduler
from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.errors import StorageError
from tuner.storage.declaration import is_experiment, read_declaration
from tuner.storage.layout import validation_log

from .ranking import unknown_metric

_WRAPPED: Final = "base_scheduler"
"""Argument with which a scheduler such as ResourceChangingScheduler wraps another one."""
_CLASS: Final = "@"
"""Key of the class's name in a recorded scheduler."""


def why_never_compared(scheduler: Scheduler, trials: Iterable[Trial]) -> str:
    """Return a message if no trial reached the scheduler's first comparison, else "".

    It is also empty if no trial completed.

    Args:
        scheduler: The scheduler.
        trials: All trials of the experiment.
    """
    while isinstance(wrapped := scheduler.declared_arguments.get(_WRAPPED), Scheduler):
        scheduler = wrapped
    trials = list(trials)
    comparison = _FirstComparison.of(type(scheduler), scheduler.declared_arguments)
    if comparison is None or not any(
        trial.ending is TerminationReason.COMPLETED for trial in trials
    ):
        return ""
    return comparison.shortfall_of(trials, "compared no trials: the longest one")


def why_trial_never_compared(trial: Trial, directory: Path) -> str:
    """Return a message if a trial ended before the recorded scheduler's first comparison, else "".

    Args:
        trial: The trial.
        directory: The experiment's directory.
    """
    try:
        recorded = (
            read_declaration(directory)["tune_config"]["scheduler"]
            if is_experiment(directory)
            else None
        )
        while recorded and isinstance(recorded.get(_WRAPPED), Mapping):
            recorded = recorded[_WRAPPED]
        if not recorded or recorded[_CLASS] not in schedulers.__all__:
            return ""
        kind = getattr(schedulers, recorded[_CLASS])
    except (StorageError, KeyError, TypeError):
        return ""  # another release or program wrote the declaration
    comparison = (
        _FirstComparison.of(kind, recorded)
        if isinstance(kind, type) and issubclass(kind, Scheduler)
        else None
    )
    return (
        comparison.shortfall_of([trial], "never compared this trial: it")
        if comparison and trial.is_finished
        else ""
    )


def why_none_validated(trials: Iterable[Trial]) -> str:
    """Return how many validations failed, with the cause and the log file of the first.

    Returns:
        Empty where one has succeeded, or none has ended.
    """
    ended = [
        (trial, validation)
        for trial in trials
        for validation in trial.validations.values()
        if not validation.is_unfinished
    ]
    if not ended or any(validation.is_validated for _, validation in ended):
        return ""
    trial, first = ended[0]
    log = Path(trial.local_path, validation_log(first.index))
    return f"{len(ended)} of {len(ended)} validations failed: {first.failure}, {log}"


def status_counts(trials: Sequence[Trial]) -> str:
    """Return the number of trials by status, and the first failure."""
    if not trials:
        return "there are no trials"
    counts = Counter(str(trial.status) for trial in trials)
    listed = ", ".join(f"{count} of {len(trials)} {status}" for status, count in counts.items())
    with_failures = [trial for trial in trials if trial.failures]
    # One that was killed when the experiment stopped has a failure as well.
    in_error = (trial for trial in with_failures if trial.status is Status.ERROR)
    failed = next(in_error, with_failures[0] if with_failures else None)
    if failed is None:
        return listed
    return f"{listed}; the first failure was of trial {failed.trial_id}: {failed.failures[-1]}"


def check_reported(trials: Sequence[Trial], metric: str, *, is_default: bool) -> None:
    """Check that a trial has reported a metric.

    Args:
        trials: All trials of the experiment.
        metric: The metric, flattened.
        is_default: Whether it is that of the `TuneConfig`, and no argument of the user's call.

    Raises:
        RuntimeError: If no trial has reported anything, or none a default.
        ValueError: If none has reported the metric of the call; lists those that were reported.
    """
    known = {name for trial in trials for name in trial.summary}
    if metric in known:
        return
    if not any(trial.last_result for trial in trials):
        raise RuntimeError(f"no trial reported a result; {status_counts(trials)}")
    if is_default and (why := why_none_validated(trials)):
        raise RuntimeError(f"no trial has the metric {metric!r}: {why}")
    error = unknown_metric(metric, known, "a trial")
    raise RuntimeError(str(error)) if is_default else error


class _FirstComparison:
    """The first comparison of a scheduler: an entry of results, and the value that is required."""

    def __init__(self, kind: type[Scheduler], argument: str, first: float, time_attr: str) -> None:
        self._kind = kind
        self._argument = argument
        self._first = first
        self._time_attr = time_attr

    @classmethod
    def of(cls, kind: type[Scheduler], given: Mapping[str, Any]) -> _FirstComparison | None:
        """Return that of a scheduler with the given arguments; None if it declares none."""
        argument = kind.first_comparison
        arguments = {
            name: parameter.default
            for name, parameter in inspect.signature(kind).parameters.items()
        } | dict(given)
        first, time_attr = arguments.get(argument or ""), arguments.get("time_attr")
        if argument is None or not isinstance(first, int | float) or not isinstance(time_attr, str):
            return None
        return cls(kind, argument, first, time_attr)

    def shortfall_of(self, trials: Iterable[Trial], subject: str) -> str:
        """Return a message if none of the trials reached the first comparison, else "".

        It is also empty if no trial reported its progress.
        """
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
            f"{self._kind.__name__} {subject} came to {self._time_attr}={longest:.4g}, and its "
            f"first comparison is at {self._argument}={self._first:g}; give a smaller "
            f"{self._argument}{other}"
        )
