"""An experiment that runs in a thread of its own, so that whoever started it keeps the prompt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from tuner.analysis.result_grid import ResultGrid
from tuner.storage.control_requests import Answer, Wish

from .control import Line


@final
class Background:
    """Runs an experiment in a thread.

    The thread is none that ends with the main one: a script that comes to its end waits for the experiment.

    Args:
        run: Runs the experiment, steered by the line that it is given, and returns its results.
    """

    def __init__(self, run: Callable[[Line], ResultGrid]) -> None:
        self._run = run
        self._line = Line()
        self._begun = threading.Event()
        self._grid: ResultGrid | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="tuner-driver")

    def start(self) -> None:
        """Begin, and return when the driver listens.

        Raises:
            Exception: If the experiment could not begin.
        """
        self._line.when_open(self._begun.set)
        self._thread.start()
        self._begun.wait()
        if not self._line.is_open and self._error is not None:
            self._thread.join()
            raise self._error

    @property
    def is_running(self) -> bool:
        """Whether the driver is at work."""
        return self._thread.is_alive()

    def ask(self, wish: Wish) -> Answer:
        """Ask the driver for something and wait for its answer."""
        return self._line.ask(wish)

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the driver has ended, and return whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def results(self) -> ResultGrid:
        """Return the results, once it has ended.

        Raises:
            Exception: What ended it, where it did not end by itself.
        """
        if self._error is not None:
            raise self._error
        if self._grid is None:
            raise RuntimeError("the experiment runs still; wait() returns its results")
        return self._grid

    def _work(self) -> None:
        try:
            self._grid = self._run(self._line)
        except BaseException as error:  # noqa: BLE001  (raised where somebody waits)
            self._error = error
        finally:
            self._line.close()
            self._begun.set()
