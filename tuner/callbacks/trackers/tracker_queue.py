"""Queue and thread that deliver records to a tracker, such as MLflow or Weights & Biases.

The driver's hooks only append to a queue. One thread takes the queue every second, groups it by
trial and passes each group to the tracker's client, which no other thread uses. A tracker that
cannot be reached is retried with growing pauses for as long as the experiment runs; meanwhile the
queue holds a limited number of results and drops further ones. At the end the thread gets some time
to deliver the rest. Nothing of this can delay or end the trials, and the experiment's own files
hold all results: what is lacking is delivered by a restore, or by ``tuner export``.

The clients' own queues do not make this one superfluous. Those of W&B and Comet take results only
for a run that they have begun, for which the caller waits, and that of MLflow drops what a server
has refused.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar, assert_never, final

from tuner.background import BackgroundJobs
from tuner.callbacks.log_records import Row, Validated
from tuner.core.trial import Trial

_PERIOD_S: Final = 1.0
_CAPACITY: Final = 20_000
_BATCH: Final = 2_000
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_LAST_PAUSE_S: Final = 0.5
_UNREACHABLE_PATIENCE_S: Final = 15.0
"""How long the end waits for a tracker whose latest answer was an error."""
_JOIN_S: Final = 0.5
_FIRST_LINE_S: Final = 2.0
_NEXT_LINE_S: Final = 30.0
_PASSWORD: Final = re.compile(r"//[^/@\s]+@")

_log = logging.getLogger("tuner")

T = TypeVar("T")


class Outcome(StrEnum):
    """How a trial ended, in the terms of trackers."""

    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt of the trial has started.

    Attributes:
        config: Its hyperparameters, flattened.
        at: Unix time.
    """

    config: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True)
class Saved:
    """The trial has committed a checkpoint.

    Attributes:
        path: The checkpoint's directory, which may be gone by now.
    """

    path: Path


@dataclass(frozen=True, slots=True)
class Ended:
    """The trial is over.

    Attributes:
        outcome: How it ended.
        at: Unix time.
    """

    outcome: Outcome
    at: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """A trial as recorded in the journal of an earlier driver.

    Attributes:
        begun: Its hyperparameters.
        rows: All its valid results that it does not report again, oldest first.
        ended: How it ended, None where it continues.
        validations: The validations of checkpoints of these results that have ended; the results
            have their metrics, too.
    """

    begun: Begun
    rows: Sequence[Row]
    ended: Ended | None
    validations: Sequence[Validated] = ()


Entry = Begun | Row | Saved | Validated | Ended | Recalled

_Part = list[Row] | Begun | Saved | Validated | Ended | Recalled
"""What a tracker gets at once: an entry, or results in a row."""


class Tracker(ABC):
    """A tracker's client.

    One thread calls it, one call at a time; a call is repeated after a transient error.
    """

    @abstractmethod
    def connect(self) -> None:
        """Import the client's library and prepare; called once before everything else."""

    @abstractmethod
    def begin(self, trial: Trial, begun: Begun) -> None:
        """Begin or continue the trial's run."""

    @abstractmethod
    def log(self, trial: Trial, rows: Sequence[Row]) -> None:
        """Log results of a trial that has begun, oldest first."""

    @abstractmethod
    def end(self, trial: Trial, ended: Ended) -> None:
        """End the trial's run; does nothing for one that has never begun."""

    @abstractmethod
    def recall(self, trial: Trial, recalled: Recalled) -> None:
        """Add to the trial's run what an earlier driver could not deliver before it died."""

    def complete(self, trial: Trial, recalled: Recalled) -> None:
        """Add to the trial's run all that the tracker lacks, long after it was recorded."""
        self.recall(trial, recalled)

    def save(self, trial: Trial, saved: Saved) -> None:  # noqa: B027  (optional)
        """Log a checkpoint."""

    def log_validation(self, trial: Trial, validated: Validated) -> None:  # noqa: B027  (optional)
        """Log the metrics of a checkpoint's validation, at the step of its result."""

    def idle(self) -> None:  # noqa: B027  (optional)
        """Do what can wait; called when everything in the queue has been delivered."""

    @abstractmethod
    def close(self) -> None:
        """Deliver everything and end all open runs: the experiment is over."""

    @abstractmethod
    def is_transient(self, error: Exception) -> bool:
        """Return whether a retry may succeed after this error."""


