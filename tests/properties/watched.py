"""Simulated experiments whose calls to workers and files and core state are checked each turn."""

from __future__ import annotations

import dataclasses
from collections import Counter
from unittest import mock

from tests.properties.world import BOOM, chance_from
from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import (
    CheckpointFailed,
    CheckpointLost,
    CheckpointSaved,
    ResultReported,
    StopRequested,
    WorkerExited,
)
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import ReportReply
from tuner.driver.assembly import assemble
from tuner.testing import simulation
from tuner.virtual.executor import SimulatedExecutor

MAX_TURNS = 20_000
"""Far more than any of these experiments takes if it ends."""
MAX_DAMAGES = 8
"""A trial that loses every checkpoint and is resized at each result never advances."""


@dataclasses.dataclass(frozen=True)
class Troubles:
    """Faults of an experiment beside those of its curves.

    Attributes:
        seed: What chance follows from.
        can_save: Whether trials save on demand; else they report checkpoints by themselves.
        reports_every: Every how many iterations they do so; 0 for never.
        failing_saves: Which share of saves fails.
        damaged: Which share of checkpoints turns out to be damaged when a trial is to start from
            them.
        interrupted_at: Turn at which the experiment is interrupted; None for never.
        is_urgent: Whether the interruption is urgent.
    """

    seed: int
    can_save: bool = True
    reports_every: int = 0
    failing_saves: float = 0.0
    damaged: float = 0.0
    interrupted_at: int | None = None
    is_urgent: bool = False


