"""Trials that failed for good, one by one and grouped by cause."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuner.core.trial import Status, Trial
from tuner.storage.layout import ERROR, STDERR, trial_directory

from .source import Source

_VARYING: Final = re.compile(r"0x[0-9a-fA-F]+|[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
"""What differs between messages of one cause: numbers and addresses."""


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
    """Trials that failed for the same cause: an exception of one type whose messages differ at most in numbers.

    Attributes:
        error: What the first of them failed with.
        trials: These trials.
        configs: The flattened configuration of each.
        traceback: The traceback of the first, empty for none.
    """

    error: str
    trials: Sequence[Failed]
    configs: Sequence[Mapping[str, Any]]
    traceback: str


def failed(source: Source) -> list[Failed]:
    """Return the trials that failed for good, in the order of their creation."""
    return [_failed(trial, source.experiment_path) for trial in _in_error(source)]


def failure_groups(source: Source) -> list[FailureGroup]:
    """Return the trials that failed for good by cause, the most frequent cause first."""
    groups: dict[str, list[Trial]] = {}
    for trial in _in_error(source):
        failure = trial.failures[-1] if trial.failures else None
        cause = "unknown" if failure is None else f"{failure.kind}: {_VARYING.sub('0', failure.message)}"
        groups.setdefault(cause, []).append(trial)
    found = [_group(trials, source.experiment_path) for trials in groups.values()]
    return sorted(found, key=lambda group: len(group.trials), reverse=True)


def _in_error(source: Source) -> list[Trial]:
    return [trial for trial in source.trials if trial.status is Status.ERROR]


def _group(trials: Sequence[Trial], experiment_path: str) -> FailureGroup:
    failure = trials[0].failures[-1] if trials[0].failures else None
    return FailureGroup(
        error=str(failure) if failure else "unknown",
        trials=[_failed(trial, experiment_path) for trial in trials],
        configs=[trial.evaluated_params for trial in trials],
        traceback=failure.traceback if failure else "",
    )


def _failed(trial: Trial, experiment_path: str) -> Failed:
    failure = trial.failures[-1] if trial.failures else None
    said = f"{failure.traceback}\n{failure}" if failure and not failure.message else str(failure or "unknown")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    directory = Path(trial.local_path) if trial.local_path else trial_directory(experiment_path, trial.trial_id)
    log = next((directory / name for name in (ERROR, STDERR) if (directory / name).is_file()), directory)
    return Failed(trial.trial_id, lines[-1] if lines else "unknown", trial.num_failures, trial.iteration, str(log))
