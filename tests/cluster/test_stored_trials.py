"""Nodes of an experiment in an object store: nothing is shared but the store."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.node_driver import StoredNodeDriver
from tests.cluster.test_node_host import validated_by_report
from tuner.cluster.node_messages import Ready, SetupRefused, StoredElsewhere
from tuner.cluster.scratch import Scratch
from tuner.cluster.storage_probe import StoreProof
from tuner.core.events import Outcome, ResultReported, ValidationEnded, WorkerExited
from tuner.core.worker_records import ValidationRequest
from tuner.execution.session import Checkpoint, get_checkpoint, get_context, report
from tuner.stores.object_store import ObjectStore

pytestmark = pytest.mark.heavy


def elsewhere(url):
    """Return what a node is told of a store, in which the driver has written its proof."""
    return StoredElsewhere(url, 7, StoreProof(ObjectStore(url), 7).proof)


@pytest.fixture
def start_stored_node(tmp_path, s3_url, monkeypatch):
    """Return a function that starts a node with a directory of its own, set up for the store."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    opened = []

    def start(trainable, *, has_journal=True, **options):
        storage = elsewhere(f"{s3_url}/exp")
        opened.append(StoredNodeDriver(tmp_path, trainable, storage=storage, **options))
        ready = opened[-1].set_up()
        assert isinstance(ready, Ready), ready
        assert Path(ready.directory).parent == tmp_path / "scratch"
        if has_journal:
            opened[-1].files.note_journal_stored()
        return opened[-1]

    yield start
    for driver in opened:
        driver.close()
    assert list((tmp_path / "scratch").glob("tuner-*")) == []


@pytest.fixture
def stored(s3_url):
    return ObjectStore(f"{s3_url}/exp")


def output_of(node, stream="stdout", trial_id="t00001"):
    """Return what a node has told of a trial's output, which the driver's directory has."""
    path = node.directory / trial_id / stream
    return path.read_text() if path.exists() else ""


def save(config):
    found = get_checkpoint()
    step = int(Path(found.path, "step").read_text()) + 1 if found else 0
    print("step", step, flush=True)
    Path(get_context().get_trial_dir(), "notes.txt").write_text(f"notes {step}")
    with TemporaryDirectory() as directory:
        Path(directory, "step").write_text(str(step))
        report({"step": step}, checkpoint=Checkpoint.from_directory(directory))


def test_checkpoints_files_and_output_leave_the_node(start_stored_node, stored):
    node = start_stored_node(save)
    node.start()
    assert node.exit_of() == WorkerExited("t00001", 1, Outcome.COMPLETED)
    record = node.first_event(ResultReported).checkpoint
    assert record.remote == "checkpoint_000000.e7a1"
    assert stored.get(f"t00001/{record.remote}/step") == b"0"
    assert f"t00001/{record.remote}/.manifest.json" in stored.list()
    assert stored.get("t00001/notes.txt") == b"notes 0"
    assert output_of(node) == "step 0\n"
    kinds = [type(each) for each in node.events["t00001"]]
    assert kinds.count(WorkerExited) == 1
    assert kinds[-1] is WorkerExited


def test_a_trial_goes_on_from_its_checkpoint_on_another_node(start_stored_node, stored):
    first = start_stored_node(save)
    first.start()
    first.exit_of()
    record = first.first_event(ResultReported).checkpoint
    first.close()
    second = start_stored_node(save)
    second.start(attempt=2, checkpoint=record)
    second.exit_of()
    result = second.first_event(ResultReported)
    assert (result.metrics["step"], result.checkpoint.remote) == (1, "checkpoint_000003.e7a2")
    assert stored.get("t00001/notes.txt") == b"notes 1"


def test_uploads_wait_until_the_store_has_the_journal(start_stored_node, stored):
    node = start_stored_node(save, has_journal=False)
    node.start()
    node.wait_for(lambda: node.files._waiting)
    node.step()
    assert node.first_event(ResultReported) is None
    assert not stored.list("t00001/")
    node.files.note_journal_stored()
    assert node.exit_of().outcome is Outcome.COMPLETED
    assert node.first_event(ResultReported).checkpoint.remote


