"""Reads the files in trials' directories, for experiments without a journal and those of Ray Tune.

Of Ray Tune's experiment state only the plain JSON is read, which holds the status of each trial;
pickled parts are ignored.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tuner.callbacks.files.validations_file import metrics_by_report, read_validations, report_key
from tuner.callbacks.log_records import Validated
from tuner.core.result import (
    CHECKPOINT_DIR_NAME,
    CONFIG,
    DELIMITER,
    NUM_EXPLOITS,
    TIME_TOTAL_S,
    TRAINING_ITERATION,
    TRIAL_ID,
    flatten,
    merged,
)
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord, Failure, checkpoint_directory_name
from tuner.errors import CheckpointError, StorageError, TrialFailed, error_of_trial
from tuner.journal.result_records import numbered
from tuner.journal.rows import MemoryRows, Row, current
from tuner.storage.checkpoints import Checkpoint, locate
from tuner.storage.declaration import guess_of
from tuner.storage.disk import LARGE_BYTES, SMALL_BYTES, read_file
from tuner.storage.layout import (
    CHECKPOINT_PREFIX,
    ERROR,
    MANIFEST,
    PARAMS,
    PROGRESS,
    RAY_PARAMS,
    RAY_STATES,
    RESULTS,
    STARTED_AGAIN,
    VALIDATIONS,
)
from tuner.storage.manifest import read_manifest
from tuner.storage.spreadsheets import restored

_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(nan|inf|\d+(\.\d*)?(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?)", re.ASCII | re.IGNORECASE
)
_DATED = r"\(attempt \d+, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)$"
_FAILURE = re.compile(rf"^Failure #\d+ {_DATED}", re.MULTILINE)
_RETRY = re.compile(rf"^{STARTED_AGAIN} {_DATED}", re.MULTILINE)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequence of a colour: Ray Tune writes coloured tracebacks, also to files."""


@dataclass(frozen=True, slots=True)
class TrialFiles:
    """The content of a trial's directory.

    Attributes:
        path: The directory, absolute.
        trial_id: The trial.
        config: Its hyperparameters; values that JSON lacks are text.
        rows: Its current results, as in `Rows`.
        branches: The branch of each result: how often the configuration had changed by then.
        configs: The configuration of each branch, followed by the current one if it differs.
        checkpoints: Its complete checkpoints, oldest first.
        validations: The validations of its checkpoints that have ended, the last one of each.
        error: Why it failed for good; None if it did not, or continued after its last failure.
    """

    path: Path
    trial_id: str
    config: dict[str, Any]
    rows: list[Row]
    branches: list[int]
    configs: list[dict[str, Any]]
    checkpoints: list[Checkpoint]
    validations: list[Validated]
    error: TrialFailed | None


def read_trial_files(path: str | os.PathLike[str]) -> TrialFiles:
    """Read a trial's directory.

    Raises:
        FileNotFoundError: If there is no such directory, or no file of a trial in it.
        StorageError: If ``params.json`` or ``progress.csv`` cannot be understood.
    """
    directory = Path(path).expanduser().absolute()
    if not any((directory / name).is_file() for name in (RESULTS, PROGRESS, PARAMS, ERROR)):
        raise FileNotFoundError(
            f"path must be the directory of a trial, got {str(path)!r}; it holds neither "
            f"{RESULTS} nor {PARAMS}"
        )
    reported = (
        _json_rows(directory / RESULTS)
        if (directory / RESULTS).is_file()
        else _csv_rows(directory / PROGRESS)
    )
    validations = _validations(directory)
    reported = _with_validations(reported, validations)
    last = reported[-1] if reported else {}
    trial_id = str(last.get(TRIAL_ID, directory.name))
    branches = list(_branches(reported))
    results = current(numbered(zip(branches, map(_without_config, reported), strict=True)))
    configs_by_branch = {
        branch: row.get(CONFIG, {}) for branch, row in zip(branches, reported, strict=True)
    }
    configs = list(_filled(configs_by_branch))
    config = _config(directory / PARAMS, last.get(CONFIG, {}))
    if last.get(CONFIG) and config != last[CONFIG]:
        configs.append(config)  # it was changed after the last result
    return TrialFiles(
        path=directory,
        trial_id=trial_id,
        config=config,
        rows=[row for _, row in results],
        branches=[branch for branch, _ in results],
        configs=configs,
        checkpoints=_checkpoints(directory, reported),
        validations=validations,
        error=_error(directory / ERROR, trial_id),
    )


