"""Base of the file loggers: one file per trial, truncated when a trial is retried."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from tuner.callbacks.callback import LoggerCallback
from tuner.callbacks.log_records import (
    Begin,
    End,
    Entry,
    Row,
    Segment,
    Validated,
    begin_of,
    is_over,
    segments_of,
    validated,
)
from tuner.core.result import TIMESTAMP
from tuner.core.trial import AppliedExploit, Status, TerminationReason, Trial
from tuner.core.worker_records import Failure
from tuner.storage.checkpoints import Checkpoint

from .append import append, replace_file
from .background_writer import BatchWriter, Pace, Sink

_MAX_BACKLOG = 10_000
"""How many rows of a trial are kept while its file cannot be written."""

_log = logging.getLogger("tuner")


class TrialFile(Sink):
    """A log file of one trial.

    Args:
        directory: The trial's directory.
        owner: The logger, which is notified of defects.

    Attributes:
        directory: The trial's directory.
        owner: The logger.
        is_new: Whether the trial begins with the segment that is being written, so that nothing of
            it can be on disk.
        num_rows: How many rows the file has; None until that has been found out.
    """

    def __init__(self, directory: str, owner: TrialFileLogger) -> None:
        self.directory = directory
        self.is_new = False
        self.num_rows: int | None = None
        self.owner = owner
        self._num_missing = 0
        """How many rows could not be written at all."""
        self._backlog: list[Entry] = []

    def write(self, entries: list[Entry], pace: Pace[Any]) -> None:
        """Write the entries, segment by segment, and keep what could not be written."""
        if self.owner.defect is None:  # otherwise it is about to be switched off
            self.write_all(
                segments_of(self._behind_backlog(entries) if self._backlog else entries),
                pace,
            )

    def write_all(self, segments: Sequence[Segment], pace: Pace[Any]) -> None:
        """Write the segments, and keep those that could not be written."""
        for number, segment in enumerate(segments):
            try:
                self.is_new = (
                    segment.begin is not None
                    and segment.begin.is_first
                    and self.owner.takes(self.directory)
                )
                self.write_segment(segment, pace)
            except BaseException:
                self._backlog = [entry for left in segments[number:] for entry in left.entries]
                raise
            if segment.rows:
                self.num_rows = (self.num_rows or 0) + len(segment.rows)
                self._num_missing = segment.rows[-1].number - self.num_rows
        self._backlog = []

    def _behind_backlog(self, entries: list[Entry]) -> list[Entry]:
        """Return the backlog and the new entries, without their results if the backlog is full."""
        if sum(isinstance(entry, Row) for entry in self._backlog) >= _MAX_BACKLOG:
            entries = [entry for entry in entries if not isinstance(entry, Row)]
            _log.warning(
                "%s misses results that could not be written; the journal holds all of them", self
            )
        return [*self._backlog, *entries]

    def num_to_keep(self, segment: Segment) -> int | None:
        """Return how many rows remain before those of a segment are added, None for all.

        A trial that begins anew supersedes all rows at once, any other only with its first row.
        """
        if self.is_new or (segment.begin and segment.begin.is_anew):
            self._num_missing = 0
            num_kept = 0
        elif segment.rows:
            num_kept = max(segment.rows[0].number - 1 - self._num_missing, 0)
        else:
            return None
        if self.is_new:
            self.num_rows = 0
        return None if num_kept == self.num_rows else num_kept

    def fail(self, error: Exception) -> None:
        """Notify the logger, and drop the backlog, which cannot be written."""
        self._backlog.clear()
        self.owner.fail(error)

    @abstractmethod
    def is_complete(self, trial: Trial) -> bool:
        """Return whether the file holds the trial's results, judged by their number and the last.

        Raises:
            OSError: If it exists and cannot be read.
        """

    @abstractmethod
    def write_segment(self, segment: Segment, pace: Pace[Any]) -> None:
        """Write one segment, all or nothing; called with it again after an `OSError`."""

    def path_of(self, name: str) -> str:
        """Return the path of one of the trial's files."""
        # A text: joining `Path` objects takes most of the time that a small file costs.
        return f"{self.directory}{os.sep}{name}"

    def append(self, path: str, data: bytes) -> None:
        """Append to one of the trial's files; see `append`."""
        # A file in the place of a new one was not written by this experiment.
        if self.is_new:
            self.replace(path, data)
            return
        append(path, data, self.owner.writer.disk)
        self.owner.num_bytes += len(data)

    def replace(self, path: str, data: bytes) -> None:
        """Replace one of the trial's files; see `replace_file`."""
        replace_file(path, data, self.owner.writer.disk)
        self.owner.num_bytes += len(data)


