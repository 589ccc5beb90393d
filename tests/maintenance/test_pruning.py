"""Checkpoints that are still needed, and disk usage."""

import os

import pytest

from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.maintenance.pruning import needed_checkpoints, size_of


def trial_with(
    num_checkpoints, status=Status.TERMINATED, ending=TerminationReason.COMPLETED, leases=None
):
    trial = Trial("t00000", {}, {"cpu": 1.0})
    trial.move_to(status)
    trial.ending = ending
    trial.checkpoints = [CheckpointRecord(index, index + 1) for index in range(num_checkpoints)]
    trial.leases = leases or {}
    return trial


@pytest.mark.parametrize(
    ("status", "ending", "expected"),
    [
        (Status.TERMINATED, TerminationReason.COMPLETED, set()),
        (Status.TERMINATED, TerminationReason.STOPPED_EARLY, set()),
        (Status.TERMINATED, TerminationReason.INTERRUPTED, {2}),
        (Status.ERROR, TerminationReason.FAILED, {2}),
        (Status.PENDING, None, {2}),
        (Status.PAUSED, None, {2}),
        (Status.RUNNING, None, {2}),
    ],
)
def test_a_trial_that_may_go_on_needs_its_latest_checkpoint(status, ending, expected):
    assert needed_checkpoints(trial_with(3, status, ending)) == expected
    assert needed_checkpoints(trial_with(0, status, ending)) == set()


@pytest.mark.parametrize("reader", ["t00007", "t00007 to be", ""])
def test_a_checkpoint_with_a_reader_is_needed_also_after_its_trial_has_ended(reader):
    assert needed_checkpoints(trial_with(3, leases={reader: 1})) == {1}
    assert needed_checkpoints(trial_with(3, Status.RUNNING, None, leases={reader: 1})) == {1, 2}


def test_sizes_are_what_the_disk_gives_and_links_are_not_followed(tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(1 << 20))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "also").write_bytes(os.urandom(1 << 20))
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "big")
    assert 1 << 20 <= size_of(tmp_path / "folder") < (1 << 20) + (1 << 17)
    assert size_of(tmp_path) >= 2 << 20
    assert size_of(tmp_path / "nowhere") == 0
