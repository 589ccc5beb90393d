"""Contract tests for executors."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, final

from tuner.core.commands import AnswerReport, KillWorker, StartWorker
from tuner.core.events import (
    CheckpointSaved,
    CheckpointStarted,
    Event,
    Outcome,
    ResultReported,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.result import TRAINING_ITERATION
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply, WorkerGroup
from tuner.execution.assignment import Assignment
from tuner.execution.class_trainable import Trainable
from tuner.execution.executor import Executor

Assign = Callable[[StartWorker], Assignment]
"""Completes a `StartWorker` with what a worker with files needs."""

_DEADLINE_S = 60.0
"""How long to wait for an event: long enough for a machine under load."""
_MIN_CPUS = 2


def counting(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield ``{"value": 1}`` and so on; raise at ``fails_at``, end after ``num_results``."""
    value = 0
    while value != config.get("num_results"):
        value += 1
        if value == config.get("fails_at"):
            raise ValueError(f"failed at {value}")
        # A contract test checks that this does not reach the driver's copy of the configuration.
        config.setdefault("nested", {})["changed"] = value
        yield {"value": value}


class Counting(Trainable):
    """Reports the same as `counting`, and saves on demand."""

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        """Begin before the first value."""
        self.value = 0

    def step(self) -> dict[str, Any]:
        """Return the next value."""
        self.value += 1
        return {"value": self.value, "done": self.value == self.config.get("num_results")}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the value reached."""
        return {"value": self.value}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Continue from the value reached."""
        self.value = checkpoint["value"]


