"""The host of a node: a real process that a test drives through agent and link."""

import os
import signal
import socket
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.node_driver import descendants_of
from tests.execution.conversation import assignment
from tests.execution.local.conftest import DEADLINE_S, is_alive
from tuner.cluster.agent import CLOSED
from tuner.cluster.node_host import _module_path
from tuner.cluster.node_messages import (
    Draining,
    Ready,
    Remark,
    SetupRefused,
    SharedStorage,
)
from tuner.core.commands import ListCheckpoints, StartWorker
from tuner.core.events import (
    CheckpointsRequested,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import CheckpointRecord, ReportReply, WorkerGroup
from tuner.execution.session import (
    Checkpoint,
    get_checkpoint,
    get_context,
    report,
    take_master_socket,
)
from tuner.execution.validation_payloads import Payloads
from tuner.train.api import get_all_reported_checkpoints
from tuner.train.api import report as report_as_worker

pytestmark = pytest.mark.process


def count_up(config):
    for step in range(config["steps"]):
        report({"step": step, "pid": os.getpid()})


def test_a_trial_runs_on_a_node_and_its_output_is_in_the_shared_directory(start_node, tmp_path):
    def train(config):
        print("lr", config["lr"], os.environ["ANSWER"], flush=True)
        report({"loss": config["lr"]})

    node = start_node(train, environ={"ANSWER": "42"})
    assert node.set_up() == Ready()
    assert node.proof.complaint("node.1") == ""
    assert (node.hello.resources, node.hello.labels) == ({"cpu": 4.0}, {"zone": "a"})
    node.start(lr=0.5)
    assert node.exit_of() == WorkerExited("t00001", 1, Outcome.COMPLETED)
    kinds = [type(event) for event in node.events["t00001"]]
    assert kinds == [WorkerStarted, ResultReported, WorkerExited]
    assert node.events["t00001"][1].metrics["loss"] == 0.5
    assert (tmp_path / "t00001" / "stdout").read_text() == "lr 0.5 42\n"


def test_names_of_the_engine_that_were_reported_arrive_with_the_result(start_node):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=1)
    node.exit_of()
    result = node.first_event(ResultReported)
    assert result.replaced == ("pid",)
    assert result.rank_metrics == ({"step": 0, "pid": result.metrics["pid"]},)


def test_a_trial_goes_on_from_a_checkpoint_of_the_shared_directory(start_node, tmp_path):
    def train(config):
        if "resume" in config:
            report({"found": Path(get_checkpoint().path, "data").read_text()})
            return
        with TemporaryDirectory() as directory:
            Path(directory, "data").write_text("here")
            report({"a": 1}, checkpoint=Checkpoint.from_directory(directory))

    node = start_node(train)
    node.set_up()
    node.start()
    node.exit_of()
    record = node.first_event(ResultReported).checkpoint
    assert (tmp_path / "t00001" / record.directory / "data").read_text() == "here"
    node.events.clear()
    node.start(attempt=2, checkpoint=record, resume=True)
    node.exit_of()
    assert node.first_event(ResultReported).metrics["found"] == "here"


def test_reports_are_answered_and_a_stop_ends_the_trial(start_node):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=100)
    node.next_event(ResultReported)
    node.answer(ReportReply.STOP)
    assert node.next_event(WorkerExited).outcome is Outcome.STOPPED


def test_a_trial_that_is_killed_ends_as_such(start_node):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=2)
    pid = node.next_event(WorkerStarted).pid
    node.kill()
    ended = node.next_event(WorkerExited)
    assert (ended.outcome, ended.failure.message) == (Outcome.KILLED, "enough")
    assert not is_alive(pid)


def test_a_request_of_a_trial_is_answered(start_node):
    def train(config):
        found = get_all_reported_checkpoints()
        report({"number": len(found)})

    node = start_node(train)
    node.set_up()
    node.start()
    asked = node.next_event(CheckpointsRequested)
    record = CheckpointRecord(0, 1, is_placeholder=True)
    node.do(ListCheckpoints("t00001", 1, asked.token, [(record, {"loss": 1.0}, "COMMITTED")]))
    assert node.exit_of().outcome is Outcome.COMPLETED
    assert node.first_event(ResultReported).metrics["number"] == 1


