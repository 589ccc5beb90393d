"""What a process borrows is what its own resources do not cover, and it is given back."""

import os
import threading

import pytest

from tuner.core.worker_records import WorkerGroup
from tuner.errors import LeaseRefused, ResourceDeadlock
from tuner.execution.answers import Answers
from tuner.execution.lease_holder import LeaseHolder
from tuner.execution.leasing import lease, lease_holder, set_holder


class Driver:
    """Answers requests as a test says, and records what it is sent."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.said = []

    def send(self, message):
        self.said.append(message)

    def receive(self, timeout_s=None):
        answer = self.answers.pop(0)
        token = self.said[-1]["token"]
        return {key: token if value is ... else value for key, value in answer.items()}

    @property
    def kinds(self):
        return [message["kind"] for message in self.said]


GRANTED = {"lease": ..., "num_workers": 1, "devices": []}


def group(num_workers, low=None, **share):
    return WorkerGroup(num_workers, share or {"cpu": 1.0}, low or num_workers, num_workers)


@pytest.fixture
def hold(tmp_path):
    def build(*answers, **resources):
        driver = Driver(*answers)
        trial_dir = tmp_path / "outer" / "t00000"
        set_holder(LeaseHolder(driver, Answers(driver), trial_dir, resources or {"cpu": 1.0}))
        return driver

    yield build
    set_holder(None)


def test_outside_of_a_trial_there_is_nothing_to_borrow():
    with lease(group(2)) as borrowed:
        assert borrowed is None


def test_single_processes_borrow_nothing(hold):
    driver = hold()
    with lease(None) as borrowed:
        assert borrowed is None
    assert driver.said == []


def test_one_worker_runs_with_what_the_waiting_process_occupies(hold):
    driver = hold()
    with lease(group(1)) as borrowed:
        assert (borrowed.num_workers, dict(borrowed.capacity)) == (1, {"cpu": 1.0, "gpu": 0.0})
    assert driver.said == []


def test_the_others_are_borrowed_and_given_back(hold):
    driver = hold(GRANTED)
    with lease(group(2)) as borrowed:
        assert borrowed.num_workers == 2
        assert driver.kinds == ["lease"]
        assert driver.said[0]["group"]["num_workers"] == 1
    assert driver.kinds == ["lease", "release"]
    assert driver.said[0]["token"] == driver.said[1]["token"]


def test_a_larger_share_is_borrowed_as_a_whole(hold):
    driver = hold({**GRANTED, "num_workers": 2})
    with lease(group(2, cpu=2.0)) as borrowed:
        assert dict(borrowed.capacity) == {"cpu": 4.0, "gpu": 0.0}
    assert driver.said[0]["group"]["num_workers"] == 2


def test_the_own_share_is_used_once_at_a_time(hold):
    driver = hold(GRANTED)
    with lease(group(1)):
        assert driver.said == []
        with lease(group(1)) as second:
            assert second.num_workers == 1
    assert driver.kinds == ["lease", "release"]


def test_it_is_given_back_after_an_error(hold):
    driver = hold(GRANTED)
    with pytest.raises(ZeroDivisionError), lease(group(2)):
        raise ZeroDivisionError
    assert driver.kinds == ["lease", "release"]


@pytest.mark.parametrize(("is_deadlock", "kind"), [(False, LeaseRefused), (True, ResourceDeadlock)])
def test_a_refusal_says_why(hold, is_deadlock, kind):
    hold({"refused": ..., "reason": "too much", "deadlock": is_deadlock})
    with pytest.raises(LeaseRefused, match="too much") as caught, lease(group(3)):
        pass
    assert caught.type is kind


def test_a_group_that_may_be_small_does_without_what_it_is_refused(hold):
    hold({"refused": ..., "reason": "too much", "deadlock": True})
    with lease(group(3, low=1)) as borrowed:
        assert borrowed.num_workers == 1


def test_the_inner_driver_sees_the_borrowed_devices_and_no_limit_of_threads(hold, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    hold({**GRANTED, "devices": ["4"]}, cpu=1.0, gpu=1.0)
    with lease(group(2, cpu=1.0, gpu=1.0)) as borrowed:
        assert borrowed.devices == ("7", "4")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "7,4"
        assert "OMP_NUM_THREADS" not in os.environ
        assert os.environ["MKL_NUM_THREADS"] == "3"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert os.environ["OMP_NUM_THREADS"] == "1"


@pytest.mark.process
def test_a_child_process_holds_nothing(hold):
    hold()
    child = os.fork()
    if child == 0:
        os._exit(lease_holder() is not None)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.process
def test_threads_use_the_own_share_one_after_another(hold):
    driver = hold(GRANTED)
    inside, leave = threading.Event(), threading.Event()

    def first():
        with lease(group(1)):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(60)
    with lease(group(1)):
        pass
    leave.set()
    thread.join()
    assert driver.kinds == ["lease", "release"]
