"""The console of an experiment that prints nothing, and what every console does with warnings."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tuner.callbacks.callback import Callback
from tuner.core.trial import Trial

ON_CONSOLE: Final = {"is_on_console": True}
"""``extra`` of a warning that is for other handlers: the console has printed a line for it."""

_log = logging.getLogger("tuner")


class SilentConsole(Callback):
    """Shows nothing, as at ``verbose=0``; `Console` shows the progress and the engine's warnings.

    Warnings go to a user's handler, if there is one.
    """

    def __init__(self) -> None:
        self._handler: logging.Handler | None = None
        self._always_shows_warnings = False

    def print_notice(self, text: str) -> None:
        """Print a line, or a few."""

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Take the engine's warnings unless another handler does."""
        self._start_showing_warnings()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Give the logging back."""
        self.close()

    def close(self) -> None:
        """Restore the logging, outside of `showing_warnings`; may be called twice."""
        if not self._always_shows_warnings:
            self._stop_showing_warnings()

    @contextlib.contextmanager
    def showing_warnings(self) -> Iterator[None]:
        """Show the engine's warnings in this context, unless a user's handler does."""
        self._always_shows_warnings = True
        self._start_showing_warnings()
        try:
            yield
        finally:
            self._always_shows_warnings = False
            self.close()

    def new_handler(self) -> logging.Handler:
        """Return a handler of warnings."""
        # Without any handler, Python would print them to the standard error.
        return logging.NullHandler()

    def _stop_showing_warnings(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            _log.removeHandler(handler)

    def _start_showing_warnings(self) -> None:
        if self._handler is None and not _has_visible_handler(_log):
            self._handler = self.new_handler()
            _log.addHandler(self._handler)


def _has_visible_handler(logger: logging.Logger | None) -> bool:
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
