"""Queue and thread that deliver records to a tracker, such as MLflow or Weights & Biases.

The driver's hooks only append to a queue. One thread takes the queue every second, sorts it by
trial and hands each part to the tracker's client, which no other thread ever touches. A tracker
that cannot be reached is tried again, ever more slowly, for as long as the experiment runs;
meanwhile the queue holds a limited number of results and leaves out what goes beyond it. At the
end, and at an interrupt, the thread gets some time to deliver the rest. Nothing of this can hold up
or end the experiment, whose own files have it all.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar, assert_never, final

from tuner.callbacks.log_records import Row
from tuner.core.trial import Trial

_PERIOD_S: Final = 1.0
_CAPACITY: Final = 20_000
_BATCH: Final = 2_000
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_LAST_PAUSE_S: Final = 0.5
_PATIENCE_WITH_THE_ABSENT_S: Final = 15.0
_GLANCE_S: Final = 0.5
_LONG_S: Final = 30.0
"""A client that needs longer for one thing is trying to reach a tracker that does not answer;
making a store takes a busy machine long."""
_PASSWORD: Final = re.compile(r"//[^/@\s]+@")

_log = logging.getLogger("tuner")

T = TypeVar("T")


class Outcome(StrEnum):
    """How a trial ended, in the words that trackers use."""

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
    """What the journal of an earlier driver tells about the trial.

    Attributes:
        begun: Its hyperparameters.
        rows: All its results that count and that it does not report again, oldest first.
        ended: How it ended, None where it goes on.
    """

    begun: Begun
    rows: Sequence[Row]
    ended: Ended | None


Entry = Begun | Row | Saved | Ended | Recalled


class Tracker(ABC):
    """A tracker's client. One thread calls it, one call at a time; each call may be repeated after an error that passes."""

    @abstractmethod
    def connect(self) -> None:
        """Import the client's library and get ready; called once before everything else."""

    @abstractmethod
    def begin(self, trial: Trial, begun: Begun) -> None:
        """Begin the trial's run, or go on with the one it has."""

    @abstractmethod
    def log(self, trial: Trial, rows: Sequence[Row]) -> None:
        """Write down results of a trial that has begun, oldest first."""

    @abstractmethod
    def end(self, trial: Trial, ended: Ended) -> None:
        """End the trial's run; does nothing for one that has never begun."""

    @abstractmethod
    def recall(self, trial: Trial, recalled: Recalled) -> None:
        """Add to the trial's run what an earlier driver could not deliver before it died."""

    def save(self, trial: Trial, saved: Saved) -> None:  # noqa: B027  (few trackers keep checkpoints)
        """Take note of a checkpoint."""

    def rest(self) -> None:  # noqa: B027  (few have anything that can wait)
        """Everything that was waiting has been delivered; the time for what can wait."""

    @abstractmethod
    def leave(self) -> None:
        """Deliver everything and end all runs that are still open: the experiment is over."""

    @abstractmethod
    def is_passing(self, error: Exception) -> bool:
        """Return whether another try may succeed where one raised this error."""


class _GivenUp(Exception):
    """Nobody waits for the delivery any more."""


