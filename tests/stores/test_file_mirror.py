"""Snapshots and files of trials copied to an object store."""

import os
import shutil
from types import SimpleNamespace

import pytest

from tests.stores.stored_journals import StoreLock, declare
from tuner.errors import ExperimentFenced, StorageError
from tuner.journal import snapshot_files
from tuner.stores import file_mirror
from tuner.stores.file_mirror import FileMirror
from tuner.stores.object_store import ObjectStore


@pytest.fixture
def world(request, tmp_path):
    """An experiment, and its files' mirror without its thread."""
    store = ObjectStore(f"memory://files/{request.node.name}", retry_s=0)
    store.delete(store.list())
    declare(tmp_path)
    found = SimpleNamespace(mirrored=1, store=store, directory=tmp_path, lock=StoreLock(store))
    found.begin = lambda: FileMirror(tmp_path, store, found.lock, lambda: found.mirrored, 0)
    found.mirror = found.begin()
    return found


def write(world, name, content="x"):
    path = world.directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")


def look(world):
    """Store what is due, and return the files of trials that are stored."""
    world.mirror.store_new()
    return stored(world)


def stored(world):
    found = world.store.list()
    return {key: world.store.get(key).decode() for key in found if key[0] in "tp"}


@pytest.mark.process  # Threads upload several files at once.
def test_files_of_trials_are_stored_where_they_have_changed(world):
    write(world, "t00000/stdout", "1")
    write(world, "t00000/.hidden")
    write(world, "t00000/checkpoint_000000/weights")
    write(world, "pbt_global.txt", "[]")
    (world.directory / "t00001").write_text("no folder")
    assert look(world) == {"t00000/stdout": "1", "pbt_global.txt": "[]"}
    write(world, "t00000/stdout", "12")
    write(world, "t00000/error.txt", "late")
    look(world)
    assert stored(world)["t00000/error.txt"] == "late"
    assert look(world)["t00000/stdout"] == "12"
    assert not list(world.directory.glob(".tmp-*"))


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


@pytest.mark.parametrize("written_s", [0.0, 60.0])
def test_a_file_that_is_being_written_is_stored_now_and_then_and_at_once_when_it_rests(
    world, monkeypatch, written_s
):
    monkeypatch.setattr(file_mirror, "_WRITTEN_S", written_s)
    found = []
    for content in ("1", "12", "123", "123"):
        write(world, "t00000/stdout", content)
        os.utime(world.directory / "t00000/stdout", (len(content), len(content)))
        found.append(look(world)["t00000/stdout"])
    assert found == ["1", *(["12", "123"] if written_s == 0.0 else ["1", "1"]), "123"]


def test_a_large_file_that_grows_is_not_sent_each_minute(world, monkeypatch):
    monkeypatch.setattr(file_mirror, "_WRITTEN_S", 0.0)
    monkeypatch.setattr(file_mirror, "_LARGE_BYTES", 100)
    sizes = []
    for size in (200, 220, 249, 250, 310):
        write(world, "t00000/stdout", "x" * size)
        sizes.append(len(look(world)["t00000/stdout"]))
    assert sizes == [200, 200, 200, 250, 250]
    assert len(look(world)["t00000/stdout"]) == 310  # nothing has been written since the last look


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
        look(world)
        assert list(world.store.list("snapshot/")) == [f"snapshot/0/{1:020d}.json"]
    names = {sequence: f"snapshot/1/{sequence:020d}.json" for sequence in (5, 8, 9)}
    world.mirrored = 7
    look(world)
    assert list(world.store.list("snapshot/")) == [f"snapshot/0/{1:020d}.json", names[5]]
    world.mirrored = 9
    look(world)
    assert list(world.store.list("snapshot/")) == [names[5], names[8]]
    snapshot_files.write(world.directory, {"after": 9}, 9)
    world.mirror.store_all()
    assert list(world.store.list("snapshot/")) == [names[8], names[9]]


def test_nothing_of_trials_is_stored_before_a_record_is(world):
    world.mirrored = 0
    write(world, "t00000/stdout")
    assert look(world) == {}


def test_a_driver_that_was_taken_over_from_replaces_no_file(world):
    write(world, "t00000/stdout", "1")
    world.mirror.store_all()
    StoreLock(world.store)
    write(world, "t00000/stdout", "12")
    with pytest.raises(ExperimentFenced):
        world.mirror.store_all()
    assert stored(world)["t00000/stdout"] == "1"


@pytest.mark.process  # A thread.
def test_the_declaration_is_stored_first(world):
    world.mirror.start()
    world.mirror.stop()
    assert list(world.store.list()) == ["experiment.json", "lock/00000001.json"]
    (world.directory / "experiment.json").unlink()
    with pytest.raises(StorageError, match=r"experiment\.json cannot be read"):
        world.begin().start()


def test_a_directory_that_was_deleted_is_an_error_of_storage(world):
    shutil.rmtree(world.directory)
    with pytest.raises(StorageError, match=r"files of .* cannot be stored in memory://"):
        world.mirror.store_all()
