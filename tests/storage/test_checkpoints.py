import errno
import hashlib
import itertools
import math
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.worker_records import CheckpointRecord
from tuner.errors import CheckpointError
from tuner.storage import layout, manifest, trees
from tuner.storage.checkpoint_directories import (
    commit,
    commit_from,
    delete,
    latest_valid,
    remove_unfinished,
    stage,
    unfinished,
)
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.manifest import Provenance, read_manifest, verify


def provenance(index=0, **metrics):
    return Provenance("t00001", attempt=1, index=index, iteration=index + 1, metrics=metrics)


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    (directory / "deep" / "empty").mkdir(parents=True)
    (directory / "model.pt").write_bytes(bytes(range(256)) * 40)
    (directory / "deep" / "state.json").write_bytes(b"{}")
    (directory / "latest").symlink_to("model.pt")
    return directory


@pytest.fixture
def trial_dir(tmp_path):
    directory = tmp_path / "experiment" / "t00001"
    directory.mkdir(parents=True)
    return directory


def test_a_users_directory_is_copied_and_stays_as_it_is(source, trial_dir, tree_of, names_in):
    before = tree_of(source)
    path = commit_from(source, trial_dir, provenance(3, loss=math.nan))
    assert path == trial_dir / "checkpoint_000003"
    assert tree_of(source) == before
    shutil.rmtree(source)
    after = tree_of(path)
    del after[layout.MANIFEST]
    assert after == before
    assert names_in(trial_dir) == ["checkpoint_000003"]


def test_a_staged_directory_is_renamed_without_a_copy(trial_dir, names_in):
    staging = stage(trial_dir, 0, 1)
    (staging / "model.pt").write_bytes(b"weights")
    inode = (staging / "model.pt").stat().st_ino
    path = commit_from(staging, trial_dir, provenance())
    assert (path / "model.pt").stat().st_ino == inode
    assert names_in(trial_dir) == ["checkpoint_000000"]


def test_a_staging_directory_of_another_trial_is_copied(trial_dir, tmp_path):
    (tmp_path / "experiment" / "t00002").mkdir()
    foreign = stage(tmp_path / "experiment" / "t00002", 0, 1)
    (foreign / "model.pt").write_bytes(b"weights")
    commit_from(foreign, trial_dir, provenance())
    assert (foreign / "model.pt").read_bytes() == b"weights"


def test_two_staging_directories_of_one_checkpoint_do_not_disturb_each_other(trial_dir, source):
    held_open = stage(trial_dir, 0, 1)
    (held_open / "half").write_bytes(b"written")
    commit_from(source, trial_dir, provenance())
    assert (held_open / "half").read_bytes() == b"written"


def test_an_absolute_link_into_the_staging_directory_holds_after_the_commit(trial_dir):
    staging = stage(trial_dir, 0, 1)
    (staging / "model.pt").write_bytes(b"weights")
    (staging / "last").symlink_to(staging / "model.pt")
    path = commit(staging, trial_dir, provenance())
    assert (path / "last").read_bytes() == b"weights"
    verify(path)


def test_everything_is_synced_before_the_name_is_final_and_the_name_after(
    source, trial_dir, monkeypatch
):
    steps = []

    def note(genuine):
        def call(descriptor):
            steps.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
            genuine(descriptor)

        return call

    for operation in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, operation, note(getattr(os, operation)))
    staging = stage(trial_dir, 0, 1)
    shutil.copytree(source, staging, symlinks=True, dirs_exist_ok=True)
    commit(staging, trial_dir, provenance())
    inside, (name, after) = steps[:-2], steps[-2:]
    assert {"model.pt", "state.json", "deep", "empty", staging.name} <= set(inside)
    assert any(layout.MANIFEST in step for step in inside[-2:])
    assert (name, after) == (trial_dir.name, trial_dir.parent.name)
    steps.clear()
    commit_from(source, trial_dir, provenance(1), sync=False)
    assert steps == []


