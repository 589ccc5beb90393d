"""Ranks on a node of an experiment in an object store: what is done before and after they run."""

import json
import shutil
import time

import pytest

from tests.execution.local.conftest import DEADLINE_S
from tuner.core.commands import StartWorker
from tuner.core.trial import CheckpointRecord
from tuner.execution.cluster.node_ranks import NodeRanks
from tuner.execution.cluster.rank_messages import PartUploaded, read_news, start_fields
from tuner.execution.cluster.spread_group import ranks_by_node
from tuner.execution.cluster.stored_ranks import StoredRanks
from tuner.execution.process_service import Gone
from tuner.storage.checkpoint_parts import stage_part
from tuner.storage.manifest import Provenance
from tuner.storage.object_checkpoints import ObjectCheckpoints
from tuner.storage.object_store import ObjectStore

pytestmark = pytest.mark.process

KEY = ("t00001", 2)
ABOUT = {"trial_id": "t00001", "attempt": 2}
REMOTE = "checkpoint_000003.e7a2"


class Uploading:
    """Downloads when a test says so."""

    def __init__(self):
        self.then = self.left = None

    def fetch(self, command, then):
        self.then = then

    def leave(self, trial_id, attempt):
        self.left = trial_id, attempt


class Files:
    """Passes on what ranks write when a test says so."""

    def __init__(self):
        self.running, self.then, self.payloads = 0, None, []

    def begin_ranks(self, trial_id):
        self.running += 1

    def end_ranks(self, trial_id, then):
        self.running -= 1
        self.then = then

    def store_payload(self, trial_id, name):
        self.payloads.append((trial_id, name))


class Node:
    """A node with ranks 2 and 3."""

    def __init__(self, directory):
        self.directory, self.told, self.started = directory, [], []
        (directory / "t00001").mkdir()
        self.store = ObjectStore(f"file://{directory}/store")
        self.uploading, self.files = Uploading(), Files()
        record = CheckpointRecord(2, 3, remote="checkpoint_000002.e7a1")
        nodes = ("a", "a", "b", "b")
        self.command = StartWorker(*KEY, {}, {"cpu": 4.0}, (), record, 3, nodes=nodes)
        self.stored = StoredRanks(
            directory,
            ObjectCheckpoints(self.store, directory, 7),
            self.uploading,
            self.files,
            self.tell,
        )
        self.ranks = NodeRanks(self, self.tell, lambda _: self.command, "127.0.0.1", self.stored)

    def tell(self, message):
        self.told.append(read_news(json.loads(json.dumps(message))))

    def start_ranks(self, command, ranks, listener, report):
        self.started += [rank.world_rank for rank in ranks]

    def start(self):
        ranks = ranks_by_node(self.command, "10.0.0.1", 29500)["b"]
        self.ranks.on_message({"kind": "rank_start", **ABOUT, **start_fields(ranks)})

    def ask(self, kind, **fields):
        """Send a message of the driver, and return the answer."""
        self.told.clear()
        self.ranks.on_message({"kind": kind, **ABOUT, **fields})
        deadline_s = time.monotonic() + DEADLINE_S
        while not self.told:
            assert time.monotonic() < deadline_s
            self.stored.jobs.run_done()
        return self.told[0]

    def stage(self, rank, **files):
        source = self.directory / f"source{rank}"
        source.mkdir()
        for name, content in files.items():
            (source / name).write_text(content)
        provenance = Provenance("t00001", 2, 3, 4)
        return stage_part(source, self.directory / "t00001", provenance, rank=rank, sync=False)


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.stored.jobs.close(1.0)


def test_ranks_start_once_their_checkpoint_is_here(node):
    node.start()
    assert (node.started, node.files.running) == ([], 1)
    node.uploading.then("")
    assert (node.started, node.told) == ([2, 3], [])


def test_ranks_whose_checkpoint_is_damaged_are_lost(node):
    node.start()
    node.uploading.then("a file is missing")
    damaged, first = node.told
    assert damaged.why == "a file is missing"
    node.files.then()  # the last one is told when all that is here has been passed on
    assert [first, node.told[-1]] == [Gone(rank, None) for rank in (2, 3)]
    assert (node.started, node.uploading.left, node.files.running) == ([], KEY, 0)


