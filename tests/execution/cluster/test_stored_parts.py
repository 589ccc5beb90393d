"""A group over two nodes whose checkpoints are committed in an object store."""

import json
from dataclasses import replace

import pytest

from tests.execution.cluster.test_spread_group import DONE, KEY, Cluster, result
from tuner.core.commands import AnswerReport, KillWorker
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointLost,
    Outcome,
    ResultReported,
)
from tuner.core.trial import CheckpointRecord, ReportReply, ValidationRequest
from tuner.execution.cluster.rank_messages import (
    PartMeasured,
    PartUnstored,
    PartUploaded,
    SourceDamaged,
)
from tuner.execution.exit_diagnosis import ExitInfo
from tuner.execution.process_service import Gone
from tuner.storage.layout import MANIFEST
from tuner.storage.manifest import FileEntry, PartContents
from tuner.storage.object_checkpoints import ObjectCheckpoints
from tuner.storage.object_store import ObjectStore

REMOTE = "checkpoint_000000.e7a1"
STAGED = [f".tmp-000000-1-{rank:08x}" for rank in range(4)]


def contents(*names, rank=0, **options):
    return PartContents({name: FileEntry(1, "a1", rank) for name in names}, {}, [], **options)


class StoringCluster(Cluster):
    """Two nodes that share a store."""

    def __init__(self, directory, *, is_async=False):
        (directory / "local").mkdir()
        super().__init__(directory / "local")
        self.store = ObjectStore(f"file://{directory}/store")
        checkpoints = ObjectCheckpoints(self.store, directory / "local", 7)
        self.groups.use_store(checkpoints, is_async=is_async)

    def wait(self):
        """Let what threads have done take effect."""
        if self.groups._commits:
            self.groups._commits.run_done()

    def events_of(self, kind):
        while not (found := [event for event in self.events if isinstance(event, kind)]):
            self.wait()
        return found

    def report(self, kind="staged", names=STAGED, number=1, **fields):
        """Have all ranks report a part of a checkpoint."""
        self.asked.clear()
        for rank, name in enumerate(names):
            self.say(rank, result(number, part={"kind": kind, "name": name}, **fields))

    def measure(self, index=0, **parts):
        """Have nodes say what they have."""
        parts = parts or {"a": contents("all", "x"), "b": contents("all", "y", rank=3)}
        for node, part in parts.items():
            self.news(node, PartMeasured(index, part))

    def upload(self, *nodes, index=0):
        """Have nodes upload what they have been asked to."""
        remote = f"checkpoint_{index:06d}.e7a1"
        names = {"a": ["x"], "b": ["all", "y"]}
        for node in nodes:
            for name in names[node]:
                self.store.put(f"t00001/{remote}/{name}", b"1")
            self.news(node, PartUploaded(index))

    def manifests(self):
        return [name for name in self.store.list() if name.endswith(MANIFEST)]


@pytest.fixture
def cluster(tmp_path):
    made = StoringCluster(tmp_path).begin()
    yield made
    made.groups.close()


@pytest.mark.process
def test_a_checkpoint_counts_when_all_nodes_have_uploaded_and_its_manifest_is_there(cluster):
    cluster.report()
    assert [(node, each["parts"]) for node, each in cluster.take_asked("rank_measure")] == [
        ("a", [[0, STAGED[0]], [1, STAGED[1]]]),
        ("b", [[2, STAGED[2]], [3, STAGED[3]]]),
    ]
    cluster.measure()
    asked = dict(cluster.take_asked("rank_upload"))
    assert {node: (each["remote"], each["left_out"]) for node, each in asked.items()} == {
        "a": (REMOTE, ["all"]),
        "b": (REMOTE, []),
    }
    cluster.upload("a")
    cluster.wait()
    assert (cluster.events, cluster.manifests()) == ([], [])
    cluster.upload("b")
    (event,) = cluster.events_of(ResultReported)
    assert (event.checkpoint.index, event.checkpoint.remote) == (0, REMOTE)
    assert cluster.manifests() == [f"t00001/{REMOTE}/{MANIFEST}"]
    cluster.asked.clear()
    cluster.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))
    answers = [json.loads(each["data"]) for _, each in cluster.take_asked("rank_send")]
    assert {(each["next_checkpoint"], each["latest_remote"]) for each in answers} == {(1, REMOTE)}