def test_an_upload_may_go_on_beside_the_training(start_stored_node):
    node = start_stored_node(save, is_async=True)
    node.start()
    node.exit_of()
    assert node.first_event(ResultReported).upload == 0
    kinds = [type(each).__name__ for each in node.events["t00001"]]
    assert kinds[-2:] == ["CheckpointCommitted", "WorkerExited"]


def test_a_validation_runs_on_another_node_than_its_training(start_stored_node, stored):
    first, second = start_stored_node(validated_by_report), start_stored_node(validated_by_report)
    first.start()
    first.exit_of()
    result = first.first_event(ResultReported)
    payload = f"t00001/{result.validation.payload}"
    assert payload in stored.list()
    second.learn_payloads_of(first)
    second.start_validation(result.checkpoint, result.validation)
    ended = second.end_of_validation()
    assert (ended.outcome, ended.metrics) == (Outcome.COMPLETED, {"accuracy": 0.5})
    second.wait_for(lambda: payload not in stored.list())


def test_a_validation_whose_payload_is_damaged_fails(start_stored_node, stored):
    first, second = start_stored_node(validated_by_report), start_stored_node(validated_by_report)
    first.start()
    first.exit_of()
    result = first.first_event(ResultReported)
    stored.put(f"t00001/{result.validation.payload}", b"something else")
    second.learn_payloads_of(first)
    second.start_validation(result.checkpoint, result.validation)
    ended = second.end_of_validation()
    assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "ValidationError")
    assert "is damaged" in ended.failure.message


def test_the_output_of_a_validation_is_told(start_stored_node):
    def validate(checkpoint):
        print("looking at", Path(checkpoint.path, "step").read_text(), flush=True)
        return {"accuracy": 1.0}

    node = start_stored_node(save, validator=validate)
    node.start()
    node.exit_of()
    record = node.first_event(ResultReported).checkpoint
    node.start_validation(record, ValidationRequest())
    node.next_event(ValidationEnded)
    assert output_of(node, "validation_000000.log") == "looking at 0\n"


def test_a_failure_quotes_what_was_written_on_the_node(start_stored_node):
    def train(config):
        os.write(2, b"last words\n")
        os.abort()

    node = start_stored_node(train)
    node.start()
    ended = node.next_event(WorkerExited)
    assert "last words" in ended.failure.traceback
    assert output_of(node, "stderr").startswith("last words")


def test_a_node_without_access_to_the_store_is_refused(start_node, s3_url, monkeypatch):
    storage = StoredElsewhere("s3://no-such-bucket-here/exp", 7, ("probe/e7-1", "2"))
    assert isinstance(start_node(save, storage=storage).set_up(), SetupRefused)


def test_a_node_answers_the_proof_of_the_store_it_shares(start_node, s3_url, stored):
    storage = elsewhere(f"{s3_url}/exp")
    assert isinstance(start_node(save, storage=storage).set_up(), Ready)
    (answer,) = set(stored.list("probe/")) - {storage.proof[0]}
    assert stored.get(answer) == storage.proof[1].encode()


def test_a_node_with_another_store_of_the_same_name_is_refused(start_node, tmp_path):
    storage = elsewhere(f"file://{tmp_path}/store")
    (tmp_path / "store").rename(tmp_path / "driver")
    refusal = start_node(save, storage=storage).set_up()
    assert "another storage of that name; give the node" in refusal.why


def test_a_file_system_of_the_users_that_cannot_be_loaded_refuses_the_node(start_node):
    proof = "probe/e7-1", "2"
    storage = StoredElsewhere("s3://bucket/exp", 7, proof, filesystem=b"no pickle")
    refusal = start_node(save, storage=storage).set_up()
    assert "UnpicklingError" in refusal.why


def test_directories_of_dead_hosts_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    alive = Scratch()
    dead = Scratch()
    os.close(dead._lock)  # as the kernel does
    other = Scratch()
    assert alive.path.exists()
    assert not dead.path.exists()
    assert other.path.stat().st_mode & 0o777 == 0o700
    alive.close()
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_a_node_keeps_its_files_where_it_is_told_to(tmp_path):
    elsewhere = tmp_path / "not" / "there" / "yet"
    scratch = Scratch(elsewhere)
    assert scratch.path.parent == elsewhere
    scratch.close()