def test_the_manifest_names_everything_and_its_origin(source, trial_dir, monkeypatch):
    monkeypatch.setattr(manifest, "HASH_LIMIT_BYTES", 1000)
    path = commit_from(source, trial_dir, provenance(0, loss=math.inf, nested={"a": 1}))
    found = read_manifest(path)
    assert (found.trial_id, found.attempt, found.index, found.iteration) == ("t00001", 1, 0, 1)
    assert found.metrics == {"loss": math.inf, "nested": {"a": 1}}
    assert found.files["model.pt"] == manifest.FileEntry(10240, None)
    assert found.files["deep/state.json"].sha256 == hashlib.sha256(b"{}").hexdigest()
    assert found.links == {"latest": "model.pt"}
    assert found.directories == ["deep", "deep/empty"]


def test_a_checkpoint_made_of_a_checkpoint_has_a_manifest_of_its_own(source, trial_dir):
    first = commit_from(source, trial_dir, provenance(0))
    Checkpoint.from_directory(first).set_metadata({"note": "kept"})
    second = commit_from(first, trial_dir, provenance(1))
    verify(second)
    assert read_manifest(second).index == 1
    assert set(read_manifest(second).files) == {"model.pt", "deep/state.json"}
    assert Checkpoint(second).get_metadata() == {"note": "kept"}


def test_an_orphan_of_the_same_name_makes_room(source, trial_dir):
    orphan = trial_dir / "checkpoint_000000"
    orphan.mkdir()
    (orphan / "of an earlier attempt").write_bytes(b"x")
    verify(commit_from(source, trial_dir, provenance()))
    assert not (orphan / "of an earlier attempt").exists()


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda path: (path / "model.pt").unlink(), "model.pt"),
        (
            lambda path: (path / "model.pt").write_bytes(b"short"),
            "model.pt has 5 bytes, its manifest says 10240",
        ),
        (
            lambda path: (path / "deep" / "state.json").write_bytes(b"[]"),
            "deep/state.json has another SHA-256",
        ),
        (lambda path: (path / "deep" / "empty").rmdir(), "deep/empty"),
        (
            lambda path: trees.replace_link(path / "latest", "deep/state.json"),
            "link latest leads to deep/state.json",
        ),
        (lambda path: (path / layout.MANIFEST).unlink(), "no complete checkpoint"),
        (lambda path: (path / layout.MANIFEST).write_bytes(b""), "cannot be read"),
        (shutil.rmtree, "no complete checkpoint"),
    ],
)
def test_verify_names_the_file_and_the_difference(source, trial_dir, change, difference):
    path = commit_from(source, trial_dir, provenance())
    verify(path)
    change(path)
    with pytest.raises(CheckpointError, match=difference):
        verify(path)


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_of_a_manifest_goes_unnoticed(position, bit):
    trial_dir = Path(tempfile.mkdtemp())
    try:
        staging = stage(trial_dir, 0, 1)
        (staging / "f").write_bytes(b"x")
        path = commit(staging, trial_dir, provenance(loss=0.5), sync=False)
        content = bytearray((path / layout.MANIFEST).read_bytes())
        content[position % len(content)] ^= 1 << bit
        (path / layout.MANIFEST).write_bytes(content)
        with pytest.raises(CheckpointError):
            verify(path)
    finally:
        shutil.rmtree(trial_dir)


def test_a_manifest_of_a_newer_version_is_refused(source, trial_dir, monkeypatch):
    with monkeypatch.context() as future:
        future.setattr(manifest, "FORMAT", 3)
        path = commit_from(source, trial_dir, provenance())
    with pytest.raises(CheckpointError, match="newer version"):
        read_manifest(path)


STEPS = (
    "open",
    "mkdir",
    "write",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "rmdir",
    "symlink",
    "copy_file_range",
)


class Killed(BaseException):
    """Nothing more is done."""


