"""Writing through times in which the storage takes nothing.

While it refuses, the journal keeps the records in memory and nobody is answered, so trials wait and memory stays bounded: each worker has
one report outstanding. How long that goes on depends on what the storage says, and on whether somebody wants to leave.
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
"""How long storage that fails, and is not merely full, is tried again."""
RETRY_PERIOD_S: Final = 1.0
STOPPING_RETRY_S: Final = 5.0
"""How long whoever asked politely to stop is kept waiting by storage that takes nothing."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SLICE_S: Final = 0.05

_log = logging.getLogger("tuner")


def patience_s(code: int | None, request: StopRequested | None, storage_retry_s: float) -> float:
    """Return for how many seconds a write that failed is tried again.

    ==================  =====================  =================
    asked to stop       no space, over quota   any other error
    ==================  =====================  =================
    no                  for ever               `storage_retry_s`
    yes                 5 s                    5 s at most
    yes, urgently       not at all             not at all
    ==================  =====================  =================

    Args:
        code: The system's error number; None where it gave none.
        request: How somebody has asked to stop, None for nobody has.
        storage_retry_s: See `RunConfig`.
    """
    limit_s = math.inf if code in _FULL else storage_retry_s
    if request is None:
        return limit_s
    return 0.0 if request.is_urgent else min(limit_s, STOPPING_RETRY_S)


@final
class Insistence:
    """Tries a write again, every second, for as long as that may help.

    Args:
        storage_retry_s: See `RunConfig`.
        clock: Monotonic time in seconds.
        sleep: Sleeps so many seconds; handlers of signals may run meanwhile.
    """

    def __init__(
        self,
        storage_retry_s: float = STORAGE_RETRY_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._storage_retry_s = storage_retry_s
        self._clock = clock
        self._sleep = sleep
        self._request: StopRequested | None = None
        self._requested_at_s = -math.inf

    def ask_to_stop(self, request: StopRequested) -> None:
        """Let waiting for the storage end soon; may be called from signal handlers and other threads."""
        self._request, self._requested_at_s = request, self._clock()

    def on(self, write: Callable[[], None]) -> None:
        """Call `write` until it succeeds.

        Raises:
            StorageError: As `write` did, when trying again is over.
            StorageLost: As `write` did, at once.
        """
        if refusal := _refusal_of(write):
            self._try_again(write, refusal)

    def _try_again(self, write: Callable[[], None], refusal: StorageError) -> None:
        started_s, failing_since_s = self._clock(), math.inf
        _log.warning("%s; trials wait meanwhile, it is tried again every second", refusal)
        while True:
            code = _code_of(refusal)
            # Waiting for space does not use up the time that is given to other troubles.
            failing_since_s = math.inf if code in _FULL else min(failing_since_s, self._clock())
            self._wait_or_give_up(
                refusal, code, started_s if failing_since_s == math.inf else failing_since_s
            )
            again = _refusal_of(write)
            if again is None:
                _log.info("the journal is written again, after %.0f s", self._clock() - started_s)
                return
            refusal = again

    def _wait_or_give_up(self, refusal: StorageError, code: int | None, since_s: float) -> None:
        request, now_s = self._request, self._clock()
        limit_s = patience_s(code, request, self._storage_retry_s)
        end_s = max(since_s, self._requested_at_s) + limit_s
        if now_s >= end_s:
            # Where in our code it came from tells the user nothing: of what led here, the system's own error is enough.
            cause = refusal.__cause__
            raise StorageError(f"{refusal}; given up after {now_s - since_s:.0f} s") from (
                cause.with_traceback(None) if cause else None
            )
        next_s = min(now_s + RETRY_PERIOD_S, end_s)
        while self._clock() < next_s and self._request is request:
            self._sleep(min(_SLICE_S, next_s - self._clock()))


def _refusal_of(write: Callable[[], None]) -> StorageError | None:
    try:
        write()
    except StorageLost:
        raise  # what is gone does not come back while it is waited for
    except StorageError as refusal:
        return refusal
    return None


def _code_of(refusal: StorageError) -> int | None:
    return refusal.__cause__.errno if isinstance(refusal.__cause__, OSError) else None
