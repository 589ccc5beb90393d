import itertools
import json
import shutil
from pathlib import Path

import pytest

from tuner.core.worker_records import CheckpointRecord
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.storage.checkpoint_directories import commit, stage
from tuner.storage.layout import MANIFEST
from tuner.storage.manifest import Provenance
from tuner.storage.strict_json import seal
from tuner.stores.object_checkpoints import ObjectCheckpoints, proof_prefix
from tuner.stores.object_store import ObjectStore
from tuner.wire.declared import decode, encode

TRIAL = "t00001"
REMOTE = "checkpoint_000003.e7a2"


class WatchedStore:
    """An `ObjectStore` whose calls are listed, and which does as `during` says before each."""

    def __init__(self, store, calls=None, during=None):
        self.store, self.calls = store, [] if calls is None else calls
        self.during = during or (lambda name, number: None)

    def child(self, name):
        return WatchedStore(self.store.child(name), self.calls, self.during)

    def __getattr__(self, name):
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def call(*arguments):
            self.calls.append(name)
            self.during(name, len(self.calls))
            return found(*arguments)

        return call


class Killed(BaseException):
    """Stands for the death of the process."""


@pytest.fixture
def store(tmp_path):
    return ObjectStore(f"file://{tmp_path}/bucket/run", retry_s=0.0)


@pytest.fixture
def experiment(tmp_path):
    directory = tmp_path / "experiment"
    directory.mkdir()
    return directory


def saved(experiment, index=3, *, name="", content=b"weights"):
    trial_dir = experiment / TRIAL
    trial_dir.mkdir(exist_ok=True)
    staging = stage(trial_dir, index, 2)
    (staging / "deep" / "empty").mkdir(parents=True)
    (staging / "model.pt").write_bytes(content)
    (staging / "deep" / "state.json").write_bytes(b"{}")
    (staging / "latest").symlink_to("model.pt")
    commit(staging, trial_dir, Provenance(TRIAL, 2, index, index + 1), sync=False, name=name)
    return CheckpointRecord(index, index + 1, name=name, remote=f"checkpoint_{index:06d}.e7a2")


@pytest.mark.process
def test_a_checkpoint_comes_back_from_the_store_as_it_was(store, experiment, tree_of):
    record = saved(experiment)
    checkpoints = ObjectCheckpoints(store, experiment, 8)
    assert checkpoints.upload(TRIAL, record, REMOTE) == len(b"weights{}")
    path = checkpoints.path(TRIAL, record)
    before = tree_of(path)
    shutil.rmtree(path)
    checkpoints.download(TRIAL, record)
    assert tree_of(path) == before
    assert not checkpoints.find_local_damage(TRIAL, record, with_hashes=True)
    assert [child.name for child in path.parent.iterdir()] == ["checkpoint_000003"]


@pytest.mark.process
def test_the_manifest_comes_last_and_after_the_listing(store, experiment):
    watched = WatchedStore(store)
    ObjectCheckpoints(watched, experiment, 8).upload(TRIAL, saved(experiment), REMOTE)
    assert watched.calls == ["upload", "list", "create"]


@pytest.mark.process
def test_a_checkpoint_with_a_name_has_a_numbered_directory_in_the_store(store, experiment):
    record = saved(experiment, name="best")
    checkpoints = ObjectCheckpoints(store, experiment, 8)
    checkpoints.upload(TRIAL, record, record.remote)
    assert f"{TRIAL}/{REMOTE}/{MANIFEST}" in store.list()
    shutil.rmtree(experiment / TRIAL)
    checkpoints.download(TRIAL, record)
    assert (experiment / TRIAL / "best" / "model.pt").read_bytes() == b"weights"


@pytest.mark.process
def test_metadata_of_the_user_is_stored_with_it(store, experiment):
    record = saved(experiment)
    checkpoints = ObjectCheckpoints(store, experiment, 8)
    metadata = checkpoints.path(TRIAL, record) / ".metadata.json"
    metadata.write_text('{"epoch": 4}')
    checkpoints.upload(TRIAL, record, REMOTE)
    shutil.rmtree(experiment / TRIAL)
    checkpoints.download(TRIAL, record)
    assert metadata.read_text() == '{"epoch": 4}'


@pytest.mark.process
@pytest.mark.parametrize("step", range(1, 5))
def test_an_upload_that_ends_early_leaves_no_checkpoint_and_its_rest_is_swept(
    step, store, experiment
):
    def die(_, number):
        if number == step:
            raise Killed

    checkpoints = ObjectCheckpoints(WatchedStore(store, during=die), experiment, 8)
    record = saved(experiment)
    is_complete = step > len(("upload", "list", "create"))
    try:
        checkpoints.upload(TRIAL, record, REMOTE)
    except Killed:
        assert not is_complete
    restored = ObjectCheckpoints(store, experiment, 8)
    if is_complete:  # the process died before the journal
        restored.download(TRIAL, record)
    else:
        with pytest.raises(CheckpointError, match="no complete checkpoint"):
            restored.download(TRIAL, record)
    was_begun = bool(store.list())
    assert restored.sweep(set()) == [f"{TRIAL}/{REMOTE}"] * was_begun
    assert store.list() == {}