@pytest.mark.parametrize("kind", ["rank_kill", "rank_abandon"])
def test_ranks_that_are_killed_during_the_download_are_not_started(node, kind):
    node.start()
    node.ranks.on_message({"kind": kind, **ABOUT, "rank": 2, "grace_s": 0.0})
    node.files.then()
    assert [news.key for news in node.told] == [2, 3]
    node.uploading.then("")
    assert node.started == []


def test_parts_are_measured_and_uploaded_to_their_final_place(node):
    names = [node.stage(2, all="x", two="y"), node.stage(3, all="x", three="zz")]
    measured = node.ask(
        "rank_measure", index=3, parts=[[2, names[0]], [3, names[1]]], place="", payload="p.pkl"
    )
    files = measured.contents.files
    assert {name: (entry.size_bytes, entry.rank) for name, entry in files.items()} == {
        "all": (1, 3), "three": (2, 3), "two": (1, 2),
    }  # fmt: skip
    assert node.files.payloads == [("t00001", "p.pkl")]
    asked = {"index": 3, "remote": REMOTE, "left_out": ["all"], "with_metadata": False}
    assert node.ask("rank_upload", **asked).index == 3
    listed = node.store.list()
    assert listed == {f"t00001/{REMOTE}/three": 2, f"t00001/{REMOTE}/two": 1}
    assert list((node.directory / "t00001").iterdir()) == []


def test_what_training_code_has_placed_stays(node):
    assert node.ask("rank_measure", index=3, parts=None, place="mine", payload="").contents is None
    placed = node.directory / "t00001" / "mine"
    placed.mkdir()
    (placed / "x").write_text("1")
    measured = node.ask("rank_measure", index=3, parts=None, place="mine", payload="")
    assert measured.contents.files["x"].rank is None
    node.ask("rank_upload", index=3, remote=REMOTE, left_out=[], with_metadata=False)
    assert node.store.list() == {f"t00001/{REMOTE}/x": 1}
    assert (placed / "x").exists()


def test_a_part_that_is_gone_is_told(node):
    name = node.stage(2, two="y")
    shutil.rmtree(node.directory / "t00001" / name)
    failed = node.ask("rank_measure", index=3, parts=[[2, name]], place="", payload="")
    assert (failed.index, failed.is_storage) == (3, False)


def test_nothing_is_left_of_an_earlier_attempt_when_the_next_one_begins(node):
    name = node.stage(2, two="y")
    node.ask("rank_measure", index=3, parts=[[2, name]], place="", payload="")
    ranks = ranks_by_node(node.command, "10.0.0.1", 29500)["b"]
    about = {**ABOUT, "attempt": 3}
    node.ranks.on_message({"kind": "rank_start", **about, **start_fields(ranks)})
    deadline_s = time.monotonic() + DEADLINE_S
    while (node.directory / "t00001" / name).exists():
        assert time.monotonic() < deadline_s


def test_what_was_discarded_cannot_be_uploaded_and_the_rest_can(node):
    names = {3: node.stage(2, two="y"), 4: node.stage(3, three="z")}
    for index, name in names.items():
        node.ask("rank_measure", index=index, parts=[[2, name]], place="", payload="")
    node.ranks.on_message({"kind": "rank_discard", **ABOUT, "names": [names[3]]})
    asked = {"left_out": [], "with_metadata": False}
    assert "discarded" in node.ask("rank_upload", index=3, remote=REMOTE, **asked).why
    other = "checkpoint_000004.e7a2"
    assert node.ask("rank_upload", index=4, remote=other, **asked) == PartUploaded(4)


def test_what_is_discarded_is_deleted_and_nothing_else(node):
    name = node.stage(2, two="y")
    (node.directory / "t00001" / "mine").mkdir()
    node.ranks.on_message({"kind": "rank_discard", **ABOUT, "names": [name, "mine", "../t00001"]})
    deadline_s = time.monotonic() + DEADLINE_S
    while (node.directory / "t00001" / name).exists():
        assert time.monotonic() < deadline_s
    assert (node.directory / "t00001" / "mine").exists()