@final
class TrackerQueue:
    """Hands entries to a tracker, from a thread of its own that starts with the first entry.

    Args:
        tracker: Where to.
        name: What the tracker is called in notices.
        patience_s: How many seconds `close` waits for what is still to be delivered.
        capacity: How many results may wait; those beyond are left out.

    Attributes:
        defect: What a client raised that no further try would mend; nothing is delivered after it.
    """

    def __init__(
        self, tracker: Tracker, name: str, *, patience_s: float, capacity: int = _CAPACITY
    ) -> None:
        self.defect: Exception | None = None
        self._tracker = tracker
        self._name = name
        self._patience_s = patience_s
        self._capacity = capacity
        self._waiting: deque[tuple[Trial, Entry]] = deque()
        # Each of the three is changed by one thread only: the first two by the driver's, the third
        # by ours.
        self._num_taken = self._num_left_out = self._num_delivered = 0
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._leave = threading.Event()
        self._has_given_up = False
        self._is_failing = False
        self._busy_since_s = math.inf

    def add(self, trial: Trial, entry: Entry) -> None:
        """Take an entry; those of one trial are delivered in the order in which they came.

        Raises:
            Exception: The tracker's defect, where it has one.
        """
        if self.defect:
            raise self.defect
        if isinstance(entry, Row):
            if self._num_taken - self._num_delivered >= self._capacity:
                self._leave_out()
                return
            self._num_taken += 1
            self._look_at_the_clock()
        self._waiting.append((trial, entry))
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Deliver what waits and end the thread, within the time that there is for it.

        Raises:
            Exception: The tracker's defect, where it has one.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._leave.set()
        self._wake.set()
        self._wait_for(thread)
        self._has_given_up = True
        lacking = self._num_taken - self._num_delivered + self._num_left_out
        if self.defect:
            raise self.defect
        if lacking or thread.is_alive():
            _log.warning(
                "%s has not received %d results; the experiment's own files hold all of them, "
                "and a restore delivers the last ones again",
                self._name,
                lacking,
            )

    def _wait_for(self, thread: threading.Thread) -> None:
        """Wait until everything is delivered, but not for long where nobody is there to receive it."""
        ends_s = time.monotonic() + self._patience_s
        leaves_s = time.monotonic() + _PATIENCE_WITH_THE_ABSENT_S
        while thread.is_alive() and (now_s := time.monotonic()) < ends_s:
            has_never_answered = not self._num_delivered and now_s - self._busy_since_s > _LONG_S
            if now_s > leaves_s and (self._is_failing or has_never_answered):
                return
            thread.join(_GLANCE_S)

    def _start(self) -> None:
        self._leave.clear()
        self._has_given_up = False
        # A daemon, so that a client that hangs does not keep a finished script from ending.
        self._thread = threading.Thread(target=self._run, name=f"tuner-{self._name}", daemon=True)
        self._thread.start()

    def _leave_out(self) -> None:
        self._num_left_out += 1
        if self._num_left_out == 1:
            _log.warning(
                "%s does not keep up: %d results wait for it, further ones are left out there "
                "until it does; the experiment's own files "
                "hold all of them",
                self._name,
                self._capacity,
            )

    def _run(self) -> None:
        try:
            self._insist(self._tracker.connect)
            while not self._leave.is_set():
                self._wake.wait(_PERIOD_S)
                self._deliver_all()
                self._insist(self._tracker.rest)
            self._deliver_all()
            self._insist(self._tracker.leave)
        except _GivenUp:
            pass
        except Exception as error:  # noqa: BLE001  (a client may raise anything; the next hook raises it in the driver's thread)
            self.defect = error

    def _deliver_all(self) -> None:
        while self._waiting:
            entries = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
            by_trial: dict[Trial, list[Entry]] = {}
            for trial, entry in entries:
                by_trial.setdefault(trial, []).append(entry)
            for trial, story in by_trial.items():
                for part in _parts(story):
                    self._insist(lambda trial=trial, part=part: self._deliver(trial, part))  # type: ignore[misc]
                    self._num_delivered += len(part) if isinstance(part, list) else 0

    def _deliver(self, trial: Trial, part: list[Row] | Begun | Saved | Ended | Recalled) -> None:
        match part:
            case list():
                self._tracker.log(trial, part)
            case Begun():
                self._tracker.begin(trial, part)
            case Saved():
                self._tracker.save(trial, part)
            case Ended():
                self._tracker.end(trial, part)
            case Recalled():
                self._tracker.recall(trial, part)
            case _:
                assert_never(part)

    def _insist(self, action: Callable[[], T]) -> T:
        """Do something until it succeeds or nobody waits for it any more."""
        pause_s = _FIRST_PAUSE_S
        while not self._has_given_up:
            self._busy_since_s = time.monotonic()
            try:
                done = action()
            except Exception as error:
                if not self._tracker.is_passing(error):
                    raise
                self._tell_of(_PASSWORD.sub("//", f"{type(error).__name__}: {error}"))
            else:
                self._is_failing = False
                return done
            finally:
                self._busy_since_s = math.inf
            # Whoever leaves wakes us, and from then on pauses are short.
            if not self._leave.wait(pause_s):
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                threading.Event().wait(_LAST_PAUSE_S)
        raise _GivenUp

    def _look_at_the_clock(self) -> None:
        if time.monotonic() - self._busy_since_s > _LONG_S:
            self._tell_of(f"no answer for {_LONG_S:.0f} s")

    def _tell_of(self, why: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.warning(
                "%s cannot be reached (%s); it is tried again, the experiment goes on",
                self._name,
                why,
            )


def _parts(story: Sequence[Entry]) -> Iterator[list[Row] | Begun | Saved | Ended | Recalled]:
    """Yield what happened to one trial, results that follow each other as one part."""
    for are_rows, group in groupby(story, lambda entry: isinstance(entry, Row)):
        if are_rows:
            yield [entry for entry in group if isinstance(entry, Row)]
        else:
            yield from (entry for entry in group if not isinstance(entry, Row))


def rows_after(rows: Sequence[Row], last: tuple[int, int] | None) -> Sequence[Row]:
    """Return the results that were reported after one that a tracker has.

    Args:
        rows: The results of a trial that count, oldest first.
        last: `key_of` the last one that the tracker has; None for none.
    """
    if last is None:
        return rows
    for index in range(len(rows) - 1, -1, -1):
        if key_of(rows[index]) == last:
            return rows[index + 1 :]
    # A result that no longer counts: the trial was tried again from before it.
    return [row for row in rows if key_of(row)[0] > last[0]]


def key_of(row: Row) -> tuple[int, int]:
    """Return the time of a result, in whole seconds, and its training iteration, by which it is found again."""
    return int(row.at), int(row.result.get("training_iteration", 0))
