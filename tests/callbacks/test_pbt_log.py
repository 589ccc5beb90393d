"""The files about exploits in Ray Tune's format, derived from the trials."""

import json
import os

import pytest

from schedulers.decisions import Reason
from tuner.callbacks import PolicyLog
from tuner.core.trial import AppliedExploit, Trial
from tuner.core.worker_records import CheckpointRecord

WHY = Reason("pbt.exploit")


def graft(donor_id, iteration, checkpoint, config, first_checkpoint):
    index, at = checkpoint
    return AppliedExploit(
        1,
        iteration,
        iteration,
        config,
        donor_id,
        CheckpointRecord(index, at),
        at,
        first_checkpoint,
        WHY,
    )


@pytest.fixture
def trials():
    """Return three trials: b exploited a, then c exploited b, and b exploited a once more."""
    a, b, c = (
        Trial(f"t0000{number}", {"lr": lr}, {"cpu": 1.0}, f"{number}_lr={lr}")
        for number, lr in enumerate((0.1, 0.2, 0.3))
    )
    a.config = {"lr": 0.1}
    b.grafts = [
        graft("t00000", 10, (0, 10), {"lr": 0.2}, 1),
        graft("t00000", 30, (2, 30), {"lr": 0.12}, 3),
    ]
    b.config, b.experiment_tag = {"lr": 0.08}, "1_lr=0.2@perturbed[lr=0.0800]"
    c.grafts = [graft("t00001", 20, (2, 20), {"lr": 0.3}, 2)]
    c.config = {"lr": 0.15}
    return [a, b, c]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_exploit_is_a_line_and_a_policy_file_has_the_whole_ancestry(trials, tmp_path):
    log = PolicyLog()
    log.mend(tmp_path, trials)
    first = ["1_lr=0.2", "0_lr=0.1", 10, 10, {"lr": 0.1}, {"lr": 0.12}]
    second = ["1_lr=0.2", "0_lr=0.1", 30, 30, {"lr": 0.1}, {"lr": 0.08}]
    third = ["2_lr=0.3", "1_lr=0.2", 20, 20, {"lr": 0.12}, {"lr": 0.15}]
    assert lines(tmp_path / "pbt_global.txt") == [first, second, third]
    assert lines(tmp_path / "pbt_policy_t00001.txt") == [second]
    assert lines(tmp_path / "pbt_policy_t00002.txt") == [first, third]
    assert not (tmp_path / "pbt_policy_t00000.txt").exists()


def test_exploits_are_added_as_they_happen(trials, tmp_path):
    log = PolicyLog()
    log.setup(experiment_path=tmp_path)
    _, b, c = trials
    grafts, b.grafts, b.config = b.grafts, b.grafts[:1], {"lr": 0.12}
    log.on_trial_exploit(1, trials, b, b.grafts[0])
    log.on_trial_exploit(2, trials, c, c.grafts[0])
    b.grafts, b.config = grafts, {"lr": 0.08}
    log.on_trial_exploit(3, trials, b, b.grafts[1])
    assert [line[0] for line in lines(tmp_path / "pbt_global.txt")] == [
        "1_lr=0.2",
        "2_lr=0.3",
        "1_lr=0.2",
    ]
    before = (tmp_path / "pbt_global.txt").read_text()
    PolicyLog().mend(tmp_path, trials)
    assert (tmp_path / "pbt_global.txt").read_text() == before, "nothing was missing"


def test_what_a_killed_driver_has_left_out_is_added(trials, tmp_path):
    log = PolicyLog()
    log.mend(tmp_path, trials)
    whole = (tmp_path / "pbt_global.txt").read_text().splitlines(keepends=True)
    (tmp_path / "pbt_global.txt").write_text("".join(whole[:2]))
    (tmp_path / "pbt_policy_t00002.txt").unlink()
    PolicyLog().mend(tmp_path, trials)
    assert (tmp_path / "pbt_global.txt").read_text().splitlines(keepends=True) == whole
    assert len(lines(tmp_path / "pbt_policy_t00002.txt")) == 2


@pytest.mark.parametrize(
    "place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["FIFO", "link"]
)
def test_what_lies_in_the_place_of_a_file_is_replaced_and_neither_read_nor_waited_for(
    trials, tmp_path, place
):
    PolicyLog().mend(tmp_path, trials)
    paths = [
        tmp_path / name
        for name in ("pbt_global.txt", "pbt_policy_t00001.txt", "pbt_policy_t00002.txt")
    ]
    before = [path.read_text() for path in paths]
    for path in paths:
        path.unlink()
        place(path)
    PolicyLog().mend(tmp_path, trials)
    assert [path.is_symlink() or path.read_text() for path in paths] == before


def test_a_file_that_cannot_be_mended_is_told_of_and_ends_nothing(trials, tmp_path, caplog):
    (tmp_path / "pbt_global.txt").mkdir()
    PolicyLog().mend(tmp_path, trials)
    assert (
        "cannot complete the files about exploits: [Errno 21] Is a directory: "
        f"'{tmp_path / 'pbt_global.txt'}'" in caplog.text
    )
    assert len(lines(tmp_path / "pbt_policy_t00002.txt")) == 2
