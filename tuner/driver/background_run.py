"""An experiment that runs in a background thread, as `Tuner.start` does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import thread as _  # noqa: F401  (before `_call_at_exit`, see there)
from typing import final

from tuner.analysis.result_grid import ResultGrid
from tuner.storage.control_requests import ControlReply, ControlRequest

from .control import RequestQueue


@final
class Background:
    """Runs an experiment in a thread.

    The thread is no daemon thread: a script that reaches its end waits for the experiment.

    Args:
        run: Runs the experiment, takes control requests from the queue that it is given, and
            returns the results.
    """

    def __init__(self, run: Callable[[RequestQueue], ResultGrid]) -> None:
        self._run = run
        self._requests = RequestQueue()
        self._begun = threading.Event()
        self._grid: ResultGrid | None = None
        self._error: BaseException | None = None
        self._is_error_raised = False
        self._thread = threading.Thread(target=self._work, name="tuner-driver")

    def start(self) -> None:
        """Start the thread, and return once the driver takes requests.

        Raises:
            Exception: If the experiment could not begin.
        """
        self._requests.when_open(self._begun.set)
        self._thread.start()
        _call_at_exit(self._end)
        self._begun.wait()
        if not self._requests.is_open and self._error is not None:
            self._thread.join()
            self._is_error_raised = True
            raise self._error

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    def ask(self, request: ControlRequest) -> ControlReply:
        """Send a control request to the driver and wait for its reply."""
        return self._requests.ask(request)

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the experiment has ended, and return whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def results(self) -> ResultGrid:
        """Return the results, once the experiment has ended.

        Raises:
            Exception: The error that ended it.
            RuntimeError: If it is still running.
        """
        if self._error is not None:
            self._is_error_raised = True
            raise self._error
        if self._grid is None:
            raise RuntimeError("the experiment is still running; wait() returns its results")
        return self._grid

    def _work(self) -> None:
        try:
            self._grid = self._run(self._requests)
        except BaseException as error:  # noqa: BLE001  (raised by `results` and `start`)
            self._error = error
        finally:
            self._requests.close()
            self._begun.set()

    def _end(self) -> None:
        self._thread.join()
        error = self._error
        if error is not None and not self._is_error_raised:
            # As for any thread that ends with an error.
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread))
            )


def _call_at_exit(function: Callable[[], None]) -> None:
    """Have a function called when the script has reached its end, while thread pools still work.

    Python waits for threads by itself, but before that it shuts thread pools down for good, also
    those with which libraries open connections. Such calls are made in reverse order; that of the
    pools is registered when their module is imported.
    """
    # Private, and the only way; without it Python still waits, later.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(function)
