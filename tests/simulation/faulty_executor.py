"""Executor in virtual time whose workers train by arithmetic and fail in every way they can."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never, final

from tuner.background import BackgroundJobs
from tuner.core.commands import (
    AnswerReport,
    GrantLease,
    KillValidation,
    KillWorker,
    ListCheckpoints,
    RefuseLease,
    StartValidation,
    StartWorker,
    WorkerCommand,
)
from tuner.core.events import (
    USER_STOP,
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointSaved,
    CheckpointStarted,
    Event,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    Outcome,
    ResultReported,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.timeouts import REMNANT_S
from tuner.core.trial import Trial
from tuner.core.worker_records import (
    CheckpointRecord,
    Failure,
    ReportReply,
    ValidationRequest,
    WorkerGroup,
)
from tuner.execution.worker_protocol import to_event
from tuner.storage import strict_json

from . import cross_trial_invariants, invariants
from .acknowledgement_log import STALE, ReportKey
from .environment import TICK_S, Environment
from .fault_injection import Fault, FaultPoint
from .faulty_nodes import FaultyNodes, parts_of
from .faulty_validators import FaultyValidators
from .invariants import Occupied
from .scenario import Training
from .virtual_checkpoints import STEP_S, SavedCheckpoint

_CRASH = Failure("ValueError", "injected")
_SLOW_TICKS = 200
_PACES = (1, 2, 2, 3, 4, 12)
"""Ticks that an iteration takes."""
_SEARCH_TICKS = (0, 0, 1, 5, 20)
"""Ticks until the searcher is called."""
_UPLOAD_TICKS = (1, 2, 5, 12, 40)
_LEASE_TICKS = (1, 5, 20)
_REMNANT_TICKS = (0, 1, 10, 100)
"""Ticks until what is left is gone of a group that has lost processes with their node."""
_UNHEARD_TICKS = round(REMNANT_S / TICK_S) - 1
_EXIT_TICKS = (0, 3, 12)
"""Ticks from the answer to the last report to the end of the training."""


class _Worker:
    """One attempt.

    Attributes:
        command: What it was started with.
        iteration: How often it has reported, in its own count.
        num_steps: How many training steps its weights have seen.
        next_checkpoint: Index of its next checkpoint.
        is_waiting: Whether it has reported and waits for the answer.
        is_progress: Whether it has never got as far as with its latest report.
        is_over: Whether it is gone, or about to be.
        shown_config: What it trains with, as text.
        ticks: How long an iteration takes.
        uploads: Checkpoints that it has reported and is still storing, oldest first, with the
            number of training steps in each.
        wanted: The lease that it has asked for and waits for, None for none.
        leased: The lease that it has, None for none.
        is_remnant: Whether it has lost processes with their node.
    """

    __slots__ = (
        "command",
        "is_over",
        "is_progress",
        "is_remnant",
        "is_waiting",
        "iteration",
        "leased",
        "next_checkpoint",
        "num_steps",
        "shown_config",
        "ticks",
        "uploads",
        "wanted",
    )

    def __init__(self, command: StartWorker, ticks: int) -> None:
        self.command = command
        self.shown_config = repr(command.config)
        self.iteration = command.checkpoint.iteration if command.checkpoint else 0
        self.num_steps = 0
        self.next_checkpoint = command.next_checkpoint
        self.is_waiting = self.is_over = self.is_progress = self.is_remnant = False
        self.ticks = ticks
        self.uploads: deque[tuple[CheckpointRecord, int]] = deque()
        self.wanted: LeaseRequested | None = None
        self.leased: Occupied | None = None

    @property
    def owner(self) -> LeaseOwner:
        return LeaseOwner(self.command.trial_id, self.command.attempt)

    @property
    def occupied(self) -> list[Occupied]:
        """What it holds, with what it has leased."""
        command = self.command
        share = command.group.resources_per_worker if command.group else command.resources
        count = command.group.num_workers if command.group else 1
        own = Occupied(share, count, command.gpu_ids)
        return [own, self.leased] if self.leased else [own]

    @property
    def trial_id(self) -> str:
        return self.command.trial_id


_Action = Callable[[_Worker], None]
_NO_WORKER = _Worker(StartWorker.of(Trial("", {}, {}), None), 0)
"""Placeholder in the agenda for actions that belong to no worker."""


@final
class FaultyExecutor:
    """See `Executor`; the driver may be killed at every command.

    Args:
        env: The environment.
    """

    def __init__(self, env: Environment) -> None:
        """Wait for commands."""
        self._env = env
        self._run_driver: dict[str, _Worker] = {}
        self._agenda: list[tuple[int, float, int, _Worker, _Action]] = []
        self._sequence = itertools.count()
        self._events: list[Event] = []
        self._unsaved: list[tuple[Trial, int]] = []
        self._is_awake = False
        self._nodes = FaultyNodes(env, self._emit, self.call_later, self._lose_node)
        self._validators = FaultyValidators(
            env, self._emit, self.call_later, self._nodes.is_draining
        )

    def _emit(self, event: Event) -> None:
        self._events.append(event)

    # the executor's methods

    def capacity(self) -> Mapping[str, float]:
        """See `Executor.capacity`."""
        return self._env.scenario.capacity

    def clock(self) -> float:
        """See `Executor.clock`."""
        return self._env.now * TICK_S

    def wake(self) -> None:
        """See `Executor.wake`."""
        self._is_awake = True

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor.shutdown`."""
        self.kill_all()

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor.carry_out`."""
        for command in commands:
            self._env.step()
            match command:
                case AnswerReport():
                    self._answer(command)
                case StartWorker():
                    self._start(command)
                case KillWorker():
                    self._kill(command)
                case GrantLease() | RefuseLease():
                    self._answer_lease(command)
                case StartValidation():
                    self._nodes.on_validation(command)
                    self._validators.start(command)
                    self._check_occupied()
                case KillValidation():
                    self._validators.kill(command)
                case ListCheckpoints():
                    raise NotImplementedError(command)  # no simulated worker asks for it
                case _:
                    assert_never(command)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor.wait`."""
        env = self._env
        env.num_turns += 1
        invariants.turns_are_bounded(env)
        if env.violations:
            raise env.violations[0]
        env.step()
        # Else the core is no longer notified when trials exit.
        if env.experiment and not env.disk.has_moved:
            invariants.pauses_have_checkpoints(env.experiment)
            cross_trial_invariants.no_trial_waits_for_an_existing_checkpoint(env.experiment)
            cross_trial_invariants.record_paused_trials(env)
            invariants.failed_saves_are_charged(env, self._unsaved)
        self._unsaved = []
        # Else the driver knows already that something has changed.
        if env.num_turns % env.check_every == 0 and timeout_s != 0.0:
            self._check_all()
        env.rest()
        if not self._events and not self._is_awake:
            self._advance(
                math.inf if timeout_s is None else env.now + math.ceil(timeout_s / TICK_S)
            )
            env.rest()
        self._is_awake = False
        events, self._events = self._events, []
        return events

    def _check_all(self) -> None:
        experiment = self._env.experiment
        if experiment is None or self._env.disk.has_moved:
            return
        invariants.transitions_are_legal(experiment)
        invariants.needed_checkpoints_exist(self._env, experiment)
        invariants.running_trials_match_workers(experiment, self._attempts())
        invariants.retention_is_kept(self._env, experiment)
        cross_trial_invariants.leases_have_readers(experiment)
        self._nodes.check_demand()
        for trial in experiment.trials:
            invariants.only_own_failures_are_charged(self._env, trial)

    def _attempts(self) -> dict[str, int]:
        return {trial_id: worker.command.attempt for trial_id, worker in self._run_driver.items()}

    # time

    def _advance(self, until: float) -> None:
        env, agenda = self._env, self._agenda
        while agenda and agenda[0][0] <= until:
            at, _, _, worker, act = heapq.heappop(agenda)
            env.now = max(at, env.now)
            act(worker)
            # What falls on the same moment belongs to the same turn.
            if self._events or self._is_awake:
                until = env.now
        if not (self._events or self._is_awake):
            experiment = env.experiment
            is_up_to_the_user = experiment is not None and bool(experiment.trial_table.held)
            invariants.require(
                "I9",
                until < math.inf or is_up_to_the_user,
                "the driver waits for ever, although nothing is going to happen",
            )
            env.now = int(until) if until < math.inf else env.now + 1

    def call_later(self, ticks: int, call: Callable[[], None]) -> None:
        """Make a call after a number of ticks."""
        self._later(ticks, _NO_WORKER, lambda _: call())

    def _later(self, ticks: int, worker: _Worker, act: _Action) -> None:
        # What is due at the same moment happens in any order.
        heapq.heappush(
            self._agenda,
            (
                self._env.now + ticks,
                self._env.rng.random(),
                next(self._sequence),
                worker,
                act,
            ),
        )

    # commands

    def _start(self, command: StartWorker) -> None:
        env = self._env
        attempts = self._attempts()
        invariants.written_before_acted(env, command)
        invariants.one_worker_per_trial(command, attempts)
        invariants.starts_from_a_good_checkpoint(env, command)
        cross_trial_invariants.exploits_start_as_decided(env, command)
        invariants.budget_is_kept(env, command)
        invariants.finished_trials_stay_finished(env, command)
        self._begin_count_of_losses(command)
        invariants.losses_are_limited(env, command)
        self._nodes.on_start(command)
        worker = self._run_driver[command.trial_id] = _Worker(command, env.rng.choice(_PACES))
        self._check_occupied()
        invariants.size_is_allowed(command)
        match env.faults.draw(FaultPoint.START):
            case Fault.START_FAILS:
                self._later(2, worker, self._crash)
            case Fault.START_HANGS:
                pass
            case _:
                self._later(env.rng.randint(0, 4), worker, self._begin)

    def _begin_count_of_losses(self, command: StartWorker) -> None:
        """Begin to count the losses of a trial again if it has exploited another one."""
        experiment, ack_log = self._env.experiment, self._env.ack_log
        if experiment is None:
            return
        trial = experiment.trial_table[command.trial_id]
        farthest = max(ack_log.farthest[trial.trial_id], trial.farthest_iteration)
        ack_log.farthest[trial.trial_id] = farthest
        if ack_log.num_exploits[trial.trial_id] != len(trial.grafts):
            ack_log.num_exploits[trial.trial_id] = len(trial.grafts)
            ack_log.lost_in_row[trial.trial_id] = 0

    def _answer(self, command: AnswerReport) -> None:
        env, worker = self._env, self._run_driver.get(command.trial_id)
        if worker is None or worker.command.attempt != command.attempt or not worker.is_waiting:
            return
        if env.disk.has_moved:
            invariants.require(
                "I15", command.reply is ReportReply.STOP, "%s, though its journal is gone", command
            )
            worker.is_waiting = False
            env.seen["stopped without a journal"] += 1
            if command.save:
                self._save(worker, self._leave)
            else:
                self._leave(worker)
            return
        self._nodes.on_answer(command, worker.command.nodes)
        report = ReportKey(command.trial_id, command.attempt, worker.iteration)
        invariants.answered_reports_are_written(env, report)
        env.ack_log.acknowledged.append(report)
        if worker.is_progress:
            env.ack_log.num_lost[worker.trial_id] = 0
        if env.scenario.durability == "strict":
            env.ack_log.num_safe = len(env.ack_log.acknowledged)
        worker.is_waiting = False
        if command.reply is not ReportReply.CONTINUE or command.save:
            invariants.written_before_acted(env, command)
        if command.reply is ReportReply.STOP:
            env.ack_log.discarded.add(command.trial_id)
        go_on = self._train if command.reply is ReportReply.CONTINUE else self._leave
        if command.save:
            self._save(worker, go_on)
        else:
            go_on(worker)

    def _kill(self, command: KillWorker) -> None:
        invariants.written_before_acted(self._env, command)
        worker = self._run_driver.get(command.trial_id)
        if worker and worker.command.attempt == command.attempt and not worker.is_over:
            worker.is_over = True
            self._later(
                1,
                worker,
                lambda killed: self._exit(
                    killed, Outcome.KILLED, Failure("killed", command.reason)
                ),
            )

    # what workers do

    def _begin(self, worker: _Worker) -> None:
        if worker.is_over:
            return
        if worker.command.checkpoint:
            invariants.checkpoint_is_readable(self._env, worker.command)
            saved = self._env.checkpoints.find(worker.command.source_id, worker.command.checkpoint)
            worker.num_steps = saved.num_steps if saved else 0
        self._events.append(WorkerStarted(worker.trial_id, worker.command.attempt, 1))
        self._train(worker)

    def _train(self, worker: _Worker) -> None:
        env = self._env
        if worker.num_steps >= env.scenario.num_iterations:
            self._later(env.rng.choice(_EXIT_TICKS), worker, self._complete)
            return
        if worker.leased is None and self._happens(lambda training: training.lease_rate):
            self._later(1, worker, self._ask_for_lease)
        else:
            self._take_step(worker)

    def _take_step(self, worker: _Worker) -> None:
        env = self._env
        if worker.is_over:
            return
        ticks = worker.ticks + (env.rng.random() < 0.2)
        match env.faults.draw(FaultPoint.REPORT):
            case None:
                self._later(ticks, worker, self._report)
            case Fault.WORKER_HANGS:
                pass
            case Fault.WORKER_SLOW:
                self._later(ticks + _SLOW_TICKS, worker, self._report)
            case fault:
                self._later(ticks, worker, _FAULT_ACTIONS[fault].__get__(self))

    def _report(self, worker: _Worker) -> None:
        if worker.is_over:
            return
        metrics = self._step(worker)
        ack_log = self._env.ack_log
        ack_log.lost_in_row[worker.trial_id] = 0
        worker.is_progress = worker.iteration > ack_log.farthest[worker.trial_id]
        if worker.is_progress:
            ack_log.farthest[worker.trial_id] = worker.iteration
        every = self._env.scenario.checkpoint_every
        is_due = (
            every and not self._env.scenario.can_save_on_demand and worker.iteration % every == 0
        )
        who = (worker.trial_id, worker.command.attempt)
        validating = self._env.scenario.validating
        if validating and self._env.rng.random() < validating.rate:
            self._report_for_validation(worker, metrics, is_late=validating.is_late)
        elif is_due and self._happens(lambda training: training.upload_rate):
            self._events.append(ResultReported(*who, metrics, upload=self._begin_upload(worker)))
        else:
            checkpoint = self._checkpoint(worker) if is_due else None
            if checkpoint:
                self._events.append(CheckpointStarted(*who))
            self._events.append(ResultReported(*who, metrics, checkpoint))
        worker.is_waiting = True

    def _report_for_validation(
        self, worker: _Worker, metrics: dict[str, Any], *, is_late: bool
    ) -> None:
        """Report a checkpoint, which may still be stored, and ask for its validation."""
        who = (worker.trial_id, worker.command.attempt)
        key = worker.trial_id, worker.next_checkpoint
        self._env.ack_log.losses[key] = metrics["loss"]
        if is_late:
            del metrics["loss"]
        if self._happens(lambda training: training.upload_rate):
            upload, stored = self._begin_upload(worker), None
        else:
            upload, stored = None, self._commit(worker)
            self._emit(CheckpointStarted(*who))
        request = ValidationRequest()
        self._emit(ResultReported(*who, metrics, stored, upload=upload, validation=request))

    def _step(self, worker: _Worker) -> dict[str, Any]:
        worker.iteration += self._env.scenario.stride
        worker.num_steps += 1
        env, trial_id = self._env, worker.trial_id
        value = env.value_of(trial_id, worker.command.config, worker.num_steps)
        invariants.training_is_deterministic(
            env,
            ReportKey(trial_id, worker.command.attempt, worker.iteration),
            worker.shown_config,
            value,
        )
        wall_s = round(env.now * TICK_S + env.wall_offset_s, 3)
        return {
            "training_iteration": worker.iteration,
            "loss": value,
            "timestamp": wall_s,
            "time_total_s": STEP_S * worker.iteration,
        }

    def _commit(self, worker: _Worker) -> CheckpointRecord:
        record = self._next_record(worker)
        saved = SavedCheckpoint(worker.command.attempt, worker.num_steps)
        self._env.checkpoints.commit(worker.trial_id, record.index, saved)
        return record

    def _checkpoint(self, worker: _Worker) -> CheckpointRecord:
        """Store a checkpoint, or report one that is nowhere."""
        if not self._happens(lambda training: training.placeholder_rate):
            return self._commit(worker)
        self._env.seen["placeholder reported"] += 1
        return replace(self._next_record(worker), is_placeholder=True)

    def _next_record(self, worker: _Worker) -> CheckpointRecord:
        index = worker.next_checkpoint
        worker.next_checkpoint += 1
        return CheckpointRecord(index, worker.iteration, 0.1 * worker.iteration, {})

    def _begin_upload(self, worker: _Worker) -> int:
        record = self._next_record(worker)
        if self._happens(lambda training: training.loss_rate):
            self._env.ack_log.failed_saves.add(worker.trial_id)
            self._env.seen["upload never finished"] += 1
        else:
            worker.uploads.append((record, worker.num_steps))
            self._later(self._env.rng.choice(_UPLOAD_TICKS), worker, self._finish_upload)
        return record.index

    def _finish_upload(self, worker: _Worker) -> None:
        """Finish the oldest upload; workers that leave have finished all."""
        if worker.is_over or not worker.uploads:
            return
        record, num_steps = worker.uploads.popleft()
        saved = SavedCheckpoint(worker.command.attempt, num_steps)
        self._env.checkpoints.commit(worker.trial_id, record.index, saved)
        self._env.seen["upload finished"] += 1
        self._events.append(CheckpointCommitted(worker.trial_id, worker.command.attempt, record))

    def _happens(self, rate_of: Callable[[Training], float]) -> bool:
        """Draw whether something happens that does only where trials train in groups."""
        training = self._env.scenario.training
        return training is not None and self._env.rng.random() < rate_of(training)

    # leases

    def _ask_for_lease(self, worker: _Worker) -> None:
        rng, training = self._env.rng, self._env.scenario.training
        if worker.is_over or training is None:
            return
        fewest = rng.randint(1, training.max_workers)
        share = {"cpu": 1.0} | ({"gpu": training.gpu_share} if rng.random() < 0.3 else {})
        group = WorkerGroup(fewest, share, fewest, fewest + rng.randint(0, 1))
        worker.wanted = LeaseRequested(worker.owner, f"{next(self._sequence)}", group)
        self._env.seen["lease requested"] += 1
        self._events.append(worker.wanted)

    def _answer_lease(self, command: GrantLease | RefuseLease) -> None:
        invariants.written_before_acted(self._env, command)
        worker = self._run_driver.get(command.owner.trial_id)
        wanted = worker.wanted if worker else None
        if worker is None or wanted is None:
            return
        if (wanted.owner, wanted.token) != (command.owner, command.token):
            return
        worker.wanted = None
        if isinstance(command, RefuseLease):
            self._env.seen[f"lease refused, deadlock: {command.is_deadlock}"] += 1
            self._later(1, worker, self._take_step)
            return
        self._env.seen["lease granted"] += 1
        share = wanted.group.resources_per_worker
        worker.leased = Occupied(share, command.num_workers, command.gpu_ids)
        self._check_occupied()
        self._later(
            self._env.rng.choice(_LEASE_TICKS),
            worker,
            lambda holder: self._release(holder, command.token),
        )

    def _release(self, worker: _Worker, token: str) -> None:
        if worker.is_over:
            return
        if self._env.rng.random() < 0.8:  # else it ends with the process
            worker.leased = None
            self._events.append(LeaseReleased(worker.owner, token))
        self._take_step(worker)

    def _check_occupied(self) -> None:
        if self._env.scenario.clustering is None:
            occupied = [part for worker in self._run_driver.values() for part in worker.occupied]
            invariants.nothing_is_granted_twice(self._env.scenario.capacity, occupied)
            return
        parts = [part for worker in self._run_driver.values() for part in parts_of(worker.command)]
        parts += [
            (worker.command.node, worker.leased)
            for worker in self._run_driver.values()
            if worker.leased
        ]
        self._nodes.check_room(parts, self._validators.running)

    def _save(self, worker: _Worker, go_on: _Action) -> None:
        match self._env.faults.draw(FaultPoint.SAVE):
            case Fault.SAVE_FAILS:
                self._later(1, worker, lambda saving: self._saved(saving, go_on, fails=True))
            case Fault.SAVE_HANGS:
                pass
            case Fault.SAVE_RAISES:
                self._later(1, worker, self._fail_to_save)
            case _:
                self._later(1, worker, lambda saving: self._saved(saving, go_on))

    def _saved(self, worker: _Worker, go_on: _Action, *, fails: bool = False) -> None:
        if worker.is_over:
            return
        who = (worker.trial_id, worker.command.attempt)
        if fails:
            self._env.ack_log.failed_saves.add(worker.trial_id)
        self._events.append(CheckpointStarted(*who))
        self._events.append(
            CheckpointFailed(*who, _CRASH) if fails else CheckpointSaved(*who, self._commit(worker))
        )
        go_on(worker)

    def _fail_to_save(self, worker: _Worker) -> None:
        if worker.is_over:
            return
        ack_log, experiment = self._env.ack_log, self._env.experiment
        if experiment:
            trial = experiment.trial_table[worker.trial_id]
            if trial.intention and trial.intention.reason.rule == USER_STOP:
                ack_log.given_up_by_user.add(worker.trial_id)
            self._unsaved.append((trial, trial.num_failures))
        # Its last checkpoint is missing, so it may be retried.
        ack_log.discarded.discard(worker.trial_id)
        self._exit(worker, Outcome.UNSAVED, _CRASH)

    def _leave(self, worker: _Worker) -> None:
        match self._env.faults.draw(FaultPoint.EXIT):
            case Fault.STOP_IGNORED:
                pass
            case Fault.CRASH_WHILE_STOPPING:
                self._later(1, worker, self._crash)
            case _:
                self._later(
                    self._env.rng.randint(0, 3),
                    worker,
                    lambda leaving: self._exit_if_running(leaving, Outcome.STOPPED),
                )

    def _complete(self, worker: _Worker) -> None:
        self._exit_if_running(worker, Outcome.COMPLETED)

    def _exit_if_running(
        self, worker: _Worker, outcome: Outcome, failure: Failure | None = None
    ) -> None:
        if worker.is_over:
            return
        while outcome is not Outcome.FAILED and outcome is not Outcome.LOST and worker.uploads:
            self._finish_upload(worker)
        self._exit(worker, outcome, failure)

    def _exit(self, worker: _Worker, outcome: Outcome, failure: Failure | None = None) -> None:
        if self._run_driver.get(worker.trial_id) is not worker:
            return  # it was killed, and lost with its node before it was gone
        worker.is_over = True
        del self._run_driver[worker.trial_id]
        ack_log = self._env.ack_log
        is_evacuated = failure is not None and failure.message.startswith("its node is going to")
        self._env.seen["killed before its node leaves"] += is_evacuated
        ack_log.own_failures[worker.trial_id] += not is_evacuated and outcome in {
            Outcome.FAILED,
            Outcome.UNSAVED,
            Outcome.KILLED,
        }
        ack_log.all_failures[worker.trial_id] += failure is not None and outcome is not Outcome.LOST
        ack_log.num_lost[worker.trial_id] += outcome is Outcome.LOST
        ack_log.lost_in_row[worker.trial_id] += outcome is Outcome.LOST
        self._events.append(WorkerExited(worker.trial_id, worker.command.attempt, outcome, failure))

    # faults

    def _crash(self, worker: _Worker) -> None:
        self._exit_if_running(worker, Outcome.FAILED, _CRASH)

    def _crash_behind_report(self, worker: _Worker) -> None:
        self._report(worker)
        self._crash(worker)

    def _crash_behind_rename(self, worker: _Worker) -> None:
        if not worker.is_over:
            self._step(worker)
            self._commit(worker)
            self._crash(worker)

    def _lose_node(self, name: str, is_announced: bool) -> None:
        """End all workers on a node; nothing more is heard of them, but of groups in their end."""
        self._validators.lose_node(name, is_announced=is_announced)
        for worker in [each for each in self._run_driver.values() if name in each.command.nodes]:
            is_remnant, worker.is_remnant = worker.is_remnant, True
            if not (is_announced or is_remnant):
                self._env.ack_log.num_lost[worker.trial_id] += 1
                self._env.ack_log.lost_in_row[worker.trial_id] += 1
            self._env.seen["lost with its node"] += not is_remnant
            was_over, worker.is_over = worker.is_over, True
            worker.leased = worker.wanted = None
            if not self._nodes.has_any(worker.command.nodes):
                del self._run_driver[worker.trial_id]
            elif not (is_remnant or was_over):
                self._env.seen["group lost in part"] += 1
                is_told = self._env.rng.random() < 0.8
                ticks = self._env.rng.choice(_REMNANT_TICKS) if is_told else _UNHEARD_TICKS
                self._later(ticks, worker, functools.partial(self._end_remnant, is_told=is_told))

    def _end_remnant(self, worker: _Worker, *, is_told: bool) -> None:
        """End what is left of a group, perhaps without a word."""
        if self._run_driver.get(worker.trial_id) is not worker:
            return
        del self._run_driver[worker.trial_id]
        if is_told:
            key = worker.trial_id, worker.command.attempt
            self._events.append(WorkerExited(*key, Outcome.LOST, Failure("lost", "")))

    def _lose(self, worker: _Worker) -> None:
        self._exit_if_running(worker, Outcome.LOST, Failure("lost", "the machine is gone"))

    def _send_malformed_message(self, worker: _Worker) -> None:
        """Send a garbled message; the engine kills a worker whose message does not parse."""
        if worker.is_over:
            return
        metrics = self._step(worker)
        frame = bytearray(strict_json.dumps({"kind": "result", "metrics": metrics}).encode())
        place = self._env.rng.randrange(len(frame))
        frame[place : place + self._env.rng.randint(0, 3)] = (
            b'}{"x' if self._env.rng.random() < 0.5 else b""
        )
        try:
            event = to_event(
                worker.trial_id, worker.command.attempt, strict_json.loads(bytes(frame))
            )
        except ValueError as error:
            self._exit_if_running(worker, Outcome.FAILED, Failure("MalformedMessage", str(error)))
            return
        # It happens to parse, and is dropped; only the crash matters then.
        del event
        self._crash(worker)

    def _crash_and_send_late(self, worker: _Worker) -> None:
        """Crash, and send a message later, when another attempt may already be running."""
        if worker.is_over:
            return
        self._crash(worker)
        self._later(self._env.rng.choice((1, 3, 10, 40)), worker, self._send_stale_message)

    def _send_stale_message(self, worker: _Worker) -> None:
        who, rng = (worker.trial_id, worker.command.attempt), self._env.rng
        metrics = {"training_iteration": worker.iteration + 1, "loss": -1.0, STALE: True}
        ghost = CheckpointRecord(99, worker.iteration + 1)
        messages: list[Event] = [
            ResultReported(*who, metrics),
            ResultReported(*who, metrics),
            CheckpointSaved(*who, ghost),
            WorkerStarted(*who, 1),
            WorkerExited(*who, Outcome.FAILED, _CRASH),
        ]
        if self._env.scenario.training:
            messages += [
                CheckpointCommitted(*who, ghost),
                LeaseRequested(worker.owner, "ghost", WorkerGroup(1, {"cpu": 1.0}, 1, 1)),
                LeaseReleased(worker.owner, "ghost"),
            ]
        self._events.append(rng.choice(messages))

    def kill_all(self) -> None:
        """Kill all workers; some have just renamed a checkpoint that was not reported."""
        scenario, rng = self._env.scenario, self._env.rng
        for worker in self._run_driver.values():
            is_saving = scenario.checkpoint_every and not worker.is_waiting and worker.num_steps
            if is_saving and rng.random() < 0.3:
                worker.num_steps += 1
                self._commit(worker)
            worker.is_over = True
        self._run_driver.clear()
        self._validators.kill_all()
        self._agenda.clear()
        self._events.clear()
        self._unsaved.clear()


_FAULT_ACTIONS: Mapping[Fault, Any] = {
    Fault.WORKER_CRASHES: FaultyExecutor._crash,
    Fault.WORKER_CRASHES_IN_CHECKPOINT: FaultyExecutor._crash,
    Fault.WORKER_CRASHES_BEHIND_REPORT: FaultyExecutor._crash_behind_report,
    Fault.WORKER_CRASHES_BEHIND_RENAME: FaultyExecutor._crash_behind_rename,
    Fault.WORKER_LOST: FaultyExecutor._lose,
    Fault.STALE_MESSAGE: FaultyExecutor._crash_and_send_late,
    Fault.MALFORMED_FRAME: FaultyExecutor._send_malformed_message,
}


@final
class DelayedCalls(BackgroundJobs):
    """Calls the searcher in order, each time after a delay, without a thread.

    Args:
        env: The environment.
        workers: Whose time it is called in.
    """

    def __init__(self, env: Environment, workers: FaultyExecutor) -> None:
        """Wait for the first call."""
        super().__init__("searcher", num_threads=0)
        self._workers = workers
        self._rng = env.scenario.rng("searcher")
        self._calls: deque[Callable[[], object]] = deque()

    def submit(self, job: Callable[[], object]) -> None:
        """See `BackgroundJobs.submit`."""
        self._calls.append(job)
        self._workers.call_later(self._rng.choice(_SEARCH_TICKS), self._make_next)

    def wait(self, timeout_s: float | None = None, *, num_left: int = 0) -> bool:
        """See `BackgroundJobs.wait`; sometimes it takes too long."""
        while self._calls and (timeout_s is None or self._rng.random() < 0.5):
            self._make_next()
        return not self._calls

    def close(self, timeout_s: float | None = None, *, drops_queued: bool = False) -> bool:
        """See `BackgroundJobs.close`."""
        self._calls.clear()
        return True

    def _make_next(self) -> None:
        if self._calls:
            self._calls.popleft()()
