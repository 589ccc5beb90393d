import threading
from dataclasses import replace

import pytest

from tests.execution.conversation import assignment
from tuner.core.commands import (
    AnswerReport,
    KillValidation,
    KillWorker,
    StartValidation,
    StartWorker,
)
from tuner.core.events import CheckpointSaved, Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.worker_records import CheckpointRecord, ReportReply, ValidationRequest
from tuner.execution import inline_processes
from tuner.execution.class_trainable import Trainable
from tuner.execution.inline_processes import InlineProcesses
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.session import get_context, report
from tuner.execution.validation_assignment import ValidationAssignment

pytestmark = pytest.mark.process


class Driver:
    """Passes the commands of a test to an executor and answers reports."""

    def __init__(self, trainable, trial_dir):
        self.trial_dir = trial_dir
        service = InlineProcesses(trainable)
        self.executor = ProcessExecutor(service, self.assign, capacity={"cpu": 4.0})

    def assign(self, command):
        checkpoint = command.checkpoint
        trial_dir = self.trial_dir / command.trial_id
        return assignment(
            trial_dir,
            trial_id=command.trial_id,
            attempt=command.attempt,
            config=command.config,
            checkpoint_dir=str(trial_dir / checkpoint.directory) if checkpoint else None,
            iteration=checkpoint.iteration if checkpoint else 0,
            next_checkpoint=command.next_checkpoint,
        )

    def start(self, *trial_ids, attempt=1, checkpoint=None, next_checkpoint=0, **config):
        for trial_id in trial_ids:
            (self.trial_dir / trial_id).mkdir(exist_ok=True)
            self.executor.carry_out(
                [
                    StartWorker(
                        trial_id, attempt, config, {"cpu": 1.0}, (), checkpoint, next_checkpoint
                    )
                ]
            )

    def answer(self, trial_id, verdict=ReportReply.CONTINUE, save=False, attempt=1):
        self.executor.carry_out([AnswerReport(trial_id, attempt, verdict, save)])

    def kill(self, trial_id):
        self.executor.carry_out([KillWorker(trial_id, 1, "too slow")])

    def wait(self, timeout_s=30.0):
        return self.executor.wait(timeout_s)

    def drain(self, num_exits):
        """Answer every report with continue until a number of trials have ended."""
        events = []
        while sum(isinstance(event, WorkerExited) for event in events) < num_exits:
            turn = self.wait()
            assert turn
            events += turn
            for event in turn:
                if isinstance(event, ResultReported):
                    self.answer(event.trial_id, attempt=event.attempt)
        return events


@pytest.fixture
def driver(tmp_path):
    drivers = []

    def make(trainable):
        drivers.append(Driver(trainable, tmp_path))
        return drivers[-1]

    yield make
    for each in drivers:
        each.executor.shutdown(10.0)


def three(config):
    for number in range(3):
        report({"number": number})


def kinds(events):
    return [type(event).__name__ for event in events]


def test_a_turn_lasts_from_start_to_report(driver):
    driver = driver(three)
    driver.start("a")
    started, result = driver.wait()
    assert isinstance(started, WorkerStarted)
    assert (result.trial_id, result.attempt, result.metrics["number"]) == ("a", 1, 0)
    assert driver.wait(0.0) == []
    driver.answer("a")
    assert [event.metrics["number"] for event in driver.wait()] == [1]


def test_a_driver_that_is_woken_answers_a_trial_that_does_not_wait_yet(driver, monkeypatch):
    may_wait = threading.Event()
    receive = InlineProcesses._receive

    def late(service, thread, timeout_s=None):
        assert may_wait.wait(60)
        return receive(service, thread, timeout_s)

    monkeypatch.setattr(InlineProcesses, "_receive", late)
    driver = driver(three)
    driver.start("a")
    events = []
    while not any(isinstance(event, ResultReported) for event in events):
        driver.executor.wake()
        events += driver.wait()
    driver.answer("a")
    may_wait.set()
    assert [event.metrics["number"] for event in driver.wait()] == [1]


def test_a_trial_ends_with_one_exit(driver):
    driver = driver(three)
    driver.start("a")
    events = driver.drain(1)
    assert kinds(events) == ["WorkerStarted", *["ResultReported"] * 3, "WorkerExited"]
    assert events[-1] == WorkerExited("a", 1, Outcome.COMPLETED)
    assert driver.wait(0.0) == []


def test_trials_take_turns_in_the_same_order_each_time(driver):
    orders = []
    for _ in range(3):
        each = driver(three)
        each.start("a", "b", "c")
        orders.append([(event.trial_id, type(event).__name__) for event in each.drain(3)])
    assert orders[0] == orders[1] == orders[2]
    reports = [trial_id for trial_id, kind in orders[0] if kind == "ResultReported"]
    assert reports == ["a", "b", "c"] * 3


