"""Populations in virtual time: real training, the real core and scheduler, no processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.random import Generator, default_rng

import tuner as tune
from schedulers.scheduler import Scheduler
from tuner.callbacks.callback_list import CallbackList
from tuner.core.commands import StartWorker
from tuner.core.experiment import Experiment
from tuner.core.worker_records import CheckpointRecord
from tuner.driver.assembly import assemble
from tuner.driver.driver import VIRTUAL_TIME
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.restore.search_adapter import SearchAdapter
from tuner.spec.experiment_spec import make_spec
from tuner.testing.simulation import NOWHERE, MemoryLog, simulated_settings
from tuner.virtual.executor import VirtualExecutor, VirtualWorker

from .problems import Problem, State

MAX_SLOWNESS = 3.0
"""How much longer the slowest member may take than the fastest, asynchronously."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a population has ended.

    Attributes:
        score: The score of the member with the least loss.
        duration: How long it took, in epochs of the fastest possible member.
        num_clones: How many clones there were.
    """

    score: float
    duration: float
    num_clones: int


def run_population(
    problem: Problem, scheduler: Scheduler, seed: int, *, num_members: int, is_asynchronous: bool
) -> Outcome:
    """Train a population and return how it has ended.

    Args:
        problem: What to train.
        scheduler: The method, for the metric ``"loss"``; its ``time_attr`` is
            ``"training_iteration"``.
        seed: Seed of the experiment, of the training and of the members' speeds.
        num_members: Size of the population; all members run at once.
        is_asynchronous: Whether members have different speeds.
    """
    spec = make_spec(
        _no_training,
        dict(problem.space),
        tune.TuneConfig(
            metric="loss", mode="min", num_samples=num_members, scheduler=scheduler, seed=seed
        ),
        tune.RunConfig(stop={"training_iteration": problem.num_epochs}),
    )
    spec.connect()
    durations = durations_of(seed, num_members, is_asynchronous=is_asynchronous)
    executor = PopulationExecutor(problem, seed, durations)
    experiment = Experiment(
        simulated_settings(spec, executor.capacity()), spec.scheduler, spec.stopper
    )
    suggestions = SuggestionQueue(
        SearchAdapter(spec.searcher, spec.space, spec.request_for, spec.group_for)
    )
    assembly = assemble(
        experiment,
        executor,
        MemoryLog(),
        suggestions,
        CallbackList(()),
        NOWHERE,
        timing=VIRTUAL_TIME,
    )
    assembly.driver.run()
    num_clones = sum(len(trial.grafts) for trial in experiment.trials)
    return Outcome(score_of_best(problem, executor.finished), executor.clock(), num_clones)


def durations_of(seed: int, num_members: int, *, is_asynchronous: bool) -> list[float]:
    """Return how long an epoch of each member usually takes: 1, or up to `MAX_SLOWNESS`."""
    if not is_asynchronous:
        return num_members * [1.0]
    return [MAX_SLOWNESS ** float(each) for each in default_rng([seed, 0]).random(num_members)]


def score_of_best(problem: Problem, finished: Sequence[State]) -> float:
    """Return the score of the state with the least loss."""
    best = min(finished, key=lambda state: np.nan_to_num(problem.loss(state), nan=np.inf))
    return problem.score(best)


def _no_training(config: Mapping[str, Any]) -> None:
    """Stand for the training function, which `PopulationExecutor` replaces."""


@final
class PopulationExecutor(VirtualExecutor):
    """Trains the members of a population in virtual time and keeps their checkpoints in memory.

    Args:
        problem: What to train.
        seed: Seed of the training.
        durations: How long an epoch of each member usually takes.

    Attributes:
        finished: The states that were trained to the end, and no further: a clone of a member that
            has ended trains for one more epoch.
        checkpoints: The states of all checkpoints, by trial and index.
    """

    def __init__(self, problem: Problem, seed: int, durations: list[float]) -> None:
        super().__init__({"cpu": float(len(durations))})
        self._problem, self._seed, self._durations = problem, seed, durations
        self.finished: list[State] = []
        self.checkpoints: dict[tuple[str, int], State] = {}

    def _new_worker(self, command: StartWorker) -> VirtualWorker:
        number = int(command.trial_id[1:])
        rng = default_rng([self._seed, 1, number, command.attempt])
        return _Member(command, self, self._problem, rng, self._durations[number])


@final
class _Member(VirtualWorker):
    """One attempt to train a member."""

    def __init__(
        self,
        command: StartWorker,
        executor: PopulationExecutor,
        problem: Problem,
        rng: Generator,
        duration_s: float,
    ) -> None:
        super().__init__(command)
        self._executor, self._problem, self._rng = executor, problem, rng
        self._duration_s = duration_s
        self._next_checkpoint = command.next_checkpoint
        self._epoch = 0
        self._time_s = 0.0
        self._state: State = ()

    def begin(self) -> None:
        """Begin anew, or from a checkpoint: its own or the donor's."""
        if checkpoint := self.command.checkpoint:
            self._state = self._executor.checkpoints[self.command.source_id, checkpoint.index]
            self._epoch, self._time_s = checkpoint.iteration, checkpoint.time_total_s
        else:
            self._state = self._problem.start(self._rng)

    def duration_s(self) -> float:
        """Return the member's time for an epoch."""
        return self._duration_s * self._problem.duration(self.command.config)

    def advance(self, elapsed_s: float) -> bool:
        """Train for an epoch."""
        with np.errstate(all="ignore"):
            self._state = self._problem.train(self._state, self.command.config, self._rng)
        self._epoch += 1
        self._time_s += elapsed_s
        return True

    def report(self) -> tuple[dict[str, Any], CheckpointRecord | None]:
        """Return the loss."""
        if self._epoch == self._problem.num_epochs:
            self._executor.finished.append(self._state)
        with np.errstate(all="ignore"):
            loss = self._problem.loss(self._state)
        return {
            "loss": loss,
            "training_iteration": self._epoch,
            "time_total_s": self._time_s,
        }, None

    def save(self) -> CheckpointRecord:
        """Keep the present state."""
        index = self._next_checkpoint
        self._next_checkpoint += 1
        self._executor.checkpoints[self.command.trial_id, index] = self._state
        return CheckpointRecord(index, self._epoch, self._time_s)
