"""Retry of journal writes while storage is full or failing.

Meanwhile the journal keeps the records in memory and no report is answered, so trials wait and
memory stays bounded: each worker has one report outstanding. How long writing is retried depends on
the error, and on whether the user has asked to stop.
"""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Callable
from typing import Final, final

from tuner.core.events import StopRequested
from tuner.errors import StorageError, StorageLost

STORAGE_RETRY_S: Final = 60.0
"""How long writes are retried where storage fails otherwise than by being full."""
RETRY_PERIOD_S: Final = 1.0
STOPPING_RETRY_S: Final = 5.0
"""How long writes are retried after a request to stop."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SLICE_S: Final = 0.05
_TELL_AFTER_S: Final = 20.0

_log = logging.getLogger("tuner")


def retry_limit_s(code: int | None, request: StopRequested | None, storage_retry_s: float) -> float:
    """Return for how many seconds a failed write is retried.

    ==================  =====================  =================
    asked to stop       no space, over quota   any other error
    ==================  =====================  =================
    no                  for ever               `storage_retry_s`
    yes                 5 s                    5 s at most
    yes, urgently       not at all             not at all
    ==================  =====================  =================

    Args:
        code: The system's error number; None where it gave none.
        request: The request to stop; None without one.
        storage_retry_s: See `RunConfig`.
    """
    limit_s = math.inf if code in _FULL else storage_retry_s
    if request is None:
        return limit_s
    return 0.0 if request.is_urgent else min(limit_s, STOPPING_RETRY_S)


def waiting_line(place: str, num_trials: int, waited_s: float) -> str:
    """Return the line that says how long trials have waited for storage.

    Example:
        >>> waiting_line("s3://bucket/run", 3, 40.2)
        'waiting for s3://bucket/run: 3 trials, 40 s'
    """
    return f"waiting for {place}: {num_trials} trial{'s'[: num_trials != 1]}, {waited_s:.0f} s"


@final
class StorageRetry:
    """Retries a write every second, for as long as `retry_limit_s` says.

    Args:
        storage_retry_s: See `RunConfig`.
        clock: Monotonic time in seconds.
        sleep: Sleeps so many seconds; signal handlers may run meanwhile.
        line: Returns the line that says that so many seconds were waited; None for no line but
            the first.
    """

    def __init__(
        self,
        storage_retry_s: float = STORAGE_RETRY_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        line: Callable[[float], str] | None = None,
    ) -> None:
        self._storage_retry_s = storage_retry_s
        self._clock = clock
        self._sleep = sleep
        self._line = line
        self._request: StopRequested | None = None
        self._requested_at_s = -math.inf

    def ask_to_stop(self, request: StopRequested) -> None:
        """Stop retrying soon; may be called from signal handlers and other threads."""
        self._request, self._requested_at_s = request, self._clock()

    def on(self, write: Callable[[], None]) -> None:
        """Call `write` until it succeeds.

        Raises:
            StorageError: As `write` did, once it is no longer retried.
            StorageLost: As `write` did, at once.
        """
        # Before the first try: a store that does not answer has had some of the time already.
        started_s = self._clock()
        if error := _error_of(write):
            self._try_again(write, error, started_s)

    def _try_again(self, write: Callable[[], None], error: StorageError, started_s: float) -> None:
        failing_since_s, tell_s = started_s, started_s + _TELL_AFTER_S
        _log.warning("%s; trials wait meanwhile, and the write is retried every second", error)
        while True:
            code = _code_of(error)
            # Waiting for space does not use up the time that is given to other errors.
            failing_since_s = math.inf if code in _FULL else min(failing_since_s, self._clock())
            self._wait_or_give_up(
                error, code, started_s if failing_since_s == math.inf else failing_since_s
            )
            again = _error_of(write)
            waited_s = self._clock() - started_s
            if again is None:
                level = logging.WARNING if self._line else logging.INFO
                _log.log(level, "the journal is written again, after %.0f s", waited_s)
                return
            error = again
            if self._line and self._clock() >= tell_s:
                _log.warning("%s", self._line(waited_s))
                tell_s = started_s + 2.0 * waited_s

    def _wait_or_give_up(self, error: StorageError, code: int | None, since_s: float) -> None:
        request, now_s = self._request, self._clock()
        limit_s = retry_limit_s(code, request, self._storage_retry_s)
        end_s = max(since_s, self._requested_at_s) + limit_s
        if now_s >= end_s:
            # Frames of the engine do not help the user: the system's own error is enough.
            cause = error.__cause__
            raise StorageError(f"{error}; given up after {now_s - since_s:.0f} s") from (
                cause.with_traceback(None) if cause else None
            )
        next_s = min(now_s + RETRY_PERIOD_S, end_s)
        # In slices, since a request to stop may come from a signal handler or another thread, and
        # shortens the time that is left.
        while self._clock() < next_s and self._request is request:
            self._sleep(min(_SLICE_S, next_s - self._clock()))


def _error_of(write: Callable[[], None]) -> StorageError | None:
    try:
        write()
    except StorageLost:
        raise  # retrying does not bring back a file that was deleted
    except StorageError as error:
        return error
    return None


def _code_of(error: StorageError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None
