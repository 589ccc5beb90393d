"""Jobs in the background: a queue and the thread that works it off.

Whatever the engine does beside the caller is done by `BackgroundJobs`, except where a thread runs
training code, serves a connection, or makes a call that may hang and is given up.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

_Job = Callable[[], object]


class BackgroundJobs:
    """Runs jobs in a thread, in the order in which they were submitted.

    In addition, one job may recur: whenever `wake` is called, and some time after it has ended.
    Jobs that were submitted go first.

    - The thread starts with the first job and ends with `close`. It is a daemon thread, so a job
      that hangs does not keep a finished script from ending. What must be done by then is waited
      for, with `wait` or `close`.
    - A job that raises ends neither the thread nor the jobs behind it, and recurs all the same.
    - The queue has no bound of its own. Where jobs may be submitted faster than they are done,
      the caller waits for room with `wait`, or counts.
    - All methods may be called by any thread, but not in a forked child, which has no thread.

    Args:
        name: Name of the thread.
        recurring: The job that recurs, from the first `wake` on; None for none.
        period_s: How many seconds after its end it is called again; None for not before the next
            `wake`.
        num_threads: How many jobs may run at once, in as many threads, which begin them in order;
            one where a job recurs. With 0, `submit` makes the call itself and raises what the job
            raises, and nothing recurs: for virtual time, and callers that allow no thread.
        on_error: Called in the thread with what a job has raised. None to keep the first error.

    Attributes:
        error: The first error of a job, unless `on_error` handles errors; None without one.
        cpu_s: CPU time of the jobs that have ended, in seconds.
        period_s: As given; may be set at any time.
    """

    def __init__(
        self,
        name: str,
        recurring: _Job | None = None,
        period_s: float | None = None,
        *,
        num_threads: int = 1,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        self.error: BaseException | None = None
        self.cpu_s = 0.0
        self.period_s = period_s
        self._name = name
        self._recurring = recurring
        self._num_threads = num_threads
        self._on_error = on_error or self._keep
        self._threads: list[threading.Thread] = []
        self._jobs: deque[_Job] = deque()
        self._num_outstanding = 0
        self._due_s = math.inf
        """When the recurring job is due: a monotonic time, or minus infinity for at once."""
        self._closed = threading.Event()
        self._changed = threading.Condition()

    @property
    def num_outstanding(self) -> int:
        """How many jobs wait or run."""
        return self._num_outstanding

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed.is_set()

    def submit(self, job: _Job) -> None:
        """Run a job after those that were submitted before; none after `close`."""
        if not self._num_threads and not self.is_closed:
            job()
            return
        with self._changed:
            if not self.is_closed:
                self._begin_thread()
                self._jobs.append(job)
                self._num_outstanding += 1
                self._changed.notify_all()

    def wake(self, within_s: float = 0.0) -> None:
        """Have the recurring job called within so many seconds.

        It is called once for all calls of `wake` before it begins, and once more for those after.
        """
        # Without the lock, for callers that wake it often: whoever has set this has notified.
        if self._due_s == -math.inf or not self._num_threads:
            return
        with self._changed:
            due_s = time.monotonic() + within_s if within_s > 0.0 else -math.inf
            if due_s < self._due_s and not self.is_closed:
                self._begin_thread()
                self._due_s = due_s
                self._changed.notify_all()

    def wait(self, timeout_s: float | None = None, *, num_left: int = 0) -> bool:
        """Wait until at most `num_left` jobs wait or run, and return whether that is so.

        Args:
            timeout_s: How many seconds to wait at most; None for as long as it takes.
            num_left: See above.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._num_outstanding <= num_left, timeout_s)

    def pause(self, duration_s: float) -> bool:
        """Pause within a job, at most until `close`; return whether that has been called."""
        return self._closed.wait(duration_s)

    def close(self, timeout_s: float | None = None, *, drops_queued: bool = False) -> bool:
        """Run what was submitted and end the thread, and return whether it has ended.

        May be called again, to wait on.

        Args:
            timeout_s: How many seconds to wait at most; None for as long as it takes.
            drops_queued: Whether jobs that have not begun are dropped.
        """
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if drops_queued:
                self._num_outstanding -= len(self._jobs)
                self._jobs.clear()
            self._closed.set()
            self._changed.notify_all()
        for thread in self._threads:
            rest_s = until_s - time.monotonic()
            thread.join(None if rest_s == math.inf else max(0.0, rest_s))
        return not any(thread.is_alive() for thread in self._threads)

    def _keep(self, error: BaseException) -> None:
        self.error = self.error or error

    def _begin_thread(self) -> None:
        if len(self._threads) < min(self._num_outstanding + 1, self._num_threads):
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)

    # In the threads.

    def _run(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        # A function of its own, so that no job is kept in memory while the next one is awaited.
        job = self._next()
        if job is None:
            return False
        began_s = time.thread_time()
        try:
            job()
        except BaseException as error:  # noqa: BLE001  (the owner of the jobs decides)
            self._on_error(error)
        finally:
            with self._changed:
                self.cpu_s += time.thread_time() - began_s
                self._num_outstanding -= 1
                self._changed.notify_all()
        return True

    def _next(self) -> _Job | None:
        """Wait for the next job, and return it; None once there will be none."""
        with self._changed:
            while not self._jobs:
                rest_s = self._due_s - time.monotonic()
                if self.is_closed:
                    return None
                if rest_s <= 0.0:
                    self._due_s = math.inf
                    self._num_outstanding += 1
                    return self._recur
                self._changed.wait(None if rest_s == math.inf else rest_s)
            return self._jobs.popleft()

    def _recur(self) -> None:
        try:
            if self._recurring:
                self._recurring()
        finally:
            if self.period_s is not None:
                self.wake(self.period_s)
