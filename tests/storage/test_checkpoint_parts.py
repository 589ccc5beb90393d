"""Checkpoints that the workers of a group write together."""

import pytest

from tuner.errors import CheckpointError
from tuner.storage import checkpoint_parts
from tuner.storage.checkpoint_directories import commit_from, remove_unfinished, stage, unfinished
from tuner.storage.checkpoint_names import check_directory_name, is_staging_name
from tuner.storage.checkpoint_parts import (
    check_chosen_name,
    commit_in_place,
    commit_parts,
    name_inside,
    stage_part,
    take_over,
)
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.layout import MANIFEST, METADATA, PART_MANIFEST
from tuner.storage.manifest import Provenance, read_manifest, verify

PROVENANCE = Provenance("t00000", 1, 3, 4, {"loss": 0.5})


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def trial_dir(tmp_path):
    directory = tmp_path / "t00000"
    directory.mkdir()
    return directory


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a rank's files and returns their directory."""

    def write_files(rank, **files):
        directory = tmp_path / f"source-{rank}"
        directory.mkdir()
        for name, content in files.items():
            path = directory / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return directory

    return write_files


@pytest.fixture
def commit(trial_dir, write):
    """Return a function that stages the files of each rank and commits them together."""

    def commit_files(*files, **options):
        parts = [
            (rank, stage_part(write(rank, **one), trial_dir, PROVENANCE, rank=rank, sync=False))
            for rank, one in enumerate(files)
        ]
        return commit_parts(
            parts, trial_dir, PROVENANCE, world_size=len(files), sync=False, **options
        )

    return commit_files


def test_files_of_all_ranks_become_one_checkpoint_that_says_whose_they_are(trial_dir, commit):
    path, conflicts = commit({"a": "0"}, {"b": "1", "deep__c": "2"}, {})
    assert path == trial_dir / "checkpoint_000003"
    assert conflicts == []
    assert names_in(path) == [MANIFEST, "a", "b", "deep"]
    manifest = read_manifest(path)
    assert {name: entry.rank for name, entry in manifest.files.items()} == {
        "a": 0,
        "b": 1,
        "deep/c": 1,
    }
    assert (manifest.world_size, manifest.directories) == (3, ["deep"])
    assert (manifest.trial_id, manifest.attempt, manifest.index) == ("t00000", 1, 3)
    verify(path)
    assert names_in(trial_dir) == [path.name]


def test_of_equal_names_the_highest_rank_counts_and_a_difference_is_told(commit):
    path, conflicts = commit({"a": "from 0", "same": "x"}, {"a": "from 1", "same": "x"})
    assert (path / "a").read_text() == "from 1"
    assert read_manifest(path).files["a"].rank == 1
    (conflict,) = conflicts
    assert "file a " in conflict
    assert "ranks 0 and 1" in conflict
    verify(path)


def test_a_file_and_a_folder_of_the_same_name_are_an_error_that_leaves_no_checkpoint(
    trial_dir, commit
):
    with pytest.raises(CheckpointError, match="could not be written"):
        commit({"a": "file"}, {"a__b": "in a folder"})
    assert not (trial_dir / "checkpoint_000003").exists()
    assert remove_unfinished(trial_dir)
    assert names_in(trial_dir) == []


def test_links_inside_a_part_stay_links(trial_dir, write):
    source = write(0, target="x")
    (source / "link").symlink_to("target")
    name = stage_part(source, trial_dir, PROVENANCE, rank=0)
    other = stage_part(write(1, b="y"), trial_dir, PROVENANCE, rank=1)
    path, _ = commit_parts([(0, other), (1, name)], trial_dir, PROVENANCE, world_size=2, sync=False)
    assert (path / "link").readlink().name == "target"
    assert (path / "link").read_text() == "x"
    verify(path)


def test_a_link_that_leads_out_of_a_part_is_refused_and_leaves_nothing(trial_dir, write):
    source = write(0, a="x")
    (source / "link").symlink_to("/etc/hosts")
    with pytest.raises(CheckpointError, match="leads out of"):
        stage_part(source, trial_dir, PROVENANCE, rank=0)
    assert names_in(trial_dir) == []


def test_a_directory_in_common_is_committed_without_a_copy(trial_dir):
    first = stage(trial_dir, 3, 1, "common0x0")
    second = stage(trial_dir, 3, 1, "common0x0")
    assert first == second
    (first / "shard0").write_text("0")
    (second / "shard1").write_text("1")
    inode = (first / "shard0").stat().st_ino
    parts = [
        (rank, stage_part(first, trial_dir, PROVENANCE, rank=rank, sync=False)) for rank in (0, 1)
    ]
    path, _ = commit_parts(parts, trial_dir, PROVENANCE, world_size=2)
    assert (path / "shard0").stat().st_ino == inode
    assert {entry.rank for entry in read_manifest(path).files.values()} == {None}
    verify(path)


