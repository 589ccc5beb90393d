"""Contract tests of the executors."""

import itertools

import pytest

from tests.contracts.executor_contract import Counting, ExecutorContract, counting
from tuner.core.events import Outcome, WorkerExited
from tuner.execution.inline_processes import InlineProcesses
from tuner.execution.local.orphans import VARIABLE, DriverIdentity
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.process_executor import ProcessExecutor
from tuner.stores.file_service import StoreFiles
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_store import ObjectStore
from tuner.stores.uploading import UploadingExecutor
from tuner.virtual.executor import SimulatedExecutor

CPUS = {"cpu": 2.0}


class TestSimulated(ExecutorContract):
    def make_executor(self, trainable, assign):
        return SimulatedExecutor(counting, capacity=CPUS)


@pytest.mark.process
class TestInline(ExecutorContract):
    runs_groups = False

    def make_executor(self, trainable, assign):
        return ProcessExecutor(InlineProcesses(trainable), assign, capacity=CPUS)


def forking(trainable, assign):
    """Return an executor that takes over the zygote of the test before."""
    (directory,) = assign.args
    processes = LocalProcesses(
        trainable,
        start_method="zygote",
        environ={VARIABLE: str(DriverIdentity.current(directory))},
        keeps_zygote=True,
    )
    return ProcessExecutor(processes, assign, capacity=CPUS)


@pytest.mark.process
class TestForkedProcesses(ExecutorContract):
    def make_executor(self, trainable, assign):
        return forking(trainable, assign)


class Spawning(ExecutorContract):
    def make_executor(self, trainable, assign):
        processes = LocalProcesses(trainable, start_method="spawn")
        return ProcessExecutor(processes, assign, capacity=CPUS)


@pytest.mark.heavy  # each test starts several interpreters
class TestSpawnedProcesses(Spawning):
    pass


@pytest.mark.process
@pytest.mark.parametrize(
    "test",
    [
        "test_exactly_one_exit_follows_each_start",
        "test_a_trial_saves_before_it_continues_or_exits",
        "test_a_later_attempt_continues_from_the_checkpoint",
        "test_a_trial_can_be_killed_while_it_trains",
        "test_a_group_of_workers_starts_reports_and_exits_as_one",
        "test_it_can_be_shut_down_more_than_once_and_while_trials_run",
    ],
)
def test_spawned_processes_keep_what_matters_most_of_the_contract(test):
    getattr(Spawning(), test)()


def uploading(inner, assign, tmp_path):
    (experiment,) = assign.args
    store = ObjectStore(f"file://{tmp_path}/bucket/run")
    files = StoreFiles(ObjectCheckpoints(store, experiment, 1), inner.wake)
    return UploadingExecutor(inner, files)


@pytest.mark.process
class TestUploadingInline(ExecutorContract):
    runs_groups = False

    @pytest.fixture(autouse=True)
    def in_store(self, tmp_path):
        self.tmp_path = tmp_path

    def make_executor(self, trainable, assign):
        inner = ProcessExecutor(InlineProcesses(trainable), assign, capacity=CPUS)
        return uploading(inner, assign, self.tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    "test",
    [
        "test_a_trial_saves_before_it_continues_or_exits",
        "test_a_later_attempt_continues_from_the_checkpoint",
        "test_a_killed_group_of_workers_exits_once",
        "test_it_can_be_shut_down_more_than_once_and_while_trials_run",
    ],
)
def test_trials_in_processes_keep_the_contract_while_checkpoints_are_uploaded(test, tmp_path):
    class Contract(ExecutorContract):
        def make_executor(self, trainable, assign):
            return uploading(forking(trainable, assign), assign, tmp_path)

    getattr(Contract(), test)()


class Spoilt:
    """A good executor to spoil."""

    def __init__(self):
        self.good = SimulatedExecutor(counting, capacity=CPUS)

    def __getattr__(self, name):
        return getattr(self.good, name)


class ExitsTwice(Spoilt):
    def wait(self, timeout_s):
        events = self.good.wait(timeout_s)
        return [*events, *(event for event in events if isinstance(event, WorkerExited))]


class ForgetsTheStart(Spoilt):
    def wait(self, timeout_s):
        return [
            event for event in self.good.wait(timeout_s) if type(event).__name__ != "WorkerStarted"
        ] or self.good.wait(0.0)


class CallsEveryExitCompleted(Spoilt):
    def wait(self, timeout_s):
        return [
            WorkerExited(event.trial_id, event.attempt, Outcome.COMPLETED)
            if isinstance(event, WorkerExited)
            else event
            for event in self.good.wait(timeout_s)
        ]


class IgnoresStops(Spoilt):
    def carry_out(self, commands):
        self.good.carry_out(
            [command for command in commands if getattr(command, "reply", None) != "stop"]
        )

    def wait(self, timeout_s):
        return self.good.wait(timeout_s) or [WorkerExited("t00000", 1, Outcome.KILLED)]


class TrustsItsMemory(Spoilt):
    def carry_out(self, commands):
        for command in commands:
            if type(command).__name__ == "KillWorker":
                assert (command.trial_id, command.attempt) in self.good._workers
        self.good.carry_out(commands)


class ShutsDownOnce(Spoilt):
    is_shut = False

    def shutdown(self, deadline_s):
        assert not self.is_shut
        self.is_shut = True


class RunsBackwards(Spoilt):
    times = itertools.count()

    def clock(self):
        return -float(next(self.times))


@pytest.mark.parametrize(
    ("executor", "test"),
    [
        (ExitsTwice, "test_exactly_one_exit_follows_each_start"),
        (ForgetsTheStart, "test_a_trial_starts_reports_and_exits"),
        (CallsEveryExitCompleted, "test_a_trial_that_raises_has_failed_with_its_exception"),
        (CallsEveryExitCompleted, "test_a_trial_obeys_a_pause"),
        (CallsEveryExitCompleted, "test_a_killed_trial_exits_as_killed_for_the_reason_given"),
        (IgnoresStops, "test_a_trial_obeys_a_stop"),
        (ExitsTwice, "test_a_group_of_workers_that_raises_fails_once"),
        (ExitsTwice, "test_a_killed_group_of_workers_exits_once"),
        (ForgetsTheStart, "test_a_group_of_workers_starts_reports_and_exits_as_one"),
        (IgnoresStops, "test_a_group_of_workers_obeys_a_stop"),
        (TrustsItsMemory, "test_commands_for_attempts_that_are_not_there_are_ignored"),
        (ShutsDownOnce, "test_it_can_be_shut_down_more_than_once_and_while_trials_run"),
        (RunsBackwards, "test_time_never_runs_backwards"),
    ],
)
def test_a_defective_executor_breaks_the_contract(executor, test):
    class Contract(ExecutorContract):
        def make_executor(self, trainable, assign):
            return executor()

    with pytest.raises((AssertionError, KeyError)):
        getattr(Contract(), test)()


def test_the_training_code_reports_the_same_without_an_executor():
    assert [result["value"] for result in counting({"num_results": 3})] == [1, 2, 3]
    trial = Counting({"num_results": 3})
    assert [trial.train()["value"] for _ in range(3)] == [1, 2, 3]
