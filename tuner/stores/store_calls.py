"""Calls of an object store: retried, bounded in time, and with a line while it does not answer.

A store that refuses connections raises at once, one that hangs raises nothing: the libraries wait,
and try again themselves, for minutes. So a call has one deadline for all its tries, which begins
with the call, and a try that is still waiting then is given up.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar, final

from tuner.driver.storage_retry import waiting_line
from tuner.errors import StorageUnreachable

from .object_errors import Failure, describe, failure_of, is_full

_T = TypeVar("_T")

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_LEAST_TRY_S: Final = 5.0
"""How long a try may take at least: also the last one before the deadline, and where nothing is to
be retried."""
_TELL_AFTER_S: Final = 5.0
_TICK_S: Final = 0.5
_SLOWEST_BYTES_PER_S: Final = 1 << 20
_AT_ONCE_BYTES: Final = 64 << 20
"""How much of a file is on its way before the library says that some of it has arrived."""

_FIRST_LINE_S: Final = 10.0
PERIOD_S: Final = 5.0
"""How often to look while trials wait, in seconds."""

_log = logging.getLogger("tuner")


@final
class Outage:
    """Since when a store has not answered, known to all who use the same connections.

    Args:
        url: The store, for messages.
        clock: Monotonic time in seconds.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._url = url
        self._lock = threading.Lock()
        self._num_waiting = 0
        self._since_s: float | None = None
        """When the first call began that was made since the last answer."""
        self._is_told = False

    @property
    def duration_s(self) -> float:
        """For how long the store has been asked and has not answered; 0 if it has."""
        since_s = self._since_s
        return 0.0 if since_s is None else self.clock() - since_s

    def begin(self) -> None:
        """Take note of a call."""
        with self._lock:
            self._num_waiting += 1
            if self._since_s is None:
                self._since_s = self.clock()

    def end(self) -> None:
        """Take note that a call is over, with an answer or without."""
        with self._lock:
            self._num_waiting -= 1

    def on_answer(self) -> None:
        """Take note that the store has answered, or taken a part of a file."""
        with self._lock:
            since_s, was_told = self._since_s, self._is_told
            # The call that was answered waits no more, or begins anew with the next part.
            self._since_s = self.clock() if self._num_waiting > 1 else None
            self._is_told = False
        if was_told and since_s is not None:
            _log.warning("%s answers again, after %.0f s", self._url, self.clock() - since_s)

    def tell(self, limit_s: float, why: str) -> None:
        """Print once that the store does not answer, if that is so."""
        with self._lock:
            duration_s = self.duration_s
            if self._is_told or duration_s < _TELL_AFTER_S:
                return
            self._is_told = True
        _log.warning(
            "%s has not answered for %.0f s; each request is repeated for %.0f s%s",
            self._url,
            duration_s,
            limit_s,
            f": {why}" if why else "",
        )


@final
class Deadline:
    """Until when a call may wait, however often it is tried.

    Each part of a file that has arrived gives it the whole time again.
    """

    def __init__(self, calls: StoreCalls, size_bytes: int) -> None:
        self._calls = calls
        self._outage = calls.outage
        self._extra_s = min(size_bytes, _AT_ONCE_BYTES) / _SLOWEST_BYTES_PER_S
        self._since_s = self._tried_s = self._outage.clock()

    @property
    def waited_s(self) -> float:
        """For how long the call has waited."""
        return self._outage.clock() - self._since_s

    @property
    def rest_s(self) -> float:
        """For how long the call is retried yet."""
        return self._calls.limit_s + self._extra_s - self.waited_s

    def begin_try(self) -> None:
        """Begin to try, or to try again."""
        self._tried_s = self._outage.clock()

    def on_progress(self) -> None:
        """Take note that a part of a file has arrived."""
        self._since_s = self._tried_s = self._outage.clock()
        self._outage.on_answer()

    def note_refusal(self, error: Exception) -> None:
        """Take note of an error, which may be an answer: that there is no such object, say."""
        if failure_of(error) is not Failure.TRANSIENT:
            self._outage.on_answer()

    def tell(self, why: str = "") -> None:
        """Print that the store does not answer, if it has not for a while."""
        if self.waited_s >= _TELL_AFTER_S + self._extra_s:
            self._outage.tell(self._calls.limit_s, why)

    def result_of(self, future: Future[_T]) -> _T:
        """Return the result of what another thread does, or give it up at the deadline.

        Raises:
            TimeoutError: If it has been given up; it may take effect later.
        """
        try:
            while not wait([future], _TICK_S).done:
                self._go_on_or_give_up()
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def _go_on_or_give_up(self) -> None:
        self.tell()
        least_s = self._tried_s + _LEAST_TRY_S + self._extra_s - self._outage.clock()
        if max(self.rest_s, least_s) <= 0.0:
            raise TimeoutError(f"no answer within {self.waited_s:.0f} s")