def test_only_one_trial_runs_at_a_time_and_none_outside_wait(driver):
    running, most = [], []

    def train(config):
        for _ in range(5):
            running.append(1)
            most.append(len(running))
            running.pop()
            report({})

    driver = driver(train)
    driver.start("a", "b", "c")
    assert most == []
    driver.drain(3)
    assert most == [1] * 15


def test_each_trial_and_its_threads_get_their_own_context(driver):
    seen = {}

    def train(config):
        report({})
        seen[config["me"]] = [get_context().get_trial_id()]
        thread = threading.Thread(
            target=lambda: seen[config["me"]].append(get_context().get_trial_id())
        )
        thread.start()
        thread.join()
        report({})

    driver = driver(train)
    for name in "ab":
        driver.start(name, me=name)
    driver.drain(2)
    assert seen == {"a": ["a", "a"], "b": ["b", "b"]}


def test_a_report_from_a_thread_of_the_trial_ends_the_turn(driver):
    def train(config):
        thread = threading.Thread(target=report, args=({"number": config["number"]},))
        thread.start()
        thread.join()

    driver = driver(train)
    driver.start("a", number=1)
    driver.start("b", number=2)
    assert [
        event.metrics["number"] for event in driver.drain(2) if isinstance(event, ResultReported)
    ] == [1, 2]


def test_an_error_is_an_event_and_other_trials_continue(driver):
    def train(config):
        report({})
        if get_context().get_trial_id() == "a":
            raise ValueError("broken")

    driver = driver(train)
    driver.start("a", "b")
    exits = {event.trial_id: event for event in driver.drain(2) if isinstance(event, WorkerExited)}
    assert (exits["a"].outcome, str(exits["a"].failure)) == (Outcome.FAILED, "ValueError: broken")
    assert exits["b"].outcome is Outcome.COMPLETED


def test_an_error_in_the_assignment_fails_the_trial(driver):
    driver = driver(three)
    driver.executor._assign = lambda command: 1 / 0
    driver.start("a")
    (event,) = driver.wait()
    assert (event.outcome, event.failure.kind) == (Outcome.FAILED, "ZeroDivisionError")


@pytest.mark.parametrize("verdict", [ReportReply.STOP, ReportReply.PAUSE])
def test_a_trial_follows_the_answers(driver, verdict):
    cleaned = []

    def train(config):
        try:
            three(config)
        finally:
            cleaned.append(True)

    driver = driver(train)
    driver.start("a")
    driver.wait()
    driver.answer("a", verdict)
    assert driver.wait() == [WorkerExited("a", 1, Outcome.STOPPED)]
    assert cleaned == [True]


class Counter(Trainable):
    def setup(self, config):
        self.value = 0

    def step(self):
        self.value += 1
        return {"value": self.value}

    def save_checkpoint(self, checkpoint_dir):
        return {"value": self.value}

    def load_checkpoint(self, checkpoint):
        self.value = checkpoint["value"]


def test_class_trainables_save_pause_and_continue(driver):
    driver = driver(Counter)
    driver.start("a")
    driver.wait()
    driver.answer("a")
    driver.wait()
    driver.answer("a", ReportReply.PAUSE, save=True)
    _, saved, exited = driver.wait()
    assert isinstance(saved, CheckpointSaved)
    assert exited == WorkerExited("a", 1, Outcome.STOPPED)
    driver.start("a", attempt=2, checkpoint=saved.checkpoint, next_checkpoint=1)
    _, result = driver.wait()
    assert (result.attempt, result.metrics["value"], result.metrics["training_iteration"]) == (
        2,
        3,
        3,
    )


def test_a_trial_killed_before_its_first_turn_never_runs(driver):
    ran = []
    driver = driver(lambda config: ran.append(True))
    driver.start("a")
    driver.kill("a")
    (event,) = driver.wait()
    assert (event.outcome, str(event.failure)) == (Outcome.KILLED, "killed: too slow")
    assert driver.wait(0.0) == []
    assert ran == []


@pytest.mark.parametrize("answered", [False, True])
def test_a_trial_killed_at_its_report_unwinds_and_is_killed(driver, answered):
    cleaned = []

    def train(config):
        try:
            three(config)
        finally:
            cleaned.append(True)

    driver = driver(train)
    driver.start("a")
    driver.wait()
    if answered:
        driver.answer("a")
    driver.kill("a")
    driver.kill("a")
    (event,) = driver.wait()
    assert (event.outcome, cleaned) == (Outcome.KILLED, [True])


def test_a_trial_killed_in_its_turn_is_stopped_at_its_next_report_which_is_dropped(driver):
    reached, goes_on = threading.Event(), threading.Event()

    def train(config):
        reached.set()
        goes_on.wait(60)
        report({})

    driver = driver(train)
    driver.start("a", "b")
    threading.Thread(target=lambda: (reached.wait(60), driver.executor.wake())).start()
    assert kinds(driver.wait()) == ["WorkerStarted"]
    driver.kill("a")
    goes_on.set()
    assert [(event.trial_id, event.outcome) for event in driver.wait()] == [("a", Outcome.KILLED)]


