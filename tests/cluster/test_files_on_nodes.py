"""The driver's side of the files on nodes, with nodes that say what a test has them say."""

import pytest

from tuner.cluster.file_messages import (
    FILE_REQUESTS,
    DropPayload,
    Fetch,
    GetPayload,
    GiveUp,
    Measure,
    Measured,
    Output,
    Pin,
    PutFiles,
    Release,
    Transferred,
    Upload,
    UploadPart,
)
from tuner.cluster.files_on_nodes import FilesOnNodes
from tuner.core.worker_records import CheckpointRecord, Failure
from tuner.stores.file_service import Source
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_store import ObjectStore

RECORD = CheckpointRecord(0, 1, remote="checkpoint_000000.e7a1")
KEY = ("t00001", RECORD.remote)


class Nodes:
    """Two nodes, of which one runs a trial."""

    def __init__(self):
        self.present, self.asked, self.calls, self.remarks = {"a", "b"}, [], [], []

    def say(self, node, message):
        if node in self.present:
            self.asked.append((node, FILE_REQUESTS.decode(message)))
        return node in self.present

    def runs(self, name, trial_id):
        return (name, trial_id) == ("a", "t00001")

    def call_soon(self, call):
        self.calls.append(call)

    def on_remark(self, text):
        self.remarks.append(text)

    def call(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Driver:
    def __init__(self, directory):
        self.directory, self.nodes, self.told = directory, Nodes(), []
        store = ObjectStore(f"memory://bucket{directory}")
        checkpoints = ObjectCheckpoints(store, directory, 7)
        self.files = FilesOnNodes(self.nodes, checkpoints, directory)
        self.files.note_journal_stored()
        self.nodes.call()

    def source(self, holder="source t00002 1"):
        return Source("t00001", RECORD, holder, "t00002")

    def fetch(self, node="a", holder="source t00002 1"):
        return self.files.fetch(node, self.source(holder), self.told.append)

    def upload(self, node="a"):
        return self.files.upload(node, "t00001", RECORD, "latest t00001 1", self.told.append)

    def answer(self, node="a", failure=None, number=None):
        """Answer the last request, or that of a number."""
        number = number or self.nodes.asked[-1][1].id
        self.files.on_told(node, Transferred(number, failure))
        self.nodes.call()

    @property
    def asked(self):
        """What was asked since the last time, without the node."""
        asked, self.nodes.asked = self.nodes.asked, []
        return [request for _, request in asked]


@pytest.fixture
def driver(tmp_path):
    return Driver(tmp_path)


def test_an_answer_is_passed_on_in_the_drivers_thread(driver):
    driver.fetch()
    (request,) = driver.asked
    assert request == Fetch(1, "t00001", RECORD, "source t00002 1", "t00002")
    driver.files.on_told("a", Transferred(1, damage := Failure("CheckpointError", "it is gone")))
    assert driver.told == []
    driver.nodes.call()
    assert driver.told == [damage]


def test_uploads_wait_until_the_store_has_the_journal_and_nothing_else_does(tmp_path):
    driver = Driver(tmp_path)
    driver.files._waiting = []  # as at the beginning
    driver.upload()
    given_up = driver.upload("b")
    driver.files.get_payload("a", "t00001", "p", driver.told.append)
    driver.files.ask("a", Measure(50, "t00001", 1, {}, "mine"), driver.told.append)
    driver.files.ask("a", UploadPart(51, 50, "t00001", "r", [], False), driver.told.append)
    assert [type(each) for each in driver.asked] == [GetPayload, Measure]
    given_up.give_up()
    driver.nodes.asked.clear()
    driver.files.note_journal_stored()
    driver.nodes.call()
    assert [type(each) for each in driver.asked] == [Upload, UploadPart]


@pytest.mark.parametrize("begin", ["upload", "fetch"])
def test_what_a_node_keeps_is_at_hand_at_once_until_it_is_released(begin, driver):
    getattr(driver, begin)()
    assert driver.fetch(holder="other") is not None  # it is not there yet
    driver.answer(number=1)
    driver.nodes.asked.clear()
    assert driver.fetch(holder="third") is None
    assert driver.asked == [Pin(*KEY, "third")]
    assert driver.fetch("b", "third") is not None
    holder = "latest t00001 1" if begin == "upload" else "source t00002 1"
    driver.files.release("a", [holder])
    driver.files.release("a", ["third"])
    assert driver.asked[1:] == [Release([holder]), Release(["third"])]
    assert driver.fetch(holder="fourth") is not None


def test_a_copy_that_did_not_arrive_is_released_too(driver):
    driver.fetch()
    driver.answer(failure=Failure("CheckpointError", "it is gone"))
    driver.files.release("a", ["source t00002 1"])
    assert driver.asked[1:] == [Release(["source t00002 1"])]
    driver.files.release("a", ["nobody"])
    assert driver.asked == []


def test_another_node_than_the_one_that_was_asked_answers_nothing(driver):
    driver.upload()
    driver.answer("b")
    assert driver.told == []
    driver.answer("a")
    driver.answer("a", number=1)
    assert driver.told == [None]


def test_what_was_given_up_is_not_waited_for(driver):
    upload = driver.upload()
    upload.give_up()
    upload.give_up()
    assert driver.asked[1:] == [GiveUp(1)]
    driver.answer(number=1)
    assert driver.told == []


def test_what_a_node_that_has_left_was_asked_for_has_failed_but_for_what_it_was_to_fetch(driver):
    driver.upload()
    driver.files.put_files("b", "t00001", driver.told.append)
    driver.fetch()
    parts = []
    driver.files.ask("a", Measure(50, "t00001", 1, {}, "mine"), parts.append)
    driver.nodes.present.discard("a")
    driver.files.ask("a", Measure(51, "t00001", 1, {}, "mine"), parts.append)
    assert (driver.told, parts) == ([], [])  # the executor has to know first
    driver.files.on_node_left("a")
    assert (driver.told, parts) == ([Failure("NodeLost", "node a is gone")], [None, None])
    driver.files.ask("a", Measure(52, "t00001", 1, {}, "mine"), parts.append)
    driver.nodes.call()
    assert len(parts) == 3
    assert [type(each) for _, each in driver.nodes.asked] == [Upload, PutFiles, Fetch, Measure]


def test_a_node_is_busy_while_something_is_moved(driver):
    driver.upload()
    assert (driver.files.is_moving("a"), driver.files.is_moving("b")) == (True, False)
    driver.answer()
    assert not driver.files.is_moving("a")


def test_what_a_node_has_measured_is_passed_on(driver):
    told = []
    driver.files.ask("a", Measure(50, "t00001", 1, {}, "mine"), told.append)
    driver.files.on_told("a", measured := Measured(50, None, []))
    driver.nodes.call()
    assert told == [measured]


@pytest.mark.parametrize("answer", [Measured(1, None, []), Transferred(2)])
def test_an_answer_to_something_else_is_refused(answer, driver):
    driver.upload()
    driver.files.ask("a", Measure(2, "t00001", 1, {}, "mine"), driver.told.append)
    with pytest.raises(ValueError, match="asked for something else"):
        driver.files.on_told("a", answer)
    driver.files.on_told("b", answer)  # of what it was not asked nothing is heeded
    driver.files.on_told("a", Transferred(2, Failure("CheckpointError", "it is gone")))


def test_a_payload_is_dropped_without_an_answer(driver):
    driver.files.drop_payload("a", "t00001", "p")
    assert driver.asked == [DropPayload("t00001", "p")]


def test_output_of_a_trial_that_runs_there_is_added_to_its_file(driver):
    for data in ("one\n", "two\n"):
        driver.files.on_told("a", Output("t00001", "stdout", data))
    driver.files.on_told("b", Output("t00001", "stdout", "of another\n"))
    for data in ("[1]", "[2]"):
        driver.files.on_told("a", Output("t00001", "return_value.json", data))
    assert (driver.directory / "t00001" / "stdout").read_text() == "one\ntwo\n"
    assert (driver.directory / "t00001" / "return_value.json").read_text() == "[2]"


def test_output_that_cannot_be_stored_is_remarked(driver):
    (driver.directory / "t00001").write_text("in the way")
    driver.files.on_told("a", Output("t00001", "stdout", "one\n"))
    assert "the output of trials cannot be stored" in driver.nodes.remarks[0]