class TrialFileLogger(LoggerCallback):
    """A logger that keeps one file per trial and writes it in the background.

    Args:
        writer: The writer, which loggers may share; None for a new one.

    Attributes:
        writer: The writer.
        num_bytes: Bytes written so far.
        defect: An error in the background that a retry would not repair, None for none.
        is_on: Whether anything is written at all.
    """

    def __init__(self, writer: BatchWriter | None = None) -> None:
        self.writer = writer or BatchWriter()
        self.num_bytes = 0
        self._files: dict[Trial, TrialFile] = {}
        self.defect: Exception | None = None
        self.is_on = True
        self._taken: set[str] | None = None

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Find out which trials have a directory; those without one need no check for old files."""
        try:
            self._taken = set(os.listdir(info["experiment_path"]))  # noqa: PTH208  (names only)
        except (KeyError, OSError):
            self._taken = None

    @abstractmethod
    def open_file(self, directory: str) -> TrialFile:
        """Return the log file of the trial with this directory, without touching the disk."""

    def takes(self, directory: str) -> bool:
        """Return True once for a directory without files of this logger; never without `setup`."""
        if self._taken is None:
            return False
        name = os.path.basename(directory)  # noqa: PTH119  (see `TrialFile.path_of`)
        is_new = name not in self._taken
        self._taken.add(name)
        return is_new

    def fail(self, error: Exception) -> None:
        """Keep a background error; the next hook raises it, and the logger is switched off."""
        self.defect = self.defect or error
        self.writer.has_failed = True

    def log_trial_start(self, trial: Trial) -> None:
        """Begin the trial's file, or truncate what will be reported again."""
        self._add(trial, begin_of(trial))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Queue the result."""
        self._add(trial, Row(result, time.time(), trial.num_rows))

    def on_checkpoint_validated(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        *,
        checkpoint: Checkpoint,
        status: str,
        metrics: Mapping[str, Any],
        result: Mapping[str, Any],
        failure: Failure | None = None,
        **info: Any,
    ) -> None:
        """Queue the outcome of the validation."""
        error = str(failure or "")
        self._add(trial, validated(trial, checkpoint, status, metrics, result, error=error))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Close the trial's file, unless the trial was interrupted and may be continued later."""
        if is_over(trial):
            for entry in self.last_entries(trial, has_failed=failed):
                self._add(trial, entry)
        if trial.is_finished:
            self.forget(trial)

    def last_entries(self, trial: Trial, *, has_failed: bool) -> Sequence[Entry]:
        """Return the last log records of a trial that is over."""
        end = End(has_failed, time.time())
        if trial.attempt or self.takes(trial.local_path):
            return (end,)
        # It never started: a file of it is from a driver whose journal was lost in a power cut.
        return (
            begin_of(trial),
            end,
        )

    def catch_up_with_journal(
        self,
        experiment_path: Path,
        trials: Sequence[Trial],
        recent: Collection[str],
        results_of: Callable[[str], Iterable[Mapping[str, Any]]],
    ) -> None:
        """Rewrite files that lack rows, since the driver was killed or the disk was full.

        The files of trials that may go on are looked at now, before anything is added to them;
        those of all others in the background.
        """
        # What validations have added to a file is not compared. It is written in the background, up
        # to seconds after its record.
        doubtful = {trial for trial in trials if trial.validations and trial.trial_id in recent}
        unsettled = [trial for trial in trials if _may_go_on(trial) or trial in doubtful]
        settled = [trial for trial in trials if not (_may_go_on(trial) or trial in doubtful)]
        for trial in unsettled:
            if trial in doubtful or not self.is_complete(trial):
                self.rewrite(trial, results_of(trial.trial_id))
        self.audit(settled, results_of)

    def rewrite(self, trial: Trial, results: Iterable[Mapping[str, Any]]) -> None:
        """Rewrite the trial's file, e.g. where a killed driver has not written the last results.

        Args:
            trial: The trial.
            results: All its valid results, oldest first.
        """
        if self.takes(trial.local_path) and not trial.attempt:
            return  # it has never started, so it has no file
        for entry in self.story(trial, results):
            self._add(trial, entry)
        if trial.status is Status.TERMINATED and trial.ending is not TerminationReason.INTERRUPTED:
            self.forget(trial)  # other trials may go on, after what is not written yet

    def is_complete(self, trial: Trial) -> bool:
        """Return whether the trial's file is readable and holds its results, see `TrialFile`."""
        try:
            return not self.is_on or self.open_file(trial.local_path).is_complete(trial)
        except OSError:
            return False

    def audit(
        self, trials: Sequence[Trial], results_of: Callable[[str], Iterable[Mapping[str, Any]]]
    ) -> None:
        """Check the files of finished trials in the background, and rewrite incomplete ones.

        Args:
            trials: Trials that log nothing any more.
            results_of: Returns all valid results of the trial with an id.
        """
        if trials and self.is_on:
            self.writer.add(_Audit(self, trials, results_of), None)

    def mend(
        self,
        trial: Trial,
        results_of: Callable[[str], Iterable[Mapping[str, Any]]],
        pace: Pace[Any],
    ) -> None:
        """Rewrite the file of a trial now, if it is incomplete.

        Raises:
            OSError: If it cannot be written; call again later.
        """
        if not self.is_complete(trial):
            file = self.open_file(trial.local_path)
            file.write_all(segments_of(self.story(trial, results_of(trial.trial_id))), pace)

    def story(self, trial: Trial, results: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
        """Yield all entries of the trial's file.

        Args:
            trial: The trial.
            results: All its valid results, oldest first.
        """
        branches = deque(trial.grafts)
        config = branches[0].config if branches else trial.config
        yield Begin(config, is_first=True, is_anew=True, at=time.time())
        for number, result in enumerate(results, start=1):
            while branches and number > branches[0].num_rows:
                yield self._at_graft(trial, branches)
            yield Row(result, float(result.get(TIMESTAMP) or time.time()), number)
        while branches:
            yield self._at_graft(trial, branches)
        yield from self.validations_of(trial)
        if is_over(trial):
            yield End(trial.status is Status.ERROR, time.time())

    def validations_of(self, trial: Trial) -> Sequence[Validated]:
        """Return the validations for which the trial's file has entries beside those of results."""
        return ()

    @staticmethod
    def _at_graft(trial: Trial, branches: deque[AppliedExploit]) -> Begin:
        """Remove the first of the remaining branches, and return its entry."""
        branches.popleft()
        config = branches[0].config if branches else trial.config
        return Begin(config, is_first=False, is_anew=False, at=time.time())

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Write everything that is queued."""
        self.writer.close()
        self._raise_defect()

    def file_of(self, trial: Trial) -> TrialFile:
        """Return the trial's file, the same object until `forget`."""
        file = self._files.get(trial)
        if file is None:
            file = self._files[trial] = self.open_file(trial.local_path)
        return file

    def known_file(self, trial: Trial) -> TrialFile | None:
        """Return the trial's file if it is open."""
        return self._files.get(trial)

    def forget(self, trial: Trial) -> None:
        """Release the file of a finished trial; what is queued is still written."""
        self._files.pop(trial, None)

    def _add(self, trial: Trial, entry: Entry) -> None:
        self._raise_defect()
        if self.is_on:
            self.writer.add(self.file_of(trial), entry)

    def _raise_defect(self) -> None:
        if self.defect is not None:
            raise self.defect


@final
class _Audit(Sink):
    """Checks the files of finished trials and rewrites incomplete ones, in the writer's thread."""

    def __init__(
        self,
        logger: TrialFileLogger,
        trials: Sequence[Trial],
        results_of: Callable[[str], Iterable[Mapping[str, Any]]],
    ) -> None:
        self._logger = logger
        self._waiting = deque(trials)
        self._results_of = results_of

    def __str__(self) -> str:
        return f"a log file of trial {self._waiting[0].trial_id}" if self._waiting else "log files"

    def write(self, entries: list[Any], pace: Pace[Any]) -> None:
        """Check the trials that are left, after a failure from where it ended."""
        for trial in pace(list(self._waiting)):
            self._logger.mend(trial, self._results_of, pace)
            self._waiting.popleft()

    def fail(self, error: Exception) -> None:
        """Notify the logger."""
        self._waiting.clear()
        self._logger.fail(error)


def _may_go_on(trial: Trial) -> bool:
    return (
        not trial.is_finished
        or trial.has_open_validation
        or trial.status is Status.ERROR
        or trial.ending is TerminationReason.INTERRUPTED
    )