class ExecutorContract(ABC):
    """Tests that every executor has to pass; name a subclass ``Test...``.

    Attributes:
        runs_groups: Whether it starts worker groups; set it to False for an executor whose
            experiments refuse them.
    """

    runs_groups: ClassVar[bool] = True

    @abstractmethod
    def make_executor(self, trainable: Any, assign: Assign) -> Executor:
        """Return a new executor with at least two CPUs.

        Args:
            trainable: What its trials run: `counting` or `Counting`. An executor that runs neither
                has to simulate trials that report the same.
            assign: Returns the assignment of a worker that is started; its directory exists as long
                as the executor is in use.
        """

    @contextlib.contextmanager
    def _executor_run(self, trainable: Any = counting) -> Iterator[_ExecutorRun]:
        with tempfile.TemporaryDirectory() as directory:
            executor = self.make_executor(
                trainable, functools.partial(_assignment, Path(directory))
            )
            try:
                yield _ExecutorRun(executor)
            finally:
                executor.shutdown(10.0)

    def test_a_trial_starts_reports_and_exits(self) -> None:
        """Emit for each attempt its start, its results and its exit, in this order."""
        self._check_completes()

    def _check_completes(self, num_workers: int | None = None) -> None:
        with self._executor_run() as run:
            run.start("t00000", num_workers=num_workers, num_results=3)
            run.finish("t00000")
            kinds = [type(event) for event in run.events]
            assert kinds == [WorkerStarted, *[ResultReported] * 3, WorkerExited], (
                f"got {run.events}"
            )
            assert run.values("t00000") == [1, 2, 3]
            assert run.iterations("t00000") == [1, 2, 3]
            assert run.exit_of("t00000") == WorkerExited("t00000", 1, Outcome.COMPLETED)

    def test_exactly_one_exit_follows_each_start(self) -> None:
        """End each attempt with one exit event, after which there are no others."""
        with self._executor_run() as run:
            run.start("t00000", num_results=2)
            run.start("t00001", fails_at=2)
            run.finish("t00000")
            run.finish("t00001")
            run.start("t00002")
            run.next("t00002", ResultReported)
            run.kill("t00002")
            run.start("t00003", num_results=0)
            run.finish("t00002")
            run.finish("t00003")
            run.collect()
            for trial_id in ("t00000", "t00001", "t00002", "t00003"):
                exits = [isinstance(event, WorkerExited) for event in run.of(trial_id)]
                assert exits.count(True) == 1, f"{trial_id} must exit once, got {run.of(trial_id)}"
                assert exits[-1], f"an exit must come last, got {run.of(trial_id)}"

    def test_a_trial_that_raises_has_failed_with_its_exception(self) -> None:
        """Turn an exception of the training code into a failed exit with type and message."""
        assert self._failure_of_raising().message == "failed at 2"

    def _failure_of_raising(self, num_workers: int | None = None) -> Failure:
        with self._executor_run() as run:
            run.start("t00000", num_workers=num_workers, fails_at=2)
            run.finish("t00000")
            run.collect()
            exit_ = run.exit_of("t00000")
            assert exit_.outcome is Outcome.FAILED
            assert exit_.failure is not None
            assert exit_.failure.kind == "ValueError"
            assert run.values("t00000") == [1]
            return exit_.failure

    def test_nothing_is_reported_before_the_answer(self) -> None:
        """Block a trial that has reported until it is answered."""
        with self._executor_run() as run:
            run.start("t00000")
            run.next("t00000", ResultReported)
            run.collect()
            assert run.values("t00000") == [1], "a trial must wait for the answer to its report"

    def test_a_trial_obeys_a_stop(self) -> None:
        """Exit as STOPPED after a stop, without another report."""
        self._check_leaves(ReportReply.STOP)

    def test_a_trial_obeys_a_pause(self) -> None:
        """Exit as STOPPED after a pause, without another report."""
        self._check_leaves(ReportReply.PAUSE)

    def _check_leaves(self, reply: ReportReply, num_workers: int | None = None) -> None:
        with self._executor_run() as run:
            run.start("t00000", num_workers=num_workers)
            run.next("t00000", ResultReported)
            run.answer("t00000", ReportReply.CONTINUE)
            run.next("t00000", ResultReported)
            run.answer("t00000", reply)
            run.finish("t00000")
            assert run.values("t00000") == [1, 2]
            assert run.exit_of("t00000") == WorkerExited("t00000", 1, Outcome.STOPPED)

    def test_a_trial_saves_before_it_continues_or_exits(self) -> None:
        """Announce the checkpoint before the next report or the exit; number checkpoints on."""
        with self._executor_run(Counting) as run:
            run.start("t00000", next_checkpoint=4)
            run.next("t00000", ResultReported)
            run.answer("t00000", ReportReply.CONTINUE, save=True)
            run.next("t00000", ResultReported)
            run.answer("t00000", ReportReply.PAUSE, save=True)
            run.finish("t00000")
            kinds = [
                type(event) for event in run.events if not isinstance(event, CheckpointStarted)
            ]
            assert kinds == [
                WorkerStarted,
                ResultReported,
                CheckpointSaved,
                ResultReported,
                CheckpointSaved,
                WorkerExited,
            ]
            saved = [event.checkpoint for event in run.events if isinstance(event, CheckpointSaved)]
            assert [(checkpoint.index, checkpoint.iteration) for checkpoint in saved] == [
                (4, 1),
                (5, 2),
            ]

    def test_a_later_attempt_continues_from_the_checkpoint(self) -> None:
        """Continue values and iterations from the checkpoint, under the new attempt's number."""
        with self._executor_run(Counting) as run:
            run.start("t00000")
            run.next("t00000", ResultReported)
            run.answer("t00000", ReportReply.PAUSE, save=True)
            checkpoint = run.next("t00000", CheckpointSaved).checkpoint
            run.finish("t00000")
            run.start("t00000", 2, checkpoint=checkpoint, next_checkpoint=1, num_results=3)
            run.finish("t00000", 2)
            assert run.values("t00000", 2) == [2, 3]
            assert run.iterations("t00000", 2) == [2, 3]

    def test_a_killed_trial_exits_as_killed_for_the_reason_given(self) -> None:
        """Kill a trial that waits."""
        self._check_killed()

    def _check_killed(self, num_workers: int | None = None) -> None:
        with self._executor_run() as run:
            run.start("t00000", num_workers=num_workers)
            run.next("t00000", ResultReported)
            run.kill("t00000", "no longer needed")
            run.finish("t00000", answers=False)
            run.collect()
            exit_ = run.exit_of("t00000")
            assert exit_.outcome is Outcome.KILLED
            assert exit_.failure is not None
            assert "no longer needed" in exit_.failure.message
            assert run.values("t00000") == [1]

    def test_a_trial_can_be_killed_while_it_trains(self) -> None:
        """Kill a trial right after the answer to its report."""
        with self._executor_run() as run:
            run.start("t00000")
            run.next("t00000", ResultReported)
            run.executor.carry_out(
                [AnswerReport("t00000", 1, ReportReply.CONTINUE), KillWorker("t00000", 1, "test")]
            )
            run.finish("t00000", answers=False)
            assert run.exit_of("t00000").outcome is Outcome.KILLED

    def test_a_trial_can_be_killed_before_it_has_begun(self) -> None:
        """Kill a trial in the same call in which it is started."""
        with self._executor_run() as run:
            run.executor.carry_out([_start("t00000"), KillWorker("t00000", 1, "test")])
            run.finish("t00000", answers=False)
            run.collect()
            assert run.exit_of("t00000").outcome is Outcome.KILLED

    def test_commands_for_attempts_that_are_not_there_are_ignored(self) -> None:
        """Ignore commands for trials that are unknown or gone, and for other attempts."""
        with self._executor_run() as run:
            run.start("t00000", num_results=1)
            run.finish("t00000")
            run.start("t00001", num_results=2)
            run.next("t00001", ResultReported)
            for trial_id, attempt in (("t99999", 1), ("t00000", 1), ("t00001", 2)):
                run.executor.carry_out(
                    [
                        AnswerReport(trial_id, attempt, ReportReply.STOP),
                        KillWorker(trial_id, attempt, "test"),
                    ]
                )
            run.collect()
            run.answer("t00001", ReportReply.CONTINUE)
            run.finish("t00001")
            assert run.values("t00001") == [1, 2]
            assert {event.trial_id for event in run.events} == {"t00000", "t00001"}

    def test_several_trials_keep_their_own_order(self) -> None:
        """Run trials at the same time without mixing up their events."""
        with self._executor_run() as run:
            run.start("t00000", num_results=4)
            run.start("t00001", num_results=3)
            run.finish("t00000")
            run.finish("t00001")
            for trial_id, num_results in (("t00000", 4), ("t00001", 3)):
                assert run.values(trial_id) == list(range(1, num_results + 1))
                assert isinstance(run.of(trial_id)[0], WorkerStarted)
                assert isinstance(run.of(trial_id)[-1], WorkerExited)

    def test_training_code_gets_its_own_copy_of_the_configuration(self) -> None:
        """Give each attempt its own copy of the configuration."""
        with self._executor_run() as run:
            command = _start("t00000", num_results=2, nested={"unchanged": True})
            run.executor.carry_out([command])
            run.finish("t00000")
            assert command.config == {"num_results": 2, "nested": {"unchanged": True}}

    def test_a_group_of_workers_starts_reports_and_exits_as_one(self) -> None:
        """Emit one start, one result for each report of all workers, and one exit."""
        if self.runs_groups:
            self._check_completes(num_workers=3)

    def test_a_group_of_workers_that_raises_fails_once(self) -> None:
        """Turn exceptions of the workers into one failed exit."""
        if self.runs_groups:
            assert "failed at 2" in self._failure_of_raising(num_workers=2).message

    def test_a_group_of_workers_obeys_a_stop(self) -> None:
        """Give all workers the same answer, so that all of them leave."""
        if self.runs_groups:
            self._check_leaves(ReportReply.STOP, num_workers=2)

    def test_a_killed_group_of_workers_exits_once(self) -> None:
        """Kill all workers; report one exit, for the reason given."""
        if self.runs_groups:
            self._check_killed(num_workers=2)

    def test_waiting_ends_when_the_time_is_up(self) -> None:
        """Return nothing from `wait` when nothing happens in time."""
        with self._executor_run() as run:
            assert run.executor.wait(0.0) == []
            assert run.executor.wait(0.01) == []

    def test_waiting_ends_at_wake(self) -> None:
        """Return from the next `wait` at once after `wake`, and wait again in the one after it."""
        with self._executor_run() as run:
            run.executor.wake()
            assert run.executor.wait(None) == []
            run.start("t00000", num_results=1)
            run.finish("t00000")
            assert run.values("t00000") == [1]

    def test_time_never_runs_backwards(self) -> None:
        """Never return an earlier time than before from `clock`."""
        with self._executor_run() as run:
            times = [run.executor.clock()]
            run.start("t00000", num_results=2)
            run.finish("t00000")
            times.append(run.executor.clock())
            run.executor.wait(0.0)
            times.append(run.executor.clock())
            assert times == sorted(times)

    def test_the_capacity_is_known_from_the_start(self) -> None:
        """Return the capacity in positive numbers."""
        with self._executor_run() as run:
            capacity = run.executor.capacity()
            assert capacity["cpu"] >= _MIN_CPUS, "make_executor must give at least two CPUs"
            assert all(amount >= 0 for amount in capacity.values())

    def test_it_can_be_shut_down_more_than_once_and_while_trials_run(self) -> None:
        """Kill what still runs and release everything; a second call does nothing."""
        with self._executor_run() as run:
            run.start("t00000")
            run.next("t00000", ResultReported)
            run.start("t00001")
            run.executor.shutdown(10.0)
            run.executor.shutdown(10.0)

    def test_it_can_be_shut_down_before_anything_was_started(self) -> None:
        """Release everything if no trial was ever started."""
        with self._executor_run() as run:
            run.executor.shutdown(10.0)


