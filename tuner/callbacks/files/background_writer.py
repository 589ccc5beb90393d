"""Background thread that writes log files in batches.

The driver's hooks only append to a queue, each fact once for all files that record it. A thread,
shared by all default loggers, takes the queue every second, groups it by file, and writes each
group at once; files are open only during the write, so ten thousand trials need no more descriptors
than one. A file that has got its first entries since the last batch waits for the next one, unless
its trial is over: so most short trials are written at once. Where writing takes too much time it is
done less often, in larger batches. When the thread falls too far behind, the caller of `add` writes
the backlog, which bounds the memory.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, final

from tuner.background import BackgroundJobs
from tuner.storage.disk import LOCAL_DISK, Disk

_PERIOD_S = 1.0
_LONGEST = 4.0
"""The longest period, in multiples of the usual one: a restore rewrites files of the last ten
seconds, see `tuner.restore.experiment`, and an entry may wait for two periods."""
_MAX_SHARE = 0.02
_WAKE_AT = 5_000
_CAPACITY = 10_000
_BATCH = 1_000
"""Entries that are written while the lock is held once, some 20 ms of work."""
_ENTRIES_PER_BREATH = 256
_BREATH_S = 0.00005

_log = logging.getLogger("tuner")

T = TypeVar("T")
Pace = Callable[[Iterable[T]], Iterator[T]]
"""Iterates over entries: without a pause, or releasing the interpreter to the driver at times."""


class Addressee(ABC):
    """Receiver of entries."""

    @abstractmethod
    def parts(self) -> Sequence[Sink]:
        """Return the sinks, each of which gets all its entries; always the same."""

    def expects_more(self, last: Any) -> bool:
        """Return whether more entries may follow soon, for which it is worth waiting a little."""
        return False


class Sink(Addressee):
    """Writes entries, a batch at a time and never in two threads at once."""

    def parts(self) -> Sequence[Sink]:
        """Return itself."""
        return (self,)

    @abstractmethod
    def write(self, entries: list[Any], pace: Pace[Any]) -> None:
        """Write the entries.

        Args:
            entries: New entries, oldest first; empty where only an earlier failure is retried. Must
                not be changed, since all parts of an addressee get the same list.
            pace: How to iterate over them.

        Raises:
            OSError: If not everything could be written; the sink keeps the rest, and `write` is
                called again.
        """

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Handle an error of `write` other than an `OSError`, which is not retried."""


