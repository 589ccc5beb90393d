"""Small engine without processes and clock, which calls a scheduler in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, final

from schedulers import Decision, Exploit, Pause, Resize, Resume, Save, Scheduler, Stop, TrialView
from tuner.core.trial import Status

ResultOf = Callable[[int, int], dict[str, Any]]
"""Makes the result of trial number `n` (from 0) at training iteration `t` (from 1)."""


@dataclass(slots=True)
class RehearsedTrial:
    """A trial without a process, as a scheduler sees it.

    Attributes:
        number: Which trial it is, from 0.
        config: Its hyperparameters.
        time: Its training iteration, 0 before the first result.
        status: Its status.
        resources: Its resources.
        checkpoints: Training iterations of its checkpoints.
        has_crashed: Whether it has crashed and been retried.
        trial_id: The trial's id, as the engine makes it.
    """

    number: int
    config: Mapping[str, Any] = field(default_factory=dict)
    time: int = 0
    status: Status = Status.PENDING
    resources: Mapping[str, float] = field(default_factory=lambda: {"cpu": 1.0})
    checkpoints: list[int] = field(default_factory=list)
    has_crashed: bool = False
    trial_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.trial_id = f"t{self.number:05d}"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint."""
        return bool(self.checkpoints)

    @property
    def checkpoint_index(self) -> int | None:
        """Index of the latest checkpoint, None without one."""
        return len(self.checkpoints) - 1 if self.checkpoints else None

    @property
    def checkpoint_iteration(self) -> int | None:
        """Training iteration of the latest checkpoint, None without one."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def is_finished(self) -> bool:
        """Whether the trial will never run again."""
        return self.status in (Status.TERMINATED, Status.ERROR)


def rising(number: int, time: int) -> dict[str, Any]:
    """Return a result whose score rises towards the trial's plateau; larger is better."""
    plateau = (number * 7 % 11 + 1) / 11
    return {
        "training_iteration": time,
        "time_total_s": 10.0 * time,
        "score": plateau * time / (time + 2),
    }


@final
class RehearsedExperiment:
    """The rehearsed experiment, as a scheduler sees it."""

    can_save_on_demand = True

    def __init__(self, trials: Mapping[str, TrialView], num_trials: int, num_slots: int) -> None:
        self.trials: Mapping[str, TrialView] = MappingProxyType(trials)
        self.max_trials: int | None = num_trials
        self.resources: Mapping[str, float] = {"cpu": float(num_slots)}
        self.node_resources = self.resources

    @property
    def no_more_trials(self) -> bool:
        """Whether all trials have been added."""
        return len(self.trials) == self.max_trials


