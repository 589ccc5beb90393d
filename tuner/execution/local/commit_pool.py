"""Threads in which the executor commits the checkpoints of groups, beside its loop."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, final

from .process_setup import WakeupPipe

_NUM_THREADS: Final = 4

_Job = tuple[Callable[[], Any], Callable[[Any], None], str]


@final
class CommitPool:
    """Runs jobs in a few threads; `run_done` passes on their results in the executor's thread.

    It is readable, for a selector, while there are results. Its threads do not keep the interpreter
    alive: one that waits for a disk that does not answer would do so for ever.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._running: dict[threading.Thread, str] = {}
        self._pipe = WakeupPipe()
        self._threads = [
            threading.Thread(target=self._run, name=f"tuner-commit-{number}", daemon=True)
            for number in range(_NUM_THREADS)
        ]
        for thread in self._threads:
            thread.start()

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
        self._jobs.put((job, then, what))

    def _run(self) -> None:
        thread = threading.current_thread()
        while next_job := self._jobs.get():
            job, then, self._running[thread] = next_job
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001  (`then` is told)
                result = error
            del self._running[thread]
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
        deadline_s = time.monotonic() + within_s
        with suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._pipe.close()
        return sorted(self._running[thread] for thread in self._threads if thread in self._running)
