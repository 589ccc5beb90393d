"""A group over two nodes whose checkpoints are committed in an object store."""

import json
from functools import partial

import pytest

from tests.execution.conversation import assignment
from tests.execution.executor_conversation import DONE, result
from tests.execution.fake_processes import FakeProcesses
from tuner.cluster.file_messages import (
    FILE_RECORDS,
    FILE_REQUESTS,
    Discard,
    GiveUp,
    Measure,
    Measured,
    Transferred,
    UploadPart,
    read_file_record,
)
from tuner.cluster.files_on_nodes import FilesOnNodes
from tuner.cluster.stored_parts import StoredParts
from tuner.core.commands import AnswerReport, KillWorker, StartWorker
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointLost,
    NodeLeft,
    Outcome,
    ResultReported,
    WorkerExited,
)
from tuner.core.worker_records import Failure, ReportReply, WorkerGroup
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.process_service import NodeChanged
from tuner.groups.groups import Groups
from tuner.storage import strict_json
from tuner.storage.layout import MANIFEST
from tuner.storage.manifest import FileEntry, PartContents
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_store import ObjectStore

KEY = ("t00001", 1)
NODES = ("a", "a", "b", "b")
REMOTE = "checkpoint_000000.e7a1"
STAGED = [f".tmp-000000-1-{rank:08x}" for rank in range(4)]
NEXT_STAGED = [name.replace("000000", "000001") for name in STAGED]
AWAY = Failure("StorageUnreachable", "the store could not be reached")


def contents(*names, rank=0, **options):
    return PartContents({name: FileEntry(1, "a1", rank) for name in names}, {}, [], **options)


class SaidNodes:
    """Nodes that record what is said to them."""

    def __init__(self):
        self.said, self.gone, self.calls = [], set(), []

    def say(self, node, message):
        if node in self.gone:
            return False
        self.said.append((node, FILE_REQUESTS.decode(json.loads(json.dumps(message)))))
        return True

    def call_soon(self, call):
        self.calls.append(call)

    def run_calls(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class LaterCommits:
    """Runs jobs when a test lets it."""

    def __init__(self):
        self.jobs = []

    def submit(self, job, then, what):
        self.jobs.append((job, then))

    def run_done(self):
        jobs, self.jobs = self.jobs, []
        for job, then in jobs:
            try:
                done = job()
            except Exception as error:  # noqa: BLE001  (what it raises is its result)
                done = error
            then(done)

    def close(self, within_s):
        return []


class StoringGroup:
    """A group on two nodes that share a store, and do what a test says.

    Attributes:
        events: What the driver was told.
    """

    def __init__(self, directory, *, is_async=False, has_journal=True, nodes=NODES):
        local = directory / "local"
        local.mkdir()
        self.store, self.events = ObjectStore(f"file://{directory}/store"), []
        checkpoints = ObjectCheckpoints(self.store, local, 7)
        self.nodes, self.commits, self.processes = SaidNodes(), LaterCommits(), FakeProcesses()
        self.files = FilesOnNodes(self.nodes, checkpoints, local)
        if has_journal:
            self.files.note_journal_stored()
        self.executor = ProcessExecutor(
            self.processes,
            lambda command: assignment(local, trial_id=command.trial_id, node=command.node),
            capacity={},
            groups=partial(
                Groups,
                commit_pool=lambda: self.commits,
                storage=lambda command, submit: StoredParts(
                    KEY, command.nodes, self.files, submit, is_async=is_async
                ),
            ),
        )
        group = WorkerGroup(4, {"cpu": 1.0}, 4, 4)
        command = StartWorker(*KEY, {}, group.total, (), None, 0, group=group, nodes=nodes)
        self.executor.carry_out([command])
        self.settle()
        self.keys = self.processes.keys

    def settle(self):
        """Let all that has happened take effect."""
        self.events += self.executor.wait(0.0)
        while self.nodes.calls or self.commits.jobs:
            self.nodes.run_calls()
            self.commits.run_done()
            self.events += self.executor.wait(0.0)

    def take_asked(self, kind):
        """Return the requests of a kind that were not looked at, by node; others are dropped."""
        said, self.nodes.said = self.nodes.said, []
        return {node: request for node, request in said if isinstance(request, kind)}

    def take_answers(self):
        """Return what the ranks were sent."""
        answers = [message for key in self.keys for message in self.processes.sent[key]]
        for key in self.keys:
            self.processes.sent[key].clear()
        return answers

    def only(self, kind):
        (found,) = [event for event in self.events if isinstance(event, kind)]
        return found

    # What ranks do.

    def report(self, kind="staged", names=STAGED, number=1, **fields):
        """Have all ranks report a part of a checkpoint."""
        for key, name in zip(self.keys, names, strict=True):
            part = {"kind": kind, "name": name}
            self.processes.send_from(key, result(number, part=part, **fields))
        self.settle()

    def return_all(self):
        for key in self.keys:
            self.processes.send_from(key, DONE)
        self.settle()

    def end(self, *ranks):
        for rank in ranks or range(len(NODES)):
            self.processes.end(self.keys[rank])
        self.settle()

    # What the core commands.

    def go_on(self):
        self.executor.carry_out([AnswerReport(*KEY, ReportReply.CONTINUE)])

    def kill(self, term_grace_s=0.0):
        self.executor.carry_out([KillWorker(*KEY, "it took too long", term_grace_s=term_grace_s)])
        self.settle()

    # What nodes do.

    def tell(self, node, record):
        """Have a node answer."""
        self.files.on_told(
            node, read_file_record(json.loads(json.dumps(FILE_RECORDS.encode(record))))
        )
        self.settle()

    def measure(self, **parts):
        """Have nodes say what they have; return what they are asked for then."""
        parts = parts or {"a": contents("all", "x"), "b": contents("all", "y", rank=3)}
        asked = self.take_asked(Measure)
        assert asked.keys() == parts.keys()
        for node, part in parts.items():
            self.tell(node, Measured(asked[node].id, part, []))
        return self.take_asked(UploadPart)

    def upload(self, asked, *nodes):
        """Have nodes upload what they have been asked to."""
        names = {"a": ["x"], "b": ["all", "y"]}
        for node in nodes:
            for name in names[node]:
                self.store.put(f"t00001/{asked[node].remote}/{name}", b"1")
            self.tell(node, Transferred(asked[node].id))

    def lose(self, node):
        self.nodes.gone.add(node)
        self.processes.say(NodeChanged(NodeLeft(node, "no power"), 0.0))
        self.settle()
        self.events.remove(NodeLeft(node, "no power"))
        self.files.on_node_left(node)
        self.settle()

    @property
    def manifests(self):
        return [name for name in self.store.list() if name.endswith(MANIFEST)]


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)  # before a store is asked again
    return lambda **options: StoringGroup(tmp_path, **options)