def test_a_killed_trial_that_does_not_report_is_left_behind_and_stopped_when_it_does(
    driver, monkeypatch, caplog
):
    monkeypatch.setattr(inline_processes, "_KILL_GRACE_S", 0.0)
    reached, goes_on, stopped = threading.Event(), threading.Event(), threading.Event()

    def train(config):
        if get_context().get_trial_id() == "b":
            return
        reached.set()
        goes_on.wait(60)
        try:
            report({})
        finally:
            stopped.set()

    driver = driver(train)
    driver.start("a", "b")
    threading.Thread(target=lambda: (reached.wait(60), driver.executor.wake())).start()
    assert kinds(driver.wait()) == ["WorkerStarted"]
    driver.kill("a")
    (event,) = driver.wait()
    assert (event.trial_id, event.outcome) == ("a", Outcome.KILLED)
    assert "goes_on.wait(60)" in event.failure.traceback
    assert "a-1 was killed, but its code runs on" in caplog.text
    *_, ended = driver.drain(1)
    assert (ended.trial_id, ended.outcome) == ("b", Outcome.COMPLETED)
    goes_on.set()
    assert stopped.wait(60)
    assert driver.wait(0.0) == []


def test_commands_for_attempts_that_are_gone_are_ignored(driver):
    driver = driver(three)
    driver.answer("a")
    driver.kill("a")
    driver.start("a")
    driver.drain(1)
    driver.answer("a")
    driver.kill("a")
    assert driver.wait(0.0) == []


def test_a_second_answer_is_ignored(driver):
    driver = driver(three)
    driver.start("a")
    driver.wait()
    driver.answer("a")
    driver.answer("a", ReportReply.STOP)
    assert [event.metrics["number"] for event in driver.wait()] == [1]
    assert driver.wait(0.0) == []


def test_a_trial_cannot_change_the_drivers_configuration(driver):
    config = {"layers": [1]}

    def train(config):
        config["layers"].append(2)
        config["new"] = 3

    driver = driver(train)
    (driver.trial_dir / "a").mkdir()
    driver.executor.carry_out([StartWorker("a", 1, config, {}, (), None, 0)])
    driver.drain(1)
    assert config == {"layers": [1]}


def test_a_configuration_that_cannot_be_copied_is_shared(driver):
    driver = driver(lambda config: report({"same": config["lock"] is lock}))
    lock = threading.Lock()
    driver.start("a", lock=lock)
    assert driver.wait()[-1].metrics["same"]


def test_wake_ends_the_next_wait(driver):
    driver = driver(three)
    driver.executor.wake()
    assert driver.wait(None) == []


def test_shutdown_stops_every_trial_and_may_be_called_again(driver):
    cleaned = []

    def train(config):
        try:
            while True:
                report({})
        finally:
            cleaned.append(get_context().get_trial_id())

    driver = driver(train)
    driver.start("a", "b", "c")
    driver.wait()
    driver.wait()
    driver.executor.shutdown(30.0)
    driver.executor.shutdown(30.0)
    assert cleaned == ["a", "b"]
    assert driver.wait(0.0) == []


def test_shutdown_does_not_wait_for_a_trial_that_hangs(driver):
    hangs = threading.Event()
    driver = driver(lambda config: hangs.wait(60))
    driver.start("a", "b")
    threading.Timer(0.0, driver.executor.wake).start()
    driver.wait()
    driver.executor.shutdown(0.0)
    hangs.set()
    assert driver.wait(0.0) == []


def test_capacity_and_clock(driver):
    executor = driver(three).executor
    assert executor.capacity() == {"cpu": 4.0}
    assert executor.clock() <= executor.clock()


def test_a_validation_runs_in_its_turn_and_ends_with_one_event(tmp_path):
    command = StartValidation("a", CheckpointRecord(2, 3), 1, ValidationRequest(), {"cpu": 1.0})
    executor = ProcessExecutor(
        InlineProcesses(
            three, lambda checkpoint: {"n": len(str(checkpoint.path)) > 0, "nan": 1 / 0}
        ),
        lambda command: assignment(tmp_path),
        capacity={"cpu": 4.0},
        assign_validation=lambda command: ValidationAssignment.of(command, str(tmp_path), {}, 0),
    )
    executor.carry_out([command, replace(command, num_try=2), KillValidation("a", 2, 2, "late")])
    events = [*executor.wait(60), *executor.wait(60)]
    assert [(event.num_try, event.outcome) for event in events] == [
        (2, Outcome.KILLED),
        (1, Outcome.FAILED),
    ]
    assert events[1].failure.kind == "ZeroDivisionError"
    executor.shutdown(10)
