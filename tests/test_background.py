"""Jobs in the background: their order, errors and ends, in conversations with their thread."""

import threading
import weakref
from functools import partial
from queue import SimpleQueue

import pytest

from tuner.background import BackgroundJobs

pytestmark = pytest.mark.process

LONG_S = 60.0


class Gate:
    """A job that lets the test go on once it has begun, and ends when the test lets it."""

    def __init__(self):
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self):
        self.has_begun.set()
        assert self.may_end.wait(LONG_S)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.may_end.set()


def fail(text):
    raise ValueError(text)


def test_jobs_run_in_order_in_one_daemon_thread_that_starts_with_the_first_and_ends():
    jobs, seen = BackgroundJobs("tuner-test"), []
    assert jobs.wait(0.0)
    assert jobs.close()  # there was nothing to do
    jobs = BackgroundJobs("tuner-test")
    for number in range(50):
        jobs.submit(lambda number=number: seen.append((number, threading.current_thread())))
    assert jobs.wait(LONG_S)
    assert [number for number, _ in seen] == [*range(50)]
    (thread,) = {thread for _, thread in seen}
    assert (thread.name, thread.daemon) == ("tuner-test", True)
    assert jobs.close(LONG_S)
    assert not thread.is_alive()
    jobs.submit(partial(seen.append, "late"))
    jobs.wake()
    assert "late" not in seen


def test_jobs_wait_for_those_before_them_and_the_caller_for_room(gate):
    jobs = BackgroundJobs("tuner-test")
    jobs.submit(gate)
    assert gate.has_begun.wait(LONG_S)
    jobs.submit(int)
    assert jobs.num_outstanding == 2
    assert jobs.wait(0.0, num_left=2)
    assert not jobs.wait(0.0, num_left=1)
    gate.may_end.set()
    assert jobs.wait(LONG_S, num_left=1)
    assert jobs.wait(LONG_S)
    assert jobs.num_outstanding == 0


def test_an_error_is_kept_and_the_next_jobs_run():
    jobs, seen = BackgroundJobs("tuner-test"), []
    for job in (partial(fail, "first"), partial(fail, "second"), partial(seen.append, 1)):
        jobs.submit(job)
    assert jobs.close(LONG_S)
    assert (str(jobs.error), seen) == ("first", [1])


def test_a_handler_gets_every_error():
    seen = []
    jobs = BackgroundJobs("tuner-test", on_error=seen.append)
    jobs.submit(partial(fail, "first"))
    jobs.submit(partial(fail, "second"))
    assert jobs.close(LONG_S)
    assert ([str(error) for error in seen], jobs.error) == (["first", "second"], None)


def test_the_end_waits_for_all_that_was_submitted_as_long_as_it_may(gate):
    jobs, seen = BackgroundJobs("tuner-test"), []
    jobs.submit(gate)
    jobs.submit(partial(seen.append, 1))
    assert gate.has_begun.wait(LONG_S)
    assert not jobs.close(0.0)
    gate.may_end.set()
    assert jobs.close(LONG_S)
    assert seen == [1]


def test_the_end_may_drop_what_has_not_begun(gate):
    jobs, seen = BackgroundJobs("tuner-test"), []
    jobs.submit(gate)
    assert gate.has_begun.wait(LONG_S)
    jobs.submit(partial(seen.append, 1))
    assert not jobs.close(0.0, drops_queued=True)
    assert jobs.num_outstanding == 1
    gate.may_end.set()
    assert jobs.close()
    assert seen == []


def test_a_pause_ends_with_the_jobs():
    jobs, ends = BackgroundJobs("tuner-test"), SimpleQueue()
    jobs.submit(lambda: ends.put(jobs.pause(0.0)))
    assert not ends.get(timeout=LONG_S)
    jobs.submit(lambda: ends.put(jobs.pause(LONG_S)))
    jobs.close()
    assert ends.get(timeout=LONG_S)


def test_several_threads_run_as_many_jobs_at_once():
    jobs, together = BackgroundJobs("tuner-test", num_threads=3), threading.Barrier(4)
    for _ in range(3):
        jobs.submit(lambda: together.wait(LONG_S))
    together.wait(LONG_S)  # only now can any of them go on
    assert jobs.close(LONG_S)
    assert jobs.error is None


def test_without_a_thread_the_caller_does_it():
    jobs, seen = BackgroundJobs("tuner-test", fail, num_threads=0), []
    jobs.submit(lambda: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]
    with pytest.raises(ValueError, match="bad"):
        jobs.submit(partial(fail, "bad"))
    jobs.wake()
    assert jobs.wait(0.0)
    assert jobs.close(0.0)
    jobs.submit(partial(seen.append, "late"))
    assert len(seen) == 1


class Recurring:
    """A job that recurs, and each time does what the test says."""

    def __init__(self, period_s=None):
        self.jobs = BackgroundJobs("tuner-test", self._run, period_s)
        self._begun, self._rest = SimpleQueue(), SimpleQueue()

    def _run(self):
        self._begun.put(None)
        self._rest.get(timeout=LONG_S)()

    def begins(self):
        self._begun.get(timeout=LONG_S)

    def end(self, rest=int):
        self._rest.put(rest)

    @property
    def has_begun(self):
        return not self._begun.empty()


def test_a_job_recurs_when_woken_and_some_time_after_its_end():
    job = Recurring(0.001)
    job.jobs.wake(0.001)
    job.begins()
    job.end()
    job.begins()
    job.jobs.period_s = LONG_S
    job.end()
    assert job.jobs.wait(LONG_S)
    assert not job.has_begun
    job.jobs.wake()
    job.begins()
    job.jobs.period_s = None
    job.end()
    assert job.jobs.close(LONG_S)
    assert not job.has_begun


def test_calls_of_wake_are_one_until_the_job_begins_and_another_one_from_then_on(gate):
    job = Recurring()
    job.jobs.submit(gate)
    assert gate.has_begun.wait(LONG_S)
    for within_s in (LONG_S, 0.0, 0.0):
        job.jobs.wake(within_s)
    gate.may_end.set()
    job.begins()
    job.jobs.wake()
    job.jobs.wake()
    job.end()
    job.begins()
    job.end()
    assert job.jobs.wait(LONG_S)
    assert not job.has_begun
    assert job.jobs.close(LONG_S)


def test_a_job_recurs_after_an_error():
    job = Recurring(0.001)
    job.jobs.wake()
    job.begins()
    job.end(partial(fail, "first"))
    job.begins()
    assert str(job.jobs.error) == "first"
    job.end()
    job.begins()
    assert not job.jobs.close(0.0)
    job.end()
    assert job.jobs.close(LONG_S)


def test_nothing_recurs_after_the_end_and_what_was_submitted_is_done():
    job, seen = Recurring(LONG_S), []
    job.jobs.wake(LONG_S)
    job.jobs.submit(partial(seen.append, 1))
    assert job.jobs.close()
    assert (seen, job.has_begun) == ([1], False)


def test_cpu_time_is_that_of_the_jobs():
    jobs = BackgroundJobs("tuner-test")
    jobs.submit(lambda: sum(range(100_000)))
    assert jobs.close(LONG_S)
    assert jobs.cpu_s > 0.0


def test_a_job_is_forgotten_once_it_has_ended():
    jobs, job = BackgroundJobs("tuner-test"), Gate()
    job.may_end.set()
    jobs.submit(job)
    jobs.submit(int)
    assert jobs.wait(LONG_S)
    known = weakref.ref(job)
    del job
    assert known() is None
    assert jobs.close()
