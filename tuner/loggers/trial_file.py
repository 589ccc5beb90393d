"""What the default loggers have in common: one file per trial, written by segments, cut back when a trial is tried again."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, assert_never, final

from tuner.core.result import CONFIG, TIMESTAMP, TIMESTEPS_TOTAL, flatten
from tuner.core.trial import Ending, Graft, Status, Trial
from tuner.storage.atomic import write_bytes
from tuner.storage.disk import FILE_MODE
from tuner.storage.folder import make_folder

from .batching import BatchWriter, Pace, Sink
from .callback import LoggerCallback

_MAX_BACKLOG = 10_000
"""How many rows of a trial are kept while its file cannot be written."""

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Begin:
    """An attempt of the trial has started.

    Attributes:
        config: Its hyperparameters.
        is_first: Whether whatever of this trial is on disk does not count.
        resumed_iteration: Rows after this training iteration are going to be reported again; -1 if nothing counts of what was told.
        resumed_step: The same in ``timesteps_total``, None where the trial does not count them.
        num_earlier: How many rows stay whatever their iteration, since the trial reported them before it went on from another one's
            checkpoint.
        at: Unix time.
    """

    config: Mapping[str, Any]
    is_first: bool
    resumed_iteration: int
    resumed_step: int | None
    num_earlier: int
    at: float


@final
class Row:
    """A result without its configuration, and the Unix time at which the driver heard of it.

    Attributes:
        result: The result, nested as reported.
        at: Unix time.
    """

    __slots__ = ("_flat", "at", "result")

    def __init__(self, result: Mapping[str, Any], at: float) -> None:
        # A copy, since other callbacks may still change the result.
        self.result = dict(result)
        self.result.pop(CONFIG, None)
        self.at = at
        self._flat: dict[str, Any] | None = None

    @property
    def flat(self) -> dict[str, Any]:
        """The result with nested keys joined to ``"a/b"``; made once, for all files that are written from it."""
        if self._flat is None:
            self._flat = flatten(self.result)
        return self._flat


@dataclass(frozen=True, slots=True)
class End:
    """The trial is over for good.

    Attributes:
        has_failed: Whether it ended in ERROR.
        at: Unix time.
    """

    has_failed: bool
    at: float


Entry = Begin | Row | End


@dataclass(slots=True)
class Segment:
    """What happened to a trial within one attempt, as far as one batch tells; written in one piece."""

    begin: Begin | None = None
    rows: list[Row] = field(default_factory=list)
    end: End | None = None


class TrialFile(Sink):
    """A log file of one trial.

    Args:
        directory: The trial's directory.
        owner: The logger, which hears of defects.

    Attributes:
        directory: The trial's directory.
        begun: The latest attempt, until its first row is written: only that supersedes what was reported before.
    """

    def __init__(self, directory: Path, owner: TrialFileLogger) -> None:
        self.directory = directory
        self.begun: Begin | None = None
        self._owner = owner
        self._backlog: list[Segment] = []

    def write(self, entries: list[Entry], pace: Pace[Any]) -> None:
        """Write the entries, segment by segment, and keep what a failure leaves over."""
        has_room = sum(len(segment.rows) for segment in self._backlog) < _MAX_BACKLOG
        for entry in entries:
            if has_room or not isinstance(entry, Row):
                self._sort_in(entry)
        if not has_room:
            _log.warning("%s misses results that could not be written; the journal holds all of them", self)
        while self._backlog:
            segment = self._backlog[0]
            self.begun = segment.begin or self.begun
            self.write_segment(segment, pace)
            if segment.rows:
                self.begun = None
            del self._backlog[0]

    def cut(self, segment: Segment) -> tuple[int, int] | None:
        """Return what the segment leaves of the rows that are there: so many first ones, and of the others those up to an iteration.

        None where it supersedes nothing. A trial that begins anew supersedes all of them at once, any other with its first row.
        """
        begin = self.begun
        if begin is None:
            return None
        if begin.is_first:
            return 0, -1
        return (begin.num_earlier, begin.resumed_iteration) if segment.rows or begin.resumed_iteration < 0 else None

    def fail(self, error: Exception) -> None:
        """Tell the logger, and forget what cannot be written."""
        self._backlog.clear()
        self._owner.fail(error)

    @abstractmethod
    def is_complete(self, trial: Trial) -> bool:
        """Return whether the file on disk holds the trial's results, as far as their number and the last of them tell.

        Raises:
            OSError: If it is there and cannot be read.
        """

    @abstractmethod
    def write_segment(self, segment: Segment, pace: Pace[Any]) -> None:
        """Write one segment, wholly or not at all; called again with it after an `OSError`."""

    def append(self, path: Path, data: bytes) -> None:
        """Append to one of the trial's files; see `append`."""
        append(path, data)
        self._owner.num_bytes += len(data)

    def replace(self, path: Path, data: bytes) -> None:
        """Give one of the trial's files new contents; see `replace_file`."""
        replace_file(path, data)
        self._owner.num_bytes += len(data)

    def _sort_in(self, entry: Entry) -> None:
        if not self._backlog or isinstance(entry, Begin):
            self._backlog.append(Segment())
        segment = self._backlog[-1]
        match entry:
            case Begin():
                segment.begin = entry
            case End():
                segment.end = entry
            case Row():
                segment.rows.append(entry)
            case _:
                assert_never(entry)


