"""What a node does with the files of its trials, as its driver asks."""

import hashlib
import json
import shutil
import threading
import time

import pytest

from tests.execution.local.conftest import DEADLINE_S
from tuner.cluster import node_files
from tuner.cluster.file_messages import (
    FILE_REQUESTS,
    Discard,
    DropPayload,
    Fetch,
    GetPayload,
    GiveUp,
    Measure,
    Output,
    Pin,
    PutFiles,
    PutPayload,
    Release,
    Transferred,
    Upload,
    UploadPart,
    read_file_record,
)
from tuner.cluster.node_files import NodeFiles, OutputReader
from tuner.core.worker_records import CheckpointRecord
from tuner.errors import StorageUnreachable
from tuner.storage.checkpoint_directories import commit_from
from tuner.storage.checkpoint_parts import stage_part
from tuner.storage.layout import METADATA
from tuner.storage.manifest import Provenance
from tuner.stores.object_store import ObjectStore

TRIAL = "t00001"
PAYLOAD = f".validation-0-{hashlib.sha256(b'pickled').hexdigest()}.pkl"
REMOTE = "checkpoint_000003.e7a2"


class Node:
    """A node's files, and the driver that asks for something and hears the answer."""

    def __init__(self, directory):
        self.directory, self.store = directory / "node", ObjectStore(f"memory://bucket{directory}")
        self.directory.mkdir()
        self.told, self.may_tell, self.ids = [], True, iter(range(1, 100))
        self.files = NodeFiles(
            self.store,
            7,
            self.directory,
            lambda message: self.told.append(read_file_record(json.loads(json.dumps(message)))),
            wake=lambda: None,
            may_tell=lambda: self.may_tell,
            cache_bytes=0,
        )

    def do(self, request):
        self.files.do(FILE_REQUESTS.decode(json.loads(json.dumps(FILE_REQUESTS.encode(request)))))

    def ask(self, kind, *fields, **named):
        """Ask for something, and return the answer."""
        number = next(self.ids)
        self.do(kind(number, *fields, **named))
        return self.answer_to(number)

    def answer_to(self, number):
        def found():
            self.files.settle()
            return [
                each for each in self.told if not isinstance(each, Output) and each.id == number
            ]

        return wait_for(found)[0]

    def write(self, name, content):
        path = self.directory / TRIAL / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return path

    def stage(self, rank, **files):
        source = self.directory / f"source{rank}"
        source.mkdir()
        for name, content in files.items():
            (source / name).write_text(content)
        (self.directory / TRIAL).mkdir(exist_ok=True)
        provenance = Provenance(TRIAL, 2, 3, 4)
        return stage_part(source, self.directory / TRIAL, provenance, rank=rank, sync=False)

    def commit(self, index):
        """Commit a checkpoint, as a worker does, and return its record."""
        source = self.directory / "source"
        source.mkdir()
        (source / "model").write_text(f"model {index}")
        (self.directory / TRIAL).mkdir(exist_ok=True)
        provenance = Provenance(TRIAL, 1, index, index + 1)
        commit_from(source, self.directory / TRIAL, provenance, sync=False)
        return CheckpointRecord(index, index + 1, remote=f"checkpoint_{index:06d}.e7a1")

    def has(self, record):
        return (self.directory / TRIAL / record.directory).exists()


def wait_for(found):
    deadline_s = time.monotonic() + DEADLINE_S
    while not (result := found()):
        assert time.monotonic() < deadline_s
    return result


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.files.close()


# Checkpoints of single processes.


@pytest.mark.process
def test_a_checkpoint_is_uploaded_kept_while_it_is_held_and_fetched_again(node):
    record = node.commit(0)
    assert node.ask(Upload, TRIAL, record, "latest").failure is None
    assert f"{TRIAL}/{record.remote}/model" in node.store.list()
    assert node.has(record)  # though nothing may be kept that nobody holds
    node.do(Release(["latest"]))
    wait_for(lambda: not node.has(record))
    assert node.ask(Fetch, TRIAL, record, "source", TRIAL).failure is None
    assert (node.directory / TRIAL / record.directory / "model").read_text() == "model 0"
    node.do(Pin(TRIAL, record.remote, "validation"))
    node.do(Release(["source"]))
    assert node.ask(Fetch, TRIAL, record, "validation", TRIAL).failure is None
    assert node.has(record)