class BatchWriter:
    """Passes entries to their sinks in batches, in a background thread.

    The thread starts with the first entry and ends with `close`. A sink that raises an `OSError`,
    e.g. because the disk is full, is retried with each batch, with one warning.

    Args:
        period_s: The longest time, in seconds, that an entry waits, or twice that where more is
            expected; up to four times as long where writing takes more than 2 % of the time.
        wake_at: Number of waiting entries that wakes the thread early.
        capacity: Number of waiting entries from which each `add` writes some of them itself.
        max_batch: How many entries are written while the lock is held once.
        disk: Where the sinks write.
        has_thread: Whether there is a thread; without it, the caller writes.

    Attributes:
        has_failed: Whether any logger that shares this writer has a defect; so the loggers need not
            be checked one by one at each hook.
        disk: Where the sinks write.
    """

    def __init__(
        self,
        period_s: float = _PERIOD_S,
        wake_at: int = _WAKE_AT,
        capacity: int = _CAPACITY,
        *,
        max_batch: int = _BATCH,
        disk: Disk = LOCAL_DISK,
        has_thread: bool = True,
    ) -> None:
        self.has_failed = False
        self._period_s = period_s
        self._wake_at = wake_at
        self._capacity = capacity
        self._max_batch = max_batch
        self.disk = disk
        self._num_threads = 1 if has_thread else 0
        self._waiting: deque[tuple[Addressee, Any]] = deque()
        self._held: dict[Addressee, list[Any]] = {}
        """Entries that were left for the next batch, since more are expected."""
        self._overdue: frozenset[Addressee] = frozenset()
        """Addressees that have waited once and are written now."""
        self._turn = threading.Lock()
        self._pace = _Breather()
        self._jobs: BackgroundJobs | None = None
        self._earlier_cpu_s = 0.0
        self._behind: dict[Sink, OSError] = {}
        self._is_warned = False

    @property
    def cpu_s(self) -> float:
        """CPU time of the thread, in seconds."""
        return self._earlier_cpu_s + (self._jobs.cpu_s if self._jobs else 0.0)

    @property
    def num_waiting(self) -> int:
        """How many entries have not been passed to their sinks yet."""
        return len(self._waiting) + sum(map(len, list(self._held.values())))

    def add(self, addressee: Addressee, entry: Any) -> None:
        """Queue an entry; it is written after those that were added before it."""
        self._waiting.append((addressee, entry))
        jobs = self._jobs or self._start()
        num_waiting = len(self._waiting)
        if num_waiting >= self._capacity:
            self.write_batch()
        elif num_waiting == self._wake_at:
            jobs.wake()

    def write_due(self, pace: Pace[Any] = iter) -> None:
        """Write what is queued, except new entries that expect more and have not waited once.

        Args:
            pace: How sinks iterate over the entries.
        """
        self._overdue = frozenset(self._held)
        while self.write_batch(pace, may_wait=True):
            # Otherwise a caller that waits for the lock would seldom get it.
            time.sleep(_BREATH_S)

    def write_batch(self, pace: Pace[Any] = iter, *, may_wait: bool = False) -> bool:
        """Write the oldest entries and return whether there are more.

        Args:
            pace: How sinks iterate over them.
            may_wait: Leave entries that expect more, see `write_due`.
        """
        with self._turn:
            shares = [
                (addressee.parts(), entries)
                for addressee, entries in self._take(may_wait=may_wait).items()
            ]
            # All files of one kind before those of the next, so that the code that writes them
            # stays in the processor's caches.
            for number in range(max((len(parts) for parts, _ in shares), default=0)):
                for parts, entries in shares:
                    if number < len(parts):
                        self._write_to(parts[number], entries, pace)
            if not self._behind:
                self._is_warned = False
        return bool(self._waiting)

    def flush(self) -> None:
        """Write everything that is queued, in the calling thread."""
        while self.write_batch():
            pass

    def close(self) -> None:
        """Write everything that is queued and end the thread; a later `add` starts a new one.

        Warns if something cannot be written.
        """
        jobs, self._jobs = self._jobs, None
        if jobs:
            jobs.close()
            self._earlier_cpu_s += jobs.cpu_s
        self.flush()
        if self._behind:
            sink, error = next(iter(self._behind.items()))
            _log.warning(
                "%d log files are incomplete, the first is %s: %s; the journal holds all "
                "results, and a restore writes the files anew",
                len(self._behind), sink, error,
            )  # fmt: skip
            self._behind.clear()

    def _start(self) -> BackgroundJobs:
        self._jobs = BackgroundJobs(
            "tuner-loggers",
            self._write_in_background,
            self._period_s,
            num_threads=self._num_threads,
            on_error=lambda error: _log.warning("log files could not be written: %r", error),
        )
        self._jobs.wake(self._period_s)
        return self._jobs

    def _write_in_background(self) -> None:
        began_s = time.thread_time()
        self.write_due(self._pace)
        if jobs := self._jobs:  # none where `close` waits
            jobs.period_s = stretched(self._period_s, time.thread_time() - began_s)

    def _take(self, *, may_wait: bool) -> dict[Addressee, list[Any]]:
        """Take the oldest entries, up to one whose sink gets others through another addressee.

        So no sink gets a later entry before an earlier one.
        """
        batches, self._held = self._held, {}
        taken = {sink for addressee in batches for sink in addressee.parts()}
        for _ in range(min(len(self._waiting), self._max_batch)):
            addressee, entry = self._waiting[0]
            if addressee not in batches:
                parts = addressee.parts()
                if not taken.isdisjoint(parts):
                    may_wait = False
                    break
                taken.update(parts)
                batches[addressee] = []
            batches[addressee].append(entry)
            self._waiting.popleft()
        if may_wait:
            self._held = {
                addressee: entries
                for addressee, entries in batches.items()
                if self._can_wait(addressee, entries)
            }
            batches = {
                addressee: entries
                for addressee, entries in batches.items()
                if addressee not in self._held
            }
        return batches | {sink: [] for sink in self._behind if sink not in taken}

    def _can_wait(self, addressee: Addressee, entries: list[Any]) -> bool:
        return addressee not in self._overdue and addressee.expects_more(entries[-1])

    def _write_to(self, sink: Sink, entries: list[Any], pace: Pace[Any]) -> None:
        try:
            sink.write(entries, pace)
        except OSError as error:
            self._behind[sink] = error
            if not self._is_warned:
                self._is_warned = True
                _log.warning("cannot write %s: %s; retrying, the experiment continues", sink, error)
        except Exception as error:  # noqa: BLE001  (raised by the next hook of the sink's logger)
            self._behind.pop(sink, None)
            sink.fail(error)
        else:
            self._behind.pop(sink, None)


def stretched(period_s: float, spent_s: float) -> float:
    """Return how long to wait for the next batch, given the CPU seconds of the last one.

    Example:
        >>> stretched(1.0, 0.001), stretched(1.0, 0.05), stretched(1.0, 2.0)
        (1.0, 2.5, 4.0)
    """
    return min(max(spent_s / _MAX_SHARE, period_s), _LONGEST * period_s)


@final
class _Breather:
    """Iterates over entries with short pauses, in which the driver gets the interpreter.

    Without them it would wait for a whole switch interval, 5 ms.
    """

    def __init__(self) -> None:
        self._num_walked = 0

    def __call__(self, entries: Iterable[T]) -> Iterator[T]:
        """Yield the entries; pauses are counted over all calls."""
        for entry in entries:
            yield entry
            self._num_walked += 1
            if self._num_walked % _ENTRIES_PER_BREATH == 0:
                time.sleep(_BREATH_S)
