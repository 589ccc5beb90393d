"""When the next checkpoint is due."""

import pytest

from tuner import train
from tuner.train import checkpoint_every


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s

    def passes(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(checkpoint_every, "_last_report_s", -1.0)
    return Clock()


def save(every, clock, cost_s):
    """Save a checkpoint that is due, which takes some seconds."""
    assert every.is_due()
    clock.passes(cost_s)
    checkpoint_every.note_report(clock.now_s)


def test_a_checkpoint_is_due_after_the_minutes(clock):
    every = train.CheckpointEvery(minutes=10, clock=clock)
    assert not every.is_due()
    clock.passes(599)
    assert not every.is_due()
    clock.passes(1)
    save(every, clock, cost_s=0.5)
    clock.passes(599)
    assert not every.is_due()
    clock.passes(1)
    assert every.is_due()


def test_saving_takes_at_most_its_share_of_the_time(clock):
    every = train.CheckpointEvery(max_overhead=0.2, clock=clock)
    save(every, clock, cost_s=10)
    clock.passes(39)
    assert not every.is_due()
    clock.passes(1)
    assert every.is_due()


def test_a_slow_checkpoint_comes_less_often_than_the_minutes_ask_for(clock):
    every = train.CheckpointEvery(minutes=1, max_overhead=0.05, clock=clock)
    clock.passes(60)
    save(every, clock, cost_s=10)
    clock.passes(60)
    assert not every.is_due()
    clock.passes(130)
    assert every.is_due()


def test_a_checkpoint_stays_due_until_it_is_reported(clock):
    every = train.CheckpointEvery(minutes=1, clock=clock)
    clock.passes(60)
    assert every.is_due()
    assert every.is_due()
    save(every, clock, cost_s=1)
    assert not every.is_due()


@pytest.mark.parametrize("arguments", [{"minutes": -1}, {"max_overhead": 0}, {"max_overhead": 2}])
def test_an_impossible_cadence_is_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        train.CheckpointEvery(**arguments)