@pytest.mark.process
def test_a_node_that_is_lost_between_upload_and_commit_leaves_an_orphan(cluster, tmp_path):
    cluster.report()
    cluster.measure()
    cluster.upload("a")
    cluster.store.put(f"t00001/{REMOTE}/all", b"1")  # of b, which does not say so any more
    cluster.groups.on_node_left("b", 0.0)
    for rank in (0, 1):
        cluster.news("a", Gone(rank, ExitInfo(0)))
    assert cluster.end.outcome is Outcome.LOST
    assert [type(event).__name__ for event in cluster.events] == ["WorkerExited"]
    assert cluster.manifests() == []
    later = ObjectCheckpoints(cluster.store, tmp_path / "local", 8)
    assert later.sweep(set()) == [f"t00001/{REMOTE}"]
    assert cluster.store.list() == {}


def test_a_checkpoint_that_the_store_did_not_take_is_left_out_and_its_name_not_used_again(
    cluster, caplog
):
    cluster.report()
    cluster.measure()
    cluster.upload("a")
    cluster.news("b", PartUnstored(0, "the store could not be reached", is_storage=True))
    (event,) = cluster.events_of(ResultReported)
    assert (event.checkpoint, event.upload) == (None, None)
    assert "without a checkpoint that could not be saved: node b: the store" in caplog.text
    cluster.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))
    cluster.report(names=[name.replace("000000", "000001") for name in STAGED], number=2)
    cluster.measure(index=1)
    assert {each["remote"] for _, each in cluster.take_asked("rank_upload")} == {
        "checkpoint_000001.e7a1"
    }


def test_what_cannot_be_read_on_a_node_is_raised_by_report(cluster):
    cluster.report()
    cluster.news("a", PartUnstored(0, "a link leads out of it", is_storage=False))
    errors = [json.loads(each["data"])["error"] for _, each in cluster.take_asked("rank_send")]
    assert {each["message"] for each in errors} == {"node a: a link leads out of it"}
    assert cluster.events == []


@pytest.mark.process
def test_a_file_that_is_missing_in_the_store_is_noticed_before_the_commit(cluster, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    cluster.report()
    cluster.measure()
    cluster.news("a", PartUploaded(0))
    cluster.asked.clear()
    cluster.news("b", PartUploaded(0))
    while not cluster.asked:
        cluster.wait()
    errors = [json.loads(each["data"])["error"] for _, each in cluster.take_asked("rank_send")]
    assert "lists all with no bytes, and a node has uploaded 1" in errors[0]["message"]
    assert cluster.manifests() == []


def test_workers_that_are_killed_do_not_wait_for_uploads(cluster):
    cluster.report()
    cluster.measure()
    cluster.groups.kill(KillWorker(*KEY, "it took too long", term_grace_s=3.0))
    cluster.all_gone()
    assert cluster.end.outcome is Outcome.KILLED
    cluster.upload("a", "b")
    assert cluster.manifests() == []


@pytest.mark.process
@pytest.mark.parametrize("loses_node", [False, True])
def test_ranks_train_on_while_a_checkpoint_is_committed_and_leave_after_it(tmp_path, loses_node):
    cluster = StoringCluster(tmp_path, is_async=True).begin()
    cluster.report()
    (event,) = cluster.events_of(ResultReported)
    assert (event.checkpoint, event.upload) == (None, 0)
    cluster.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))
    cluster.report(names=[name.replace("000000", "000001") for name in STAGED], number=2)
    assert len(cluster.events) == 1  # the next report with a checkpoint waits
    cluster.measure()
    if loses_node:
        cluster.groups.on_node_left("b", 0.0)
        for rank in (0, 1):
            cluster.news("a", Gone(rank, ExitInfo(0)))
        assert cluster.end.outcome is Outcome.LOST
    else:
        cluster.upload("a", "b")
        (committed,) = cluster.events_of(CheckpointCommitted)
        assert committed.checkpoint.remote == REMOTE
        assert cluster.events_of(ResultReported)[1].upload == 1
    cluster.groups.close()