@pytest.fixture
def group(make):
    return make()


def test_a_checkpoint_counts_when_all_nodes_have_uploaded_and_its_manifest_is_there(group):
    group.report()
    measured = group.take_asked(Measure)
    assert {node: (each.parts, each.place) for node, each in measured.items()} == {
        "a": ({0: STAGED[0], 1: STAGED[1]}, ""),
        "b": ({2: STAGED[2], 3: STAGED[3]}, ""),
    }
    group.tell("a", Measured(measured["a"].id, contents("all", "x"), []))
    assert group.take_asked(UploadPart) == {}
    group.tell("b", Measured(measured["b"].id, contents("all", "y", rank=3), []))
    asked = group.take_asked(UploadPart)
    assert {node: (each.measured, each.remote, each.left_out) for node, each in asked.items()} == {
        "a": (measured["a"].id, REMOTE, ["all"]),
        "b": (measured["b"].id, REMOTE, []),
    }
    group.upload(asked, "a")
    assert (group.events, group.manifests) == ([], [])
    group.upload(asked, "b")
    event = group.only(ResultReported)
    assert (event.checkpoint.index, event.checkpoint.remote) == (0, REMOTE)
    assert group.manifests == [f"t00001/{REMOTE}/{MANIFEST}"]
    group.go_on()
    answers = group.take_answers()
    assert {(each["next_checkpoint"], each["latest_remote"]) for each in answers} == {(1, REMOTE)}


def test_no_node_uploads_before_the_store_has_the_beginning_of_the_journal(make):
    group = make(has_journal=False)
    group.report()
    assert group.measure() == {}
    group.files.note_journal_stored()
    group.settle()
    group.upload(group.take_asked(UploadPart), "a", "b")
    assert group.only(ResultReported).checkpoint.remote == REMOTE


@pytest.mark.process
def test_a_node_that_is_lost_between_upload_and_commit_leaves_an_orphan(group, tmp_path):
    group.report()
    asked = group.measure()
    group.upload(asked, "a")
    group.store.put(f"t00001/{REMOTE}/all", b"1")  # of b, which does not say so any more
    group.lose("b")
    group.end(0, 1)
    assert group.only(WorkerExited).outcome is Outcome.LOST
    assert (len(group.events), group.manifests) == (1, [])
    later = ObjectCheckpoints(group.store, tmp_path / "local", 8)
    assert later.sweep(set()) == [f"t00001/{REMOTE}"]
    assert group.store.list() == {}


