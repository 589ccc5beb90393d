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
    """A job that recurs as the test says."""

    def __init__(self):
        self.calls, self.answers = SimpleQueue(), SimpleQueue()
        self.jobs = BackgroundJobs("tuner-test", self)

    def __call__(self):
        self.calls.put("call")
        answer = self.answers.get(timeout=LONG_S)
        return answer() if callable(answer) else answer


def test_a_job_recurs_when_woken_and_after_the_time_that_it_returns():
    recurring = Recurring()
    jobs, calls, answers = recurring.jobs, recurring.calls, recurring.answers
    jobs.wake(0.001)
    calls.get(timeout=LONG_S)
    answers.put(0.001)
    calls.get(timeout=LONG_S)
    answers.put(LONG_S)
    assert jobs.wait(LONG_S)
    assert calls.empty()
    jobs.wake()
    calls.get(timeout=LONG_S)
    answers.put(None)
    assert jobs.close(LONG_S)
    assert calls.empty()


def test_calls_of_wake_are_one_until_the_job_begins_and_another_one_from_then_on(gate):
    recurring = Recurring()
    jobs, calls, answers = recurring.jobs, recurring.calls, recurring.answers
    jobs.submit(gate)
    assert gate.has_begun.wait(LONG_S)
    for within_s in (LONG_S, 0.0, 0.0):
        jobs.wake(within_s)
    gate.may_end.set()
    calls.get(timeout=LONG_S)
    jobs.wake()
    jobs.wake()
    answers.put(None)
    calls.get(timeout=LONG_S)
    answers.put(None)
    assert jobs.wait(LONG_S)
    assert calls.empty()
    assert jobs.close(LONG_S)


def test_a_job_that_recurs_waits_after_an_error_until_it_is_woken():
    recurring = Recurring()
    jobs, calls, answers = recurring.jobs, recurring.calls, recurring.answers
    jobs.wake()
    answers.put(partial(fail, "first"))
    calls.get(timeout=LONG_S)
    assert jobs.wait(LONG_S)
    jobs.wake()
    calls.get(timeout=LONG_S)
    answers.put(None)
    assert jobs.close(LONG_S)
    assert str(jobs.error) == "first"


def test_nothing_recurs_after_the_end_and_what_was_submitted_is_done():
    recurring, seen = Recurring(), []
    recurring.jobs.wake(LONG_S)
    recurring.jobs.submit(partial(seen.append, 1))
    assert recurring.jobs.close()
    assert (seen, recurring.calls.empty()) == ([1], True)


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
