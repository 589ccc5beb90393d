import pytest

from tuner.storage.checkpoint_directories import commit, stage
from tuner.storage.manifest import Provenance
from tuner.stores.checkpoint_cache import CheckpointCache

TRIAL = "t00001"


@pytest.fixture
def copies(tmp_path):
    (tmp_path / TRIAL).mkdir()

    def add(cache, index, name=""):
        staging = stage(tmp_path / TRIAL, index, 1)
        (staging / "model.pt").write_bytes(b"0123456789")
        path = commit(staging, tmp_path / TRIAL, Provenance(TRIAL, 1, index, 1), name=name)
        cache.add(key(index), path, index, 10, has_own_name=bool(name))

    return add


def key(index):
    return TRIAL, f"checkpoint_{index:06d}.e1a1"


def left(tmp_path):
    return sorted(path.name for path in (tmp_path / TRIAL).iterdir())


def test_the_copies_used_least_recently_are_deleted_above_the_limit(tmp_path, copies):
    cache = CheckpointCache(tmp_path, 25)
    for index in range(2):
        copies(cache, index)
    cache.pin("a worker", key(0))
    cache.unpin("a worker")
    for index in (2, 3):
        copies(cache, index)
    cache.trim()
    assert left(tmp_path) == ["checkpoint_000002", "checkpoint_000003"]
    cache.trim()
    assert len(left(tmp_path)) == 2


def test_a_copy_that_was_used_lately_outlives_newer_ones(tmp_path, copies):
    cache = CheckpointCache(tmp_path, 25)
    for index in range(3):
        copies(cache, index)
    cache.pin("a worker", key(0))
    cache.unpin("a worker")
    cache.trim()
    assert left(tmp_path) == ["checkpoint_000000", "checkpoint_000002"]


def test_a_pinned_copy_stays_whatever_it_takes(tmp_path, copies):
    cache = CheckpointCache(tmp_path, 0)
    cache.pin("source", key(0))
    for index in range(3):
        copies(cache, index)
        cache.pin("latest", key(index))
    cache.trim()
    assert left(tmp_path) == ["checkpoint_000000", "checkpoint_000002"]
    cache.unpin("source")
    cache.unpin("latest")
    cache.trim()
    assert left(tmp_path) == []


def test_what_was_never_added_is_never_deleted(tmp_path, copies):
    copies(CheckpointCache(tmp_path, 0), 0)
    CheckpointCache(tmp_path, 0).trim()
    assert left(tmp_path) == ["checkpoint_000000"]


def test_what_retention_deletes_no_longer_counts(tmp_path, copies):
    cache = CheckpointCache(tmp_path, 10)
    copies(cache, 0)
    copies(cache, 1)
    cache.forget(key(0))
    cache.trim()
    assert left(tmp_path) == ["checkpoint_000000", "checkpoint_000001"]


def test_a_named_directory_stays_while_its_trial_runs_or_if_another_checkpoint_is_in_it(
    tmp_path, copies
):
    cache = CheckpointCache(tmp_path, 0)
    copies(cache, 0, "best")
    cache.pin("latest", key(7))
    cache.trim()
    assert left(tmp_path) == ["best"]
    copies(CheckpointCache(tmp_path, 0), 1, "best")  # which the driver has not heard of
    cache.unpin("latest")
    cache.trim()
    assert left(tmp_path) == ["best"]
    copies(cache, 2, "best")
    cache.trim()
    assert left(tmp_path) == []


def test_the_limit_is_a_tenth_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"total": 1000}))
    cache = CheckpointCache(tmp_path)
    cache.add(key(0), tmp_path / "gone", 0, 100)
    cache.trim()
    cache.add(key(1), tmp_path / "other", 1, 1)
    (tmp_path / "gone").mkdir()
    cache.trim()
    assert not (tmp_path / "gone").exists()