_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current_deadline() -> Deadline | None:
    """Return the deadline of the call that this thread is making; None if it has none."""
    return _deadline.get()


def in_thread(call: Callable[[], _T]) -> Future[_T]:
    """Call a function that may hang, in a thread that ends with it or with the process."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()  # what has begun cannot be cancelled

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  (raised where the result is awaited)
            future.set_exception(error)

    threading.Thread(target=run, name="tuner-store-call", daemon=True).start()
    return future


@final
class StoreWaits:
    """Prints a line after 10 s without an answer, 20 s, 40 s and so on, while trials wait.

    When it has begun and when it is over is printed by `Outage`.

    Args:
        url: The store, for messages.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._next_s = _FIRST_LINE_S

    def look(self, outage_s: float, num_trials: int) -> None:
        """Print a line if one is due.

        Args:
            outage_s: For how long the store has not answered; 0 if it does.
            num_trials: How many trials wait for it.
        """
        if not outage_s:
            self._next_s = _FIRST_LINE_S
        if not num_trials or outage_s < self._next_s:
            return
        _log.warning("%s", waiting_line(self._url, num_trials, outage_s))
        while self._next_s <= outage_s:
            self._next_s *= 2.0


@final
class StoreCalls:
    """Makes calls of a store, and retries them with pauses that double from 0.1 s to 5 s.

    Args:
        limit_s: How long each may take, in seconds, beginning with the call.
        outage: Of the store.

    Attributes:
        limit_s: As given; may be set at any time.
        outage: As given.
    """

    __slots__ = ("limit_s", "outage")

    def __init__(self, limit_s: float, outage: Outage) -> None:
        if not limit_s >= 0:
            raise ValueError(f"retry_s is {limit_s!r}; give a number of seconds from 0")
        self.limit_s = limit_s
        self.outage = outage

    def call(self, url: str, call: Callable[[], _T], size_bytes: int = 0) -> _T:
        """Return what the call returns.

        Args:
            url: The store, for messages.
            call: Makes the request.
            size_bytes: How much it sends or receives. It may take a second more for each MiB of
                what is on its way at a time.

        Raises:
            FileNotFoundError: If the object does not exist.
            StorageUnreachable: If the store is no longer retried, or has refused.
        """
        with self._waiting(Deadline(self, size_bytes)) as deadline:
            pause_s = _FIRST_PAUSE_S
            while True:
                deadline.begin_try()
                try:
                    answer = call()
                except Exception as error:
                    deadline.note_refusal(error)
                    _raise_final(error, url)
                    if deadline.rest_s <= 0.0:
                        raise StorageUnreachable(
                            f"{url} could not be reached for {deadline.waited_s:.0f} s: "
                            f"{describe(error)}; check the network and the store"
                        ) from error
                    deadline.tell(describe(error))
                else:
                    deadline.on_progress()
                    return answer
                time.sleep(max(0.0, min(pause_s, deadline.rest_s)))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @contextmanager
    def _waiting(self, deadline: Deadline) -> Iterator[Deadline]:
        token = _deadline.set(deadline)
        self.outage.begin()
        try:
            yield deadline
        finally:
            self.outage.end()
            _deadline.reset(token)


def _raise_final(error: Exception, url: str) -> None:
    """Raise if retrying does not help."""
    match failure_of(error):
        case Failure.TRANSIENT if not is_full(error):
            return
        case Failure.ABSENT:
            raise FileNotFoundError(errno.ENOENT, "no such object", url) from error
        case Failure.DENIED:
            raise StorageUnreachable(
                f"{url} refused access: {describe(error)}; check that the credentials which its "
                "library finds (environment variables, configuration files, the machine's role) "
                "are valid and allow to read, write, list and delete"
            ) from error
        case Failure.PERMANENT | Failure.REFUSED:
            raise StorageUnreachable(
                f"{url} refused a request: {describe(error)}; check the URL and the store's "
                "settings"
            ) from error
    raise error