def run_and_die_before_step(number, function):
    """Run a function whose n-th system call and all after it do not happen; return if it ended.

    What it would do on its way out does not happen either, as after a SIGKILL; only files are
    closed, as the system does it then.
    """
    num_calls = itertools.count(1)

    def mortal(genuine):
        def call(*arguments, **options):
            if next(num_calls) >= number:
                raise Killed
            return genuine(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):  # what the system has survives the process
            patch.setattr(os, name, lambda descriptor: None)
        for name in STEPS:
            patch.setattr(os, name, mortal(getattr(os, name)))
        try:
            function()
        except Killed:
            return False
    return next(num_calls) <= number


@pytest.fixture(params=[4, 1], ids=["synced by one thread", "synced by several"])
def sync_threads(request, monkeypatch):
    monkeypatch.setattr(trees, "_FILES_PER_THREAD", request.param)


@pytest.mark.process
@pytest.mark.usefixtures("sync_threads")
@pytest.mark.parametrize("is_staged", [True, False])
@pytest.mark.parametrize("has_orphan", [True, False])
def test_a_commit_killed_at_any_step_leaves_nothing_incomplete_under_a_final_name(
    source, tmp_path, is_staged, has_orphan, names_in
):
    final = "checkpoint_000000"
    for number in range(1, 1000):
        trial_dir = tmp_path / f"t{number:05d}"
        trial_dir.mkdir()
        directory = stage(trial_dir, 0, 1) if is_staged else source
        (directory / "model.pt").write_bytes(b"weights")
        if has_orphan:
            commit_from(source, trial_dir, provenance(0, run="orphan"), sync=False)
        is_through = run_and_die_before_step(
            number,
            lambda origin=directory, place=trial_dir: commit_from(origin, place, provenance()),
        )
        left = [name for name in names_in(trial_dir) if not name.startswith(layout.STAGING_PREFIX)]
        assert left in ([final], [])
        if left:
            verify(trial_dir / final)
        remove_unfinished(trial_dir, recorded={final})
        assert names_in(trial_dir) == left
        if is_through:
            assert read_manifest(trial_dir / final).metrics == {}
            assert number > 10
            return
    pytest.fail("the commit never got through")


FAULTS = ("mkdir", "open", "write", "fsync", "fdatasync", "rename", "symlink")


@pytest.mark.process
@pytest.mark.usefixtures("sync_threads")
@pytest.mark.parametrize("operation", FAULTS)
def test_whichever_call_fails_the_commit_raises_and_leaves_nothing_or_gets_by(
    source, tmp_path, operation, names_in
):
    num_errors = 0
    for number in range(1, 100):
        trial_dir = tmp_path / f"{operation}{number}"
        trial_dir.mkdir()
        calls = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, operation, failing_at(number, getattr(os, operation), calls))
            outcome = outcome_of(lambda place=trial_dir: commit_from(source, place, provenance()))
        if isinstance(outcome, CheckpointError):
            assert "injected" in str(outcome)
            assert names_in(trial_dir) == []
            num_errors += 1
        else:
            verify(outcome)
        if len(calls) < number:
            assert num_errors
            return
    pytest.fail("the fault fired for ever")


def failing_at(number, genuine, calls):
    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number:
            raise OSError(errno.ENOSPC, "injected")
        return genuine(*arguments, **options)

    return call


def outcome_of(action):
    try:
        return action()
    except CheckpointError as error:
        return error


