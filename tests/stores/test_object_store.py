import errno
from unittest.mock import Mock

import pytest

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.dirfs import DirFileSystem  # noqa: E402  (if installed)
from fsspec.implementations.local import LocalFileSystem  # noqa: E402

from tuner.errors import StorageError, StorageUnreachable  # noqa: E402
from tuner.stores.object_store import ObjectStore  # noqa: E402


@pytest.fixture(scope="module")
def s3(moto):
    """Return a bucket; connecting to it anew for each test would take a second."""
    return ObjectStore(moto.make_bucket(), moto.filesystem())


@pytest.fixture(scope="module")
def ceph_bucket(ceph):
    return ObjectStore(ceph.make_bucket(), ceph.filesystem())


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.process),
        pytest.param("file", marks=pytest.mark.process),
        pytest.param("s3", marks=pytest.mark.heavy),
        pytest.param("ceph", marks=pytest.mark.heavy),
    ]
)
def store(request, tmp_path):
    match request.param:
        case "memory":
            yield ObjectStore(f"memory://{tmp_path.name}/run")
            fsspec.filesystem("memory").store.clear()
        case "file":
            yield ObjectStore(f"file://{tmp_path}/bucket/run")
        case "s3":
            yield request.getfixturevalue("s3").child(tmp_path.name)
        case "ceph":
            yield request.getfixturevalue("ceph_bucket").child(tmp_path.name)


def test_an_object_is_created_once_and_its_first_content_stays(store):
    assert store.create("lock/7", b"mine") is True
    assert store.create("lock/7", b"yours") is False
    assert store.get("lock/7") == b"mine"


def test_a_writer_that_creates_the_same_content_again_is_told_that_it_has_created_it(store):
    # As after an answer that was lost.
    assert store.create("lock/7", b"mine")
    assert store.create("lock/7", b"mine")


def test_an_empty_object_is_read_as_empty(store):
    assert store.create("empty", b"")
    assert store.get("empty") == b""
    assert store.list() == {"empty": 0}


def test_put_replaces_what_is_there(store):
    store.put("beat", b"1")
    store.put("beat", b"22")
    assert store.get("beat") == b"22"


def test_an_absent_object_is_none_or_raises_file_not_found(store):
    assert store.get_if_exists("absent") is None
    with pytest.raises(FileNotFoundError, match="no such"):
        store.get("absent")


def test_a_larger_object_than_the_limit_is_not_read(store):
    store.put("large", b"12345")
    assert store.get("large", limit_bytes=5) == b"12345"
    with pytest.raises(StorageError, match="more than 4 bytes"):
        store.get("large", limit_bytes=4)


def test_a_listing_has_sizes_is_recursive_and_begins_with_the_prefix(store):
    for key in ("journal/7/b", "journal/7/a", "journal/70/c", "other"):
        store.put(key, key.encode())
    assert list(store.list().items()) == [
        ("journal/7/a", 11), ("journal/7/b", 11), ("journal/70/c", 12), ("other", 5),
    ]  # fmt: skip
    assert list(store.list("journal/7/")) == ["journal/7/a", "journal/7/b"]
    assert list(store.list("journal/7")) == ["journal/7/a", "journal/7/b", "journal/70/c"]
    assert store.list("absent/") == {}


def test_a_child_is_a_directory_of_its_own(store):
    child = store.child("trial/checkpoint")
    child.put("weights", b"0.5")
    assert child.list() == {"weights": 3}
    assert store.get("trial/checkpoint/weights") == b"0.5"
    assert child.url == f"{store.url}/trial/checkpoint"


def test_files_are_uploaded_and_downloaded_and_deleted_together(store, tmp_path):
    sources = {f"deep/{index}": tmp_path / f"source{index}" for index in range(9)}
    for key, source in sources.items():
        source.write_bytes(key.encode() * 1000)
    store.upload(sources)
    targets = {key: tmp_path / "targets" / key for key in sources}
    store.download(targets)
    assert {key: path.read_bytes() for key, path in targets.items()} == {
        key: path.read_bytes() for key, path in sources.items()
    }
    store.delete([*sources, "absent"])
    assert store.list() == {}


def test_a_missing_file_is_named_before_anything_is_uploaded(store, tmp_path):
    (tmp_path / "there").write_bytes(b"x")
    with pytest.raises(FileNotFoundError, match="missing"):
        store.upload({"there": tmp_path / "there", "missing": tmp_path / "missing"})
    assert store.list() == {}


def test_downloading_an_absent_object_raises_file_not_found(store, tmp_path):
    with pytest.raises(FileNotFoundError):
        store.download({"absent": tmp_path / "absent"})


@pytest.mark.parametrize("key", ["", "/absolute", "a//b", "a/../b", ".", "a/", "a\0b"])
def test_keys_that_could_leave_the_directory_are_refused(store, key):
    with pytest.raises(ValueError, match="key"):
        store.put(key, b"")


def test_the_probe_accepts_the_store_and_leaves_nothing(store):
    store.probe()
    assert store.list() == {}


def test_a_hostile_key_in_a_listing_is_refused():
    store = ObjectStore("memory://hostile/run")
    memory = fsspec.filesystem("memory")
    memory.store["/hostile/run/../evil"] = memory.open("/hostile/x", "wb")
    try:
        with pytest.raises(StorageError, match=r"'\.\./evil'"):
            store.list()
    finally:
        memory.store.clear()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("s3://", "names no bucket", marks=pytest.mark.heavy),
        ("simplecache::s3://bucket/run", "chain of URLs"),
        ("nonsense://bucket/run", "nonsense"),
        ("run", "relative"),
    ],
)
def test_a_url_that_is_not_complete_is_refused_at_once(url, message):
    if url.startswith("s3"):
        pytest.importorskip("s3fs")
    with pytest.raises(ValueError, match=message):
        ObjectStore(url)


@pytest.mark.process
def test_a_file_system_without_conditional_writes_is_refused_by_the_probe(tmp_path):
    plain = DirFileSystem(str(tmp_path), LocalFileSystem(auto_mkdir=True))
    store = ObjectStore("run", plain)
    with pytest.raises(StorageError, match=r"no conditional writes.*storage_lock='none'"):
        store.probe()
    with pytest.warns(RuntimeWarning, match="make sure that only one"):
        store.probe(is_checked=False)
    assert store.create("key", b"first")
    assert not store.create("key", b"second")


def test_a_full_disk_under_a_store_is_an_error_of_the_store(tmp_path, monkeypatch):
    store = ObjectStore(f"file://{tmp_path}")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("tuner.stores.object_backends.write_bytes", Mock(side_effect=full))
    for write in (store.put, store.create):
        with pytest.raises(StorageUnreachable, match="No space left on device"):
            write("key", b"content")


def test_a_key_below_an_object_is_refused_at_once():
    store = ObjectStore("memory://below/run")
    store.put("file", b"")
    with pytest.raises(StorageUnreachable, match="FileExistsError"):
        store.put("file/key", b"")
    store.delete(store.list())


def test_a_url_with_credentials_is_refused_without_repeating_them():
    with pytest.raises(ValueError, match="credentials in its URL") as failure:
        ObjectStore("s3://key:secret@bucket/run")
    assert "secret" not in str(failure.value)