@final
class _ExecutorRun:
    """Drives an executor and collects its events."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.events: list[Any] = []

    def start(
        self,
        trial_id: str,
        attempt: int = 1,
        *,
        checkpoint: CheckpointRecord | None = None,
        next_checkpoint: int = 0,
        num_workers: int | None = None,
        **config: Any,
    ) -> None:
        """Start an attempt, in one process or as a group of workers."""
        command = _start(trial_id, attempt, checkpoint, next_checkpoint, **config)
        if num_workers is not None:
            group = WorkerGroup(num_workers, {"cpu": 1.0}, num_workers, num_workers)
            command = replace(command, resources=group.total, group=group)
        self.executor.carry_out([command])

    def answer(
        self, trial_id: str, reply: ReportReply, attempt: int = 1, *, save: bool = False
    ) -> None:
        """Answer a report."""
        self.executor.carry_out([AnswerReport(trial_id, attempt, reply, save)])

    def kill(self, trial_id: str, reason: str = "test") -> None:
        """Kill the first attempt."""
        self.executor.carry_out([KillWorker(trial_id, 1, reason)])

    def next(self, trial_id: str, kind: type[Event]) -> Any:
        """Wait for the next event of a kind, without answering any report, and return it."""
        seen = len(self.events)
        while True:
            for event in self.events[seen:]:
                if event.trial_id == trial_id and isinstance(event, kind):
                    return event
            seen = len(self.events)
            self._wait_for_events()

    def finish(self, trial_id: str, attempt: int = 1, *, answers: bool = True) -> None:
        """Wait until the attempt has exited; trials that report meanwhile continue."""
        while not any(isinstance(event, WorkerExited) for event in self.of(trial_id, attempt)):
            for event in self._wait_for_events():
                if answers and isinstance(event, ResultReported):
                    self.answer(event.trial_id, ReportReply.CONTINUE, event.attempt)

    def collect(self) -> None:
        """Collect the events that are already there."""
        self.events += self.executor.wait(0.05)

    def of(self, trial_id: str, attempt: int = 1) -> list[Any]:
        """Return the events of an attempt."""
        return [
            event for event in self.events if (event.trial_id, event.attempt) == (trial_id, attempt)
        ]

    def values(self, trial_id: str, attempt: int = 1) -> list[int]:
        """Return the values that an attempt has reported."""
        return [
            event.metrics["value"]
            for event in self.of(trial_id, attempt)
            if isinstance(event, ResultReported)
        ]

    def iterations(self, trial_id: str, attempt: int = 1) -> list[int]:
        """Return the training iterations that an attempt has reported."""
        return [
            event.metrics[TRAINING_ITERATION]
            for event in self.of(trial_id, attempt)
            if isinstance(event, ResultReported)
        ]

    def exit_of(self, trial_id: str) -> WorkerExited:
        """Return the exit of the first attempt, which must be the only one."""
        exits = [event for event in self.of(trial_id) if isinstance(event, WorkerExited)]
        assert len(exits) == 1, f"{trial_id} must exit once, got {exits}"
        return exits[0]

    def _wait_for_events(self) -> list[Any]:
        """Wait for the next events."""
        end_s = time.monotonic() + _DEADLINE_S
        while not (events := self.executor.wait(_DEADLINE_S)):
            assert time.monotonic() < end_s, (
                f"something must happen, got nothing after {self.events}"
            )
        self.events += events
        return list(events)


def _start(
    trial_id: str,
    attempt: int = 1,
    checkpoint: CheckpointRecord | None = None,
    next_checkpoint: int = 0,
    **config: Any,
) -> StartWorker:
    return StartWorker(trial_id, attempt, config, {"cpu": 1.0}, (), checkpoint, next_checkpoint)


def _assignment(directory: Path, command: StartWorker) -> Assignment:
    trial_dir = directory / command.trial_id
    trial_dir.mkdir(exist_ok=True)
    checkpoint = command.checkpoint
    counters: Mapping[str, int] = checkpoint.counters if checkpoint else {}
    return Assignment(
        trial_id=command.trial_id,
        attempt=command.attempt,
        config=command.config,
        experiment_name="contract",
        trial_dir=str(trial_dir),
        experiment_tag=command.experiment_tag,
        resources=command.resources,
        gpu_ids=command.gpu_ids,
        checkpoint_dir=str(trial_dir / checkpoint.directory) if checkpoint else None,
        iteration=checkpoint.iteration if checkpoint else 0,
        time_total_s=checkpoint.time_total_s if checkpoint else 0.0,
        counters=counters,
        next_checkpoint=command.next_checkpoint,
        seed=0,
        sync_checkpoints=False,
    )