def test_a_rank_may_add_files_to_what_the_others_have_in_common(trial_dir, write):
    common = stage(trial_dir, 3, 1, "common0x0")
    (common / "shard").write_text("0")
    own = stage_part(write(1, own="1"), trial_dir, PROVENANCE, rank=1)
    parts = [(0, common.name), (1, own), (2, common.name)]
    path, _ = commit_parts(parts, trial_dir, PROVENANCE, world_size=3, sync=False)
    assert sorted(read_manifest(path).files) == ["own", "shard"]
    verify(path)


def test_an_orphan_of_the_same_name_is_replaced(trial_dir, commit, write):
    commit_from(write(9, old="x"), trial_dir, PROVENANCE, sync=False)
    path, _ = commit({"new": "y"}, {})
    assert names_in(path) == [MANIFEST, "new"]


def test_a_checkpoint_gets_the_name_that_was_chosen(trial_dir, commit):
    path, _ = commit({"a": "x"}, {}, name="epoch_3")
    assert path == trial_dir / "epoch_3"
    verify(path)


def test_parts_belong_to_their_attempt_and_are_swept_with_it(trial_dir, write):
    name = stage_part(write(0, a="x"), trial_dir, PROVENANCE, rank=0)
    assert is_staging_name(name, 1)
    assert not is_staging_name(name, 2)
    assert [path.name for path in unfinished(trial_dir, 1)] == [name]
    assert (trial_dir / name / PART_MANIFEST).is_file()


def test_metadata_of_the_user_is_no_part_of_the_manifest(trial_dir, write):
    source = write(0, a="x")
    Checkpoint(source).set_metadata({"epoch": 3})
    name = stage_part(source, trial_dir, PROVENANCE, rank=0)
    path, _ = commit_parts([(0, name)], trial_dir, PROVENANCE, world_size=2)
    assert METADATA not in read_manifest(path).files
    assert Checkpoint(path).get_metadata() == {"epoch": 3}


def test_a_manifest_of_one_process_is_written_as_before(trial_dir, write):
    path = commit_from(write(0, a="x"), trial_dir, PROVENANCE)
    text = (path / MANIFEST).read_text()
    assert '"format":1' in text
    assert "world_size" not in text
    assert "rank" not in text
    assert read_manifest(path).world_size == 1


@pytest.mark.parametrize("world_size", [None, 2])
def test_what_training_code_has_placed_itself_gets_a_manifest_where_it_lies(trial_dir, world_size):
    (trial_dir / "mine" / "deep").mkdir(parents=True)
    (trial_dir / "mine" / "deep" / "a").write_text("x")
    path = commit_in_place("mine", trial_dir, PROVENANCE, world_size=world_size)
    assert list(read_manifest(path).files) == ["deep/a"]
    verify(path)


NO_NAMES = (
    "", ".", "..", "/", "/etc", "a/../b", "../a", "a//b", "a/", "./a", "a\0b", "x" * 300,
    ".tmp-000001-1-ab", "stdout", "result.json", f"a/{MANIFEST}",
)  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_lead_out_or_are_the_engines_are_refused(name):
    with pytest.raises(ValueError, match="must be a path inside the trial's directory"):
        check_directory_name(name)


def test_a_chosen_name_may_be_the_numbered_one_of_this_checkpoint_only():
    assert check_chosen_name("checkpoint_000003", 3) == "checkpoint_000003"
    assert check_chosen_name("checkpoint_3", 4) == "checkpoint_3"
    with pytest.raises(ValueError, match="numbered name of another"):
        check_chosen_name("checkpoint_000003", 4)
    with pytest.raises(ValueError, match="leave out slashes"):
        check_chosen_name("epochs/3", 3)


def test_only_directories_inside_the_trials_have_a_name(trial_dir, tmp_path):
    assert name_inside(trial_dir / "a" / "b", trial_dir, 0) == "a/b"
    for outside in (tmp_path, trial_dir, trial_dir / ".." / "t00001"):
        with pytest.raises(ValueError, match="must lie inside the trial's directory"):
            name_inside(outside, trial_dir, 0)


def test_a_directory_in_place_may_have_the_numbered_name_of_this_checkpoint_only(trial_dir):
    own = trial_dir / "checkpoint_000003"
    assert name_inside(own, trial_dir, 3) == "checkpoint_000003"
    for other in (own, own / "inner"):
        with pytest.raises(ValueError, match="numbered name of another"):
            name_inside(other, trial_dir, 1)


def test_a_directory_is_moved_where_its_links_keep_their_meaning(trial_dir, write):
    source = write(0, a="x")
    staging = stage(trial_dir, 0, 1)
    assert take_over(source, staging)
    assert not source.exists()
    assert (staging / "a").read_text() == "x"
    with_link = write(1, a="x")
    (with_link / "link").symlink_to(with_link / "a")
    assert not take_over(with_link, stage(trial_dir, 1, 1))
    assert (with_link / "link").exists()


def test_a_directory_on_another_file_system_is_not_moved(trial_dir, write, monkeypatch):
    def fail(source, target):
        raise OSError(18, "cross-device link")

    monkeypatch.setattr(checkpoint_parts.os, "rename", fail)
    assert not take_over(write(0, a="x"), stage(trial_dir, 0, 1))