def _validations(directory: Path) -> list[Validated]:
    try:
        found = read_validations(directory / VALIDATIONS)
    except OSError as cause:
        raise StorageError(f"{directory / VALIDATIONS} cannot be read: {cause}") from cause
    return [replace(one, metrics=_with_floats(one.metrics)) for one in found]


def _with_validations(rows: list[Row], validations: Sequence[Validated]) -> list[Row]:
    """Return the results, each with the metrics of its checkpoint's validation."""
    metrics_of = metrics_by_report(validations)
    if not metrics_of:
        return rows
    keys = [report_key(row.get(CHECKPOINT_DIR_NAME), row.get(TRAINING_ITERATION)) for row in rows]
    return [
        merged(row, metrics_of[key]) if key in metrics_of else row
        for key, row in zip(keys, rows, strict=True)
    ]


def _without_config(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != CONFIG}


def _branches(rows: Iterable[Row]) -> Iterator[int]:
    """Yield the branch of each row; a new one begins wherever the configuration changes.

    Where the row tells it, that counts: an exploit may have left the configuration as it was.
    """
    # A configuration changes only when the trial continues from another trial's checkpoint.
    branch, config = 0, None
    for row in rows:
        if isinstance(row.get(NUM_EXPLOITS), int):
            branch = row[NUM_EXPLOITS]
        elif config is not None and row.get(CONFIG) != config:
            branch += 1
        config = row.get(CONFIG)
        yield branch