def test_a_checkpoint_is_validated_by_the_declared_function(start_node, tmp_path):
    def validate(checkpoint):
        return {"accuracy": 0.25, "found": Path(checkpoint.path).name}

    node = start_node(count_up, validator=validate)
    node.set_up()
    node.start_validation()
    ended = node.end_of_validation()
    assert (ended.outcome, ended.metrics) == (
        Outcome.COMPLETED,
        {"accuracy": 0.25, "found": "checkpoint_000000"},
    )


def validated_by_report(config):
    def validate(checkpoint, bonus):
        return {"accuracy": bonus["value"]}

    with TemporaryDirectory() as directory:
        report_as_worker(
            {"a": 1},
            checkpoint=Checkpoint.from_directory(directory),
            validate_fn=validate,
            validate_config={"value": 0.5, "set": {1}},
        )


def test_a_payload_is_used_on_any_node_and_deleted_when_its_validation_has_ended(
    start_node, tmp_path
):
    payloads = Payloads()
    node = start_node(validated_by_report, payloads=payloads)
    node.set_up()
    node.start()
    node.exit_of()
    result = node.first_event(ResultReported)
    assert (tmp_path / "t00001" / result.validation.payload).exists()
    other = start_node(validated_by_report, payloads=payloads)
    other.set_up()
    other.start_validation(result.checkpoint, result.validation)
    assert other.end_of_validation().metrics == {"accuracy": 0.5}
    assert not (tmp_path / "t00001" / result.validation.payload).exists()


def test_a_group_runs_on_the_node_and_its_rank_0_listens_there(start_node):
    def meet(config):
        if get_context().get_world_rank() == 0:
            with socket.socket(fileno=take_master_socket()) as listener:
                listener.accept()[0].close()
        else:
            address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            socket.create_connection(address, DEADLINE_S).close()
        report({"rank": get_context().get_world_rank()})

    node = start_node(meet)
    node.set_up()
    group = WorkerGroup(2, {"cpu": 1.0}, 2, 2)
    nodes = ("node", "node")
    node.do(StartWorker("t00001", 1, {}, group.total, (), None, 0, group=group, nodes=nodes))
    assert node.exit_of().outcome is Outcome.COMPLETED
    result = node.first_event(ResultReported)
    assert [metrics["rank"] for metrics in result.rank_metrics] == [0, 1]


def test_what_cannot_be_started_on_the_node_is_told(start_node, tmp_path):
    node = start_node(count_up)
    node.set_up()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t00001").symlink_to(tmp_path / "elsewhere")
    node.executor._assign = lambda command: assignment(tmp_path / command.trial_id)
    node.start(steps=1)
    failure = node.next_event(WorkerExited).failure
    assert "the worker could not be started" in failure.message


def test_a_host_that_hears_nothing_of_its_driver_kills_its_trials_and_ends(start_node):
    node = start_node(count_up, lease_s=1.0)
    node.set_up()
    node.start(steps=2)
    pid = node.next_event(WorkerStarted).pid
    node.next_event(ResultReported)
    node.is_mute = True
    gone = node.wait_for(lambda: node.lines and node.lines[0])
    assert gone == {"host_gone": 1, "why": "it has not heard of its driver", "next": 2}
    assert not is_alive(pid)


def test_a_host_that_was_stopped_for_longer_than_its_lease_does_not_go_on(start_node):
    node = start_node(count_up, lease_s=1.0)
    node.set_up()
    os.kill(node.hello.pid, signal.SIGSTOP)
    resumes_s = time.monotonic() + 2.0
    while time.monotonic() < resumes_s:  # frames of the driver wait for it all the time
        node.step()
    os.kill(node.hello.pid, signal.SIGCONT)
    gone = node.wait_for(lambda: node.lines and node.lines[0])
    assert gone["why"] == "it has not heard of its driver"