@pytest.mark.process
@pytest.mark.parametrize("change", ["cut", "gone", "never kept"])
def test_a_file_that_the_store_lists_with_another_size_is_uploaded_again(
    change, store, experiment, monkeypatch
):
    monkeypatch.setattr("time.sleep", lambda _: None)
    key = f"{TRIAL}/{REMOTE}/model.pt"
    times = itertools.count()

    def lose(name, _):
        if name == "list" and (next(times) == 0 or change == "never kept"):
            store.put(key, b"wei") if change == "cut" else store.delete([key])

    checkpoints = ObjectCheckpoints(WatchedStore(store, during=lose), experiment, 8)
    record = saved(experiment)
    if change == "never kept":
        with pytest.raises(CheckpointError, match=r"lists model.pt with no bytes .* with 7"):
            checkpoints.upload(TRIAL, record, REMOTE)
        assert f"{TRIAL}/{REMOTE}/{MANIFEST}" not in store.list()
    else:
        checkpoints.upload(TRIAL, record, REMOTE)
        assert store.get(key) == b"weights"


@pytest.mark.process
def test_a_listing_that_is_behind_is_read_again(store, experiment, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)

    class Stale(WatchedStore):
        def child(self, name):
            return Stale(self.store.child(name), self.calls)

        def list(self):
            self.calls.append("list")
            return {} if self.calls.count("list") == 1 else self.store.list()

    watched = Stale(store)
    ObjectCheckpoints(watched, experiment, 8).upload(TRIAL, saved(experiment), REMOTE)
    assert watched.calls.count("list") == 2
    assert f"{TRIAL}/{REMOTE}/{MANIFEST}" in store.list()


@pytest.mark.process
def test_a_checkpoint_that_was_replaced_while_it_was_uploaded_is_none(store, experiment):
    record = saved(experiment, name="best")

    def replace(name, _):
        if name == "list":
            saved(experiment, 4, name="best", content=b"heavier")

    checkpoints = ObjectCheckpoints(WatchedStore(store, during=replace), experiment, 8)
    with pytest.raises(CheckpointError, match="replaced"):
        checkpoints.upload(TRIAL, record, REMOTE)
    assert f"{TRIAL}/{REMOTE}/{MANIFEST}" not in store.list()


@pytest.mark.process
def test_an_upload_that_is_given_up_leaves_nothing(store, experiment):
    record = saved(experiment)
    ObjectCheckpoints(store, experiment, 8).upload(TRIAL, record, REMOTE, lambda: False)
    assert store.list() == {}


def test_nothing_is_uploaded_before_the_store_has_a_journal(store, experiment):
    def refuse():
        raise StorageUnreachable("there is no journal yet")

    checkpoints = ObjectCheckpoints(store, experiment, 8, await_journal=refuse)
    with pytest.raises(StorageUnreachable):
        checkpoints.upload(TRIAL, saved(experiment), REMOTE)
    assert store.list() == {}


@pytest.mark.process
def test_a_name_that_another_checkpoint_has_in_the_store_is_refused(store, experiment):
    record = saved(experiment)
    store.put(f"{TRIAL}/{REMOTE}/{MANIFEST}", b"of another")
    with pytest.raises(CheckpointError, match="another checkpoint"):
        ObjectCheckpoints(store, experiment, 8).upload(TRIAL, record, REMOTE)


@pytest.mark.process
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda store, key: store.put(f"{key}/model.pt", b"WEIGHTS"), "another SHA-256"),
        (lambda store, key: store.put(f"{key}/model.pt", b"wei"), "has 3 bytes"),
        (lambda store, key: store.delete([f"{key}/model.pt"]), "a file of .* is missing"),
        (lambda store, key: store.delete([f"{key}/{MANIFEST}"]), "no complete checkpoint"),
        (lambda store, key: store.put(f"{key}/{MANIFEST}", b"{}"), "cannot be read"),
    ],
)
def test_damage_in_the_store_is_found_and_the_local_copy_stays(
    damage, message, store, experiment, tree_of
):
    record = saved(experiment)
    checkpoints = ObjectCheckpoints(store, experiment, 8)
    checkpoints.upload(TRIAL, record, REMOTE)
    before = tree_of(experiment)
    damage(store, f"{TRIAL}/{REMOTE}")
    with pytest.raises(CheckpointError, match=message) as error:
        checkpoints.download(TRIAL, record)
    assert f"{store.url}/{TRIAL}/{REMOTE}" in str(error.value)
    assert ".tmp-" not in str(error.value)
    assert tree_of(experiment) == before


