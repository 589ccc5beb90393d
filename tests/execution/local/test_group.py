"""Several workers train one trial together, as one attempt."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.execution.local.conftest import Harness
from tests.waiting import wait_until
from tuner.core.commands import KillWorker
from tuner.core.events import Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.worker_records import ReportReply
from tuner.execution.session import StopTraining, get_context, report, take_master_socket

pytestmark = pytest.mark.process


def rank():
    return get_context().get_world_rank()


def count(config):
    """Report the rank and a count, on every rank equally often."""
    for number in range(config.get("num_reports", 3)):
        report({"number": number, "rank": rank()})


def test_a_group_is_one_attempt_with_one_start_one_result_a_report_and_one_exit(
    start_executor, start_method
):
    harness = start_executor(count, start_method=start_method)
    ended = harness.run_group(num_workers=3)
    assert ended == WorkerExited("t00001", 1, Outcome.COMPLETED)
    kinds = [type(event) for event in harness.events["t00001"]]
    assert kinds == [WorkerStarted, *[ResultReported] * 3, WorkerExited]


def say_waiting(config):
    """Say that this rank is going to wait for the others."""
    path = Path(config["directory"], "waiting")
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").rename(path)


def await_waiting(config):
    """Wait until another rank has said that it is going to wait, and does."""
    path = Path(config["directory"], "waiting")
    wait_until(path.exists)
    other = psutil.Process(int(path.read_text()))
    wait_until(lambda: other.status() == psutil.STATUS_SLEEPING)


def wait_in_turn(config):
    """Rank 1 reports when the other waits in `report`."""
    if rank() == 0:
        say_waiting(config)
        report({"left": time.monotonic()})
    else:
        await_waiting(config)
        joined = time.monotonic()
        report({})
        Path(config["directory"], "joined").write_text(str(joined))
    report({"at": time.monotonic()})


def test_report_returns_on_no_rank_before_all_have_called_it(tmp_path, start_executor):
    harness = start_executor(wait_in_turn)
    harness.run_group(directory=str(tmp_path))
    joined = float(Path(tmp_path, "joined").read_text())
    assert harness.results()[1].metrics["at"] >= joined


@pytest.mark.parametrize("reply", [ReportReply.STOP, ReportReply.PAUSE])
def test_all_ranks_get_the_same_answer(start_executor, reply):
    def train(config):
        try:
            while True:
                report({})
        except StopTraining:
            print("told to stop")
            raise

    harness = start_executor(train)
    harness.start_group("t00001")
    harness.next_event("t00001", ResultReported)
    harness.answer("t00001", reply)
    assert harness.exit_of("t00001").outcome is Outcome.STOPPED
    assert len(harness.results()) == 1
    assert harness.printed() == harness.printed(stream="stdout.rank1") == "told to stop\n"


def raise_on_rank_1(config):
    report({"pid": os.getpid()})
    if rank() == 1:
        raise KeyError("no such weight")
    signal.pause()


def test_the_first_failure_ends_all_ranks_and_names_its_own(start_executor, still_alive):
    harness = start_executor(raise_on_rank_1)
    ended = harness.run_group(num_workers=3)
    pids = [metrics["pid"] for metrics in harness.results()[0].rank_metrics]
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == "KeyError"
    assert ended.failure.message == "rank 1: 'no such weight'"
    assert [failed for failed, _ in ended.failure.ranks] == [1]
    (failure,) = (failure for _, failure in ended.failure.ranks)
    assert 'raise KeyError("no such weight")' in failure.traceback
    assert ended.failure.traceback.startswith("rank 1: KeyError: 'no such weight'\n")
    assert still_alive(pids, at_once=True) == []


VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "ACCELERATE_TORCH_DEVICE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def tell_environment(config):
    import random

    report(
        {
            "environ": {name: os.environ.get(name) for name in VARIABLES},
            "random": random.random(),  # noqa: TID251, S311  (seeded for the trial)
            "context": [
                get_context().get_world_rank(),
                get_context().get_world_size(),
                get_context().get_local_rank(),
                get_context().get_local_world_size(),
                get_context().get_node_rank(),
            ],
        }
    )


@pytest.mark.parametrize("num_workers", [1, 2])
def test_each_rank_has_the_variables_of_torchrun_and_the_seed_of_the_trial(
    start_executor, monkeypatch, num_workers
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    harness = start_executor(tell_environment)
    harness.run_group(num_workers=num_workers, share={"cpu": 3.0, "gpu": 1.0}, gpu_ids=(4, 7))
    (result,) = harness.results()
    told = result.rank_metrics or (result.metrics,)
    assert len(told) == num_workers
    assert len({metrics["random"] for metrics in told}) == 1
    assert len({metrics["environ"]["MASTER_PORT"] for metrics in told}) == 1
    for number, metrics in enumerate(told):
        environ = metrics["environ"]
        assert int(environ.pop("MASTER_PORT")) > 0
        assert environ == {
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(num_workers),
            "LOCAL_WORLD_SIZE": str(num_workers),
            "NODE_RANK": "0",
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "TORCHELASTIC_RUN_ID": "t00001-1",
            "ACCELERATE_TORCH_DEVICE": f"cuda:{number}",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "OMP_NUM_THREADS": "3",
            "MKL_NUM_THREADS": "3",
            "CUDA_VISIBLE_DEVICES": "4,7",
        }
        assert metrics["context"] == [number, num_workers, number, num_workers, 0]


@pytest.mark.parametrize(
    ("gpus", "gpu_ids", "devices"),
    [
        (0.5, (3, 3), ["cuda:0", "cuda:0"]),
        (0.5, (0, 1, 1), ["cuda:0", "cuda:1", "cuda:1"]),
        (2.0, (0, 1, 4, 5), ["cuda:0", "cuda:2"]),
    ],
)
def test_ranks_see_each_gpu_once_and_know_their_own(
    start_executor, monkeypatch, gpus, gpu_ids, devices
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    harness = start_executor(tell_environment)
    share = {"cpu": 1.0, "gpu": gpus}
    harness.run_group(num_workers=len(devices), share=share, gpu_ids=gpu_ids)
    told = [metrics["environ"] for metrics in harness.results()[0].rank_metrics]
    assert [each["ACCELERATE_TORCH_DEVICE"] for each in told] == devices
    visible = ",".join(map(str, dict.fromkeys(gpu_ids)))
    assert {each["CUDA_VISIBLE_DEVICES"] for each in told} == {visible}


def listen_and_connect(config):
    import socket

    descriptor = take_master_socket()
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank() == 0:
        assert take_master_socket() is None
        with socket.socket(fileno=descriptor) as listener:
            connection, _ = listener.accept()
            report({"received": connection.recv(100).decode()})
    else:
        assert descriptor is None
        with socket.create_connection(address) as connection:
            connection.sendall(b"hello from rank 1")
            report({})


@pytest.mark.parametrize("padding", [0, 10**6])
def test_rank_0_listens_at_the_address_that_all_are_given(start_executor, start_method, padding):
    # A large configuration does not fit into the socket's buffer, and the descriptor waits.
    harness = start_executor(listen_and_connect, start_method=start_method)
    assert harness.run_group(padding="x" * padding).outcome is Outcome.COMPLETED
    assert harness.results()[0].metrics["received"] == "hello from rank 1"


def test_ranks_above_0_write_to_files_of_their_own(start_executor):
    def train(config):
        print("rank", rank())

    harness = start_executor(train)
    harness.run_group(num_workers=3)
    assert [
        harness.printed(stream=name) for name in ("stdout", "stdout.rank1", "stdout.rank2")
    ] == ["rank 0\n", "rank 1\n", "rank 2\n"]


def test_a_killed_group_exits_once_for_the_reason_given(start_executor, still_alive):
    def train(config):
        report({"pid": os.getpid()})
        signal.pause()

    harness: Harness = start_executor(train)
    harness.start_group("t00001")
    result = harness.next_event("t00001", ResultReported)
    harness.executor.carry_out([KillWorker("t00001", 1, "the test says so", 0.5)])
    ended = harness.exit_of("t00001")
    assert ended.outcome is Outcome.KILLED
    assert ended.failure.message == "the test says so"
    assert "rank 1:\n" in ended.failure.traceback
    assert still_alive([metrics["pid"] for metrics in result.rank_metrics], at_once=True) == []


def test_a_group_is_lost_with_the_zygote_and_can_be_started_again(start_executor, still_alive):
    def train(config):
        report({"pid": os.getpid(), "zygote": os.getppid()})
        if config.get("waits"):
            signal.pause()

    harness = start_executor(train)
    harness.start_group("t00001", waits=True)
    result = harness.next_event("t00001", ResultReported)
    os.kill(result.metrics["zygote"], signal.SIGKILL)
    assert harness.exit_of("t00001").outcome is Outcome.LOST
    assert still_alive([metrics["pid"] for metrics in result.rank_metrics]) == []
    harness.events.clear()
    harness.start_group("t00001", attempt=2)
    assert harness.exit_of("t00001").outcome is Outcome.COMPLETED


def hang_on_rank_1(config):
    if rank() == 1:
        with open(config["gate"]):  # until the test opens it  # noqa: PTH123
            pass
    report({})


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def late(start_executor, monkeypatch, gate):
    """Return a function that starts a group of which rank 1 is late."""

    def run(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"RAY_TRAIN_COLLECTIVE_{name}", value)
        harness = start_executor(hang_on_rank_1)
        harness.start_group("t00001", gate=str(gate))
        return harness

    return run


def test_a_late_rank_is_named_with_its_innermost_frame_and_not_stopped(late, caplog, gate):
    harness = late(WARN_INTERVAL_S="0.3")

    def warnings():
        return [text for text in caplog.messages if "is late" in text]

    while not warnings():
        harness.executor.wait(0.05)
    gate.write_text("")
    ended = harness.exit_of("t00001")
    assert ended.outcome is Outcome.COMPLETED
    first, *_ = warnings()
    assert first.startswith("rank 1 of trial t00001 is late: rank 0 called report 1 ")
    assert "test_group.py:" in first
    assert first.endswith(" hang_on_rank_1")
    assert "hang_on_rank_1" in harness.printed(stream="stderr.rank1")
    assert harness.printed(stream="stderr") == ""


def test_many_reports_of_many_ranks_stay_in_step(start_executor):
    def train(config):
        for _ in range(50):
            report({"rank": rank()})

    harness = start_executor(train)
    assert harness.run_group(num_workers=4).outcome is Outcome.COMPLETED
    assert [result.metrics["training_iteration"] for result in harness.results()] == [*range(1, 51)]


def test_an_error_of_loading_fails_the_attempt_once(start_executor, trainable_importing):
    harness = start_executor(trainable_importing("raise ImportError('no such driver')"))
    ended = harness.run_group()
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == "ImportError"


def test_a_dead_rank_whose_children_live_on_is_noticed_and_they_are_killed(
    tmp_path, start_executor, still_alive
):
    def train(config):
        if rank() == 1:
            child = os.fork()
            if child == 0:
                while True:
                    signal.pause()  # it holds a copy of the connection
            report({"child": child})
            os.kill(os.getpid(), signal.SIGKILL)
        report({"child": None})
        signal.pause()

    harness = start_executor(train)
    ended = harness.run_group()
    assert ended.failure.kind == "killed by SIGKILL"
    assert [blamed for blamed, _ in ended.failure.ranks] == [1]
    child = harness.results()[0].rank_metrics[1]["child"]
    assert still_alive([child]) == []
