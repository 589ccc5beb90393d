"""The thread that syncs the journal while training goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, final

SYNC_WINDOW_S: Final = 0.05
"""How old a record may become, under ``"group"``, before it is synced."""
_MAX_SYNC_SHARE: Final = 0.05
_WEIGHT: Final = 0.1
"""Of the last sync in what one usually takes."""
_SLACK_S: Final = 0.008
"""What the thread that syncs may take to wake up while the driver has the interpreter, and a sync longer than the one before it."""


def rest_after(duration_s: float, usual_s: float) -> float:
    """Return how long to rest after a sync, in seconds.

    So long that a record which has just missed it is safe within the window, when the next sync is over; or, where syncs are slow, so long
    that they take at most a twentieth of the time. One that had to wait for somebody else's makes no difference to that.

    Args:
        duration_s: What the sync has taken.
        usual_s: What syncs take on the average.

    Example:
        >>> round(rest_after(0.001, 0.001), 6), round(rest_after(0.01, 0.001), 6), round(rest_after(0.01, 0.01), 6)
        (0.04, 0.022, 0.19)
    """
    return max(
        SYNC_WINDOW_S - _SLACK_S - 2 * duration_s, usual_s / _MAX_SYNC_SHARE - duration_s, 0.0
    )


@final
class Syncer:
    """A thread that syncs a moment after it was woken, and then rests, see `rest_after`.

    Args:
        sync: Syncs what is written; called in the thread.

    Attributes:
        is_awake: Whether it is going to sync what is written by now, so that nobody need wake it.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._usual_s = 0.0
        self.is_awake = False
        self._thread = threading.Thread(target=self._run, name="tuner-journal-sync", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """See to it that what is written by now gets synced."""
        self.is_awake = True
        self._wanted.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._stopped.is_set():
                return
            self._wanted.clear()
            self.is_awake = False
            started_s = time.monotonic()
            self._sync()
            duration_s = time.monotonic() - started_s
            self._usual_s += _WEIGHT * (duration_s - self._usual_s)
            self._stopped.wait(rest_after(duration_s, self._usual_s))