@pytest.mark.process
@pytest.mark.parametrize(
    "changes",
    [
        {"files": {"../model.pt": {"size_bytes": 1, "sha256": None}}},
        {"files": {"/model.pt": {"size_bytes": 1, "sha256": None}}},
        {"links": {"out": "../../.."}},
        {"links": {"out": "/etc/passwd"}},
        {"links": {"a": "deep"}, "files": {"a/b": {"size_bytes": 1, "sha256": None}}},
        {"links": {"../out": "model.pt"}},
        {"directories": ["../out"]},
        {"directories": ["deep", "deep"]},
        {"trial_id": "t00002"},
        {"index": 4},
    ],
)
def test_a_manifest_of_a_stranger_leads_nowhere_else(changes, store, experiment, tmp_path):
    record = saved(experiment)
    checkpoints = ObjectCheckpoints(store, experiment, 8)
    checkpoints.upload(TRIAL, record, REMOTE)
    key = f"{TRIAL}/{REMOTE}/{MANIFEST}"
    body = json.loads(store.get(key))
    del body["sha256"]
    store.put(key, seal({**body, **changes}).encode())
    shutil.rmtree(experiment / TRIAL)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CheckpointError):
        checkpoints.download(TRIAL, record)
    assert list((experiment / TRIAL).iterdir()) == []
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("remote", ["../../other", "checkpoint_000003", "checkpoint_000003.e7a2/x"])
def test_a_recorded_name_that_is_none_is_refused(remote, store, experiment):
    record = CheckpointRecord(3, 4, remote=remote)
    with pytest.raises(CheckpointError, match="no name of a checkpoint"):
        ObjectCheckpoints(store, experiment, 8).download(TRIAL, record)


@pytest.mark.process
def test_the_manifest_is_deleted_before_the_files(store, experiment):
    record = saved(experiment)
    ObjectCheckpoints(store, experiment, 8).upload(TRIAL, record, REMOTE)

    def die(_, number):
        if number == 2:
            raise Killed

    with pytest.raises(Killed):
        ObjectCheckpoints(WatchedStore(store, during=die), experiment, 8).delete(TRIAL, REMOTE)
    assert f"{TRIAL}/{REMOTE}/{MANIFEST}" not in store.list()
    ObjectCheckpoints(store, experiment, 8).delete(TRIAL, REMOTE)
    assert store.list() == {}


def test_a_sweep_leaves_what_is_recorded_newer_or_of_others(store, experiment):
    kept = [
        f"{TRIAL}/{REMOTE}/model.pt",
        f"{TRIAL}/checkpoint_000004.e8a2/model.pt",
        f"{TRIAL}/checkpoint_000004/model.pt",
        f"{TRIAL}/mine.e1a1/model.pt",
        "checkpoint_000003.e1a1",
        "journal/7/00000000000000000001.log",
    ]
    for key in (*kept, f"{TRIAL}/checkpoint_000004.e7a2/model.pt", "t9/checkpoint_000000.e7a1/x"):
        store.put(key, b"x")
    swept = ObjectCheckpoints(store, experiment, 8).sweep({(TRIAL, REMOTE)})
    assert swept == [f"{TRIAL}/checkpoint_000004.e7a2", "t9/checkpoint_000000.e7a1"]
    assert sorted(store.list()) == sorted(kept)


@pytest.mark.process
def test_a_sweep_deletes_the_proofs_of_earlier_drivers(store, experiment):
    for epoch in (0, 7, 8, 9):
        store.put(f"{proof_prefix(epoch)}ab-cd", b"x")
    assert ObjectCheckpoints(store, experiment, 8).sweep(set()) == []
    assert sorted(store.list()) == [f"{proof_prefix(epoch)}ab-cd" for epoch in (8, 9)]


def test_a_store_that_cannot_be_reached_is_no_damage(store, experiment):
    def fail(*_):
        raise StorageUnreachable("the store could not be reached")

    record = saved(experiment)
    checkpoints = ObjectCheckpoints(WatchedStore(store, during=fail), experiment, 8)
    with pytest.raises(StorageUnreachable):
        checkpoints.upload(TRIAL, record, REMOTE)
    with pytest.raises(StorageUnreachable):
        checkpoints.download(TRIAL, record)


def test_the_record_names_the_directory_in_the_store_only_where_there_is_one():
    local = CheckpointRecord(3, 4)
    assert "remote" not in encode(local)
    stored = CheckpointRecord(3, 4, remote=REMOTE)
    assert decode(CheckpointRecord, encode(stored)) == stored
    assert stored.directory == Path("checkpoint_000003").name


@pytest.mark.heavy
@pytest.mark.parametrize("fault", ["cut", "lose"])
def test_on_s3_a_checkpoint_is_whole_whatever_requests_fail(
    fault, s3_url, s3_proxy, experiment, tree_of
):
    s3_proxy.fault = lambda number, method, path: fault if number % 4 == 2 else None
    checkpoints = ObjectCheckpoints(ObjectStore(f"{s3_url}/run"), experiment, 8)
    record = saved(experiment, content=bytes(range(256)) * 4096)
    checkpoints.upload(TRIAL, record, REMOTE)
    before = tree_of(checkpoints.path(TRIAL, record))
    shutil.rmtree(experiment / TRIAL)
    checkpoints.download(TRIAL, record)
    assert tree_of(checkpoints.path(TRIAL, record)) == before
    assert checkpoints.sweep({(TRIAL, REMOTE)}) == []
    assert checkpoints.sweep(set()) == [f"{TRIAL}/{REMOTE}"]
    assert ObjectStore(f"{s3_url}/run").list() == {}
