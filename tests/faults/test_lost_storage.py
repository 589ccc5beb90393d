"""Losing the directory, journal or lock during a run ends it with an error.

Nothing is acknowledged after the loss.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import tuner as tune
from tests.orphans import orphan_of
from tuner.driver.storage_retry import StorageRetry
from tuner.errors import DamagedJournal, ExperimentExists, ExperimentLocked, StorageLost
from tuner.journal.reader import read
from tuner.journal.rows import JournalRows
from tuner.journal.writer import Journal
from tuner.storage import layout
from tuner.storage.disk import LOCAL_DISK, Whereabouts, is_held
from tuner.storage.layout import journal_directory
from tuner.storage.lock import ExperimentLock

MANY = 1_000_000


class Doomed:
    """Two trials that train until they are stopped; one harms the storage at its third epoch."""

    def __init__(self, storage, harm, durability="group"):
        self.storage = storage
        self.harm = harm
        self.durability = durability
        self.acknowledged = set()
        self.num_left = 0

    @property
    def directory(self):
        return self.storage / "exp"

    def train(self, config):
        trial_id = tune.get_context().get_trial_id()
        try:
            for epoch in range(1, MANY):
                if (trial_id, epoch) == ("t00000", 3):
                    self.harm(self.directory)
                tune.report({"loss": 1 / epoch})
                self.acknowledged.add((trial_id, epoch))
        finally:
            self.num_left += 1

    def given(self, **settings):
        run_config = tune.RunConfig(
            storage_path=self.storage,
            name="exp",
            verbose=0,
            executor="inline",
            resources={"cpu": 2},
            durability=self.durability,
            **settings,
        )
        return {"param_space": {"x": tune.grid_search([1.0, 2.0])}, "run_config": run_config}

    def fit(self):
        return tune.Tuner(self.train, **self.given()).fit()

    def restore(self, directory):
        """Continue for a few more epochs without a fault."""
        self.harm = lambda _: None
        return tune.Tuner.restore(
            directory,
            self.train,
            **self.given(stop={"training_iteration": MANY - 1, "time_total_s": 0.0}),
        ).fit()


def journaled(directory):
    rows = JournalRows(directory)
    return {
        (trial_id, row["training_iteration"])
        for trial_id in ("t00000", "t00001")
        for row in rows.of(trial_id)
    }


def delete_journal(directory):
    shutil.rmtree(journal_directory(directory))


def delete_segment(directory):
    (segment,) = journal_directory(directory).glob("*.log")
    segment.unlink()


def delete_all(directory):
    shutil.rmtree(directory)


def move(directory):
    directory.rename(directory.with_name("moved"))


def move_journal(directory):
    journal_directory(directory).rename(directory.with_name("moved"))


def replace_segment(directory):
    (segment,) = journal_directory(directory).glob("*.log")
    segment.rename(segment.with_name("moved"))
    segment.write_bytes(b"another file")


def delete_lock(directory):
    (directory / layout.LOCK).unlink()


def replace_lock(directory):
    delete_lock(directory)
    (directory / layout.LOCK).write_text("")


@pytest.mark.parametrize("durability", ["process", "group", "strict"])
@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (delete_journal, r"journal \S+\.log was deleted"),
        (delete_segment, r"journal \S+\.log was deleted"),
        (delete_all, r"journal \S+\.log was deleted"),
        (move, r"journal \S+\.log was moved to \S+/moved/journal/\S+\.log"),
        (move_journal, r"journal \S+\.log was moved to \S+/moved/\S+\.log"),
        (replace_segment, r"journal \S+\.log was moved to \S+/journal/moved"),
        (delete_lock, "lock file of .* was deleted or replaced"),
        (replace_lock, "lock file of .* was deleted or replaced"),
    ],
)
def test_the_run_ends_with_what_has_happened_and_trials_leave_first(
    tmp_path, harm, what, durability
):
    doomed = Doomed(tmp_path, harm, durability)
    with pytest.raises(StorageLost, match=what) as caught:
        doomed.fit()
    assert doomed.num_left == 2
    assert "Tuner.restore(" in caught.value.__notes__[0]
    if harm is delete_all:
        assert not doomed.directory.exists()
    elif "lock" in harm.__name__:
        assert doomed.acknowledged <= journaled(doomed.directory)
        check_rows_are_in_the_journal(doomed.directory)


def check_rows_are_in_the_journal(directory):
    for path in directory.glob("*/result.json"):
        assert path.read_text().count("\n") <= sum(
            trial_id == path.parent.name for trial_id, _ in journaled(directory)
        )


def test_what_was_moved_holds_all_that_was_acknowledged_and_is_continued_there(tmp_path):
    doomed = Doomed(tmp_path, move)
    with pytest.raises(StorageLost) as caught:
        doomed.fit()
    moved = tmp_path / "moved"
    assert not doomed.directory.exists()
    assert doomed.acknowledged
    assert doomed.acknowledged <= journaled(moved)
    assert f"Tuner.restore({str(moved)!r}, train)" in caught.value.__notes__[0]
    assert doomed.restore(moved).num_terminated == 2


def test_without_its_journal_the_directory_is_refused_and_not_used_again(tmp_path):
    doomed = Doomed(tmp_path, delete_journal)
    with pytest.raises(StorageLost, match="was deleted") as caught:
        doomed.fit()
    assert (
        "lost, but for the log files and checkpoints that are still there"
        in caught.value.__notes__[0]
    )
    assert (doomed.directory / layout.DECLARATION).exists()
    with pytest.raises(DamagedJournal, match="is incomplete, no record is there"):
        doomed.restore(doomed.directory)
    with pytest.raises(ExperimentExists):
        doomed.fit()


def test_a_file_system_that_is_unmounted(tmp_path, mount):
    storage = mount("storage", "size=8m")
    doomed = Doomed(storage, lambda _: subprocess.run(["umount", "--lazy", storage], check=True))
    with pytest.raises(StorageLost, match="cannot be reached any more") as caught:
        doomed.fit()
    assert "when the directory is in its place" in caught.value.__notes__[0]
    assert list(storage.iterdir()) == []
    # For the fixture, which unmounts it.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", storage], check=True)


def test_a_second_driver_finds_the_first_though_the_lock_is_gone(tmp_path):
    refusals = []

    def come_second(directory):
        delete_lock(directory)
        other = ExperimentLock(directory)
        with pytest.raises(
            ExperimentLocked, match=r"holds \S+\.log, but not its lock file, which was deleted"
        ) as refusal:
            other.acquire()
        refusals.append(refusal)
        assert not other.is_held

    doomed = Doomed(tmp_path, come_second)
    with pytest.raises(StorageLost, match="lock file"):
        doomed.fit()
    assert refusals
    assert doomed.restore(doomed.directory).num_terminated == 2


def test_the_segment_that_is_written_is_held_and_no_other(tmp_path):
    with Journal(tmp_path, has_syncer=False) as journal:
        journal.append({"t": 0.0, "k": "turn"})
        journal.flush()
        journal.rotate()
        assert [is_held(path) for path in sorted(journal_directory(tmp_path).iterdir())] == [
            False,
            True,
        ]
    assert not any(is_held(path) for path in journal_directory(tmp_path).iterdir())


def test_a_forked_child_does_not_keep_the_segment_when_its_parent_dies(tmp_path):
    with orphan_of(lambda: Journal(tmp_path, has_syncer=False)):
        (segment,) = journal_directory(tmp_path).iterdir()
        assert not is_held(segment)


@pytest.fixture
def opened(tmp_path):
    path = tmp_path / "file"
    descriptor = LOCAL_DISK.create(path)
    LOCAL_DISK.write(descriptor, b"12345")
    yield descriptor, path
    LOCAL_DISK.close(descriptor)


def test_a_file_system_that_numbers_files_anew_is_no_loss(opened):
    descriptor, path = opened
    os.link(path, path.with_name("kept"))  # so that the open file keeps a name
    path.unlink()
    path.write_bytes(b"12345")
    assert LOCAL_DISK.whereabouts(descriptor, path) == Whereabouts()
    path.write_bytes(b"123456")
    assert not LOCAL_DISK.whereabouts(descriptor, path).is_in_place


def test_an_unknown_location_does_not_count_as_loss(opened):
    descriptor, path = opened
    os.close(os.dup(descriptor))
    assert LOCAL_DISK.whereabouts(10_000, path) == Whereabouts()
    assert (
        LOCAL_DISK.whereabouts(descriptor, Path("/proc/1/root/\0".replace("\0", "x" * 300)))
        == Whereabouts()
    )


def test_a_loss_is_not_waited_out():
    num_calls = []

    def write():
        num_calls.append(1)
        raise StorageLost("gone")

    with pytest.raises(StorageLost):
        StorageRetry(60.0, clock=lambda: 0.0, sleep=lambda _: None).on(write)
    assert len(num_calls) == 1


def test_what_was_flushed_before_the_loss_is_synced_and_what_came_after_is_written_nowhere(
    tmp_path,
):
    journal = Journal(tmp_path / "here", has_syncer=False, look_period_s=0.0)
    journal.append({"t": 0.0, "k": "turn"})
    journal.flush()
    (tmp_path / "here").rename(tmp_path / "there")
    journal.append({"t": 1.0, "k": "turn"})
    for _ in range(2):
        with pytest.raises(StorageLost, match=re.escape(str(tmp_path / "there"))):
            journal.flush()
    journal.close()
    assert [record["t"] for record in read(tmp_path / "there")] == [0.0]
