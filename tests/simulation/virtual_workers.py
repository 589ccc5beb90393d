"""An executor whose workers train by arithmetic, in virtual time, and suffer whatever workers may suffer."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never, final

from tuner.core.commands import AnswerReport, KillWorker, StartWorker, WorkerCommand
from tuner.core.events import (
    USER_STOP,
    CheckpointFailed,
    CheckpointSaved,
    CheckpointStarted,
    Event,
    Outcome,
    ResultReported,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import CheckpointRecord, Failure, ReportReply, Trial
from tuner.execution.translate import to_event
from tuner.storage import strict_json

from . import cross_trial_invariants, invariants
from .acknowledgement_log import GHOST, Report
from .environment import TICK_S, World
from .fault_injection import Fault, Occasion
from .virtual_checkpoints import STEP_S, Saved

_CRASH = Failure("ValueError", "injected")
_SLOW_TICKS = 200
_PACES = (1, 2, 2, 3, 4, 12)
"""Ticks that an iteration takes."""
_THINKING_TICKS = (0, 0, 1, 5, 20)
"""Ticks until the searcher is called."""
_LAST_TICKS = (0, 3, 12)
"""Ticks from the answer to the last report to the end of the training."""


class _Worker:
    """One attempt.

    Attributes:
        command: What it was started with.
        iteration: How often it has reported, in its own count.
        num_steps: How many training steps its weights have seen.
        next_checkpoint: Index of its next checkpoint.
        is_waiting: Whether it has reported and waits for the answer.
        is_over: Whether it is gone, or about to be.
        shown_config: What it trains with, as text.
        ticks: How long an iteration takes.
    """

    __slots__ = (
        "command",
        "is_over",
        "is_waiting",
        "iteration",
        "next_checkpoint",
        "num_steps",
        "shown_config",
        "ticks",
    )

    def __init__(self, command: StartWorker, ticks: int) -> None:
        self.command = command
        self.shown_config = repr(command.config)
        self.iteration = command.checkpoint.iteration if command.checkpoint else 0
        self.num_steps = 0
        self.next_checkpoint = command.next_checkpoint
        self.is_waiting = self.is_over = False
        self.ticks = ticks

    @property
    def trial_id(self) -> str:
        return self.command.trial_id


_Happening = Callable[[_Worker], None]
_NO_WORKER = _Worker(StartWorker.of(Trial("", {}, {}), None), 0)
"""Stands for the worker where it is not one that does something."""


@final
class Workers:
    """See `Executor`; every command is a moment at which the driver may die.

    Args:
        world: The world.
    """

    def __init__(self, world: World) -> None:
        """Wait for commands."""
        self._world = world
        self._live: dict[str, _Worker] = {}
        self._agenda: list[tuple[int, float, int, _Worker, _Happening]] = []
        self._sequence = itertools.count()
        self._events: list[Event] = []
        self._unsaved: list[tuple[Trial, int]] = []
        self._is_awake = False

    # ------------------------------------------------------------------------------------------------ what the driver asks

    def capacity(self) -> Mapping[str, float]:
        """See `Executor.capacity`."""
        return {"cpu": float(self._world.scenario.num_slots)}

    def clock(self) -> float:
        """See `Executor.clock`."""
        return self._world.now * TICK_S

    def wake(self) -> None:
        """See `Executor.wake`."""
        self._is_awake = True

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor.shutdown`."""
        self.perish()

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor.carry_out`."""
        for command in commands:
            self._world.step()
            match command:
                case AnswerReport():
                    self._answer(command)
                case StartWorker():
                    self._start(command)
                case KillWorker():
                    self._kill(command)
                case _:
                    assert_never(command)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor.wait`."""
        world = self._world
        world.num_turns += 1
        invariants.takes_no_more_turns_than_needed(world)
        world.step()
        if (
            world.experiment and not world.disk.has_moved
        ):  # else trials leave, and the core hears nothing of it any more
            invariants.pauses_have_checkpoints(world.experiment)
            cross_trial_invariants.nobody_waits_for_what_is_there(world.experiment)
            cross_trial_invariants.note_the_paused(world)
            invariants.failed_saves_are_charged(world, self._unsaved)
        self._unsaved = []
        if (
            world.num_turns % world.check_every == 0 and timeout_s != 0.0
        ):  # else the driver knows already that something has changed
            self._check_all()
        world.rest()
        if not self._events and not self._is_awake:
            self._advance(
                math.inf if timeout_s is None else world.now + math.ceil(timeout_s / TICK_S)
            )
            world.rest()
        self._is_awake = False
        events, self._events = self._events, []
        return events

    def _check_all(self) -> None:
        experiment = self._world.experiment
        if experiment is None or self._world.disk.has_moved:
            return
        invariants.transitions_are_legal(experiment)
        invariants.checkpoints_in_need_are_there(self._world, experiment)
        invariants.slots_are_the_living(experiment, self._attempts())
        invariants.few_checkpoints_are_kept(self._world, experiment)
        cross_trial_invariants.leases_have_readers(experiment)
        for trial in experiment.trials:
            invariants.only_own_failures_are_charged(self._world, trial)

    def _attempts(self) -> dict[str, int]:
        return {trial_id: worker.command.attempt for trial_id, worker in self._live.items()}

    # ------------------------------------------------------------------------------------------------ time

    def _advance(self, until: float) -> None:
        world, agenda = self._world, self._agenda
        while agenda and agenda[0][0] <= until:
            at, _, _, worker, happen = heapq.heappop(agenda)
            world.now = max(at, world.now)
            happen(worker)
            if (
                self._events or self._is_awake
            ):  # what falls on the same moment belongs to the same turn
                until = world.now
        if not (self._events or self._is_awake):
            experiment = world.experiment
            is_up_to_the_user = experiment is not None and bool(experiment.trial_table.held)
            invariants.require(
                "I9",
                until < math.inf or is_up_to_the_user,
                "the driver waits for ever, although nothing is going to happen",
            )
            world.now = int(until) if until < math.inf else world.now + 1

    def call_later(self, ticks: int, call: Callable[[], None]) -> None:
        """Make a call after so many ticks."""
        self._later(ticks, _NO_WORKER, lambda _: call())

    def _later(self, ticks: int, worker: _Worker, happen: _Happening) -> None:
        # What is due at the same moment happens in any order.
        heapq.heappush(
            self._agenda,
            (
                self._world.now + ticks,
                self._world.chance.random(),
                next(self._sequence),
                worker,
                happen,
            ),
        )

    # ------------------------------------------------------------------------------------------------ commands

    def _start(self, command: StartWorker) -> None:
        world = self._world
        attempts = self._attempts()
        invariants.written_before_acted(world, command)
        invariants.one_worker_per_trial(world, command, attempts)
        invariants.starts_from_a_good_checkpoint(world, command)
        cross_trial_invariants.clones_are_as_decided(world, command)
        invariants.budget_is_kept(world, command)
        invariants.the_dead_rest(world, command)
        worker = self._live[command.trial_id] = _Worker(command, world.chance.choice(_PACES))
        match world.fate.strike(Occasion.START):
            case Fault.START_FAILS:
                self._later(2, worker, self._crash)
            case Fault.START_HANGS:
                pass
            case _:
                self._later(world.chance.randint(0, 4), worker, self._begin)

    def _answer(self, command: AnswerReport) -> None:
        world, worker = self._world, self._live.get(command.trial_id)
        if worker is None or worker.command.attempt != command.attempt or not worker.is_waiting:
            return
        if world.disk.has_moved:
            invariants.require(
                "I15", command.reply is ReportReply.STOP, "%s, though its journal is gone", command
            )
            worker.is_waiting = False
            world.seen["told to leave without a journal"] += 1
            if command.save:
                self._save(worker, self._leave)
            else:
                self._leave(worker)
            return
        report = Report(command.trial_id, command.attempt, worker.iteration)
        invariants.answered_reports_are_written(world, report)
        world.ledger.acknowledged.append(report)
        if world.scenario.durability == "strict":
            world.ledger.num_safe = len(world.ledger.acknowledged)
        worker.is_waiting = False
        if command.reply is not ReportReply.CONTINUE or command.save:
            invariants.written_before_acted(world, command)
        if command.reply is ReportReply.STOP:
            world.ledger.discarded.add(command.trial_id)
        go_on = self._train if command.reply is ReportReply.CONTINUE else self._leave
        if command.save:
            self._save(worker, go_on)
        else:
            go_on(worker)

    def _kill(self, command: KillWorker) -> None:
        invariants.written_before_acted(self._world, command)
        worker = self._live.get(command.trial_id)
        if worker and worker.command.attempt == command.attempt and not worker.is_over:
            worker.is_over = True
            self._later(
                1,
                worker,
                lambda killed: self._exit(
                    killed, Outcome.KILLED, Failure("killed", command.reason)
                ),
            )

    # ------------------------------------------------------------------------------------------------ what workers do

    def _begin(self, worker: _Worker) -> None:
        if worker.is_over:
            return
        if worker.command.checkpoint:
            invariants.checkpoint_is_readable(self._world, worker.command)
            saved = self._world.checkpoints.find(
                worker.command.source_id, worker.command.checkpoint
            )
            worker.num_steps = saved.num_steps if saved else 0
        self._events.append(WorkerStarted(worker.trial_id, worker.command.attempt, 1))
        self._train(worker)

    def _train(self, worker: _Worker) -> None:
        world = self._world
        if worker.num_steps >= world.scenario.num_iterations:
            self._later(world.chance.choice(_LAST_TICKS), worker, self._complete)
            return
        ticks = worker.ticks + (world.chance.random() < 0.2)
        match world.fate.strike(Occasion.REPORT):
            case None:
                self._later(ticks, worker, self._report)
            case Fault.WORKER_HANGS:
                pass
            case Fault.WORKER_SLOW:
                self._later(ticks + _SLOW_TICKS, worker, self._report)
            case fault:
                self._later(ticks, worker, _TROUBLES[fault].__get__(self))

    def _report(self, worker: _Worker) -> None:
        if worker.is_over:
            return
        metrics = self._step(worker)
        every = self._world.scenario.checkpoint_every
        is_due = (
            every and not self._world.scenario.can_save_on_demand and worker.iteration % every == 0
        )
        checkpoint = self._commit(worker) if is_due else None
        text = strict_json.to_bytes(metrics)
        if checkpoint:
            self._events.append(CheckpointStarted(worker.trial_id, worker.command.attempt))
        spelled = b"" if b"$" in text or checkpoint else text  # as the wire does it
        self._events.append(
            ResultReported(worker.trial_id, worker.command.attempt, metrics, checkpoint, spelled)
        )
        worker.is_waiting = True

    def _step(self, worker: _Worker) -> dict[str, Any]:
        worker.iteration += self._world.scenario.stride
        worker.num_steps += 1
        world, trial_id = self._world, worker.trial_id
        value = world.value_of(trial_id, worker.command.config, worker.num_steps)
        invariants.values_never_change(
            world,
            Report(trial_id, worker.command.attempt, worker.iteration),
            worker.shown_config,
            value,
        )
        wall_s = round(world.now * TICK_S + world.wall_offset_s, 3)
        return {
            "training_iteration": worker.iteration,
            "loss": value,
            "timestamp": wall_s,
            "time_total_s": STEP_S * worker.iteration,
        }

    def _commit(self, worker: _Worker) -> CheckpointRecord:
        index = worker.next_checkpoint
        worker.next_checkpoint += 1
        self._world.checkpoints.commit(
            worker.trial_id, index, Saved(worker.command.attempt, worker.num_steps)
        )
        return CheckpointRecord(index, worker.iteration, 0.1 * worker.iteration, {})

    def _save(self, worker: _Worker, go_on: _Happening) -> None:
        match self._world.fate.strike(Occasion.SAVE):
            case Fault.SAVE_FAILS:
                self._later(1, worker, lambda saving: self._saved(saving, go_on, fails=True))
            case Fault.SAVE_HANGS:
                pass
            case Fault.SAVE_RAISES:
                self._later(1, worker, self._fail_to_save)
            case _:
                self._later(1, worker, lambda saving: self._saved(saving, go_on))

    def _saved(self, worker: _Worker, go_on: _Happening, *, fails: bool = False) -> None:
        if worker.is_over:
            return
        who = (worker.trial_id, worker.command.attempt)
        if fails:
            self._world.ledger.failed_saves.add(worker.trial_id)
        self._events.append(CheckpointStarted(*who))
        self._events.append(
            CheckpointFailed(*who, _CRASH) if fails else CheckpointSaved(*who, self._commit(worker))
        )
        go_on(worker)

    def _fail_to_save(self, worker: _Worker) -> None:
        if worker.is_over:
            return
        ledger, experiment = self._world.ledger, self._world.experiment
        if experiment:
            trial = experiment.trial_table[worker.trial_id]
            if trial.intention and trial.intention.reason.rule == USER_STOP:
                ledger.given_up_by_user.add(worker.trial_id)
            self._unsaved.append((trial, trial.num_failures))
        ledger.discarded.discard(
            worker.trial_id
        )  # what it was to end with is missing, so that it may be tried again
        self._exit(worker, Outcome.UNSAVED, _CRASH)

    def _leave(self, worker: _Worker) -> None:
        match self._world.fate.strike(Occasion.LEAVE):
            case Fault.STOP_IGNORED:
                pass
            case Fault.CRASH_WHILE_STOPPING:
                self._later(1, worker, self._crash)
            case _:
                self._later(
                    self._world.chance.randint(0, 3),
                    worker,
                    lambda leaving: self._exit_freely(leaving, Outcome.STOPPED),
                )

    def _complete(self, worker: _Worker) -> None:
        self._exit_freely(worker, Outcome.COMPLETED)

    def _exit_freely(
        self, worker: _Worker, outcome: Outcome, failure: Failure | None = None
    ) -> None:
        if not worker.is_over:
            self._exit(worker, outcome, failure)

    def _exit(self, worker: _Worker, outcome: Outcome, failure: Failure | None = None) -> None:
        worker.is_over = True
        del self._live[worker.trial_id]
        ledger = self._world.ledger
        ledger.own_failures[worker.trial_id] += outcome in {
            Outcome.FAILED,
            Outcome.UNSAVED,
            Outcome.KILLED,
        }
        ledger.all_failures[worker.trial_id] += failure is not None and outcome is not Outcome.LOST
        self._events.append(WorkerExited(worker.trial_id, worker.command.attempt, outcome, failure))

    # ------------------------------------------------------------------------------------------------ what befalls them

    def _crash(self, worker: _Worker) -> None:
        self._exit_freely(worker, Outcome.FAILED, _CRASH)

    def _crash_behind_report(self, worker: _Worker) -> None:
        self._report(worker)
        self._crash(worker)

    def _crash_behind_rename(self, worker: _Worker) -> None:
        if not worker.is_over:
            self._step(worker)
            self._commit(worker)
            self._crash(worker)

    def _vanish(self, worker: _Worker) -> None:
        self._exit_freely(worker, Outcome.LOST, Failure("lost", "the machine is gone"))

    def _babble(self, worker: _Worker) -> None:
        """Send a message that is garbled somewhere; the engine kills whom it cannot understand."""
        if worker.is_over:
            return
        metrics = self._step(worker)
        frame = bytearray(strict_json.dumps({"kind": "result", "metrics": metrics}).encode())
        place = self._world.chance.randrange(len(frame))
        frame[place : place + self._world.chance.randint(0, 3)] = (
            b'}{"x' if self._world.chance.random() < 0.5 else b""
        )
        try:
            event = to_event(
                worker.trial_id, worker.command.attempt, strict_json.loads(bytes(frame))
            )
        except ValueError as error:
            self._exit_freely(worker, Outcome.FAILED, Failure("MalformedMessage", str(error)))
            return
        # It happens to make sense, so that it is taken for what it says; what it says is then nobody's business but the trial's.
        del event
        self._crash(worker)

    def _haunt(self, worker: _Worker) -> None:
        """Crash, and be heard of once more when another attempt may already be at work."""
        if worker.is_over:
            return
        self._crash(worker)
        self._later(self._world.chance.choice((1, 3, 10, 40)), worker, self._speak_from_the_grave)

    def _speak_from_the_grave(self, worker: _Worker) -> None:
        who, chance = (worker.trial_id, worker.command.attempt), self._world.chance
        metrics = {"training_iteration": worker.iteration + 1, "loss": -1.0, GHOST: True}
        ghost = CheckpointRecord(99, worker.iteration + 1)
        messages: list[Event] = [
            ResultReported(*who, metrics),
            ResultReported(*who, metrics),
            CheckpointSaved(*who, ghost),
            WorkerStarted(*who, 1),
            WorkerExited(*who, Outcome.FAILED, _CRASH),
        ]
        self._events.append(chance.choice(messages))

    def perish(self) -> None:
        """Let all workers die with their driver; some have just renamed a checkpoint that nobody will ever hear of."""
        scenario, chance = self._world.scenario, self._world.chance
        for worker in self._live.values():
            is_saving = scenario.checkpoint_every and not worker.is_waiting and worker.num_steps
            if is_saving and chance.random() < 0.3:
                worker.num_steps += 1
                self._commit(worker)
            worker.is_over = True
        self._live.clear()
        self._agenda.clear()
        self._events.clear()
        self._unsaved.clear()


_TROUBLES: Mapping[Fault, Any] = {
    Fault.WORKER_CRASHES: Workers._crash,
    Fault.WORKER_CRASHES_IN_CHECKPOINT: Workers._crash,
    Fault.WORKER_CRASHES_BEHIND_REPORT: Workers._crash_behind_report,
    Fault.WORKER_CRASHES_BEHIND_RENAME: Workers._crash_behind_rename,
    Fault.WORKER_LOST: Workers._vanish,
    Fault.STALE_MESSAGE: Workers._haunt,
    Fault.MALFORMED_FRAME: Workers._babble,
}


@final
class SlowCaller:
    """Calls the searcher beside the driver, in order, each time after a while; see `Caller`.

    Args:
        world: The world.
        workers: Whose time it is called in.
    """

    def __init__(self, world: World, workers: Workers) -> None:
        """Wait for the first call."""
        self._workers = workers
        self._chance = world.scenario.chance("searcher")
        self._calls: deque[Callable[[], None]] = deque()

    def submit(self, call: Callable[[], None]) -> None:
        """See `Caller.submit`."""
        self._calls.append(call)
        self._workers.call_later(self._chance.choice(_THINKING_TICKS), self._make_next)

    def wait(self, timeout_s: float | None) -> bool:
        """See `Caller.wait`; sometimes it takes too long."""
        while self._calls and (timeout_s is None or self._chance.random() < 0.5):
            self._make_next()
        return not self._calls

    def close(self) -> bool:
        """See `Caller.close`."""
        self._calls.clear()
        return False

    def _make_next(self) -> None:
        if self._calls:
            self._calls.popleft()()
