"""Checkpoints of an experiment in an object store: when they are deleted, and how it is cleaned."""

import threading
from types import SimpleNamespace

import pytest

from tests.waiting import wait_until
from tuner.core.events import SearchEnded
from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.driver.checkpoint_store import CheckpointDeleter, CheckpointStore
from tuner.errors import StorageError
from tuner.journal.records import encode
from tuner.journal.segments import START
from tuner.journal.writer import Journal
from tuner.storage.checkpoint_directories import commit, stage
from tuner.storage.manifest import Provenance
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_store import ObjectStore

pytestmark = pytest.mark.process
TRIAL = "t00000"


@pytest.fixture
def session(tmp_path):
    """Return a journal whose mirror is where the test says, and what deletes by it."""
    store = ObjectStore(f"file://{tmp_path}/bucket/run", retry_s=0.0)
    experiment = tmp_path / "run"
    (experiment / TRIAL).mkdir(parents=True)
    mirror = SimpleNamespace(
        mirrored_sequence=0, check=lambda: None, wrote=lambda num: None, push=lambda upto: None
    )
    in_store = ObjectCheckpoints(store, experiment, 8, cache_bytes=0)
    with (
        Journal(experiment, START, sync="process", mirror=mirror) as journal,
        CheckpointDeleter(journal) as deleter,
    ):
        yield SimpleNamespace(
            journal=journal,
            mirror=mirror,
            deleter=deleter,
            files=CheckpointStore(experiment, deleter, (), in_store),
            store=store,
            in_store=in_store,
            directory=experiment / TRIAL,
        )


def saved(session, index, epoch=7):
    staging = stage(session.directory, index, 1)
    (staging / "model.pt").write_bytes(b"weights")
    commit(staging, session.directory, Provenance(TRIAL, 1, index, index + 1), sync=False)
    record = CheckpointRecord(index, index + 1, remote=f"checkpoint_{index:06d}.e{epoch}a1")
    session.in_store.upload(TRIAL, record, record.remote)
    return record


def stored(session):
    return sorted({key.split("/")[1] for key in session.store.list()})


def record_and(session, delete, *arguments):
    """Have something deleted that the journal's next record supersedes."""
    session.journal.append(encode(SearchEnded(), 0.0))
    delete(*arguments)
    session.journal.flush()
    session.deleter.release()


def test_a_superseded_checkpoint_stays_until_the_store_has_the_record(session):
    for index in (0, 1):
        record_and(session, session.files.delete, TRIAL, saved(session, index))
    assert session.deleter._jobs.num_outstanding == session.deleter._jobs.cpu_s == 0
    assert stored(session) == ["checkpoint_000000.e7a1", "checkpoint_000001.e7a1"]
    assert len(list(session.directory.iterdir())) == 2
    session.mirror.mirrored_sequence = session.journal.written_sequence - 1
    session.deleter.release()
    wait_until(lambda: stored(session) == ["checkpoint_000001.e7a1"])
    assert [path.name for path in session.directory.iterdir()] == ["checkpoint_000001"]


def test_the_driver_does_not_look_at_checkpoints_that_the_executor_downloads(session):
    record = saved(session, 0)
    session.in_store.delete(TRIAL, record.remote)
    assert not session.files.find_damage(TRIAL, record)
    local = CheckpointRecord(9, 10)
    assert "no complete checkpoint" in session.files.find_damage(TRIAL, local)


def test_what_earlier_drivers_have_left_is_cleaned_up_once_the_store_has_the_records(session):
    trial = Trial(TRIAL, {}, {"cpu": 1.0})
    trial.checkpoints = [saved(session, 0)]
    for index in (1, 2):
        saved(session, index, epoch=6 + index)
    record_and(session, session.files.clean_up, [trial])
    assert len(stored(session)) == 3
    session.mirror.mirrored_sequence = session.journal.written_sequence
    session.deleter.release()
    # Of the epoch before, one is recorded; the other epoch is the present one.
    kept = ["checkpoint_000000.e7a1", "checkpoint_000002.e8a1"]
    wait_until(lambda: stored(session) == kept)
    # With a limit of 0 bytes the recorded one's local copy is evicted.
    wait_until(lambda: not (session.directory / "checkpoint_000000").exists())
    assert (session.directory / "checkpoint_000002").exists()


def test_one_that_cannot_be_deleted_keeps_no_other_from_it(session, caplog):
    session.mirror.mirrored_sequence = 99
    wrong = CheckpointRecord(0, 1, remote="../elsewhere")
    record_and(session, session.files.delete, TRIAL, wrong)
    record_and(session, session.files.delete, TRIAL, saved(session, 1))
    wait_until(lambda: not stored(session))
    assert "no name of a checkpoint" in caplog.text


def test_a_run_that_has_failed_does_not_wait_for_deletions_that_hang(tmp_path, monkeypatch):
    monkeypatch.setattr("tuner.driver.checkpoint_store._LAST_WAIT_S", 0.01)
    can_end = threading.Event()
    error = StorageError("the store is gone")
    with Journal(tmp_path, START, sync="process") as journal:
        deleter = CheckpointDeleter(journal)
        deleter.call(can_end.wait)
        deleter.release()
        deleter.__exit__(StorageError, error, None)
    can_end.set()