class TrialFileLogger(LoggerCallback):
    """A logger that keeps one file per trial and writes it in the background.

    Args:
        writer: Who writes, shared between loggers; None for a writer of its own.

    Attributes:
        writer: Who writes.
        num_bytes: Bytes written so far.
    """

    def __init__(self, writer: BatchWriter | None = None) -> None:
        self.writer = writer or BatchWriter()
        self.num_bytes = 0
        self._files: dict[Trial, TrialFile] = {}
        self._defect: Exception | None = None
        self._is_off = False

    @abstractmethod
    def open_file(self, directory: Path) -> TrialFile:
        """Return the log file of the trial with this directory, without touching the disk."""

    def fail(self, error: Exception) -> None:
        """Take note of a defect met in the background; the next hook raises it, so that this logger is switched off."""
        self._defect = self._defect or error

    def log_trial_start(self, trial: Trial) -> None:
        """Begin the trial's file, or cut back what is going to be reported again."""
        self._add(trial, _begin(trial))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Take the result; it is written soon."""
        self._add(trial, self._row(result))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Close the trial's file if the trial is over for good; an interrupted one may be continued later."""
        if trial.is_finished and trial.ending is not Ending.INTERRUPTED:
            self._add(trial, End(failed, time.time()))
        if trial.is_finished:
            self._files.pop(trial, None)

    def rewrite(self, trial: Trial, results: Iterable[Mapping[str, Any]]) -> None:
        """Write the trial's file anew, e.g. where a killed driver has left out its last results.

        Args:
            trial: The trial.
            results: All its results that count, oldest first.
        """
        for entry in self.story(trial, results):
            self._add(trial, entry)
        if trial.status is Status.TERMINATED and trial.ending is not Ending.INTERRUPTED:
            self._files.pop(trial, None)  # the others may go on, behind what is not written yet

    def is_complete(self, trial: Trial) -> bool:
        """Return whether the trial's file holds its results, as far as their number and the last of them tell."""
        try:
            return self._is_off or self.open_file(Path(trial.local_path)).is_complete(trial)
        except OSError:
            return False

    def audit(self, trials: Sequence[Trial], results_of: Callable[[str], Iterable[Mapping[str, Any]]]) -> None:
        """Have the files of trials that are over looked at in the background, and those written anew that lack something.

        Args:
            trials: Trials of which nothing is logged any more.
            results_of: Returns, for the id of one, all its results that count.
        """
        if trials and not self._is_off:
            self.writer.add(_Audit(self, trials, results_of), None)

    def mend(self, trial: Trial, results_of: Callable[[str], Iterable[Mapping[str, Any]]], pace: Pace[Any]) -> None:
        """Write the file of a trial anew, at once, if it lacks something.

        Raises:
            OSError: If it cannot be written; it is to be tried again.
        """
        file = self.open_file(Path(trial.local_path))
        if not file.is_complete(trial):
            file.write(list(self.story(trial, results_of(trial.trial_id))), pace)

    def story(self, trial: Trial, results: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
        """Yield all that its file is to tell of the trial.

        Args:
            trial: The trial.
            results: All its results that count, oldest first.
        """
        branches = deque(trial.grafts)
        yield replace(_begin(trial), is_first=True, config=branches[0].config if branches else trial.config)
        for number, result in enumerate(results):
            while branches and number == branches[0].num_rows:
                yield self._at_graft(trial, branches)
            yield Row(result, float(result.get(TIMESTAMP) or time.time()))
        while branches:
            yield self._at_graft(trial, branches)
        if trial.is_finished and trial.ending is not Ending.INTERRUPTED:
            yield End(trial.status is Status.ERROR, time.time())

    @staticmethod
    def _at_graft(trial: Trial, branches: deque[Graft]) -> Begin:
        """Return what happened at the first of the trial's branches that are left, and strike it off."""
        graft = branches.popleft()
        config = branches[0].config if branches else trial.config
        step = graft.checkpoint.counters.get(TIMESTEPS_TOTAL)
        return Begin(config, False, graft.checkpoint.iteration, step, graft.num_rows, time.time())

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Write everything that is still waiting."""
        self.writer.close()
        self._raise_defect()

    def _add(self, trial: Trial, entry: Entry) -> None:
        self._raise_defect()
        if self._is_off:
            return
        file = self._files.get(trial)
        if file is None:
            file = self._files[trial] = self.open_file(Path(trial.local_path))
        self.writer.add(file, entry)

    def _row(self, result: dict[str, Any]) -> Row:
        # Loggers that share a writer hear of a result one right after the other: the first makes the row for all of them.
        source, row = self.writer.latest
        if source is not result or not isinstance(row, Row):
            row = Row(result, time.time())
            self.writer.latest = (result, row)
        return row

    def _raise_defect(self) -> None:
        if self._defect is not None:
            raise self._defect


@final
class _Audit(Sink):
    """Looks at the files of trials that are over, and mends those that lack something, in one go with everything else that is written."""

    def __init__(self, logger: TrialFileLogger, trials: Sequence[Trial], results_of: Callable[[str], Iterable[Mapping[str, Any]]]) -> None:
        self._logger = logger
        self._waiting = deque(trials)
        self._results_of = results_of

    def __str__(self) -> str:
        return f"a log file of trial {self._waiting[0].trial_id}" if self._waiting else "log files"

    def write(self, entries: list[Any], pace: Pace[Any]) -> None:
        """Go on where a failure has ended it."""
        for trial in pace(list(self._waiting)):
            self._logger.mend(trial, self._results_of, pace)
            self._waiting.popleft()

    def fail(self, error: Exception) -> None:
        """Tell the logger."""
        self._waiting.clear()
        self._logger.fail(error)


def _begin(trial: Trial) -> Begin:
    own = next((kept for kept in reversed(trial.checkpoints) if kept.iteration == trial.resumed_iteration), None)
    origin = trial.graft.checkpoint if trial.graft else own
    resumed_step = origin.counters.get(TIMESTEPS_TOTAL) if origin else None
    num_earlier = trial.grafts[-1].num_rows if trial.grafts else 0
    resumed_iteration = trial.resumed_iteration
    if trial.attempt == trial.superseded_attempt + 1:  # the trial begins, or begins anew
        resumed_iteration = resumed_step = -1
    return Begin(trial.config, trial.attempt <= 1, resumed_iteration, resumed_step, num_earlier, time.time())


def append(path: Path, data: bytes) -> None:
    """Append to the file, making it and its directory if need be; after an `OSError` it is as long as before.

    A link in its place is not followed.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        make_folder(path.parent)
        descriptor = os.open(path, flags, FILE_MODE)
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    start = os.lseek(descriptor, 0, os.SEEK_END)
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.ftruncate(descriptor, start)
        raise


def replace_file(path: Path, data: bytes) -> None:
    """Give the file new contents at one stroke, making its directory if need be."""
    # Not synced to the disk: what is derived can be derived again.
    try:
        write_bytes(path, data, sync=False)
    except FileNotFoundError:
        make_folder(path.parent)
        write_bytes(path, data, sync=False)
