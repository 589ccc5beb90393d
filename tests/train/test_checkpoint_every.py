"""When the next checkpoint is due."""

import pytest

import tuner as tune
from tests.execution.conversation import Script, assignment
from tuner import train
from tuner.execution.assignment import Rank
from tuner.execution.session import run_attempt
from tuner.train import checkpoint_every


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s

    def passes(self, seconds):
        self.now_s += seconds


class Driver(Script):
    """A driver that takes some seconds for each checkpoint.

    `others` says for each report whether another worker of the group has reported a checkpoint.
    """

    def __init__(self, clock, cost_s, others=()):
        super().__init__()
        self.clock, self.cost_s, self.others = clock, cost_s, list(others)
        self.next_checkpoint = 0

    def receive(self, timeout_s=None):
        if self.kinds[-1] == "exited":
            return {"leave": True}
        told = self.said[-1]
        if told["checkpoint"] or told.get("part") or (self.others and self.others.pop(0)):
            self.clock.passes(self.cost_s)
            self.next_checkpoint += 1
        return {
            "verdict": "continue",
            "save": False,
            "next_checkpoint": self.next_checkpoint,
            "latest": None,
        }


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def train_for(tmp_path, clock):
    """Return a function that trains in this process, and returns the steps with a checkpoint due.

    Each step takes a minute, and then reports what is due.
    """

    def run(minutes=None, max_overhead=0.05, *, steps, cost_s=0.0, report=train.report, count=None):
        due = []

        def loop(config):
            every = train.CheckpointEvery(minutes, max_overhead, clock=count or clock)
            for step in range(steps):
                clock.passes(60)
                if every.is_due():
                    due.append(step)
                    with train.checkpoint_dir() as directory:
                        report({"step": step}, train.Checkpoint.from_directory(directory))
                else:
                    report({"step": step})

        driver = Driver(clock, cost_s)
        run_attempt(loop, assignment(tmp_path), driver)
        assert driver.outcome == "completed", driver.exit
        return due

    return run


def test_a_checkpoint_is_due_after_the_minutes(train_for):
    assert train_for(minutes=3, steps=10) == [2, 5, 8]


def test_saving_takes_at_most_its_share_of_the_time(train_for):
    # 60 s of each 300 s.
    assert train_for(max_overhead=0.2, steps=10, cost_s=60) == [0, 4, 8]


def test_a_slow_checkpoint_comes_less_often_than_the_minutes_ask_for(train_for):
    # After 10 s of saving, 190 s without.
    assert train_for(minutes=1, steps=10, cost_s=10) == [0, 4, 8]


def test_it_does_not_matter_which_report_brings_the_checkpoint(train_for):
    assert train_for(minutes=3, steps=10, report=tune.report) == [2, 5, 8]


def test_the_clock_may_count_from_anywhere(train_for, clock):
    assert train_for(minutes=3, steps=10, count=lambda: clock() - 1e9) == [2, 5, 8]


def test_a_checkpoint_that_another_worker_reports_counts(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(checkpoint_every, "broadcast_from_rank_zero", lambda decided: decided)
    due = []

    def loop(config):
        every = train.CheckpointEvery(minutes=3, clock=clock)
        for step in range(8):
            clock.passes(60)
            due.append(every.is_due())
            train.report({"step": step})

    place = Rank(0, 2, 0, 2, 0, "127.0.0.1", 0, "group")
    others = [False, False, True, False, False, False, True, False]
    driver = Driver(clock, 0.0, others)
    run_attempt(loop, assignment(tmp_path, rank=place), driver)
    assert due == [False, False, True, False, False, True, True, False]


def test_a_checkpoint_stays_due_until_it_is_reported(clock):
    every = train.CheckpointEvery(minutes=1, clock=clock)
    clock.passes(60)
    assert every.is_due()
    assert every.is_due()


@pytest.mark.parametrize("arguments", [{"minutes": -1}, {"max_overhead": 0}, {"max_overhead": 2}])
def test_an_impossible_cadence_is_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        train.CheckpointEvery(**arguments)