def _filled(by_branch: Mapping[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the configuration of each branch; one without a row has that of the branch before."""
    config = next(iter(by_branch.values()), {})
    for branch in range(max(by_branch, default=-1) + 1):
        config = by_branch.get(branch, config)
        yield config


def _content(path: Path) -> bytes:
    try:
        return read_file(path, LARGE_BYTES)
    except OSError as cause:
        raise StorageError(f"{path} cannot be read: {cause}") from cause


def _json_rows(path: Path) -> list[Row]:
    lines = _content(path).splitlines(keepends=True)
    return [
        row
        for number, line in enumerate(lines, start=1)
        if (row := _json_row(path, number, line)) is not None
    ]


def _json_row(path: Path, number: int, line: bytes) -> Row | None:
    try:
        row = _with_floats(json.loads(line))
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict):
        return row
    # A crash may tear the last line, which then has no newline; any other damage is reported.
    if line.strip() and line.endswith(b"\n"):
        warnings.warn(
            f"line {number} of {path} is damaged and left out", RuntimeWarning, stacklevel=2
        )
    return None


def _with_floats(value: Any) -> Any:
    """Return the value with ``"NaN"`` and ``"Infinity"`` converted to floats."""
    match value:
        case str():
            return _NON_FINITE.get(value, value)
        case dict():
            return {key: _with_floats(item) for key, item in value.items()}
        case list():
            return [_with_floats(item) for item in value]
        case _:
            return value


def _csv_rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    try:
        table = list(csv.reader(io.StringIO(_content(path).decode(errors="replace"), newline="")))
    except csv.Error as cause:
        raise StorageError(f"{path} cannot be read as a table: {cause}") from cause
    header, lines = (list(map(restored, table[0])), table[1:]) if table else ([], [])
    # A row that was torn by a crash lacks cells, and is left out.
    return [
        _nested(zip(header, map(_parsed, line), strict=True))
        for line in lines
        if len(line) == len(header)
    ]


def _nested(cells: Iterator[tuple[str, Any]]) -> Row:
    """Return the cells that are not empty as a nested result."""
    row: Row = {}
    for name, value in cells:
        *path, leaf = name.split(DELIMITER)
        if value is None:
            continue
        node = row
        for key in path:
            node = node.setdefault(key, {})
        node[leaf] = value
    return row


def _parsed(cell: str) -> Any:
    if cell in ("True", "False"):
        return cell == "True"
    if _INTEGER.fullmatch(cell):
        return int(cell)
    if _FLOAT.fullmatch(cell):
        return float(cell)
    return restored(cell) or None


def _config(path: Path, otherwise: Any) -> dict[str, Any]:
    try:
        config = _with_floats(json.loads(read_file(path, SMALL_BYTES)))
    except FileNotFoundError:
        config = otherwise
    except OSError as cause:
        raise StorageError(f"{path} cannot be read: {cause}") from cause
    except (ValueError, RecursionError) as cause:
        raise StorageError(f"{path} is not JSON: {cause}") from cause
    if not isinstance(config, dict):
        raise StorageError(f"{path} must hold an object with the hyperparameters, got {config!r}")
    return config


def _checkpoints(directory: Path, rows: Iterable[Row]) -> list[Checkpoint]:
    """Return the complete checkpoints."""
    paths = sorted(path for path in directory.glob(f"{CHECKPOINT_PREFIX}*") if path.is_dir())
    if (directory / RAY_PARAMS).is_file():
        # Ray Tune writes no manifests. A checkpoint is complete if a result names it. Results of a
        # class trainable never name any; then all of them are taken.
        named = {row.get(CHECKPOINT_DIR_NAME) for row in rows} - {None}
        return [Checkpoint(path) for path in paths if not named or path.name in named]
    # The manifest is written last: a checkpoint without one is incomplete, or was reported only
    # for the sake of its metrics.
    complete = [path for path in paths if (path / MANIFEST).is_file()]
    others = [path for path in _named(directory, rows) if path not in complete]
    found = [Checkpoint(path) for path in (*complete, *others)]
    return sorted(found, key=index_of) if others else found


def _named(directory: Path, rows: Iterable[Row]) -> list[Path]:
    """Return the complete checkpoints whose directories the training code has named."""
    names = dict.fromkeys(str(row[CHECKPOINT_DIR_NAME]) for row in rows if _names_checkpoint(row))
    paths = [directory / name for name in names if ".." not in Path(name).parts]
    # Unlike `Path.is_file`, this raises for no name.
    return [path for path in paths if os.path.isfile(path / MANIFEST)]  # noqa: PTH113


def _names_checkpoint(row: Row) -> bool:
    name = row.get(CHECKPOINT_DIR_NAME)
    return isinstance(name, str) and bool(name) and not Path(name).is_absolute()


def index_of(checkpoint: Checkpoint) -> int:
    """Return the index of a checkpoint; -1 if it cannot be told."""
    path = Path(checkpoint.path)
    number = path.name.removeprefix(CHECKPOINT_PREFIX)
    if path.name.startswith(CHECKPOINT_PREFIX) and number.isdecimal():
        return int(number)
    try:
        index = read_manifest(path).index
    except CheckpointError:
        return -1
    return index if isinstance(index, int) else -1


def _error(path: Path, trial_id: str) -> TrialFailed | None:
    """Return the last failure in the file, unless the trial was started again after it."""
    if not path.is_file():
        return None
    text = _content(path).decode(errors="replace")
    failures = list(_FAILURE.finditer(text))
    if not failures:
        return error_of_trial(trial_id, text.strip() or "for an unknown reason", "")
    after = text[failures[-1].end() :]
    if _RETRY.search(after):
        return None
    what, _, traceback = after.strip().partition("\n")
    return error_of_trial(trial_id, what, traceback)


@dataclass(frozen=True, slots=True)
class TrialDirectories:
    """Content of the directories of an experiment's trials.

    Attributes:
        trials: The trials, in the order of their creation if that is known, else by the names of
            their directories.
        rows: Their results.
        metric: Metric that the experiment optimised; None if unknown.
    """

    trials: list[Trial]
    rows: MemoryRows
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class _RayTrialState:
    """A trial's status, tag and stop criterion in Ray Tune's newest experiment state."""

    status: str = ""
    tag: str = ""
    stop: Mapping[str, float] = field(default_factory=dict)

    @property
    def number(self) -> float:
        """The trial's number, with which its tag begins; infinite if it is unknown."""
        number = self.tag.partition("_")[0]
        return int(number) if number.isdecimal() else float("inf")


@dataclass(frozen=True, slots=True)
class _RayState:
    """Ray Tune's newest experiment state: trials by directory name, and the metric."""

    trials: Mapping[str, _RayTrialState] = field(default_factory=dict)
    metric: str | None = None

    def of(self, files: TrialFiles) -> _RayTrialState:
        return self.trials.get(files.path.name, _RayTrialState())


def read_trial_directories(path: Path) -> TrialDirectories:
    """Read the directories of an experiment's trials, with a warning for each unreadable one.

    A trial whose end is not recorded, and which has no error, is taken to have ended; whether it
    was trained to its end is then unknown.

    Raises:
        FileNotFoundError: If there is no such directory, or no trial in it.
    """
    state = _newest_state(path)
    read = sorted(files_of_trials(path), key=lambda files: state.of(files).number)
    if not read:
        raise FileNotFoundError(
            f"path must be the directory of an experiment, got {str(path)!r}; "
            f"{guess_of(path) or 'it holds no directory of a trial'}"
        )
    trials = [_trial(files, state.of(files)) for files in read]
    rows = MemoryRows(
        {files.trial_id: files.rows for files in read},
        {files.trial_id: files.branches for files in read},
        {files.trial_id: files.configs for files in read},
    )
    return TrialDirectories(trials, rows, state.metric)


def files_of_trials(path: Path) -> Iterator[TrialFiles]:
    """Yield the files of each trial, ordered by name, with a warning for each unreadable one."""
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


def _trial(files: TrialFiles, state: _RayTrialState) -> Trial:
    trial = Trial(files.trial_id, files.config, {}, state.tag)
    locate(trial, files.path)
    for row in files.rows:
        trial.summarise(flatten(row))
    if files.rows:
        trial.last_result = {**files.rows[-1], CONFIG: files.config}
    trial.num_rows = len(files.rows)
    trial.attempt = 1 if files.rows or files.error else 0
    trial.checkpoints = list(_checkpoint_records(files))
    trial.move_to(_status(files, state))
    if trial.status is Status.ERROR:
        trial.ending = TerminationReason.FAILED
        trial.failures = [_failure(files)]
    elif trial.status is Status.TERMINATED and _has_reached(state.stop, trial.last_result):
        trial.ending = TerminationReason.COMPLETED
    return trial


def _has_reached(stop: Mapping[str, float], last: Mapping[str, Any]) -> bool:
    """Return whether a trial of Ray Tune ended by its stop criterion.

    Its files do not tell a trial that a scheduler has stopped from one that was trained to its end:
    the last result of both may be marked as done.
    """
    reported = flatten(last)
    return any(
        isinstance(value := reported.get(name), int | float) and value >= limit
        for name, limit in stop.items()
    )


def _status(files: TrialFiles, state: _RayTrialState) -> Status:
    if state.status in Status.__members__:
        return Status(state.status)
    return Status.ERROR if files.error else Status.TERMINATED


def _failure(files: TrialFiles) -> Failure:
    text = _COLOUR.sub(
        "", str(files.error or "").removeprefix(f"trial {files.trial_id} failed: ")
    ).strip()
    kind, _, message = (text or "unknown").rpartition("\n")[2].partition(": ")
    return Failure(kind, message, "\n".join([text, *getattr(files.error, "__notes__", ())]))


def _checkpoint_records(files: TrialFiles) -> Iterator[CheckpointRecord]:
    """Yield the existing checkpoints, with iteration and time if a result names them."""
    owners: dict[str, Row] = {
        str(row[CHECKPOINT_DIR_NAME]): row for row in files.rows if row.get(CHECKPOINT_DIR_NAME)
    }
    for checkpoint in files.checkpoints:
        name = Path(checkpoint.path).relative_to(files.path).as_posix()
        index = index_of(checkpoint)
        if index >= 0:
            row = owners.get(name, {})
            yield CheckpointRecord(
                index,
                int(row.get(TRAINING_ITERATION, 0)),
                float(row.get(TIME_TOTAL_S, 0.0)),
                name="" if name == checkpoint_directory_name(index) else name,
            )


def _newest_state(path: Path) -> _RayState:
    """Return the newest readable experiment state of Ray Tune; an empty one without any."""
    for state in sorted(path.glob(RAY_STATES), reverse=True):
        try:
            return _parse_ray_state(json.loads(read_file(state, LARGE_BYTES)))
        # The file is another program's: it may hold anything, or be cut short by a crash.
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            warnings.warn(
                f"{state} cannot be read and is left out: {error!r}", RuntimeWarning, stacklevel=3
            )
    return _RayState()


def _limits(criterion: Any) -> dict[str, float]:
    if not isinstance(criterion, dict):
        return {}
    return {name: limit for name, limit in criterion.items() if isinstance(limit, int | float)}


def _parse_ray_state(state: Mapping[str, Any]) -> _RayState:
    trials: dict[str, _RayTrialState] = {}
    for entry in state["trial_data"]:
        text = json.loads(entry[0])
        trials[str(text.get("relative_logdir"))] = _RayTrialState(
            str(text.get("status", "")),
            str(text.get("experiment_tag", "")),
            _limits(text.get("stopping_criterion")),
        )
    metric = state.get("runner_data", {}).get("_metric")
    return _RayState(trials, metric if isinstance(metric, str) else None)
