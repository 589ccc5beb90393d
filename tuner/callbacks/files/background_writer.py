"""Background thread that writes log files in batches.

The driver's hooks only append to a queue, each fact once for all files that tell of it. A thread,
shared by all default loggers, takes the queue every second, sorts it by file, and writes each
file's part at one go; files are open only meanwhile, so ten thousand trials need no more
descriptors than one. What has begun to tell something since the last time waits for the next,
unless it has told all: so most short trials are written at one go. Where that takes too much of the
time it is done more rarely, so that more of a file is written at one go. When the thread falls too
far behind, whoever appends writes the backlog, which bounds the memory.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, final

_PERIOD_S = 1.0
_LONGEST = 4.0
"""How many periods may become one: twice four seconds are within what a restore takes for recent,
see `tuner.restore.experiment`."""
_MAX_SHARE = 0.02
_WAKE_AT = 5_000
_CAPACITY = 10_000
_BATCH = 1_000
"""How many entries are written under one hold of the lock, and at most by a caller of `add`, unless
told otherwise: some 20 ms of work."""
_ENTRIES_PER_BREATH = 256
_BREATH_S = 0.00005

_log = logging.getLogger("tuner")

T = TypeVar("T")
Pace = Callable[[Iterable[T]], Iterator[T]]
"""How to walk through entries: without a stop, or leaving the interpreter to the driver now and
then."""


class Addressee(ABC):
    """Whom an entry is for."""

    @abstractmethod
    def parts(self) -> Sequence[Sink]:
        """Return who is to write its entries, each all of them; always the same."""

    def expects_more(self, last: Any) -> bool:
        """Return whether there may soon be more behind its last entry, for which it is worth waiting a little."""
        return False


class Sink(Addressee):
    """Something that entries are written to, a batch at a time and never by two threads at once."""

    def parts(self) -> Sequence[Sink]:
        """Return itself."""
        return (self,)

    @abstractmethod
    def write(self, entries: list[Any], pace: Pace[Any]) -> None:
        """Write down the entries.

        Args:
            entries: New entries, oldest first; none where only an earlier failure is to be made
                good. Not to be changed, since all parts of an addressee get the same list.
            pace: How to iterate over them.

        Raises:
            OSError: If not everything could be written; what is left is kept, and `write` will be
                called again.
        """

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Take note that `write` raised something else than an `OSError`, which another try would not mend."""