class Watch:
    """Wraps a simulated executor and checks that nothing impossible is requested of it.

    Attributes:
        num_turns: How often the driver has waited.
        seen: How often what has happened that a test may want to have seen.
    """

    def __init__(self, troubles):
        self.num_turns = 0
        self.seen = Counter()
        self._troubles = troubles
        self._chance = chance_from(f"{troubles.seed}/troubles")
        self._there = {}
        self._damaged = set()
        self._workers = {}
        self._fresh = {}
        self._starts = Counter()

    # Setup.

    def simulate(self, curves, **arguments):
        """Simulate an experiment under watch; return its outcome."""
        settings = simulation.simulated_settings

        def changed_settings(spec, capacity):
            declared = settings(spec, capacity)
            if self._troubles.can_save:
                return declared
            return dataclasses.replace(
                declared,
                checkpoints=dataclasses.replace(declared.checkpoints, can_save_on_demand=False),
            )

        with (
            mock.patch.object(simulation, "SimulatedExecutor", self._stand_before),
            mock.patch.object(simulation, "assemble", self._assemble),
            mock.patch.object(simulation, "simulated_settings", changed_settings),
        ):
            return simulation.simulate(curves, **arguments)

    def _stand_before(self, *arguments, **options):
        self._inner = SimulatedExecutor(*arguments, **options)
        return self

    def _assemble(self, experiment, *parts, **options):
        self.experiment = experiment
        assembly = assemble(experiment, *parts, **options, checkpoint_files=self)
        self.driver = assembly.driver
        return assembly

    def capacity(self):
        return self._inner.capacity()

    def clock(self):
        return self._inner.clock()

    def wake(self):
        self._inner.wake()

    # Calls of the driver.

    def carry_out(self, commands):
        for command in commands:
            match command:
                case StartWorker():
                    self._check_start(command)
                case AnswerReport():
                    assert not command.save or self._troubles.can_save, (
                        "a save is requested that no worker can do"
                    )
                    self.seen[f"verdict: {command.reply}"] += 1
                    self.seen["stay"] += command.stay
        self._inner.carry_out(commands)
        self._check_capacity()

    def _check_start(self, command):
        trial_id, checkpoint = command.trial_id, command.checkpoint
        assert trial_id not in self._workers, f"two live attempts of {trial_id}"
        self._starts[trial_id] += 1
        assert (trial_id, command.next_checkpoint) not in self._there, (
            f"{trial_id} is going to overwrite a checkpoint"
        )
        self._workers[trial_id] = command
        if checkpoint is not None:
            key = (command.source_id, checkpoint.index)
            assert self._there.get(key) == checkpoint.iteration, (
                f"{trial_id} starts from {key}, which is not there"
            )
            self._fresh[trial_id] = key
            self.seen["started from a donor"] += command.source_id != trial_id
            self.seen["started from its own"] += command.source_id == trial_id

    def _check_capacity(self):
        used = Counter()
        for command in self._workers.values():
            used.update(command.resources)
        for name, amount in used.items():
            assert amount <= self.capacity().get(name, 0.0) + 1e-6, (
                f"{amount} of {name} in use, there is {self.capacity()}"
            )
        limit = self.experiment.settings.max_concurrent
        assert limit is None or len(self._workers) <= limit, "too many at once"

    def delete(self, trial_id, checkpoint):
        key = (trial_id, checkpoint.index)
        assert self._there.pop(key, None) == checkpoint.iteration, (
            f"{key} is deleted, but was not there"
        )
        readers = [reader for reader, read in self._fresh.items() if read == key]
        assert not readers, f"{key} is deleted while {readers} start from it"
        self.seen["deleted"] += 1

    def discard_unfinished(self, trial_id, attempt):
        pass

    def find_damage(self, owner_id, checkpoint):
        key = (owner_id, checkpoint.index)
        if (
            len(self._damaged) < MAX_DAMAGES
            and chance_from(f"{self._troubles.seed}/{key}").random() < self._troubles.damaged
        ):
            self._damaged.add(key)
        if key not in self._damaged:
            return ""
        self.seen["damaged"] += 1
        self._there.pop(key, None)  # two may start from it in one turn
        return "a byte was flipped"

    # Events of the executor.

    def wait(self, timeout_s):
        self.num_turns += 1
        assert self.num_turns < MAX_TURNS, f"the experiment does not end: {self.experiment.trials}"
        self._check_books()
        if self.num_turns == self._troubles.interrupted_at:
            self.seen["interrupted"] += 1
            self.driver.request_stop(StopRequested("signal.SIGINT", self._troubles.is_urgent))
        return [self._changed(event) for event in self._inner.wait(timeout_s)]

    def _changed(self, event):
        match event:
            case ResultReported():
                self._fresh.pop(event.trial_id, None)
                return self._with_checkpoint(event)
            case CheckpointSaved() if self._chance.random() < self._troubles.failing_saves:
                self.seen["save failed"] += 1
                return CheckpointFailed(event.trial_id, event.attempt, BOOM)
            case CheckpointSaved():
                self._keep(event.trial_id, event.checkpoint)
            case WorkerExited():
                self._workers.pop(event.trial_id, None)
                self._fresh.pop(event.trial_id, None)
        return event

    def _with_checkpoint(self, event):
        every = self._troubles.reports_every
        if self._troubles.can_save or not every or event.metrics["training_iteration"] % every:
            return event
        checkpoint = self._inner._workers[event.trial_id, event.attempt].save()
        self._keep(event.trial_id, checkpoint)
        return dataclasses.replace(event, checkpoint=checkpoint)

    def _keep(self, trial_id, checkpoint):
        key = (trial_id, checkpoint.index)
        assert key not in self._there, f"{key} is overwritten"
        self._there[key] = checkpoint.iteration

    # Invariants.

    def _check_books(self):
        experiment = self.experiment
        experiment.check()
        for trial in experiment.trials:
            assert trial.is_finished or not trial.exploit or trial.status is not Status.PENDING, (
                "it waits and is ready to start"
            )
            for reader, index in trial.leases.items():
                self._check_lease(trial, reader, index)
            for checkpoint in trial.checkpoints:
                is_lost = self._is_being_lost(trial.trial_id, checkpoint.index)
                assert (
                    is_lost
                    or self._there.get((trial.trial_id, checkpoint.index)) == checkpoint.iteration
                ), "a checkpoint is not there"
            limit = experiment.settings.checkpoints.retention.num_to_keep
            assert limit is None or len(trial.checkpoints) <= limit + 1 + len(trial.leased), (
                "too many checkpoints are kept"
            )

    def _is_being_lost(self, trial_id, index):
        lost = [answer for answer in self.driver._answers if isinstance(answer, CheckpointLost)]
        return any((answer.trial_id, answer.index) == (trial_id, index) for answer in lost)

    def _check_lease(self, donor, reader, index):
        """A leased checkpoint belongs to a trial that starts from it, or may yet have to."""
        assert index in {checkpoint.index for checkpoint in donor.checkpoints}, (
            f"{reader!r} has leased what {donor} does not have"
        )
        if not reader:
            assert donor.status is Status.RUNNING, f"{donor} has leased a start and does not run"
            return
        trial = self.experiment.trial_table[reader.removesuffix(" to be")]
        if reader == trial.trial_id:
            assert trial.graft, f"{reader} has leased what it has no use for"
            assert (trial.graft.donor_id, trial.graft.checkpoint.index) == (donor.trial_id, index)
        else:
            assert trial.exploit, f"{reader!r} has leased what it has no use for"
            assert (trial.exploit.donor_id, trial.exploit.checkpoint) == (donor.trial_id, index)

    def check_end(self, outcome):
        """Check that every trial has ended, or is paused in an interrupted experiment."""
        self._check_books()
        assert not self._workers, "a worker still runs"
        reason = self.experiment.stop_reason
        stopping = self.experiment._stopping
        is_interrupted = stopping is not None and stopping.ending is TerminationReason.INTERRUPTED
        left = self.experiment.trial_table.left
        assert stopping or not left, "left for a next session, and this one does not stop"
        for trial in outcome.grid.trials:
            is_paused = is_interrupted and trial.status is Status.PAUSED
            assert trial.is_finished or is_paused or trial.trial_id in left, (
                f"{trial} is left alone; {reason}"
            )
            assert trial.attempt == self._starts[trial.trial_id] + self._num_not_started(
                outcome, trial
            )
            assert trial.exploit is None or trial.status is Status.PAUSED, (
                f"{trial} is over and waits"
            )
            assert trial.worker.value == "ABSENT"
            assert trial.is_finished == (trial.ending is not None)
        assert outcome.stall == "", outcome.stall
        why = self.experiment.fatal_error or ""
        # Trials may report anything but one of several metrics, or nothing.
        is_reported = "and no trial has reported " not in why
        assert not why or not self._troubles.can_save or not is_reported, why
        pauses = self.seen[f"verdict: {ReportReply.PAUSE}"]
        assert not pauses or self._troubles.can_save or self._troubles.reports_every

    @staticmethod
    def _num_not_started(outcome, trial):
        """Return the number of attempts that never began, since their checkpoint was damaged."""
        lost = [
            entry.event
            for entry in outcome.history
            if isinstance(entry.event, WorkerExited) and entry.event.failure
        ]
        return sum(
            event.trial_id == trial.trial_id and event.failure.kind == "CheckpointLost"
            for event in lost
        )
