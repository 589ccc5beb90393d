"""Base of the file loggers: one file per trial, cut back when a trial is tried again."""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from tuner.callbacks.callback import LoggerCallback
from tuner.callbacks.log_records import (
    Begin,
    End,
    Entry,
    Fingerprint,
    Row,
    Segment,
    begin_of,
    fingerprint_of,
    is_over,
    segments_of,
)
from tuner.core.result import TIMESTAMP, TIMESTEPS_TOTAL
from tuner.core.trial import AppliedExploit, Status, TerminationReason, Trial
from tuner.storage.layout import LOGGED
from tuner.storage.lock import boot_id

from .append import append, replace_file
from .background_writer import BatchWriter, Pace, Sink
from .verified_sizes import VerifiedSizes, size_of

_MAX_BACKLOG = 10_000
"""How many rows of a trial are kept while its file cannot be written."""

_log = logging.getLogger("tuner")


class TrialFile(Sink):
    """A log file of one trial.

    Args:
        directory: The trial's directory.
        owner: The logger, which hears of defects.

    Attributes:
        directory: The trial's directory.
        owner: The logger.
        begun: The latest attempt, until its first row is written: only that supersedes what was
            reported before.
        is_new: Whether the trial begins with the segment that is being written, and nothing of it
            can be on disk.
    """

    def __init__(self, directory: str, owner: TrialFileLogger) -> None:
        self.directory = directory
        self.begun: Begin | None = None
        self.is_new = False
        self.owner = owner
        self._backlog: list[Entry] = []
        self._misses_some = False
        self._sizes: dict[str, int] = {}

    def write(self, entries: list[Entry], pace: Pace[Any]) -> None:
        """Write the entries, segment by segment, and keep what a failure leaves over."""
        if self.owner.defect is None:  # else it is being switched off
            self.write_all(
                segments_of(self._behind_backlog(entries) if self._backlog else entries),
                pace,
            )

    def write_all(self, segments: Sequence[Segment], pace: Pace[Any]) -> None:
        """Write the segments, and keep what a failure leaves over."""
        for number, segment in enumerate(segments):
            self.begun = segment.begin or self.begun
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
                self.begun = None
            if segment.end and segment.end.fingerprint and not self._misses_some:
                self.owner.note_verified(self, segment.end.fingerprint)
        self._backlog = []

    def _behind_backlog(self, entries: list[Entry]) -> list[Entry]:
        """Return what is left over and, behind it, what is new, as far as there is room."""
        if sum(isinstance(entry, Row) for entry in self._backlog) >= _MAX_BACKLOG:
            entries = [entry for entry in entries if not isinstance(entry, Row)]
            self._misses_some = True
            _log.warning(
                "%s misses results that could not be written; the journal holds all of them", self
            )
        return [*self._backlog, *entries]

    def cut(self, segment: Segment) -> tuple[int, int] | None:
        """Return what the segment leaves of the rows that are there: so many first ones, and of the others those up to an iteration.

        None where it supersedes nothing. A trial that begins anew supersedes all of them at once,
        any other with its first row.
        """
        begin = self.begun
        if begin is None or self.is_new:
            return None
        if begin.is_first:
            return 0, -1
        return (
            (begin.num_earlier, begin.resumed_iteration)
            if segment.rows or begin.resumed_iteration < 0
            else None
        )

    def fail(self, error: Exception) -> None:
        """Tell the logger, and forget what cannot be written."""
        self._backlog.clear()
        self.owner.fail(error)

    @abstractmethod
    def is_complete(self, trial: Trial) -> bool:
        """Return whether the file on disk holds the trial's results, as far as their number and the last of them tell.

        Raises:
            OSError: If it is there and cannot be read.
        """

    def paths(self) -> Sequence[str]:
        """Return the paths of what is complete as soon as the trial is over; none where that is not to be relied upon."""
        return ()

    def sizes(self) -> list[tuple[str, int]]:
        """Return these paths with the sizes that the files have, as far as this object has written them, without asking the system."""
        known = self._sizes
        return [(path, known[path] if path in known else size_of(path)) for path in self.paths()]

    @abstractmethod
    def write_segment(self, segment: Segment, pace: Pace[Any]) -> None:
        """Write one segment, wholly or not at all; called again with it after an `OSError`."""

    def path_of(self, name: str) -> str:
        """Return the path of one of the trial's files; a text, since joining `Path` objects is most of what a small file costs."""
        return f"{self.directory}{os.sep}{name}"

    def append(self, path: str, data: bytes) -> None:
        """Append to one of the trial's files; see `append`. What stands in the place of a new one is none of ours, and replaced."""
        if self.is_new:
            self.replace(path, data)
            return
        self._sizes[path] = append(path, data)
        self.owner.num_bytes += len(data)

    def replace(self, path: str, data: bytes) -> None:
        """Give one of the trial's files new contents; see `replace_file`."""
        replace_file(path, data)
        self._sizes[path] = len(data)
        self.owner.num_bytes += len(data)


