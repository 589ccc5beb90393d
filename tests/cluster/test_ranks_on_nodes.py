"""A group over two nodes whose workers are real processes, without a cluster between them."""

import os
import signal
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.execution.local.conftest import DEADLINE_S
from tuner.core.events import Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.execution.session import Checkpoint, get_context, report, take_master_socket

pytestmark = pytest.mark.process

KEY = ("t00001", 1)


def meet(config):
    """All ranks connect to rank 0's socket, and report once with a part of a checkpoint."""
    context = get_context()
    rank = context.get_world_rank()
    if rank == 0:
        with socket.socket(fileno=take_master_socket()) as listener:
            for _ in range(context.get_world_size() - 1):
                listener.accept()[0].close()
    else:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        socket.create_connection(address, DEADLINE_S).close()
    with TemporaryDirectory() as directory:
        Path(directory, f"part{rank}").write_text(str(context.get_node_rank()))
        report({"rank": rank}, checkpoint=Checkpoint.from_directory(directory))


def test_ranks_on_two_nodes_meet_report_and_store_one_checkpoint(few_nodes, tmp_path):
    nodes = few_nodes(meet)
    nodes.start()
    assert nodes.wait_for(WorkerExited) == WorkerExited(*KEY, Outcome.COMPLETED)
    result = nodes.wait_for(ResultReported)
    parts = tmp_path.glob(f"t00001/{result.checkpoint.directory}/part*")
    assert {part.name: part.read_text() for part in parts} == {
        "part0": "0",
        "part1": "0",
        "part2": "1",
        "part3": "1",
    }
    assert [metrics["rank"] for metrics in result.rank_metrics] == [0, 1, 2, 3]


def wait_or_raise(config):
    report({})
    if get_context().get_world_rank() == config.get("raises"):
        raise KeyError("here")
    signal.pause()


def test_a_rank_that_raises_ends_those_on_the_other_node(few_nodes):
    nodes = few_nodes(wait_or_raise)
    nodes.start(raises=3)
    ended = nodes.wait_for(WorkerExited)
    assert (ended.outcome, ended.failure.message) == (Outcome.FAILED, "rank 3: 'here'")


def test_a_kill_ends_the_ranks_on_all_nodes(few_nodes):
    nodes = few_nodes(wait_or_raise)
    nodes.start()
    nodes.wait_for(ResultReported)
    nodes.kill("enough")
    ended = nodes.wait_for(WorkerExited)
    assert (ended.outcome, ended.failure.message) == (Outcome.KILLED, "enough")
    assert [type(event) for event in nodes.events] == [WorkerStarted, ResultReported, WorkerExited]


def note_its_end(config):
    context = get_context()
    mark = Path(context.get_trial_dir(), f"rank{context.get_world_rank()}")

    def end(number, frame):
        mark.touch()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    report({})
    signal.pause()


def test_a_soft_kill_gives_every_rank_on_all_nodes_the_time_to_end(few_nodes, tmp_path):
    nodes = few_nodes(note_its_end)
    nodes.start()
    nodes.wait_for(ResultReported)
    nodes.kill("enough", term_grace_s=DEADLINE_S)
    ended = nodes.wait_for(WorkerExited)
    assert (ended.outcome, ended.failure.message) == (Outcome.KILLED, "enough")
    noted = sorted(path.name for path in tmp_path.glob("t00001/rank*"))
    assert noted == ["rank0", "rank1", "rank2", "rank3"]


def test_a_node_that_is_lost_ends_the_ranks_on_the_other_node(few_nodes):
    nodes = few_nodes(wait_or_raise)
    nodes.start()
    nodes.wait_for(ResultReported)
    nodes.lose("b")
    ended = nodes.wait_for(WorkerExited)
    assert (ended.outcome, ended.failure.message) == (
        Outcome.LOST,
        "node b is gone; the trial is not at fault",
    )