def test_a_checkpoint_that_the_store_did_not_take_is_left_out_and_its_name_not_used_again(
    group, caplog
):
    group.report()
    asked = group.measure()
    group.upload(asked, "a")
    group.tell("b", Transferred(asked["b"].id, AWAY, is_storage=True))
    event = group.only(ResultReported)
    assert (event.checkpoint, event.upload) == (None, None)
    assert "without a checkpoint that could not be saved: node b: the store" in caplog.text
    group.go_on()
    group.report(names=NEXT_STAGED, number=2)
    asked = group.measure()
    assert {each.remote for each in asked.values()} == {"checkpoint_000001.e7a1"}


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Failure("CheckpointError", "a link leads out of it"), "node a: a link leads out of it"),
        (Failure("KeyError", "'x'"), "node a: KeyError: 'x'"),
    ],
)
def test_what_cannot_be_read_on_a_node_is_raised_by_report(group, failure, message):
    group.report()
    asked = group.take_asked(Measure)
    group.tell("a", Transferred(asked["a"].id, failure))
    errors = [each["error"] for each in group.take_answers()]
    assert [each["message"] for each in errors] == [message] * 4
    # The other node need not go on, and what it says of it is not heeded.
    assert ("b", GiveUp(asked["b"].id)) in group.nodes.said
    assert group.take_asked(Discard) == {
        "a": Discard(*KEY, STAGED[:2]),
        "b": Discard(*KEY, STAGED[2:]),
    }
    group.tell("b", Measured(asked["b"].id, contents("y"), []))
    assert (group.events, group.nodes.said, group.take_answers()) == ([], [], [])


def test_a_file_that_is_missing_in_the_store_is_noticed_before_the_commit(group):
    group.report()
    for node, asked in group.measure().items():
        group.tell(node, Transferred(asked.id))
    errors = [each["error"] for each in group.take_answers()]
    assert "lists all with no bytes, and a node has uploaded 1" in errors[0]["message"]
    assert group.manifests == []


def test_workers_that_are_killed_do_not_wait_for_uploads(group):
    group.report()
    asked = group.measure()
    group.kill(term_grace_s=3.0)
    group.end()
    assert group.only(WorkerExited).outcome is Outcome.KILLED
    assert group.take_asked(GiveUp).keys() == {"a", "b"}
    group.upload(asked, "a", "b")
    assert group.manifests == []


def test_no_manifest_is_created_for_workers_that_are_killed_just_before(group):
    group.report()
    asked = group.measure()
    group.upload(asked, "a")
    for name in ("all", "y"):
        group.store.put(f"t00001/{REMOTE}/{name}", b"1")
    group.files.on_told("b", Transferred(asked["b"].id))
    group.nodes.run_calls()
    assert len(group.commits.jobs) == 1
    group.kill()
    group.end()
    assert group.only(WorkerExited).outcome is Outcome.KILLED
    assert group.manifests == []


@pytest.mark.parametrize("loses_node", [False, True])
def test_ranks_train_on_while_a_checkpoint_is_committed_and_leave_after_it(make, loses_node):
    group = make(is_async=True)
    group.report()
    event = group.only(ResultReported)
    assert (event.checkpoint, event.upload) == (None, 0)
    group.go_on()
    asked = group.measure()
    group.report(names=NEXT_STAGED, number=2)
    assert len(group.events) == 1  # the next report with a checkpoint waits
    if loses_node:
        group.lose("b")
        group.end(0, 1)
        assert group.only(WorkerExited).outcome is Outcome.LOST
    else:
        group.upload(asked, "a", "b")
        assert group.only(CheckpointCommitted).checkpoint.remote == REMOTE
        assert group.events[-1].upload == 1
        group.go_on()
        asked = group.measure()
        group.return_all()
        assert [message for message in group.take_answers() if "leave" in message] == []
        group.upload(asked, "a", "b")
        assert group.events[-1].checkpoint.remote == "checkpoint_000001.e7a1"
        assert group.take_answers() == [{"leave": True}] * 4


def test_a_node_that_is_lost_when_all_ranks_have_returned_takes_the_attempt_with_it(make):
    group = make(is_async=True)
    group.report()
    group.go_on()
    group.return_all()
    group.lose("b")
    group.end(0, 1)
    assert group.only(WorkerExited).outcome is Outcome.LOST


def test_an_upload_that_fails_beside_the_training_costs_the_checkpoint_alone(make):
    group = make(is_async=True)
    group.report()
    group.go_on()
    asked = group.take_asked(Measure)
    group.tell("a", Transferred(asked["a"].id, AWAY, is_storage=True))
    lost = group.only(CheckpointLost)
    assert (lost.trial_id, lost.index) == ("t00001", 0)
    group.return_all()
    group.end()
    assert group.only(WorkerExited).outcome is Outcome.COMPLETED


def test_workers_that_are_killed_at_once_wait_for_no_upload_at_all(make):
    group = make(is_async=True)
    group.report()
    group.go_on()
    group.report(names=NEXT_STAGED, number=2)
    group.kill()
    group.end()
    assert group.only(WorkerExited).outcome is Outcome.KILLED
    assert group.take_asked(UploadPart) == {}


