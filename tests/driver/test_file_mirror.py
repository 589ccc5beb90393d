"""Snapshots and files of trials copied to an object store."""

import shutil
from types import SimpleNamespace

import pytest

from tests.journal.stored_journals import StoreLock, declare
from tuner.driver import file_mirror
from tuner.driver.file_mirror import FileMirror
from tuner.errors import ExperimentFenced, StorageError
from tuner.journal import snapshot_files
from tuner.storage.object_store import ObjectStore


@pytest.fixture
def world(request, tmp_path):
    """An experiment with one trial, and its files' mirror in virtual time."""
    store = ObjectStore(f"memory://files/{request.node.name}", retry_s=0)
    store.delete(store.list())
    declare(tmp_path)
    found = SimpleNamespace(now_s=0.0, store=store, directory=tmp_path, lock=StoreLock(store))
    found.journal = SimpleNamespace(mirrored_sequence=1)
    found.begin = lambda: FileMirror(
        tmp_path, store, found.lock, found.journal, 0, clock=lambda: found.now_s
    )
    found.mirror = found.begin()
    found.mirror.start(has_thread=False)
    return found


def write(world, name, content="x"):
    path = world.directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")


def hook(world, name, trial_id="t00000"):
    getattr(world.mirror, name)(iteration=0, trials=[], trial=SimpleNamespace(trial_id=trial_id))


def at(world, now_s):
    """Store what is due, and return the files of trials that are stored."""
    world.now_s = now_s
    world.mirror.store_due()
    return stored(world)


def stored(world):
    found = world.store.list()
    return {key: world.store.get(key).decode() for key in found if key[0] in "tp"}


@pytest.mark.process  # Threads upload several files at once.
def test_files_of_a_running_trial_are_stored_soon_and_every_minute(world):
    assert "experiment.json" in world.store.list()
    write(world, "t00000/stdout", "1")
    write(world, "t00000/.hidden")
    write(world, "t00000/checkpoint_000000/weights")
    write(world, "pbt_global.txt", "[]")
    hook(world, "on_trial_start")
    assert at(world, 1.0) == {}
    assert at(world, 2.0) == {"t00000/stdout": "1", "pbt_global.txt": "[]"}
    write(world, "t00000/stdout", "12")
    assert at(world, 61.0)["t00000/stdout"] == "1"
    assert at(world, 62.0)["t00000/stdout"] == "12"
    assert not list(world.directory.glob(".tmp-*"))


@pytest.mark.parametrize("end", ["on_trial_complete", "on_trial_error"])
def test_files_of_a_trial_are_stored_when_it_has_ended_and_once_more(world, end):
    hook(world, "on_trial_start")
    write(world, "t00000/stdout", "1")
    hook(world, end)
    assert at(world, 1.0) == {}
    assert at(world, 3.5) == {"t00000/stdout": "1"}
    write(world, "t00000/error.txt", "late")
    assert at(world, 59.0) == {"t00000/stdout": "1"}
    assert at(world, 62.0) == {"t00000/stdout": "1", "t00000/error.txt": "late"}
    write(world, "t00000/stdout", "not looked at any more")
    assert at(world, 200.0)["t00000/stdout"] == "1"
    world.mirror.store_all()
    assert stored(world)["t00000/stdout"] == "not looked at any more"


@pytest.mark.process  # Threads upload several files at once.
def test_the_end_stores_what_is_new_and_nothing_twice(world, monkeypatch):
    write(world, "t00000/stdout", "1")
    write(world, "t00001/stdout", "2")
    world.mirror.store_all()
    assert stored(world) == {"t00000/stdout": "1", "t00001/stdout": "2"}
    world.mirror = world.begin()
    write(world, "t00001/stdout", "3")
    uploaded = []
    upload = ObjectStore.upload
    monkeypatch.setattr(
        ObjectStore, "upload", lambda self, files: uploaded.extend(files) or upload(self, files)
    )
    world.mirror.store_all()
    assert uploaded == ["t00001/stdout"]
    world.mirror.store_all()
    assert uploaded == ["t00001/stdout"]


def test_a_large_file_that_grows_is_not_sent_each_minute(world, monkeypatch):
    monkeypatch.setattr(file_mirror, "_LARGE_BYTES", 100)
    hook(world, "on_trial_start")
    sizes = []
    for minute, size in enumerate((200, 220, 249, 250, 310), start=1):
        write(world, "t00000/stdout", "x" * size)
        sizes.append(len(at(world, 61.0 * minute)["t00000/stdout"]))
    assert sizes == [200, 200, 200, 250, 250]
    hook(world, "on_trial_complete")
    assert len(at(world, 310.0)["t00000/stdout"]) == 250
    assert len(at(world, 313.0)["t00000/stdout"]) == 310


def test_a_file_that_is_too_large_is_told_once(world, monkeypatch, caplog):
    monkeypatch.setattr(file_mirror, "_MAX_BYTES", 10)
    write(world, "t00000/stdout", "x" * 11)
    world.mirror.store_all()
    world.mirror.store_all()
    assert stored(world) == {}
    (told,) = caplog.records
    assert "t00000/stdout is larger than 1 GiB and is not copied to memory://" in told.message


def test_snapshots_are_stored_once_their_records_are_and_the_newest_two_are_kept(world):
    world.store.put(f"snapshot/0/{1:020d}.json", b"of an earlier epoch")
    for sequence in (3, 5, 8):
        snapshot_files.write(world.directory, {"after": sequence}, sequence)
        at(world, 0.0)
        assert list(world.store.list("snapshot/")) == [f"snapshot/0/{1:020d}.json"]
    names = {sequence: f"snapshot/1/{sequence:020d}.json" for sequence in (5, 8, 9)}
    world.journal.mirrored_sequence = 7
    at(world, 0.0)
    assert list(world.store.list("snapshot/")) == [f"snapshot/0/{1:020d}.json", names[5]]
    world.journal.mirrored_sequence = 9
    at(world, 0.0)
    assert list(world.store.list("snapshot/")) == [names[5], names[8]]
    snapshot_files.write(world.directory, {"after": 9}, 9)
    world.mirror.store_all()
    assert list(world.store.list("snapshot/")) == [names[8], names[9]]


def test_nothing_of_trials_is_stored_before_a_record_is(world):
    world.journal.mirrored_sequence = 0
    write(world, "t00000/stdout")
    hook(world, "on_trial_start")
    assert at(world, 61.0) == {}


def test_a_driver_that_was_taken_over_from_replaces_no_file(world):
    write(world, "t00000/stdout", "1")
    world.mirror.store_all()
    StoreLock(world.store)
    write(world, "t00000/stdout", "12")
    with pytest.raises(ExperimentFenced):
        world.mirror.store_all()
    assert stored(world)["t00000/stdout"] == "1"


def test_a_directory_that_was_deleted_is_an_error_of_storage(world):
    shutil.rmtree(world.directory)
    with pytest.raises(StorageError, match=r"files of .* cannot be stored in memory://"):
        world.mirror.store_all()