def test_trials_are_lost_when_their_zygote_is_killed_and_others_run_after_it(start_node):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=1000)
    node.next_event(ResultReported)
    (zygote,) = [pid for pid in descendants_of(node.hello.pid) if b"zygote" in command_of(pid)][:1]
    os.kill(zygote, signal.SIGKILL)
    assert node.next_event(WorkerExited).outcome is Outcome.LOST
    remark = node.wait_for(lambda: node.first(Remark))
    assert "the process that starts the trials died" in remark.text
    node.start("t00002", steps=1)
    assert node.exit_of("t00002").outcome is Outcome.COMPLETED


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_host_that_is_killed_takes_its_trials_with_it_and_is_replaced(start_node, still_alive):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=1000)
    node.next_event(ResultReported)
    processes = descendants_of(node.hello.pid)
    os.kill(node.hello.pid, signal.SIGKILL)
    node.wait_for(lambda: node.lines)
    assert still_alive(processes) == []
    node.told.clear()
    assert node.set_up() == Ready()
    node.events.clear()
    node.start(attempt=2, steps=1)
    assert node.exit_of().outcome is Outcome.COMPLETED


def test_closing_an_agent_ends_host_and_trials(start_node, still_alive):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=1000)
    node.next_event(ResultReported)
    processes = [node.hello.pid, *descendants_of(node.hello.pid)]
    node.close()
    assert still_alive(processes) == []


def test_a_host_that_its_driver_closes_is_not_replaced(start_node):
    node = start_node(count_up)
    node.set_up()
    node.send({"kind": "close"})
    gone = node.wait_for(lambda: node.lines and node.lines[0])
    assert (gone["why"], gone["next"]) == ("its driver has closed it", None)
    assert CLOSED == 0


def test_a_signal_that_asks_the_host_to_end_is_told_and_trials_go_on(start_node):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=2)
    node.next_event(ResultReported)
    os.kill(node.hello.pid, signal.SIGTERM)
    assert node.wait_for(lambda: node.first(Draining)) == Draining(None)
    assert node.exit_of().outcome is Outcome.COMPLETED


def test_a_trainable_that_cannot_be_loaded_is_told_with_the_exit(start_node, trainable_importing):
    node = start_node(trainable_importing("raise ImportError('not on this node')"))
    node.set_up()
    node.start()
    ended = node.next_event(WorkerExited)
    assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "ImportError")
    assert node.unloadable == ["ImportError: not on this node"]


def test_an_error_of_a_trial_itself_is_not_that_it_cannot_be_loaded(start_node):
    def train(config):
        import nowhere_to_be_found  # noqa: F401

    node = start_node(train)
    node.set_up()
    node.start()
    assert node.next_event(WorkerExited).failure.kind == "ModuleNotFoundError"
    assert node.unloadable == []


def test_a_node_without_the_experiments_directory_is_refused(start_node, tmp_path, monkeypatch):
    elsewhere = SharedStorage(str(tmp_path), ("no-such-file", "x"))
    node = start_node(count_up, storage=elsewhere)
    refusal = node.set_up()
    assert isinstance(refusal, SetupRefused)
    assert "does not see the experiment's directory" in refusal.why
    node.start(steps=1)  # sent before the driver knew
    node.step()
    assert node.events == {}


def test_versions_of_packages_are_told(start_node):
    def train(config):
        import numpy  # noqa: F401, ICN001

    node = start_node(train)
    node.set_up()
    node.start()
    node.exit_of()
    assert "numpy" in node.packages


@pytest.mark.parametrize("num_lost", [1, 3])
def test_lost_lines_are_repeated(start_node, num_lost):
    node = start_node(count_up)
    node.set_up()
    tell, lost = node.agent.tell, []

    def lossy(lines):
        for line in lines:
            if len(lost) < num_lost:
                lost.append(line)
            else:
                tell([line])

    node.agent.tell = lossy
    node.start(steps=2)
    assert node.exit_of().outcome is Outcome.COMPLETED
    assert len(lost) == num_lost


def test_many_reports_go_through_the_host(start_node):
    node = start_node(count_up)
    node.set_up()
    node.start(steps=100)
    node.exit_of()
    assert len(node.events["t00001"]) == 102
    assert not any(isinstance(event, ValidationEnded) for event in node.events["t00001"])


def test_modules_are_looked_for_on_the_node_first(tmp_path):
    own, code, gone = str(tmp_path / "own"), tmp_path / "code", str(tmp_path / "gone")
    code.mkdir()
    drivers = ["", own, str(code), gone, "relative"]
    assert _module_path([own], drivers) == [own, str(code)]