class _GivenUp(Exception):
    """The queue has been closed, and its time is up."""


@final
class TrackerQueue:
    """Passes entries to a tracker in a background thread, which starts with the first entry.

    Args:
        tracker: The tracker's client.
        name: Name of the tracker in warnings.
        capacity: How many results may be queued; further ones are dropped.

    Attributes:
        defect: An error of the client that is not transient; nothing is delivered after it.
    """

    def __init__(self, tracker: Tracker, name: str, *, capacity: int = _CAPACITY) -> None:
        self.defect: Exception | None = None
        self._tracker = tracker
        self._name = name
        self._capacity = capacity
        self._waiting: deque[tuple[Trial, Entry]] = deque()
        # No lock: each count is changed by one thread only, `_num_delivered` and `_delivered` by
        # this queue's, the others by the driver's.
        self._num_taken = self._num_dropped = self._num_delivered = 0
        self._added: Counter[str] = Counter()
        self._delivered: Counter[str] = Counter()
        self._jobs: BackgroundJobs | None = None
        self._has_given_up = False
        self._is_failing = False
        self._is_waited_for = True

    @property
    def lacking(self) -> str:
        """What the tracker lacks, e.g. ``"6 results"``."""
        num_rows = self._num_taken - self._num_delivered + self._num_dropped
        if num_rows:
            return f"{num_rows} result{'s' if num_rows > 1 else ''}"
        return f"something of {len(self.behind)} trials" if self.behind else "the end of its runs"

    @property
    def behind(self) -> list[str]:
        """Ids of trials of which the tracker lacks something."""
        return [
            trial_id for trial_id, num in self._added.items() if num > self._delivered[trial_id]
        ]

    def add(self, trial: Trial, entry: Entry) -> None:
        """Queue an entry; those of one trial are delivered in order.

        Raises:
            Exception: The tracker's defect, if it has one.
        """
        if self.defect:
            raise self.defect
        self._added[trial.trial_id] += 1
        if isinstance(entry, Row):
            if self._num_taken - self._num_delivered >= self._capacity:
                self._drop()
                return
            self._num_taken += 1
        self._waiting.append((trial, entry))
        if self._jobs is None or self._jobs.is_closed:
            self._start()

    def close(self, patience_s: float) -> bool:
        """Deliver what is queued and end the thread; return whether the tracker has everything.

        A line on the logger tells that this takes long. `stop_waiting` ends it.

        Args:
            patience_s: How many seconds to wait at most.

        Raises:
            Exception: The tracker's defect, if it has one.
        """
        if self._jobs is None or self._jobs.is_closed:
            return True
        self._jobs.submit(self._finish)
        self._is_waited_for = True
        with contextlib.suppress(KeyboardInterrupt):
            self._wait_for(self._jobs, patience_s)
        self._has_given_up = True
        if self.defect:
            raise self.defect
        return self._jobs.close(0.0) and not self.behind

    def stop_waiting(self) -> None:
        """Let `close` return soon; may be called from a signal handler."""
        self._is_waited_for = False

    def _wait_for(self, jobs: BackgroundJobs, patience_s: float) -> None:
        """Wait until everything is delivered, but not long for a tracker that cannot be reached."""
        began_s = time.monotonic()
        line_after_s = _FIRST_LINE_S
        while not jobs.close(0.0) and self._is_waited_for:
            waited_s = time.monotonic() - began_s
            if waited_s >= patience_s or (self._is_failing and waited_s >= _UNREACHABLE_PATIENCE_S):
                return
            if waited_s >= line_after_s:
                line_after_s = waited_s + _NEXT_LINE_S
                _log.warning(
                    "waiting for %s, which lacks %s, for %.0f s more at most; Ctrl-C ends the wait",
                    self._name,
                    self.lacking,
                    patience_s - waited_s,
                )
            jobs.close(min(_JOIN_S, patience_s - waited_s))

    def _start(self) -> None:
        self._has_given_up = False
        self._jobs = BackgroundJobs(
            f"tuner-{self._name}", self._deliver_due, _PERIOD_S, on_error=self._give_up
        )
        self._jobs.submit(partial(self._retry, self._tracker.connect))
        self._jobs.wake(_PERIOD_S)

    def _drop(self) -> None:
        self._num_dropped += 1
        if self._num_dropped == 1:
            _log.warning(
                "%s does not keep up: %d results are queued, further ones are dropped until it "
                "does; the experiment's own files hold all of them",
                self._name,
                self._capacity,
            )

    def _deliver_due(self) -> None:
        self._deliver_all()
        self._retry(self._tracker.idle)

    def _finish(self) -> None:
        self._deliver_all()
        self._retry(self._tracker.close)

    def _give_up(self, error: BaseException) -> None:
        self._has_given_up = True
        if isinstance(error, Exception) and not isinstance(error, _GivenUp):
            self.defect = error  # raised by the next hook, in the driver

    def _deliver_all(self) -> None:
        while self._waiting:
            entries = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
            by_trial: dict[Trial, list[Entry]] = {}
            for trial, entry in entries:
                by_trial.setdefault(trial, []).append(entry)
            for trial, story in by_trial.items():
                for part in _parts(story):
                    self._retry(partial(self._deliver, trial, part))
                    num_rows = len(part) if isinstance(part, list) else 0
                    self._num_delivered += num_rows
                    self._delivered[trial.trial_id] += num_rows or 1

    def _deliver(self, trial: Trial, part: _Part) -> None:
        match part:
            case list():
                self._tracker.log(trial, part)
            case Begun():
                self._tracker.begin(trial, part)
            case Saved():
                self._tracker.save(trial, part)
            case Validated():
                self._tracker.log_validation(trial, part)
            case Ended():
                self._tracker.end(trial, part)
            case Recalled():
                self._tracker.recall(trial, part)
            case _:
                assert_never(part)

    def _retry(self, action: Callable[[], T]) -> T:
        """Call `action` until it succeeds, or the queue is closed and its time is up."""
        pause_s = _FIRST_PAUSE_S
        while not self._has_given_up:
            try:
                done = action()
            except Exception as error:
                if not self._tracker.is_transient(error):
                    raise
                self._warn_unreachable(without_password(f"{type(error).__name__}: {error}"))
            else:
                self._is_failing = False
                return done
            # `close` ends the pause, and from then on pauses are short.
            if self._jobs and not self._jobs.pause(pause_s):
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                time.sleep(_LAST_PAUSE_S)
        raise _GivenUp

    def _warn_unreachable(self, why: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.warning(
                "%s cannot be reached (%s); retrying, the experiment continues",
                self._name,
                why,
            )


def without_password(text: str) -> str:
    """Return a text without the user and the password of URLs in it."""
    return _PASSWORD.sub("//", text)


def _parts(story: Sequence[Entry]) -> Iterator[_Part]:
    """Yield the entries of one trial, consecutive results as one part."""
    for are_rows, group in groupby(story, lambda entry: isinstance(entry, Row)):
        if are_rows:
            yield [entry for entry in group if isinstance(entry, Row)]
        else:
            yield from (entry for entry in group if not isinstance(entry, Row))


def rows_without(rows: Sequence[Row], known: Counter[tuple[int, int]]) -> list[Row]:
    """Return the results that a tracker lacks.

    Args:
        rows: The valid results of a trial, oldest first.
        known: `key_of` each result that the tracker has, and how many of them there are.
    """
    return without(rows, known, key_of)


def without(items: Iterable[T], known: Counter[Any], key: Callable[[T], Any]) -> list[T]:
    """Return the items that are not known yet, each of several equal ones counted for itself.

    Args:
        items: The items.
        known: The keys of those that are known, and how many of each there are.
        key: Returns the key of an item.
    """
    left, missing = known.copy(), []
    for item in items:
        found = key(item)
        if left[found]:
            left[found] -= 1
        else:
            missing.append(item)
    return missing


def validations_without(rows: Sequence[Row], validations: Sequence[Validated]) -> list[Validated]:
    """Return the validations whose metrics are not in these results."""
    iterations = {row.result.get("training_iteration") for row in rows}
    return [one for one in validations if one.iteration not in iterations]


def key_of(row: Row) -> tuple[int, int]:
    """Return the key of a result: its time, in whole seconds, and its training iteration."""
    return int(row.at), int(row.result.get("training_iteration", 0))