@pytest.mark.process
def test_what_is_damaged_in_the_store_is_told(node):
    record = CheckpointRecord(0, 1, remote="checkpoint_000000.e7a1")
    failure = node.ask(Fetch, TRIAL, record, "source", TRIAL).failure
    assert (failure.kind, "no complete checkpoint" in failure.message) == ("CheckpointError", True)


@pytest.mark.process
def test_of_what_was_given_up_nothing_is_told(node):
    record = node.commit(0)
    node.do(Upload(50, TRIAL, record, "latest"))
    node.do(GiveUp(50))
    assert node.ask(PutFiles, TRIAL).failure is None
    assert [each for each in node.told if each.id == 50] == []


# Checkpoints of ranks.


@pytest.mark.process
def test_parts_are_measured_and_uploaded_to_their_final_place(node):
    names = {2: node.stage(2, all="x", two="y"), 3: node.stage(3, all="x", three="zz")}
    measured = node.ask(Measure, TRIAL, 2, names)
    files = measured.contents.files
    assert {name: (entry.size_bytes, entry.rank) for name, entry in files.items()} == {
        "all": (1, 3), "three": (2, 3), "two": (1, 2),
    }  # fmt: skip
    assert node.ask(UploadPart, measured.id, TRIAL, REMOTE, ["all"], False).failure is None
    listed = node.store.list()
    assert listed == {f"{TRIAL}/{REMOTE}/three": 2, f"{TRIAL}/{REMOTE}/two": 1}
    assert list((node.directory / TRIAL).iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("with_metadata", [False, True])
def test_metadata_is_uploaded_by_the_node_that_is_asked_for_it(node, with_metadata):
    name = node.stage(2, two="y", **{METADATA: "{}"})
    measured = node.ask(Measure, TRIAL, 2, {2: name})
    assert measured.contents.has_metadata
    node.ask(UploadPart, measured.id, TRIAL, REMOTE, [], with_metadata)
    assert (f"{TRIAL}/{REMOTE}/{METADATA}" in node.store.list()) is with_metadata


@pytest.mark.process
def test_what_training_code_has_placed_stays(node):
    (node.directory / TRIAL).mkdir()
    assert node.ask(Measure, TRIAL, 2, {}, place="mine").contents is None
    placed = node.directory / TRIAL / "mine"
    placed.mkdir()
    (placed / "x").write_text("1")
    measured = node.ask(Measure, TRIAL, 2, {}, place="mine")
    assert measured.contents.files["x"].rank is None
    node.ask(UploadPart, measured.id, TRIAL, REMOTE, [], with_metadata=False)
    assert node.store.list() == {f"{TRIAL}/{REMOTE}/x": 1}
    assert (placed / "x").exists()


@pytest.mark.process
def test_a_part_that_is_gone_is_told(node):
    name = node.stage(2, two="y")
    shutil.rmtree(node.directory / TRIAL / name)
    failed = node.ask(Measure, TRIAL, 2, {2: name})
    assert (type(failed), failed.is_storage) == (Transferred, False)


@pytest.mark.process
def test_nothing_is_left_of_an_earlier_attempt_when_the_next_one_begins(node):
    name = node.stage(2, two="y")
    node.ask(Measure, TRIAL, 2, {2: name})
    node.files.begin(TRIAL, 3)
    wait_for(lambda: not (node.directory / TRIAL / name).exists())


@pytest.mark.process
def test_what_was_discarded_cannot_be_uploaded_and_the_rest_can(node):
    names = [node.stage(2, two="y"), node.stage(3, three="z")]
    first, second = [node.ask(Measure, TRIAL, 2, {2: name}).id for name in names]
    node.do(Discard(TRIAL, 2, [names[0]]))
    rest = {"left_out": [], "with_metadata": False}
    failed = node.ask(UploadPart, first, TRIAL, REMOTE, **rest)
    assert "discarded" in failed.failure.message
    other = "checkpoint_000004.e7a2"
    assert node.ask(UploadPart, second, TRIAL, other, **rest).failure is None


@pytest.mark.process
def test_what_is_discarded_is_deleted_and_nothing_else(node):
    name = node.stage(2, two="y")
    # Ranks may still write to what they have in common.
    others = ["mine", ".tmp-000003-2-common1x0"]
    for other in others:
        (node.directory / TRIAL / other).mkdir()
    node.do(Discard(TRIAL, 2, [*others, f"../{TRIAL}", name]))
    wait_for(lambda: not (node.directory / TRIAL / name).exists())
    assert all((node.directory / TRIAL / other).exists() for other in others)


# Payloads of validations.


@pytest.mark.process
def test_a_payload_gets_to_another_node_and_is_deleted_when_it_is_needed_no_more(node):
    path = node.write(PAYLOAD, "pickled")
    assert node.ask(PutPayload, TRIAL, PAYLOAD).failure is None
    assert node.store.get(f"{TRIAL}/{PAYLOAD}") == b"pickled"
    path.unlink()
    assert node.ask(GetPayload, TRIAL, PAYLOAD).failure is None
    assert path.read_text() == "pickled"
    node.do(DropPayload(TRIAL, PAYLOAD))
    assert not path.exists()
    wait_for(lambda: not node.store.list())


@pytest.mark.process
def test_a_payload_that_is_dropped_while_it_is_stored_is_gone_as_well(node):
    node.write(PAYLOAD, "pickled")
    begun, may_end, put = threading.Event(), threading.Event(), node.store.put

    def slow(*given):
        begun.set()
        may_end.wait()
        put(*given)

    node.store.put = slow
    node.do(PutPayload(50, TRIAL, PAYLOAD))
    begun.wait()
    node.do(DropPayload(TRIAL, PAYLOAD))
    may_end.set()
    assert node.answer_to(50).failure is None
    assert node.store.list() == {}


@pytest.mark.process
@pytest.mark.parametrize(
    ("stored", "kind"), [(None, "FileNotFoundError"), (b"other", "ValidationError")]
)
def test_a_payload_that_is_missing_or_damaged_is_told(node, stored, kind):
    if stored is not None:
        node.store.put(f"{TRIAL}/{PAYLOAD}", stored)
    assert node.ask(GetPayload, TRIAL, PAYLOAD).failure.kind == kind


@pytest.mark.process
def test_a_payload_is_waited_for_while_the_store_is_away(node, monkeypatch, caplog):
    monkeypatch.setattr(node_files, "PAUSE_S", 0.0)
    node.store.put(f"{TRIAL}/{PAYLOAD}", b"pickled")
    answers, get = iter([StorageUnreachable("no route to the store")]), node.store.get

    def away_at_first(name):
        for error in answers:
            raise error
        return get(name)

    node.store.get = away_at_first
    assert node.ask(GetPayload, TRIAL, PAYLOAD).failure is None
    assert (node.directory / TRIAL / PAYLOAD).read_text() == "pickled"
    assert "and tries again: no route to the store" in caplog.text


@pytest.mark.process
def test_a_payload_for_which_nobody_waits_is_not_tried_again(node, monkeypatch):
    monkeypatch.setattr(node_files, "PAUSE_S", 0.0)
    tries = []

    def away(name):
        tries.append(name)
        if len(tries) == 2:
            node.do(GiveUp(50))
        raise StorageUnreachable("no route to the store")

    node.store.get = away
    node.do(GetPayload(50, TRIAL, PAYLOAD))
    wait_for(lambda: not node.files._over.empty())
    node.files.settle()
    assert (len(tries), node.told) == (2, [])


@pytest.mark.process
def test_a_payload_that_another_node_has_written_is_no_failure(node, caplog):
    assert node.ask(PutPayload, TRIAL, PAYLOAD).failure is None
    assert (node.store.list(), caplog.text) == ({}, "")


# Other files, and output.


@pytest.mark.process
def test_files_of_a_trial_are_stored_and_its_output_is_told_before(node):
    node.files.begin(TRIAL, 1)
    node.may_tell = False  # though the driver is behind
    for name in ("model.txt", "result.json", "stdout", "stderr.rank1", ".hidden"):
        node.write(name, name)
    assert node.ask(PutFiles, TRIAL).failure is None
    assert list(node.store.list()) == [f"{TRIAL}/model.txt"]
    *said, _ = node.told
    assert {(each.stream, each.data) for each in said} == {
        ("stdout", "stdout"), ("stderr.rank1", "stderr.rank1"),
    }  # fmt: skip


@pytest.mark.process
def test_only_files_that_have_changed_are_stored_again(node):
    node.write("a", "1")
    node.ask(PutFiles, TRIAL)
    node.store.delete([f"{TRIAL}/a"])
    node.write("b", "2")
    node.ask(PutFiles, TRIAL)
    assert list(node.store.list()) == [f"{TRIAL}/b"]


@pytest.mark.process
def test_of_more_than_fits_the_largest_files_are_left_out_with_a_remark(node, monkeypatch, caplog):
    monkeypatch.setattr("tuner.cluster.node_files._MAX_ARTIFACT_BYTES", 10)
    for name, content in (("small", "12345"), ("large", "123456789"), ("tiny", "1")):
        node.write(name, content)
    node.ask(PutFiles, TRIAL)
    assert list(node.store.list()) == [f"{TRIAL}/small", f"{TRIAL}/tiny"]
    assert "lost with the node: large" in caplog.text


def test_what_a_trainer_returned_is_told_as_a_whole_with_the_end_of_its_process(node):
    node.files.begin(TRIAL, 1)
    node.write("return_value.json", "[1]")
    node.files.end(TRIAL)
    assert node.told == [Output(TRIAL, "return_value.json", "[1]")]
    assert node.told[0].is_whole


def test_output_is_told_while_a_process_runs_unless_the_driver_is_behind(node):
    assert node.files.timeout_s is None
    node.files.begin(TRIAL, 1)
    node.may_tell = False
    node.write("stdout", "one\n")
    node.files.settle()
    assert (node.told, node.files.timeout_s > 0.0) == ([], True)
    node.may_tell = True
    wait_for(lambda: node.files.settle() or node.told)
    assert node.told == [Output(TRIAL, "stdout", "one\n")]
    node.files.end(TRIAL)
    assert node.files.timeout_s is None


@pytest.fixture
def reader(tmp_path):
    said = []
    made = OutputReader(tmp_path, said.append, max_bytes=8)
    (tmp_path / "t1").mkdir()
    file = (tmp_path / "t1" / "stdout").open("ab", buffering=0)

    def write(data):
        file.write(data)
        made.send("t1")
        texts = [each.data for each in said]
        said.clear()
        return "".join(texts)

    yield write
    file.close()


def test_output_is_told_once(reader):
    assert [reader(b"one\n"), reader(b""), reader(b"two\n")] == ["one\n", "", "two\n"]


def test_characters_that_come_in_two_parts_are_put_together(reader):
    data = "ä€".encode()
    assert [reader(data[:1]), reader(data[1:3]), reader(data[3:])] == ["", "ä", "€"]
    assert reader(b"\xff!") == "\\xff!"


def test_the_middle_of_much_output_is_left_out(reader):
    assert reader(b"0123456789abcdef") == "0123\n... 8 bytes left out ...\ncdef"
    assert reader(b"on") == "on"


def test_a_file_that_was_emptied_is_read_from_its_beginning(reader, tmp_path):
    reader(b"12345")
    (tmp_path / "t1" / "stdout").write_bytes(b"")
    assert reader(b"new") == "new"
