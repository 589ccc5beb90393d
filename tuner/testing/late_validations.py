"""Experiments in virtual time whose results are judged when they are reported, or only later."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from schedulers import Decision, Exploit, Scheduler
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import Notice
from tuner.core.events import TrialSuggested
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings, ValidationPolicy
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import trial_fields, trial_from
from tuner.driver.driver import VIRTUAL_TIME, Driver
from tuner.virtual.executor import SimulatedExecutor
from tuner.virtual.suggestions import KnownSuggestions

from .simulation import Entry, MemoryLog

ScoreOf = Callable[[int, int], float]
"""The score of trial number `n` (from 0) at training iteration `t` (from 1); larger is better."""

_LAST_COMPARED: Final = 20
NUM_ITERATIONS: Final = 24
"""How long each trial trains unless it is stopped: until the last that counts has been judged."""
_ITERATION_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of an experiment.

    Attributes:
        experiment: The experiment.
        history: What happened in it and was decided, in order.
        snapshots: Its state at some of the turns, by the number of entries before.
    """

    experiment: Experiment
    history: Sequence[Entry]
    snapshots: Mapping[int, str]

    @property
    def decisions(self) -> list[Decision]:
        """Decisions of the scheduler, in order."""
        return [decision for entry in self.history for decision in entry.decisions]


def run_one_after_the_other(
    scheduler: Scheduler,
    score_of: ScoreOf,
    *,
    config: Mapping[str, Any],
    num_trials: int,
    late_by: float | None,
    snapshots_at: Collection[int] = (),
) -> Judged:
    """Run trials in a single slot, which report a checkpoint with every result.

    With one slot, the order of the results does not depend on when they are judged.

    Args:
        scheduler: The scheduler, which has its search properties.
        score_of: The score of each trial at each iteration.
        config: The hyperparameters of every trial.
        num_trials: How many trials there are.
        late_by: After how many further iterations a validation supplies the score; None for a score
            that is reported with the result.
        snapshots_at: Turns at which a snapshot is taken.
    """
    numbers = {f"t{number:05d}": number for number in range(num_trials)}

    def curve(config: Mapping[str, Any]) -> Any:
        number = numbers[config["trial"]]
        for iteration in range(1, NUM_ITERATIONS + 1):
            yield {} if late_by is not None else {"score": score_of(number, iteration)}

    def validate(config: Mapping[str, Any], iteration: int) -> dict[str, float]:
        score = score_of(numbers[config["trial"]], iteration)
        return {"other": score} if late_by is None else {"score": score}

    executor = SimulatedExecutor(
        curve,
        capacity={"cpu": 1.0},
        duration_s=_ITERATION_S,
        validate=validate,
        validation_s=_ITERATION_S * (late_by or 0.0),
    )
    experiment = Experiment(_settings(num_trials), scheduler, NoopStopper())
    log, snapshots, turns = MemoryLog(), dict[int, str](), itertools.count(1)

    def take_snapshot(_: float) -> None:
        if next(turns) in snapshots_at:
            snapshots[len(log.history)] = _snapshot(experiment)

    Driver(
        experiment,
        executor,
        log,
        KnownSuggestions(
            TrialSuggested(trial_id, {**config, "trial": trial_id}, {"cpu": 1.0})
            for trial_id in numbers
        ),
        _Silent(),
        timing=VIRTUAL_TIME,
        take_snapshot=take_snapshot,
    ).run()
    experiment.check()
    return Judged(experiment, log.history, snapshots)


def decided_again(judged: Judged, scheduler: Scheduler, num_before: int) -> list[Decision]:
    """Return what a scheduler decides on the events after a snapshot, which is restored first.

    Args:
        judged: The experiment.
        scheduler: A new one like that of the experiment.
        num_before: Which snapshot.
    """
    saved = json.loads(judged.snapshots[num_before])
    experiment = Experiment(judged.experiment.settings, scheduler, NoopStopper())
    experiment.load_state_dict(saved["experiment"], [trial_from(each) for each in saved["trials"]])
    scheduler.load_state_dict(saved["scheduler"])
    experiment.check()
    decisions: list[Decision] = []
    for entry in judged.history[num_before:]:
        decisions += experiment.handle(entry.event, entry.at_s).decisions
    return decisions


def essence(decision: Decision) -> tuple[Any, ...]:
    """Return what is the same of a decision whether results were judged late or not.

    The index of a checkpoint is not: until it is judged, a trial saves further ones.
    """
    numbers = {name: repr(value) for name, value in decision.reason.numbers.items()}
    donor = decision.donor_id if isinstance(decision, Exploit) else ""
    kind, rule = type(decision).__name__, decision.reason.rule
    return decision.trial_id, kind, rule, tuple(sorted(numbers.items())), donor


def comparable(decisions: Sequence[Decision]) -> list[tuple[Any, ...]]:
    """Return the decisions that have to be the same, as values that compare.

    Left out are those on late results, since a trial that is judged late may have trained to its
    end, and those for which no score is needed: a limit of the training time holds at once.
    """
    return [
        essence(decision)
        for decision in decisions
        if float(decision.reason.numbers.get("time", 0)) <= _LAST_COMPARED
        and not decision.reason.rule.endswith("max_t")
    ]


def _settings(num_trials: int) -> ExperimentSettings:
    return ExperimentSettings(
        {"cpu": 1.0},
        metric="score",
        mode="max",
        max_trials=num_trials,
        checkpoints=CheckpointPolicy(can_save_on_demand=True),
        # They take nothing from the trials, since some schedulers divide what is there.
        validation=ValidationPolicy({}, max_in_flight=NUM_ITERATIONS),
    )


def _snapshot(experiment: Experiment) -> str:
    return json.dumps(
        {
            "experiment": experiment.state_dict(),
            "trials": [trial_fields(trial) for trial in experiment.trials],
            "scheduler": experiment.policies.scheduler.state_dict(),
        }
    )


@final
class _Silent:
    """Listens to nothing."""

    def begin_turn(self) -> None:
        pass

    def notify(self, notice: Notice, /) -> bool:
        return False

    def remark(self, text: str, /) -> None:
        pass

    def end_turn(self) -> None:
        pass