def test_of_checkpoints_that_wait_for_each_other_a_kill_at_once_leaves_none(make):
    group = make(is_async=True)
    for index, names in enumerate((STAGED, NEXT_STAGED)):
        group.report("pending", [""] * 4, number=index + 1)
        group.go_on()
        for key, name in zip(group.keys, names, strict=True):
            part = {"kind": "staged", "name": name}
            group.processes.send_from(key, {"kind": "part", "index": index, "part": part})
    group.settle()
    assert group.take_asked(Measure).keys() == {"a", "b"}
    group.kill()
    assert group.take_asked(Measure) == {}
    group.end()
    assert group.only(WorkerExited).outcome is Outcome.KILLED


def test_workers_that_are_killed_softly_wait_for_what_counts_already(make):
    group = make(is_async=True)
    group.report()
    group.go_on()
    asked = group.measure()
    group.kill(term_grace_s=3.0)
    group.end()
    assert len(group.events) == 1
    group.upload(asked, "a", "b")
    assert [type(event) for event in group.events[1:]] == [CheckpointCommitted, WorkerExited]
    assert group.only(WorkerExited).outcome is Outcome.KILLED


@pytest.mark.parametrize("last", ["a", "b"])
@pytest.mark.parametrize("first_to_answer", ["a", "b"])
def test_the_metadata_is_that_of_the_highest_rank_whichever_node_answers_first(
    make, last, first_to_answer
):
    group = make(nodes=NODES if last == "b" else NODES[::-1])
    group.report()
    asked = group.measure(
        **{
            node: contents(node, rank=3 if node == last else 0, has_metadata=True)
            for node in sorted("ab", key=lambda node: node != first_to_answer)
        }
    )
    assert [node for node, each in asked.items() if each.with_metadata] == [last]


def test_the_manifest_says_of_which_result_and_group_the_checkpoint_is(group):
    group.report(name="epoch_3", number=3)
    group.upload(group.measure(), "a", "b")
    assert group.only(ResultReported).checkpoint.name == "epoch_3"
    manifest = strict_json.unseal(group.store.get(group.manifests[0], 10_000))
    kept = {name: manifest[name] for name in ("trial_id", "attempt", "index", "iteration", "name")}
    assert kept == {
        "trial_id": "t00001", "attempt": 1, "index": 0, "iteration": 3, "name": "epoch_3",
    }  # fmt: skip
    assert (manifest["world_size"], sorted(manifest["files"])) == (4, ["all", "x", "y"])


def test_what_training_code_has_placed_itself_is_uploaded_from_there(group):
    group.report("placed", ["mine"] * 4, name="mine")
    measured = {node: (each.parts, each.place) for node, each in group.nodes.said}
    assert measured == {"a": ({}, "mine"), "b": ({}, "mine")}
    asked = group.measure(a=None, b=contents("all", "y", has_metadata=True))
    assert {node: each.with_metadata for node, each in asked.items()} == {"b": True}
    group.upload(asked, "b")
    record = group.only(ResultReported).checkpoint
    assert (record.name, record.remote) == ("mine", REMOTE)


@pytest.mark.parametrize("kind", ["placed", "placeholder"])
def test_where_nothing_is_placed_nothing_is_uploaded(group, kind):
    group.report(kind, ["mine"] * 4, name="mine")
    if kind == "placed":
        assert group.measure(a=None, b=None) == {}
    assert group.nodes.said == []
    record = group.only(ResultReported).checkpoint
    assert (record.name, record.is_placeholder, record.remote) == ("mine", True, "")


def test_parts_that_do_not_fit_together_are_refused(group):
    group.report()
    assert group.measure(a=contents("x"), b=PartContents({}, {}, ["x"])) == {}
    errors = [each["error"] for each in group.take_answers()]
    assert "do not fit together" in errors[0]["message"]


def test_what_ranks_of_a_node_have_stored_differently_is_warned_of_once(group, caplog):
    sentence = "rank 0 and rank 1 have stored x with different content"
    for number, names in enumerate((STAGED, NEXT_STAGED), 1):
        group.report(names=names, number=number)
        for node, asked in group.take_asked(Measure).items():
            conflicts = [sentence] if node == "a" else []
            group.tell(node, Measured(asked.id, contents("x" if node == "a" else "y"), conflicts))
        for node, asked in group.take_asked(UploadPart).items():
            group.store.put(f"t00001/{asked.remote}/{'x' if node == 'a' else 'y'}", b"1")
            group.tell(node, Transferred(asked.id))
        group.go_on()
    assert caplog.text.count(sentence) == 1
    assert len(group.manifests) == 2