def test_deleting_takes_the_name_away_first(source, trial_dir, monkeypatch, names_in):
    path = commit_from(source, trial_dir, provenance())

    def dies(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", dies)
        with pytest.raises(KeyboardInterrupt):
            delete(path)
    assert not path.exists()
    assert remove_unfinished(trial_dir)
    assert names_in(trial_dir) == []
    delete(path)


def test_a_sweep_removes_the_unfinished_and_the_unrecorded_only(source, trial_dir, names_in):
    for index in range(3):
        commit_from(source, trial_dir, provenance(index))
    stage(trial_dir, 3, 1)
    (trial_dir / f"{layout.STAGING_PREFIX}file").write_bytes(b"")
    (trial_dir / "result.json").write_bytes(b"")
    assert len(remove_unfinished(trial_dir)) == 2
    assert remove_unfinished(trial_dir, recorded={"checkpoint_000000", "checkpoint_000002"}) == [
        "checkpoint_000001"
    ]
    assert names_in(trial_dir) == ["checkpoint_000000", "checkpoint_000002", "result.json"]
    assert remove_unfinished(trial_dir / "missing") == []


def test_the_newest_intact_checkpoint_is_found_and_each_damage_told(source, trial_dir):
    records = [CheckpointRecord(index, index + 1) for index in range(3)]
    for record in records:
        commit_from(source, trial_dir, provenance(record.index))
    assert latest_valid(trial_dir, records) == records[2]
    (trial_dir / "checkpoint_000002" / "model.pt").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="checkpoint_000002 is damaged.*model.pt"):
        assert latest_valid(trial_dir, records) == records[1]
    shutil.rmtree(trial_dir / "checkpoint_000001")
    (trial_dir / "checkpoint_000000" / layout.MANIFEST).unlink()
    with pytest.warns(RuntimeWarning):
        assert latest_valid(trial_dir, records) is None


def test_from_directory_refuses_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        Checkpoint.from_directory(tmp_path / "missing")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="file"):
        Checkpoint.from_directory(tmp_path / "file")


def test_a_local_checkpoint_is_read_in_place(source):
    checkpoint = Checkpoint.from_directory(source)
    with checkpoint.as_directory() as path:
        assert path == checkpoint.path == str(source)
    assert source.is_dir()
    shutil.rmtree(source)
    with pytest.raises(FileNotFoundError), checkpoint.as_directory():
        pass


def test_a_copy_goes_to_the_given_or_a_temporary_directory_and_stays(
    source, tmp_path, tree_of, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    checkpoint = Checkpoint.from_directory(source)
    assert checkpoint.to_directory(tmp_path / "new" / "place") == str(tmp_path / "new" / "place")
    assert (
        tree_of(tmp_path / "new" / "place") == tree_of(source) == tree_of(checkpoint.to_directory())
    )


def test_a_damaged_checkpoint_cannot_be_copied_in_silence(source, trial_dir, tmp_path):
    path = commit_from(source, trial_dir, provenance())
    (path / "model.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model\.pt"):
        Checkpoint(path).to_directory(tmp_path / "copy")


def test_metadata_is_set_updated_and_no_part_of_the_commit(source, trial_dir):
    path = commit_from(source, trial_dir, provenance())
    checkpoint = Checkpoint(path)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"epoch": 3, "loss": math.inf})
    checkpoint.update_metadata({"epoch": 4})
    assert Checkpoint(path).get_metadata() == {"epoch": 4, "loss": math.inf}
    verify(path)
    with pytest.raises(TypeError):
        checkpoint.set_metadata({"f": len})
    assert checkpoint.get_metadata()["epoch"] == 4


def test_checkpoints_are_equal_by_path_small_when_pickled_and_no_paths(source):
    checkpoint = Checkpoint.from_directory(source)
    assert checkpoint == Checkpoint(str(source))
    assert len({checkpoint, Checkpoint(source)}) == 1
    assert checkpoint != Checkpoint("s3://bucket/x")
    assert len(pickle.dumps(checkpoint)) < 300
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint  # noqa: S301  (our own)
    assert repr(checkpoint) == f"Checkpoint({str(source)!r})"
    with pytest.raises(TypeError, match="as_directory"):
        os.fspath(checkpoint)


def test_a_relative_path_stays_true_when_the_working_directory_changes(source, monkeypatch):
    monkeypatch.chdir(source.parent)
    checkpoint = Checkpoint.from_directory("source")
    monkeypatch.chdir("/")
    assert checkpoint.path == str(source)


def test_what_is_unfinished_of_an_attempt_is_found_and_nothing_of_others(tmp_path):
    own, _ = stage(tmp_path, 3, 1), stage(tmp_path, 3, 11)
    (tmp_path / "checkpoint_000003").mkdir()
    (tmp_path / ".tmp-result.json-1-0a1b").touch()
    assert unfinished(tmp_path, 1) == [own]
    assert unfinished(tmp_path / "missing", 1) == []
