"""Checkpoints in directories whose names the training code has chosen."""

import shutil

import pytest

from tests.waiting import wait_until
from tuner.core.worker_records import CheckpointRecord
from tuner.driver.checkpoint_store import CheckpointDeleter, CheckpointStore
from tuner.journal.segments import START
from tuner.journal.writer import Journal
from tuner.storage.checkpoint_directories import commit_from, leftovers, remove_unfinished
from tuner.storage.checkpoint_names import check_directory_name
from tuner.storage.checkpoint_parts import commit_in_place, commit_parts, stage_part
from tuner.storage.manifest import Provenance, read_manifest


@pytest.fixture
def trial_dir(tmp_path):
    directory = tmp_path / "t00000"
    directory.mkdir()
    return directory


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "model.pt").write_bytes(b"weights")
    return directory


def provenance(index):
    return Provenance("t00000", 1, index, index + 1)


def named(index, name):
    return CheckpointRecord(index, index + 1, name=name)


def commit_of_group(source, trial_dir, index, name):
    parts = [
        (rank, stage_part(source, trial_dir, provenance(index), rank=rank, sync=False))
        for rank in range(2)
    ]
    commit_parts(parts, trial_dir, provenance(index), world_size=2, sync=False, name=name)


def commit_of_one(source, trial_dir, index, name):
    commit_from(source, trial_dir, provenance(index), sync=False, name=name)


@pytest.mark.parametrize("commit", [commit_of_one, commit_of_group])
def test_an_unrecorded_checkpoint_with_a_name_is_found_and_removed(source, trial_dir, commit):
    commit(source, trial_dir, 0, "best")
    commit(source, trial_dir, 1, "orphan")
    assert read_manifest(trial_dir / "best").name == "best"
    assert leftovers(trial_dir, {"best"}) == ["orphan"]
    assert leftovers(trial_dir) == []
    assert remove_unfinished(trial_dir, {"best"}) == ["orphan"]
    assert [path.name for path in trial_dir.iterdir()] == ["best"]


def test_what_the_training_code_has_made_itself_is_never_removed(source, trial_dir):
    commit_of_one(source, trial_dir, 0, "")
    shutil.copytree(trial_dir / "checkpoint_000000", trial_dir / "my copy")
    shutil.copytree(source, trial_dir / "data")
    shutil.copytree(source, trial_dir / "placed")
    commit_in_place("placed", trial_dir, provenance(1), sync=False)
    assert leftovers(trial_dir, {"checkpoint_000000"}) == []


def test_a_manifest_without_a_name_is_as_it_always_was(source, trial_dir):
    commit_of_one(source, trial_dir, 0, "")
    assert b'"name"' not in (trial_dir / "checkpoint_000000" / ".manifest.json").read_bytes()


@pytest.fixture
def store(tmp_path):
    """Return a store whose deletions are carried out when its context ends."""
    with (
        Journal(tmp_path, START, sync="process") as journal,
        CheckpointDeleter(journal) as deleter,
    ):
        yield CheckpointStore(tmp_path, deleter), deleter


@pytest.mark.process
def test_a_name_that_is_used_again_is_not_deleted_with_its_earlier_checkpoint(
    source, trial_dir, store
):
    files, deleter = store
    commit_of_one(source, trial_dir, 0, "latest")
    commit_of_one(source, trial_dir, 1, "old")
    files.delete("t00000", named(0, "latest"))
    commit_of_one(source, trial_dir, 2, "latest")
    files.delete("t00000", named(1, "old"))
    deleter.release()
    wait_until(lambda: not (trial_dir / "old").exists(), "the deletion")
    assert read_manifest(trial_dir / "latest").index == 2


def test_a_directory_with_a_later_checkpoint_is_not_taken_for_the_recorded_one(
    source, trial_dir, store
):
    files, _ = store
    commit_of_one(source, trial_dir, 0, "latest")
    assert files.find_damage("t00000", named(0, "latest")) == ""
    commit_of_one(source, trial_dir, 1, "latest")
    assert "holds a later checkpoint, 1" in files.find_damage("t00000", named(0, "latest"))


@pytest.mark.parametrize(
    "name",
    ["..", "a/../b", "/etc", ".tmp-1", "result.json", "validations.json", "return_value.json",
     "stdout.rank1", ".validation-3.pkl", "a/.manifest.json", "", "x" * 300, "a\0b"],
)  # fmt: skip
def test_names_that_are_not_safe_are_refused(name):
    with pytest.raises(ValueError, match="must be a path inside the trial's directory"):
        check_directory_name(name)


def test_a_checkpoint_is_deleted_when_its_successor_is_in_the_object_store_too(tmp_path):
    class Mirror:
        mirrored_sequence = 0

        def wrote(self, num_bytes):
            pass

        def check(self):
            pass

    deleted = []
    with Journal(tmp_path, sync="strict", mirror=Mirror()) as journal:
        deleter = CheckpointDeleter(journal, deleted.append)
        journal.append({"t": 0.0, "k": "turn"})
        deleter.delete(tmp_path / "checkpoint_000000")
        journal.flush()
        deleter.release()
        assert deleted == []
        journal.mirror.mirrored_sequence = 1
        deleter.release()
        assert deleted == [tmp_path / "checkpoint_000000"]
