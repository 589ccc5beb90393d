"""Arrays of configurations: stored once, verified, shared."""

import pickle

import numpy as np
import pytest

from tuner.errors import StorageError
from tuner.storage import array_store
from tuner.storage.array_store import ArrayStore


@pytest.fixture
def store(tmp_path):
    return ArrayStore(tmp_path, sync=False)


def test_the_same_content_is_stored_once_and_the_same_large_array_is_hashed_once(
    store, tmp_path, monkeypatch
):
    array = np.arange(200_000)
    content = store.put(array)
    assert store.put(array.copy()) == content
    assert [path.name for path in (tmp_path / "objects").iterdir()] == [f"{content}.npy"]
    monkeypatch.setattr(array_store, "encoded", lambda _: pytest.fail("hashed again"))
    assert store.put(array) == content


def test_an_array_that_takes_the_place_of_a_dead_one_in_memory_is_not_mistaken_for_it(store):
    contents = {store.put(np.full(200_000, number)) for number in range(20)}
    assert len(contents) == 20


def test_a_new_driver_does_not_write_what_is_there(store, tmp_path):
    content = store.put(np.arange(3))
    path = tmp_path / "objects" / f"{content}.npy"
    before = path.stat()
    ArrayStore(tmp_path).put(np.arange(3))
    assert path.stat() == before


def test_a_large_array_that_is_read_again_is_the_same_object_and_not_hashed(
    store, tmp_path, monkeypatch
):
    content = store.put(np.arange(200_000))
    other = ArrayStore(tmp_path)
    array = other.get(content)
    assert other.get(content) is array
    monkeypatch.setattr(array_store, "encoded", lambda _: pytest.fail("hashed again"))
    assert other.put(array) == content


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
    ],
)
def test_a_file_that_is_gone_or_changed_is_refused_by_name(store, tmp_path, harm):
    content = store.put(np.arange(3))
    harm(tmp_path / "objects" / f"{content}.npy")
    with pytest.raises(StorageError, match=rf"{content}\.npy"):
        ArrayStore(tmp_path).get(content)


@pytest.mark.parametrize("content", ["../../etc/passwd", "", "A" * 64, "0" * 63])
def test_what_is_no_hash_names_no_file(store, content):
    with pytest.raises(StorageError, match="64 hexadecimal digits"):
        store.get(content)


def test_a_pickled_array_in_a_file_that_is_rightly_named_is_not_unpickled(store, tmp_path):
    array = np.array([print], dtype=object)
    (tmp_path / "objects").mkdir()
    path = tmp_path / "objects" / "x.npy"
    np.save(path, array, allow_pickle=True)
    content = array_store.hashlib.sha256(path.read_bytes()).hexdigest()
    path.rename(path.with_name(f"{content}.npy"))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        store.get(content)


def test_a_large_array_travels_as_the_name_of_its_file_and_a_worker_may_write_to_its_own(store):
    large, small = np.zeros((500, 500)), np.zeros(3)
    for array in (large, small):
        store.put(array)
    config = {"deep": [large], "small": small, "x": 1}
    data = pickle.dumps(store.lighten(config))
    assert len(data) < 2_000
    first, second = (pickle.loads(data) for _ in range(2))  # noqa: S301  (our own)
    first["deep"][0][0] = 1
    assert type(first["deep"][0]) is np.ndarray
    assert second["deep"][0].sum() == 0 == large.sum()
    assert config["deep"][0] is large
    assert np.array_equal(first["small"], small)


def test_a_large_array_that_is_not_stored_travels_itself(store):
    config = {"a": np.zeros((500, 500))}
    assert store.lighten(config) is config