@final
class Rehearsal:
    """Runs trials in rounds, calls the scheduler and carries out its decisions.

    Trial 1 fails at its third result without a retry, trial 2 ends without a result, trial 3
    crashes at its fifth result and repeats two results, and the others train until the end or
    until they are stopped.

    Args:
        scheduler: The scheduler.
        result_of: Makes the results of trials.
        num_trials: How many trials there are.
        num_results: How many results a trial reports unless it is stopped.
        num_slots: How many trials run at once.
        config: The hyperparameters of every trial.

    Attributes:
        after_fact: Called after each fact with the rehearsal, e.g. to replace the scheduler.
        repeats_results: Whether every result after which its trial continues is repeated.
        facts: What happened and what the scheduler decided, in order, as text that compares.
        strays: Decisions about trials that do not exist or have ended.
        promoted: What was decided about paused trials: how long each of them had trained then, and
            the decisions.
    """

    FAILING, SILENT, CRASHING = 1, 2, 3
    _FAILS_AT, _CRASHES_AT = 3, 5

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        result_of: ResultOf = rising,
        num_trials: int = 12,
        num_results: int = 20,
        num_slots: int = 4,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._trials: dict[str, RehearsedTrial] = {}
        self.experiment = RehearsedExperiment(self._trials, num_trials, num_slots)
        self.scheduler = scheduler
        self.after_fact: Callable[[Rehearsal], None] = lambda _: None
        self.repeats_results = False
        self.facts: list[str] = []
        self.strays: list[Decision] = []
        self.promoted: list[tuple[Mapping[str, int], Sequence[Decision]]] = []
        self._result_of = result_of
        self._num_results = num_results
        self._num_slots = num_slots
        self._waiting = [RehearsedTrial(number, dict(config or {})) for number in range(num_trials)]

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler; may be replaced between two facts, as by a restart of the driver."""
        return self._scheduler

    @scheduler.setter
    def scheduler(self, scheduler: Scheduler) -> None:
        scheduler.experiment = self.experiment
        self._scheduler = scheduler

    @property
    def trials(self) -> Sequence[RehearsedTrial]:
        """The trials that have been added, oldest first."""
        return tuple(self._trials.values())

    def run(self, max_rounds: int = 10_000) -> Rehearsal:
        """Run until every trial has ended.

        Raises:
            AssertionError: If that does not happen within `max_rounds` rounds, in each of which
                every running trial reports.
        """
        for _ in range(max_rounds):
            self._fill_slots()
            for trial in self._with_status(Status.RUNNING):
                self._advance(trial)
            self._ask_about_paused()
            if not self._waiting and all(trial.is_finished for trial in self.trials):
                return self
        raise AssertionError(f"the experiment must end, got no end within {max_rounds} rounds")

    def _with_status(self, status: Status) -> list[RehearsedTrial]:
        return [trial for trial in self._trials.values() if trial.status is status]

    def _num_free_slots(self) -> int:
        return self._num_slots - len(self._with_status(Status.RUNNING))

    def _fill_slots(self) -> None:
        ready = self._with_status(Status.PENDING)
        while self._num_free_slots() and (ready or self._waiting):
            trial = ready.pop(0) if ready else self._add()
            if trial.status is Status.PENDING:
                trial.status = Status.RUNNING

    def _add(self) -> RehearsedTrial:
        trial = self._waiting.pop(0)
        self._trials[trial.trial_id] = trial
        self._call(f"added {trial.trial_id}", self.scheduler.on_trial_add(trial))
        return trial

    def _advance(self, trial: RehearsedTrial) -> None:
        if trial.status is not Status.RUNNING:
            return
        if trial.number == self.SILENT:
            self._end(trial)
            return
        trial.time += 1
        result = self._result_of(trial.number, trial.time)
        self._call(
            f"result {trial.trial_id} {trial.time}",
            self.scheduler.on_trial_result(trial, dict(result)),
        )
        if self.repeats_results and trial.status is Status.RUNNING:
            self._apply(self.scheduler.on_trial_result(trial, dict(result)))
        if trial.status is Status.RUNNING:
            self._apply_schedule(trial)

    def _apply_schedule(self, trial: RehearsedTrial) -> None:
        if trial.number == self.FAILING and trial.time == self._FAILS_AT:
            trial.status = Status.ERROR
            self._call(f"failed {trial.trial_id}", self.scheduler.on_trial_error(trial))
        elif (
            trial.number == self.CRASHING
            and trial.time == self._CRASHES_AT
            and not trial.has_crashed
        ):
            trial.has_crashed = True
            trial.time -= 2
        elif trial.time >= self._num_results:
            self._end(trial)

    def _end(self, trial: RehearsedTrial) -> None:
        trial.status = Status.TERMINATED
        result = self._result_of(trial.number, trial.time) if trial.time else None
        self._call(f"completed {trial.trial_id}", self.scheduler.on_trial_complete(trial, result))

    def _ask_about_paused(self) -> None:
        paused: list[TrialView] = [*self._with_status(Status.PAUSED)]
        if not paused or self._with_status(Status.PENDING) or not self._num_free_slots():
            return
        times = {trial.trial_id: self._trials[trial.trial_id].time for trial in paused}
        decisions = self.scheduler.on_idle(paused, self._num_free_slots())
        self.promoted.append((times, decisions))
        self._call("idle", decisions)
        # The scheduler has resumed none, and nothing else can happen: the engine stops them, too.
        if (
            not self._waiting
            and not self._with_status(Status.PENDING)
            and not self._with_status(Status.RUNNING)
        ):
            for trial in self._with_status(Status.PAUSED):
                self._end(trial)

    @staticmethod
    def _save(trial: RehearsedTrial) -> None:
        if not trial.is_finished and trial.checkpoint_iteration != trial.time:
            trial.checkpoints.append(trial.time)

    def _call(self, fact: str, decisions: Sequence[Decision]) -> None:
        # The text of a decision compares equal where it holds NaN; the decision itself would not.
        self.facts.append(f"{fact}: {list(decisions)!r}")
        self._apply(decisions)
        self.after_fact(self)

    def _apply(self, decisions: Sequence[Decision]) -> None:
        self.strays += [
            decision for decision in decisions if not self._has_not_ended(decision.trial_id)
        ]
        for decision in decisions:
            if self._has_not_ended(decision.trial_id):
                self._apply_one(decision, self._trials[decision.trial_id])

    def _has_not_ended(self, trial_id: str) -> bool:
        return trial_id in self._trials and not self._trials[trial_id].is_finished

    def _apply_one(self, decision: Decision, trial: RehearsedTrial) -> None:
        match decision:
            case Stop():
                self._end(trial)
            case Pause() if trial.status is Status.RUNNING:
                trial.status = Status.PAUSED
                self._save(trial)
            case Resume() if trial.status is Status.PAUSED:
                trial.status = Status.PENDING
            case Save():
                self._save(trial)
            case Exploit(donor_id=donor_id) if (
                donor_id in self._trials and trial.status is not Status.PENDING
            ):
                donor = self._trials[donor_id]
                trial.status = Status.PAUSED
                if donor.checkpoints or not donor.is_finished:
                    self._save(donor)
                    trial.time, trial.config = donor.checkpoints[-1], decision.config
            case Resize(resources=resources):
                self._save(trial)
                trial.resources = resources
            case _:
                pass  # The decision is outdated, or has no effect that a scheduler can see here.
