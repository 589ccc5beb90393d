"""Threads in which the executor commits the checkpoints of groups, beside its loop."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, final

from .process_setup import WakeupPipe

_NUM_THREADS: Final = 4


@final
class CommitPool:
    """Runs jobs in a few threads; `run_done` passes on their results in the executor's thread.

    It is readable, for a selector, while there are results.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="tuner-commit")
        self._done: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._pipe = WakeupPipe()

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self._pipe.fileno()

    def submit(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run a job.

        Args:
            job: Runs in a thread.
            then: Called by `run_done` with what the job has returned, or with the exception that it
                has raised.
        """
        self._threads.submit(job).add_done_callback(partial(self._on_done, then))

    def _on_done(self, then: Callable[[Any], None], future: Future[Any]) -> None:
        if not future.cancelled():
            self._done.put((then, future.exception() or future.result()))
            self._pipe.wake()

    def run_done(self) -> None:
        """Pass on the results of the jobs that have ended."""
        self._pipe.clear()
        while not self._done.empty():
            then, result = self._done.get()
            then(result)

    def close(self) -> None:
        """Wait for the jobs that run, and end the threads."""
        self._threads.shutdown(cancel_futures=True)
        self._pipe.close()