def test_a_node_that_is_lost_when_all_ranks_have_returned_takes_the_attempt_with_it(tmp_path):
    cluster = StoringCluster(tmp_path, is_async=True).begin()
    cluster.report()
    cluster.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))
    cluster.all_say(DONE)
    cluster.groups.on_node_left("b", 0.0)
    for rank in (0, 1):
        cluster.news("a", Gone(rank, ExitInfo(0)))
    assert cluster.end.outcome is Outcome.LOST
    cluster.groups.close()


def test_an_upload_that_fails_beside_the_training_costs_the_checkpoint_alone(tmp_path):
    cluster = StoringCluster(tmp_path, is_async=True).begin()
    cluster.report()
    cluster.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))
    cluster.news("a", PartUnstored(0, "the store could not be reached", is_storage=True))
    (lost,) = cluster.events_of(CheckpointLost)
    assert (lost.trial_id, lost.index) == ("t00001", 0)
    cluster.all_say(DONE)
    cluster.all_gone()
    assert cluster.end.outcome is Outcome.COMPLETED
    cluster.groups.close()


def test_workers_that_are_killed_at_once_wait_for_no_upload_at_all(tmp_path):
    cluster = StoringCluster(tmp_path, is_async=True).begin()
    cluster.report()
    cluster.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))
    cluster.report(names=[name.replace("000000", "000001") for name in STAGED], number=2)
    cluster.groups.kill(KillWorker(*KEY, "enough"))
    cluster.all_gone()
    assert cluster.end.outcome is Outcome.KILLED
    cluster.groups.close()


@pytest.mark.process
def test_what_training_code_has_placed_itself_is_uploaded_from_there(cluster):
    cluster.report("placed", ["mine"] * 4)
    assert [(node, each["place"]) for node, each in cluster.take_asked("rank_measure")] == [
        ("a", "mine"),
        ("b", "mine"),
    ]
    cluster.measure(a=None, b=contents("all", "y", has_metadata=True))
    ((node, asked),) = cluster.take_asked("rank_upload")
    assert (node, asked["with_metadata"]) == ("b", True)
    cluster.upload("b")
    record = cluster.events_of(ResultReported)[0].checkpoint
    assert (record.name, record.remote) == ("mine", REMOTE)


@pytest.mark.process
@pytest.mark.parametrize("kind", ["placed", "placeholder"])
def test_where_nothing_is_placed_nothing_is_uploaded(cluster, kind):
    cluster.report(kind, ["mine"] * 4)
    if kind == "placed":
        cluster.measure(a=None, b=None)
    record = cluster.events_of(ResultReported)[0].checkpoint
    assert (record.name, record.is_placeholder, record.remote) == ("mine", True, "")


def test_parts_that_do_not_fit_together_are_refused(cluster):
    cluster.report()
    cluster.measure(a=contents("x"), b=PartContents({}, {}, ["x"]))
    errors = [json.loads(each["data"])["error"] for _, each in cluster.take_asked("rank_send")]
    assert "do not fit together" in errors[0]["message"]


def test_the_payload_of_a_validation_is_stored_with_the_checkpoint(cluster, monkeypatch):
    request = ValidationRequest(payload="payload.pkl")
    group = cluster.groups._attempts[KEY].group
    group.on_messages_before = group.on_messages

    def with_validation(worker, messages):
        group.on_messages_before(
            worker,
            [replace(each, result=replace(each.result, validation=request)) for each in messages],
        )

    monkeypatch.setattr(group, "on_messages", with_validation)
    cluster.report()
    asked = cluster.take_asked("rank_measure")
    assert {message["payload"] for _, message in asked} == {"payload.pkl"}


def test_a_damaged_checkpoint_to_start_from_is_reported_once_and_loses_the_attempt(tmp_path):
    cluster = StoringCluster(tmp_path)
    record = CheckpointRecord(3, 4, remote="checkpoint_000003.e6a1")
    cluster.command = replace(cluster.command, checkpoint=record)
    cluster.begin()
    for node, ranks in (("a", (0, 1)), ("b", (2, 3))):
        cluster.news(node, SourceDamaged("a file is missing"))
        for rank in ranks:
            cluster.news(node, Gone(rank, None))
    assert cluster.events[0] == CheckpointLost("t00001", 3, "a file is missing")
    assert cluster.end.outcome is Outcome.LOST
    assert len(cluster.events) == 2
