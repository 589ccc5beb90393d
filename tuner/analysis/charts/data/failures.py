"""Trials that failed for good, one by one and grouped by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.failure_causes import Cause, by_cause
from tuner.core.trial import Status, Trial
from tuner.storage.layout import ERROR, STDERR, trial_directory

from .source import Source


@dataclass(frozen=True, slots=True)
class Failed:
    """A trial that failed for good.

    Attributes:
        trial_id: Which.
        error: The last line of what is known about it.
        num_failures: How many of its attempts failed.
        training_iteration: How far it had got.
        log: Path of the file that tells more.
    """

    trial_id: str
    error: str
    num_failures: int
    training_iteration: int
    log: str


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Trials that failed for the same cause: the same exception at the same line of the user's code, see `cause_of`.

    Attributes:
        place: The line of the user's code, e.g. ``"train.py:12 in train"``; empty where that is not known.
        error: What the first of them failed with.
        trials: These trials.
        configs: The flattened configuration of each.
        traceback: The traceback of the first, empty for none.
    """

    place: str
    error: str
    trials: Sequence[Failed]
    configs: Sequence[Mapping[str, Any]]
    traceback: str


def failed(source: Source) -> list[Failed]:
    """Return the trials that failed for good, in the order of their creation."""
    return [_failed(trial, source.experiment_path) for trial in _in_error(source)]


def failure_groups(source: Source) -> list[FailureGroup]:
    """Return the trials that failed for good by cause, the most frequent cause first."""
    found = [
        _group(cause, trials, source.experiment_path)
        for cause, trials in by_cause(_in_error(source)).items()
    ]
    return sorted(found, key=lambda group: len(group.trials), reverse=True)


def _in_error(source: Source) -> list[Trial]:
    return [trial for trial in source.trials if trial.status is Status.ERROR]


def _group(cause: Cause | None, trials: Sequence[Trial], experiment_path: str) -> FailureGroup:
    failure = trials[0].failures[-1] if trials[0].failures else None
    return FailureGroup(
        place=cause.place if cause and cause.is_exception else "",
        error=str(failure) if failure else "unknown",
        trials=[_failed(trial, experiment_path) for trial in trials],
        configs=[trial.evaluated_params for trial in trials],
        traceback=failure.traceback if failure else "",
    )


def _failed(trial: Trial, experiment_path: str) -> Failed:
    failure = trial.failures[-1] if trial.failures else None
    said = (
        f"{failure.traceback}\n{failure}"
        if failure and not failure.message
        else str(failure or "unknown")
    )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    directory = (
        Path(trial.local_path)
        if trial.local_path
        else trial_directory(experiment_path, trial.trial_id)
    )
    log = next(
        (directory / name for name in (ERROR, STDERR) if (directory / name).is_file()), directory
    )
    return Failed(
        trial.trial_id,
        lines[-1] if lines else "unknown",
        trial.num_failures,
        trial.iteration,
        str(log),
    )
