"""Threads in which the executor commits the checkpoints of groups, beside its loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, final

from tuner.background import BackgroundJobs

from .local.process_setup import WakeupPipe

_NUM_THREADS: Final = 4


@final
class CommitPool:
    """Runs jobs in a few threads; `run_done` passes on their results in the executor's thread.

    It is readable, for a selector, while there are results.
    """

    def __init__(self) -> None:
        self._jobs = BackgroundJobs("tuner-commit", num_threads=_NUM_THREADS)
        self._done: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._running: dict[int, str] = {}
        """What each thread is working on."""
        self._pipe = WakeupPipe()

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self._pipe.fileno()

    def submit(self, job: Callable[[], Any], then: Callable[[Any], None], what: str) -> None:
        """Run a job.

        Args:
            job: Runs in a thread.
            then: Called by `run_done` with what the job has returned, or with the exception that it
                has raised.
            what: The files that it works on, to be named if it does not end.
        """
        self._jobs.submit(partial(self._run, job, then, what))

    def _run(self, job: Callable[[], Any], then: Callable[[Any], None], what: str) -> None:
        self._running[threading.get_ident()] = what
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001  (`then` is told)
            result = error
        del self._running[threading.get_ident()]
        self._done.put((then, result))
        self._pipe.wake()

    def run_done(self) -> None:
        """Pass on the results of the jobs that have ended."""
        self._pipe.clear()
        while not self._done.empty():
            then, result = self._done.get()
            then(result)

    def close(self, within_s: float) -> list[str]:
        """End the threads; jobs that have not begun are dropped.

        Args:
            within_s: How many seconds to wait for the jobs that run.

        Returns:
            What the jobs work on that are still running then; their threads are left alone.
        """
        self._jobs.close(within_s, drops_queued=True)
        self._pipe.close()
        return sorted(self._running.copy().values())
