"""An experiment of which nothing but its trials' own files can be read: one of Ray Tune's, or one that has lost its journal.

Of Ray Tune's experiment state the plain JSON in it is read, which tells how each trial stood; what is pickled in it is left alone.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tuner.core.result import (
    CHECKPOINT_DIR_NAME,
    CONFIG,
    DONE,
    TIME_TOTAL_S,
    TRAINING_ITERATION,
    flatten,
)
from tuner.core.trial import CheckpointRecord, Failure, Status, TerminationReason, Trial
from tuner.errors import StorageError
from tuner.journal.rows import MemoryRows, Row
from tuner.storage.checkpoints import locate
from tuner.storage.layout import CHECKPOINT_PREFIX, ERROR, PARAMS, PROGRESS, RAY_STATES, RESULTS
from tuner.storage.reading import LARGE_BYTES, read_file

from .trial_files import TrialFiles, read_trial_files

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Ray Tune paints tracebacks, also those that go to a file."""


@dataclass(frozen=True, slots=True)
class TrialFolders:
    """What the trials' own files tell.

    Attributes:
        trials: The trials, in the order of their creation where that is known, else of their directories' names.
        rows: Their results.
        metric: What the experiment optimised, None where nothing tells.
    """

    trials: list[Trial]
    rows: MemoryRows
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What Ray Tune's newest experiment state tells of a trial: its status, and its tag, which begins with its number."""

    status: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class _State:
    """What Ray Tune's newest experiment state tells: of each trial by the name of its directory, and the metric."""

    trials: Mapping[str, _Known] = field(default_factory=dict)
    metric: str | None = None


def read_trial_folders(path: Path) -> TrialFolders:
    """Read the directories of an experiment's trials; one that cannot be understood is left out with a warning.

    Where nothing tells how a trial ended, one without an error is taken to be over.

    Raises:
        FileNotFoundError: If there is no such directory, or no trial in it.
    """
    state = _newest_state(path)
    read = sorted(
        files_of_trials(path),
        key=lambda files: _number(state.trials.get(files.path.name, _Known()).tag),
    )
    if not read:
        raise FileNotFoundError(
            f"path must be the directory of an experiment, got {str(path)!r}; it holds no directory of a trial"
        )
    trials = [_trial(files, state.trials.get(files.path.name, _Known())) for files in read]
    rows = MemoryRows(
        {files.trial_id: files.rows for files in read},
        {files.trial_id: files.branches for files in read},
        {files.trial_id: files.configs for files in read},
    )
    return TrialFolders(trials, rows, state.metric)


def files_of_trials(path: Path) -> Iterator[TrialFiles]:
    """Yield what lies in the directory of each trial, in the order of their names; warns of those that cannot be understood."""
    for directory in sorted(path.iterdir()) if path.is_dir() else ():
        if any((directory / name).is_file() for name in (PARAMS, RESULTS, PROGRESS, ERROR)):
            try:
                yield read_trial_files(directory)
            except (OSError, StorageError) as error:
                warnings.warn(
                    f"trial {directory.name!r} cannot be read and is left out: {error}",
                    RuntimeWarning,
                    stacklevel=4,
                )


def _trial(files: TrialFiles, known: _Known) -> Trial:
    trial = Trial(files.trial_id, files.config, {}, known.tag)
    locate(trial, files.path)
    for row in files.rows:
        trial.summarise(flatten(row))
    if files.rows:
        trial.last_result = {**files.rows[-1], CONFIG: files.config}
    trial.num_rows = len(files.rows)
    trial.attempt = 1 if files.rows or files.error else 0
    trial.checkpoints = list(_checkpoints(files))
    trial.move_to(_status(files, known))
    if trial.status is Status.ERROR:
        trial.ending = TerminationReason.FAILED
        trial.failures = [_failure(files)]
    elif trial.status is Status.TERMINATED and trial.last_result.get(DONE) is True:
        trial.ending = TerminationReason.COMPLETED
    return trial


def _status(files: TrialFiles, known: _Known) -> Status:
    if known.status in Status.__members__:
        return Status(known.status)
    return Status.ERROR if files.error else Status.TERMINATED


def _failure(files: TrialFiles) -> Failure:
    told = _COLOUR.sub(
        "", str(files.error or "").removeprefix(f"trial {files.trial_id} failed: ")
    ).strip()
    kind, _, message = (told or "unknown").rpartition("\n")[2].partition(": ")
    return Failure(kind, message, "\n".join([told, *getattr(files.error, "__notes__", ())]))


def _checkpoints(files: TrialFiles) -> Iterator[CheckpointRecord]:
    """Yield the checkpoints that are still there, each with the result it was reported with where the results tell."""
    owners: dict[str, Row] = {
        str(row[CHECKPOINT_DIR_NAME]): row for row in files.rows if row.get(CHECKPOINT_DIR_NAME)
    }
    for checkpoint in files.checkpoints:
        name = Path(checkpoint.path).name
        number = name.removeprefix(CHECKPOINT_PREFIX)
        if number.isdecimal():
            row = owners.get(name, {})
            yield CheckpointRecord(
                int(number), int(row.get(TRAINING_ITERATION, 0)), float(row.get(TIME_TOTAL_S, 0.0))
            )


def _newest_state(path: Path) -> _State:
    """Return what the newest readable of Ray Tune's experiment states tells; nothing where there is none."""
    for state in sorted(path.glob(RAY_STATES), reverse=True):
        try:
            return _told(json.loads(read_file(state, LARGE_BYTES)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            warnings.warn(
                f"{state} cannot be read and is left out: {error!r}", RuntimeWarning, stacklevel=3
            )
    return _State()


def _told(state: Mapping[str, Any]) -> _State:
    trials: dict[str, _Known] = {}
    for entry in state["trial_data"]:
        told = json.loads(entry[0])
        trials[str(told.get("relative_logdir"))] = _Known(
            str(told.get("status", "")), str(told.get("experiment_tag", ""))
        )
    metric = state.get("runner_data", {}).get("_metric")
    return _State(trials, metric if isinstance(metric, str) else None)


def _number(tag: str) -> float:
    number = tag.partition("_")[0]
    return int(number) if number.isdecimal() else float("inf")
