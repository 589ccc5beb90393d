"""What trials leave in their directories on a node, with an executor that does as it is told."""

import threading
import time

import pytest

from tests.execution.local.conftest import DEADLINE_S
from tuner.core.commands import KillValidation, StartValidation, StartWorker
from tuner.core.events import Outcome, ResultReported, ValidationEnded, WorkerExited
from tuner.core.trial import CheckpointRecord, ValidationRequest
from tuner.execution.cluster.node_files import NodeFiles, OutputReader
from tuner.execution.cluster.stored_messages import Output
from tuner.storage.object_store import ObjectStore

PAYLOAD = f".validation-0-{'a' * 64}.pkl"


class Told:
    """An executor that returns the events it is given."""

    def __init__(self):
        self.events, self.commands = [], []
        self.woken = threading.Event()

    def carry_out(self, commands):
        self.commands += commands

    def wait(self, timeout_s):
        if not self.events:
            self.woken.wait(timeout_s)
            self.woken.clear()
        events, self.events = self.events, []
        return events

    def wake(self):
        self.woken.set()

    def shutdown(self, deadline_s):
        pass


class Node:
    def __init__(self, directory):
        self.directory = directory
        self.store = ObjectStore(f"memory://bucket{directory}")
        self.inner, self.told, self.may_tell = Told(), [], True
        self.files = NodeFiles(
            self.inner,
            self.store,
            directory,
            self.told.append,
            may_tell=lambda: self.may_tell,
            needs_payload=lambda command: True,
        )

    def write(self, name, content, trial_id="t00001"):
        path = self.directory / trial_id / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)

    def start(self):
        self.files.carry_out([StartWorker("t00001", 1, {}, {}, (), None, 0)])

    def say(self, *events):
        self.inner.events += events

    def wait(self, number=1):
        events, deadline_s = [], time.monotonic() + DEADLINE_S
        while len(events) < number:
            assert time.monotonic() < deadline_s
            events += self.files.wait(1.0)
        return events


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.files.shutdown(0.0)


ENDED = WorkerExited("t00001", 1, Outcome.COMPLETED)
METRICS = {"training_iteration": 1}


@pytest.mark.process
def test_files_of_a_trial_are_stored_before_its_end_is_told(node):
    node.start()
    for name in ("model.txt", "result.json", "stdout", "stderr.rank1", ".hidden"):
        node.write(name, name)
    node.say(ENDED)
    assert node.wait() == [ENDED]
    assert list(node.store.list()) == ["t00001/model.txt"]
    said = {(each["stream"], each["data"]) for each in node.told}
    assert said == {("stdout", "stdout"), ("stderr.rank1", "stderr.rank1")}


def test_what_a_trainer_returned_is_told_as_a_whole(node):
    node.start()
    node.write("return_value.json", "[1]")
    node.say(ENDED)
    node.wait()
    assert node.told == [Output("t00001", "return_value.json", "[1]").message]
    assert Output("t00001", "return_value.json", "").is_whole


@pytest.mark.process
def test_only_files_that_have_changed_are_stored_again(node):
    node.start()
    node.write("a", "1")
    node.say(ENDED)
    node.wait()
    node.store.delete(["t00001/a"])
    node.write("b", "2")
    node.start()
    node.say(ENDED)
    node.wait()
    assert list(node.store.list()) == ["t00001/b"]


@pytest.mark.process
def test_of_more_than_fits_the_largest_files_are_left_out_with_a_remark(node, monkeypatch, caplog):
    monkeypatch.setattr("tuner.execution.cluster.node_files._MAX_ARTIFACT_BYTES", 10)
    node.start()
    for name, content in (("small", "12345"), ("large", "123456789"), ("tiny", "1")):
        node.write(name, content)
    node.say(ENDED)
    node.wait()
    assert list(node.store.list()) == ["t00001/small", "t00001/tiny"]
    assert "lost with the node: large" in caplog.text


@pytest.mark.process
def test_a_report_with_a_payload_waits_until_that_is_stored_and_others_do_not(node):
    node.start()
    node.write(PAYLOAD, "pickled")
    request = ValidationRequest(payload=PAYLOAD)
    report = ResultReported("t00001", 1, METRICS, validation=request)
    other = ResultReported("t00002", 1, METRICS)
    gate = threading.Event()
    put = node.files._store.put
    node.files._store = type("Slow", (), {"put": lambda _, *given: gate.wait() and put(*given)})()
    node.say(report, other)
    assert node.wait() == [other]
    gate.set()
    assert node.wait() == [report]
    assert node.store.get(f"t00001/{PAYLOAD}") == b"pickled"


def start_validation(num_try=1, *, is_last_try=False):
    request = ValidationRequest(payload=PAYLOAD)
    record = CheckpointRecord(0, 1)
    return StartValidation("t00001", record, num_try, request, {}, is_last_try=is_last_try)


@pytest.mark.process
def test_a_validation_without_its_payload_fails(node):
    node.files.carry_out([start_validation()])
    (ended,) = node.wait()
    assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "FileNotFoundError")
    assert node.inner.commands == []


@pytest.mark.process
def test_a_validation_that_is_killed_while_its_payload_is_fetched_never_starts(node):
    gate = threading.Event()
    node.files._fetch = lambda *given: gate.wait()
    node.files.carry_out([start_validation()])
    node.files.carry_out([KillValidation("t00001", 0, 1, "enough")])
    (ended,) = node.wait()
    assert (ended.outcome, ended.failure.message) == (Outcome.KILLED, "enough")
    gate.set()
    assert node.inner.commands == []


@pytest.mark.process
def test_a_payload_is_deleted_when_its_validation_has_ended_for_good(node):
    node.write(PAYLOAD, "pickled")
    node.store.put(f"t00001/{PAYLOAD}", b"pickled")
    for num_try, is_last in ((1, False), (2, True)):
        assert list(node.store.list()) == [f"t00001/{PAYLOAD}"]
        node.files.carry_out([start_validation(num_try, is_last_try=is_last)])
        node.say(ValidationEnded("t00001", 0, num_try, Outcome.FAILED))
        node.wait()
    node.files._jobs.shutdown()
    assert list(node.store.list()) == []


def test_output_is_told_while_a_trial_runs_unless_the_driver_is_behind(node):
    node.start()
    node.may_tell = False
    node.write("stdout", "one\n")
    node.files.wait(0.0)
    assert node.told == []
    node.may_tell = True
    deadline_s = time.monotonic() + DEADLINE_S
    while not node.told:
        assert time.monotonic() < deadline_s
        node.files.wait(1.0)
    assert node.told == [Output("t00001", "stdout", "one\n").message]


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