class BatchWriter:
    """Hands entries to their sinks in batches, from a thread of its own.

    The thread starts with the first entry and ends with `close`. A sink that raises an `OSError`,
    for want of space, say, is tried again with each batch; that is reported once.

    Args:
        period_s: Time, in seconds, that an entry waits at most, or twice that where more is
            expected behind it; up to four times as long where writing takes more than 2 % of the
            time.
        wake_at: Number of waiting entries that wakes the thread early.
        capacity: Number of waiting entries from which each `add` writes some of them itself.
        max_batch: How many entries are written under one hold of the lock.
        has_thread: Whether a thread writes; without it the caller calls `write_batch` in time.

    Attributes:
        thread_cpu_s: CPU seconds of the thread.
        has_failed: Whether one of those who share this writer has ever met a defect; so they need
            not all be asked each time.
    """

    def __init__(
        self,
        period_s: float = _PERIOD_S,
        wake_at: int = _WAKE_AT,
        capacity: int = _CAPACITY,
        *,
        max_batch: int = _BATCH,
        has_thread: bool = True,
    ) -> None:
        self.thread_cpu_s = 0.0
        self.has_failed = False
        self._period_s = period_s
        self._wake_at = wake_at
        self._capacity = capacity
        self._max_batch = max_batch
        self._has_thread = has_thread
        self._waiting: deque[tuple[Addressee, Any]] = deque()
        self._held: dict[Addressee, list[Any]] = {}
        """What was left for the next time, since more is expected."""
        self._overdue: frozenset[Addressee] = frozenset()
        """Whose entries are not to be left once more."""
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._behind: dict[Sink, OSError] = {}
        self._is_warned = False

    @property
    def num_waiting(self) -> int:
        """How many entries have not been handed to their sinks yet."""
        return len(self._waiting) + sum(map(len, list(self._held.values())))

    def add(self, addressee: Addressee, entry: Any) -> None:
        """Take an entry for somebody; it is written soon, after those that came before it."""
        self._waiting.append((addressee, entry))
        if self._thread is None and self._has_thread:
            self._start()
        num_waiting = len(self._waiting)
        if num_waiting >= self._capacity:
            self.write_batch()
        elif num_waiting == self._wake_at:
            self._wake.set()

    def write_due(self, pace: Pace[Any] = iter) -> None:
        """Write what waits, but for what has begun to wait since the last time and may have more behind it soon.

        Args:
            pace: How sinks walk through the entries.
        """
        self._overdue = frozenset(self._held)
        while self.write_batch(pace, may_wait=True):
            if self._has_thread:
                # Otherwise a caller that waits for the lock would seldom get it.
                time.sleep(_BREATH_S)

    def write_batch(self, pace: Pace[Any] = iter, *, may_wait: bool = False) -> bool:
        """Write the oldest entries and return whether there are more.

        Args:
            pace: How sinks walk through them.
            may_wait: Leave those behind which more is expected, see `write_due`.
        """
        with self._turn:
            shares = [
                (addressee.parts(), entries)
                for addressee, entries in self._take(may_wait=may_wait).items()
            ]
            # All files of one kind before those of the next, so that what writes them stays in the
            # processor's caches.
            for number in range(max((len(parts) for parts, _ in shares), default=0)):
                for parts, entries in shares:
                    if number < len(parts):
                        self._write_to(parts[number], entries, pace)
            if not self._behind:
                self._is_warned = False
        return bool(self._waiting)

    def flush(self) -> None:
        """Write everything that waits, in the calling thread."""
        while self.write_batch():
            pass

    def close(self) -> None:
        """Write everything that waits and end the thread; a later `add` starts it anew. What cannot be written is told of once."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._is_closing = True
            self._wake.set()
            thread.join()
        self.flush()
        if self._behind:
            sink, error = next(iter(self._behind.items()))
            _log.warning(
                "%d log files are incomplete, the first is %s: %s; the journal holds all "
                "results, and a restore writes the files anew",
                len(self._behind), sink, error,
            )  # fmt: skip
            self._behind.clear()

    def _start(self) -> None:
        self._is_closing = False
        self._wake.clear()
        # A daemon, so that a driver that dies without closing does not hang: what it would have
        # written can be derived anew.
        self._thread = threading.Thread(target=self._run, name="tuner-loggers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before_s, period_s, pace = self.thread_cpu_s, self._period_s, _Breather()
        while True:
            self._wake.wait(period_s)
            self._wake.clear()
            began_s = time.thread_time()
            self.thread_cpu_s = before_s + began_s
            if self._is_closing:
                return  # whoever closes writes the rest, without rests
            self.write_due(pace)
            period_s = stretched(self._period_s, time.thread_time() - began_s)

    def _take(self, *, may_wait: bool) -> dict[Addressee, list[Any]]:
        """Take the oldest entries, up to one for a sink that gets others on another way: nobody gets a later one first."""
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
                _log.warning(
                    "cannot write %s: %s; it is tried again, the experiment goes on", sink, error
                )
        except Exception as error:  # noqa: BLE001  (handed to the logger that owns the sink, which raises it from its next hook)
            self._behind.pop(sink, None)
            sink.fail(error)
        else:
            self._behind.pop(sink, None)


def stretched(period_s: float, spent_s: float) -> float:
    """Return how long to wait for the next batch where the last one has taken so much processor time.

    Example:
        >>> stretched(1.0, 0.001), stretched(1.0, 0.05), stretched(1.0, 2.0)
        (1.0, 2.5, 4.0)
    """
    return min(max(spent_s / _MAX_SHARE, period_s), _LONGEST * period_s)


@final
class _Breather:
    """Walks through entries with short rests, in which the driver gets the interpreter at once instead of after a whole switch interval."""

    def __init__(self) -> None:
        self._num_walked = 0

    def __call__(self, entries: Iterable[T]) -> Iterator[T]:
        """Yield the entries; those of all calls count."""
        for entry in entries:
            yield entry
            self._num_walked += 1
            if self._num_walked % _ENTRIES_PER_BREATH == 0:
                time.sleep(_BREATH_S)