class TrialFileLogger(LoggerCallback):
    """A logger that keeps one file per trial and writes it in the background.

    Args:
        writer: Who writes, shared between loggers; None for a writer of its own.

    Attributes:
        writer: Who writes.
        num_bytes: Bytes written so far.
        defect: What was met in the background that another try would not mend, None for nothing.
        is_on: Whether there is anything to be written at all.
        min_verified_results: Trials with fewer results are read again, see `VerifiedSizes`.
    """

    min_verified_results = 25

    def __init__(self, writer: BatchWriter | None = None) -> None:
        self.writer = writer or BatchWriter()
        self.num_bytes = 0
        self._files: dict[Trial, TrialFile] = {}
        self.defect: Exception | None = None
        self.is_on = True
        self._taken: set[str] | None = None
        self._verified_sizes: VerifiedSizes | None = None

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Look which trials have a directory already; nothing need be looked for in those of all others."""
        if path := info.get("experiment_path"):
            sizes_path = Path(path) / LOGGED / type(self).__name__
            self._verified_sizes = VerifiedSizes(str(sizes_path), boot_id())
        try:
            self._taken = set(os.listdir(info["experiment_path"]))  # noqa: PTH208  (names are enough)
        except (KeyError, OSError):
            self._taken = None

    @abstractmethod
    def open_file(self, directory: str) -> TrialFile:
        """Return the log file of the trial with this directory, without touching the disk."""

    def takes(self, directory: str) -> bool:
        """Return whether nothing of this logger's can be in a trial's directory, which is so once at most; never without `setup`."""
        if self._taken is None:
            return False
        name = os.path.basename(directory)  # noqa: PTH119  (see `TrialFile.path_of`)
        is_new = name not in self._taken
        self._taken.add(name)
        return is_new

    def fail(self, error: Exception) -> None:
        """Take note of a defect met in the background; the next hook raises it, so that this logger is switched off."""
        self.defect = self.defect or error
        self.writer.has_failed = True

    def log_trial_start(self, trial: Trial) -> None:
        """Begin the trial's file, or cut back what is going to be reported again."""
        self._add(trial, begin_of(trial))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Take the result; it is written soon."""
        self._add(trial, Row(result, time.time()))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Close the trial's file if the trial is over for good; an interrupted one may be continued later."""
        if is_over(trial):
            for entry in self.last_entries(trial, has_failed=failed):
                self._add(trial, entry)
        if trial.is_finished:
            self.forget(trial)

    def last_entries(self, trial: Trial, *, has_failed: bool) -> Sequence[Entry]:
        """Return the last log records of a trial that is over."""
        end = End(has_failed, time.time(), self._fingerprint_of(trial))
        if trial.attempt or self.takes(trial.local_path):
            return (end,)
        # It never started, so what is there is of a driver whose journal a power cut has taken.
        return (
            begin_of(trial),
            end,
        )

    def rewrite(self, trial: Trial, results: Iterable[Mapping[str, Any]]) -> None:
        """Write the trial's file anew, e.g. where a killed driver has left out its last results.

        Args:
            trial: The trial.
            results: All its results that count, oldest first.
        """
        if self.takes(trial.local_path) and not trial.attempt:
            return  # it has never started, and there is no file of it
        for entry in self.story(trial, results):
            self._add(trial, entry)
        if trial.status is Status.TERMINATED and trial.ending is not TerminationReason.INTERRUPTED:
            self.forget(trial)  # the others may go on, behind what is not written yet

    def has_verified_size(self, trial: Trial) -> bool:
        """Return whether the file's size proves that it holds the trial's results, see `VerifiedSizes`."""
        if not self.is_on:
            return True
        fingerprint = self._fingerprint_of(trial)
        if fingerprint is None or self._verified_sizes is None:
            return False
        try:
            return self._verified_sizes.holds(fingerprint, self.open_file(trial.local_path).sizes())
        except OSError:
            return False

    def is_complete(self, trial: Trial) -> bool:
        """Return whether the trial's file can be read and holds its results, as far as their number and the last of them tell."""
        try:
            return not self.is_on or self.open_file(trial.local_path).is_complete(trial)
        except OSError:
            return False

    def audit(
        self, trials: Sequence[Trial], results_of: Callable[[str], Iterable[Mapping[str, Any]]]
    ) -> None:
        """Have the files of trials that are over looked at in the background, and those written anew that lack something.

        Args:
            trials: Trials of which nothing is logged any more.
            results_of: Returns, for the id of one, all its results that count.
        """
        if trials and self.is_on:
            self.writer.add(_Audit(self, trials, results_of), None)

    def mend(
        self,
        trial: Trial,
        results_of: Callable[[str], Iterable[Mapping[str, Any]]],
        pace: Pace[Any],
    ) -> None:
        """Write the file of a trial anew, at once, if it lacks something.

        Raises:
            OSError: If it cannot be written; it is to be tried again.
        """
        if self.has_verified_size(trial):
            return
        file = self.open_file(trial.local_path)
        if self.is_complete(trial):
            if fingerprint := self._fingerprint_of(trial):
                self.note_verified(file, fingerprint)
        else:
            file.write_all(segments_of(self.story(trial, results_of(trial.trial_id))), pace)

    def note_verified(self, file: TrialFile, fingerprint: Fingerprint) -> None:
        """Take note that a file is complete, so that it need not be read when the experiment is taken up again.

        Args:
            file: The file, of a trial that is over.
            fingerprint: Of its results.
        """
        if self._verified_sizes:
            with suppress(OSError):
                self.num_bytes += self._verified_sizes.add(fingerprint, file.sizes())

    def _fingerprint_of(self, trial: Trial) -> Fingerprint | None:
        """Return what a trial's file tells, None where it is read faster than that is worth noting."""
        return fingerprint_of(trial) if trial.num_rows >= self.min_verified_results else None

    def forget_verified_sizes(self) -> None:
        """Let go of what earlier drivers have noted, when nobody asks for it any more."""
        if self._verified_sizes:
            self._verified_sizes.forget()

    def story(self, trial: Trial, results: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
        """Yield all that its file is to tell of the trial.

        Args:
            trial: The trial.
            results: All its results that count, oldest first.
        """
        branches = deque(trial.grafts)
        yield begin_of(trial)._replace(
            is_first=True, config=branches[0].config if branches else trial.config
        )
        for number, result in enumerate(results):
            while branches and number == branches[0].num_rows:
                yield self._at_graft(trial, branches)
            yield Row(result, float(result.get(TIMESTAMP) or time.time()))
        while branches:
            yield self._at_graft(trial, branches)
        if is_over(trial):
            yield End(trial.status is Status.ERROR, time.time(), self._fingerprint_of(trial))

    @staticmethod
    def _at_graft(trial: Trial, branches: deque[AppliedExploit]) -> Begin:
        """Return what happened at the first of the trial's branches that are left, and strike it off."""
        graft = branches.popleft()
        config = branches[0].config if branches else trial.config
        step = graft.checkpoint.counters.get(TIMESTEPS_TOTAL)
        return Begin(config, False, graft.checkpoint.iteration, step, graft.num_rows, time.time())

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Write everything that is still waiting."""
        self.writer.close()
        self._raise_defect()

    def file_of(self, trial: Trial) -> TrialFile:
        """Return the trial's file, the same one until it is forgotten."""
        file = self._files.get(trial)
        if file is None:
            file = self._files[trial] = self.open_file(trial.local_path)
        return file

    def known_file(self, trial: Trial) -> TrialFile | None:
        """Return the trial's file if it was asked for before."""
        return self._files.get(trial)

    def forget(self, trial: Trial) -> None:
        """Let go of the file of a trial that is over; what waits is still written."""
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
    """Looks at the files of trials that are over, and mends those that lack something, in one go with everything else that is written."""

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
        """Go on where a failure has ended it."""
        for trial in pace(list(self._waiting)):
            self._logger.mend(trial, self._results_of, pace)
            self._waiting.popleft()
        self._logger.forget_verified_sizes()

    def fail(self, error: Exception) -> None:
        """Tell the logger."""
        self._waiting.clear()
        self._logger.fail(error)
