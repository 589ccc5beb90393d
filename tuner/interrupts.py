"""Signals that ask an experiment to end: once politely, twice at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from tuner.core.events import StopRequested

_POLITE = (signal.SIGINT, signal.SIGTERM, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []))


class Interrupts:
    """While entered, turns signals into stop requests.

    The first signal lets trials save and leave; a second one kills them. A third SIGINT raises `KeyboardInterrupt`, for the case that
    even that does not help. Outside the main thread, where Python handles no signals, this does nothing.

    Args:
        request_stop: Told of each request; called from the signal handler.

    Attributes:
        received: The first signal that came, None for none.
    """

    def __init__(self, request_stop: Callable[[StopRequested], None]) -> None:
        self._request_stop = request_stop
        self._num_received = 0
        self._before: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None

    def __enter__(self) -> Self:
        """Install the handlers."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _POLITE}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Put back the handlers that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._num_received += 1
        name = signal.Signals(number)
        self.received = self.received or name
        if self._num_received > 2 and name is signal.SIGINT:  # noqa: PLR2004  (the third time)
            raise KeyboardInterrupt
        self._request_stop(StopRequested(f"signal.{name.name}", is_urgent=self._num_received > 1))
