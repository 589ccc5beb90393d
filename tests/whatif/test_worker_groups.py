"""What-if of experiments whose trials train over several processes."""

import pytest

import tuner
from schedulers import ASHAScheduler, FIFOScheduler
from tuner.core.worker_records import WorkerGroup
from tuner.execution.group_trainable import GroupTrainable
from tuner.whatif.recording import read_recording
from tuner.whatif.replay import slots_for


class Loop(GroupTrainable):
    """Trains over one to three workers, by its configuration, with half a GPU each or none."""

    def __init__(self, gpus=0.0):
        self.gpus = gpus

    def __call__(self, config):
        """Do nothing: what it would report is simulated."""

    def group_for(self, config):
        share = {"cpu": 1.0} | ({"gpu": self.gpus} if self.gpus else {})
        number = 1 + config["number"] % 3
        return WorkerGroup(number, share, number, number)

    @property
    def validator(self):
        return None


@pytest.fixture
def ran(record, worlds):
    """Return six trials over 1, 2, 3, 1, 2 and 3 of four processors."""
    world = worlds.World([[0.5, 0.4, 0.3]] * 6, [1.0] * 6)
    return record(world, trainable=Loop(), slots=4)


def test_groups_share_the_recorded_resources_as_they_did(ran):
    answer = tuner.what_if(ran.grid, FIFOScheduler())
    assert answer.replayed.wall_clock_s == pytest.approx(ran.end_s)


def test_groups_that_are_cut_leave_room_for_others(ran):
    scheduler = ASHAScheduler(max_t=3, reduction_factor=2, type="stopping")
    answer = tuner.what_if(ran.grid, scheduler)
    assert answer.replayed.wall_clock_s <= answer.in_full.wall_clock_s


def test_slots_are_as_large_as_the_largest_group(ran):
    slots = slots_for(read_recording(ran.grid), 2)
    assert (slots.capacity, slots.count) == ({"cpu": 6}, 2)
