"""Status of an experiment on disk: running, finished, interrupted or damaged."""

from __future__ import annotations

import dataclasses
import enum
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.analysis.open_experiment import StoredExperiment, read_stored
from tuner.core.experiment import Experiment
from tuner.core.policies import BUDGET, TIME_BUDGET
from tuner.errors import StorageError, StorageUnreachable
from tuner.storage.declaration import is_experiment
from tuner.storage.layout import journal_directory
from tuner.storage.lock import driver_of
from tuner.storage.urls import split_url
from tuner.stores.readable_copy import ReadableCopy, changed_at

_DECLARED_ENDINGS: Final = frozenset({TIME_BUDGET, BUDGET, "stopper.stop_all", "fail_fast"})
"""Rules that end an experiment as declared; after any other rule it counts as interrupted."""
_MAX_DEPTH: Final = 4


class State(enum.StrEnum):
    """State of an experiment."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class ExperimentStatus:
    """One look at an experiment.

    Attributes:
        path: Its directory, or that of a copy.
        state: See `State`.
        stored: What is stored; None where it is damaged.
        changed_at: When something was last written to its journal, in seconds since 1970.
        damage: What is wrong with it; empty for nothing.
    """

    path: Path
    state: State
    stored: StoredExperiment | None
    changed_at: float
    damage: str = ""

    @property
    def age_s(self) -> float:
        """Seconds since something was last written to its journal."""
        return max(0.0, time.time() - self.changed_at)


def status_of(path: Path) -> ExperimentStatus:
    """Return the status of the experiment in a directory, which is only read."""
    changed_at = _changed_at(path)
    try:
        stored = read_stored(path)
    except StorageError as damage:
        return ExperimentStatus(path, State.DAMAGED, None, changed_at, str(damage))
    return ExperimentStatus(path, state_of(path, stored.experiment), stored, changed_at)


def status_in_store(url: str) -> ExperimentStatus:
    """Return the status of an experiment in an object store, of which a copy is read.

    Raises:
        StorageUnreachable: If the store does not answer, or refuses.
    """
    copy = ReadableCopy(url, with_logs=False)
    try:
        status = status_of(copy.directory)
    except StorageUnreachable:
        raise
    except StorageError as damage:
        return ExperimentStatus(
            Path(split_url(url)[1]), State.DAMAGED, None, changed_at(url), str(damage)
        )
    finally:
        copy.close()
    return dataclasses.replace(status, changed_at=changed_at(url))


def state_of(path: Path, experiment: Experiment) -> State:
    """Return the state of an experiment that could be read."""
    if driver_of(path) is not None:
        return State.RUNNING
    reason = experiment.stop_reason
    is_over = reason.rule in _DECLARED_ENDINGS if reason else experiment.is_finished
    return State.FINISHED if is_over else State.INTERRUPTED


def experiments_under(root: Path, max_depth: int = _MAX_DEPTH) -> Iterator[Path]:
    """Yield the experiments at or below a path, ordered by name, without looking inside them."""
    if is_experiment(root):
        yield root
    elif max_depth:
        for folder in _folders(root):
            yield from experiments_under(folder, max_depth - 1)


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return sorted(
                Path(entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )
    except OSError:
        return []


def _changed_at(path: Path) -> float:
    """Return when the journal was last written to; without a journal, the directory's time."""
    try:
        return max(
            (file.stat().st_mtime for file in journal_directory(path).iterdir()),
            default=path.stat().st_mtime,
        )
    except OSError:
        return path.stat().st_mtime
