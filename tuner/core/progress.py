"""Progress of an experiment, as progress displays show it, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from searchers.objectives.outcome_constraint import Constraints

from .experiment import Experiment
from .pareto import Objectives, best_trials
from .result import TIME_TOTAL_S, flatten
from .trial import Status, TerminationReason, Trial
from .trial_metrics import Evaluation


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """What is spent of a budget.

    Attributes:
        unit: What is counted: ``"iterations"``, or hours such as ``"gpu_hours"``.
        limit: How much may be spent.
        spent: How much had been at `since_s`.
        rate: How much is spent in each second since then.
        since_s: Experiment time at which something has last started or ended.
    """

    unit: str
    limit: float
    spent: float
    rate: float
    since_s: float

    def spent_at(self, now_s: float) -> float:
        """Return how much is spent at an experiment time."""
        return self.spent + self.rate * max(now_s - self.since_s, 0.0)

    def left_at(self, now_s: float) -> float:
        """Return how much is left at an experiment time."""
        return max(self.limit - self.spent_at(now_s), 0.0)

    @property
    def due_s(self) -> float:
        """Experiment time at which it is used up if nothing changes; infinity for never."""
        if self.spent >= self.limit:
            return self.since_s
        return self.since_s + (self.limit - self.spent) / self.rate if self.rate else math.inf


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at an experiment.

    Attributes:
        name: The experiment's name.
        metric: What is optimised, None where nothing is.
        mode: ``"min"`` or ``"max"``, None without a metric.
        num_trials_by_status: How many trials there are in each status; one without trials may be
            missing.
        num_stopped_early: How many of the TERMINATED ones a scheduler has stopped.
        num_interrupted: How many of the TERMINATED ones have been interrupted and may be continued.
        num_not_started: How many of these were interrupted before there was a slot for them.
        num_total: How many trials there will be, None where that is open.
        num_finished: How many trials are TERMINATED or in ERROR, without interrupted ones, which
            have yet to go on.
        num_underway: What the other trials have behind them, in whole trials: running ones by their
            share of a full training, paused ones as one each, since most of those will stay behind.
        full_iteration: ``training_iteration`` at which a full training ends; None where that is
            open.
        elapsed_s: Seconds since the start of the experiment.
        time_budget_s: Seconds after which it is ended, None for no limit.
        used: Resources that running trials occupy, e.g. ``{"cpu": 3.0}``.
        capacity: Resources that there are, by the same names.
        num_nodes: How many nodes are present on a cluster; None where there is only this machine.
        best: The best trial, by its newest value of the metric; None before the first.
        best_last: That value, with its iteration.
        best_ever: The best value that this trial has reported, with its iteration; None where it is
            not known.
        running: Trials that are RUNNING, in the order of their start.
        leaders: The best trials by their newest values, best first, whatever their status.
        waiting_for: Why trials wait whose turn has come, as half a sentence, e.g. ``"a free GPU"``;
            empty where none waits.
        num_validating: How many checkpoints are being validated.
        num_to_validate: How many checkpoints wait for their validation.
        held: Running trials whose report is not answered yet, since too many of their checkpoints
            are yet to be validated.
        num_errors: How many attempts have failed, those that were tried again included.
        several_objectives: Metric and mode of each objective where there are several; else empty.
        constraints: What trials have to keep to be among the best, or on the front.
        front: Then the trials on the Pareto front, best in the first objective first.
        longest_left_s: How many seconds the running trial with most left to train will take at its
            own pace; 0 where that is open.
        quiet_s: For how many seconds no trial has come closer to its end.
        budgets: What is spent of each budget other than that of time.
    """

    name: str
    metric: str | None = None
    mode: str | None = None
    num_trials_by_status: Mapping[Status, int] = field(default_factory=dict)
    num_stopped_early: int = 0
    num_interrupted: int = 0
    num_not_started: int = 0
    num_total: int | None = None
    num_finished: int = 0
    num_underway: float = 0.0
    full_iteration: int | None = None
    elapsed_s: float = 0.0
    time_budget_s: float | None = None
    used: Mapping[str, float] = field(default_factory=dict)
    capacity: Mapping[str, float] = field(default_factory=dict)
    num_nodes: int | None = None
    best: Trial | None = None
    best_last: Evaluation | None = None
    best_ever: Evaluation | None = None
    running: Sequence[Trial] = ()
    leaders: Sequence[Trial] = ()
    waiting_for: str = ""
    num_validating: int = 0
    num_to_validate: int = 0
    held: Sequence[Trial] = ()
    num_errors: int = 0
    several_objectives: Objectives = ()
    constraints: Constraints = ()
    front: Sequence[Trial] = ()
    longest_left_s: float = 0.0
    quiet_s: float = 0.0
    budgets: Sequence[BudgetUse] = ()

    def _repr_html_(self) -> str:
        """Return the progress as a table for a notebook."""
        counts = ", ".join(
            f"{count} {status}" for status, count in self.num_trials_by_status.items() if count
        )
        of = "" if self.num_total is None else f" of {self.num_total}"
        facts = {
            "experiment": self.name,
            "finished": f"{self.num_finished}{of} trials",
            "trials": counts,
            "elapsed": f"{self.elapsed_s:.0f} s",
        }
        if self.remaining_s is not None:
            facts["about left"] = f"{self.remaining_s:.0f} s"
        if self.best is not None and self.best_last is not None:
            facts[f"best trial by {self.metric} ({self.mode})"] = (
                f"{self.best.trial_id}, last value {self.best_last.value:.6g}"
            )
        for use in self.budgets:
            facts[use.unit] = f"{use.spent_at(self.elapsed_s):.4g} of {use.limit:g}"
        if self.num_validating or self.num_to_validate:
            facts["validations"] = f"{self.num_validating} running, {self.num_to_validate} waiting"
        if self.constraints and self.num_finished and not (self.best or self.front):
            facts["feasible trials"] = f"none yet ({', '.join(map(str, self.constraints))})"
        if self.several_objectives:
            facts["Pareto front"] = ", ".join(trial.trial_id for trial in self.front)
        rows = "".join(
            f"<tr><th>{escape(str(name))}</th><td>{escape(str(fact))}</td></tr>"
            for name, fact in facts.items()
            if fact
        )
        return f'<table style="text-align:left">{rows}</table>'

    @property
    def best_config(self) -> Mapping[str, Any]:
        """Flattened configuration with which the best trial reached its best value.

        An exploit may have given it another one since.
        """
        if self.best is None:
            return {}
        return flatten(self.best.config_at(self.best_ever.row if self.best_ever else 0))

    @property
    def fraction(self) -> float | None:
        """Fraction of the trials, or else of the budgets, that is done; None without a limit."""
        if self.num_total:
            return min(1.0, self.num_behind / self.num_total)
        used = [use.spent_at(self.elapsed_s) / use.limit for use in self.budgets]
        used += [self.elapsed_s / self.time_budget_s] if self.time_budget_s else []
        return min(1.0, max(used)) if used else None

    @property
    def remaining_s(self) -> float | None:
        """How many seconds are left at the pace so far, at most those of the budget.

        The last few trials may take far longer than the many before them, so it is no less than
        what the slowest running trial still needs, nor than the time for which nothing has moved.
        None where it is too early to tell, where it is less than a second, once the budget is used
        up, and where trials are paused and no others are to come: the scheduler may resume few of
        them or all.
        """
        ends_s = [use.due_s for use in self.budgets if use.due_s < math.inf]
        ends_s += [self.time_budget_s] if self.time_budget_s else []
        until_budget = max(0.0, min(ends_s) - self.elapsed_s) if ends_s else None
        if (until_budget is not None and until_budget < _MIN_LEFT_S) or (
            self.num_total and self.num_finished >= self.num_total
        ):
            return None
        behind = self.num_behind
        if (
            not (self.num_total and behind)
            or behind < _MIN_FRACTION * self.num_total
            or self._is_open_end
        ):
            return until_budget
        at_this_pace = self.elapsed_s * max(0.0, self.num_total - behind) / behind
        left = max(at_this_pace, self.longest_left_s, self.quiet_s)
        left = left if until_budget is None else min(left, until_budget)
        return left if left >= _MIN_LEFT_S else None

    @property
    def num_behind(self) -> float:
        """How many trials are over, with what the others have behind them."""
        return self.num_finished + self.num_underway

    @property
    def _is_open_end(self) -> bool:
        counts = self.num_trials_by_status
        num_known = sum(counts.values()) - counts.get(Status.PENDING, 0)
        return (
            bool(counts.get(Status.PAUSED))
            and self.num_total is not None
            and num_known >= self.num_total
        )


_MIN_FRACTION = 0.03
"""Before this fraction is done, no remaining time is estimated."""
_MIN_LEFT_S = 1.0
"""Shorter times are not shown: saving and cleaning up may take minutes."""


def look_at(
    experiment: Experiment, name: str, elapsed_s: float, full_iteration: int | None = None
) -> Progress:
    """Return how far the experiment is.

    Args:
        experiment: The experiment.
        name: Its name.
        elapsed_s: Its running time in seconds.
        full_iteration: ``training_iteration`` at which a full training ends; None where that is
            open.
    """
    trial_table, settings, leaders = (
        experiment.trial_table,
        experiment.settings,
        experiment.best.leaders,
    )
    num_over = (
        trial_table.num_by_status[Status.TERMINATED] + trial_table.num_by_status[Status.ERROR]
    )
    behind = (
        sum(min(1.0, trial.iteration / full_iteration) for trial in trial_table.live.values())
        if full_iteration
        else 0.0
    )
    return Progress(
        name=name,
        metric=settings.metric,
        mode=settings.mode,
        num_trials_by_status=dict(trial_table.num_by_status),
        num_stopped_early=trial_table.num_by_ending[TerminationReason.STOPPED_EARLY],
        num_interrupted=trial_table.num_by_ending[TerminationReason.INTERRUPTED],
        num_not_started=trial_table.num_not_started,
        num_total=_num_total(experiment),
        num_finished=num_over - trial_table.num_by_ending[TerminationReason.INTERRUPTED],
        num_underway=len(trial_table.paused) + behind,
        full_iteration=full_iteration,
        elapsed_s=elapsed_s,
        time_budget_s=settings.time_budget_s,
        used=trial_table.nodes.used,
        capacity=trial_table.nodes.capacity,
        num_nodes=None if trial_table.nodes.is_local else len(list(trial_table.nodes)),
        best=leaders[0] if leaders else None,
        best_last=leaders[0].objective.last if leaders else None,
        best_ever=leaders[0].objective.best if leaders else None,
        running=tuple(trial_table.live.values()),
        leaders=leaders,
        waiting_for=_waiting_for(experiment),
        held=tuple(experiment.held_trials),
        **{name: value for part in experiment.parts for name, value in part.progress.items()},
        num_errors=trial_table.num_failed_attempts,
        several_objectives=settings.several_objectives,
        constraints=settings.constraints,
        front=best_trials(
            trial_table.trials, settings.several_objectives, constraints=settings.constraints
        )
        if settings.several_objectives
        else (),
        longest_left_s=max(
            (_left_of(trial, full_iteration) for trial in trial_table.live.values()), default=0.0
        )
        if full_iteration
        else 0.0,
    )


def _num_total(experiment: Experiment) -> int | None:
    table, max_trials = experiment.trial_table, experiment.settings.max_trials
    if experiment.suggestion_budget.why_ended:
        return len(table.trials)
    return None if max_trials is None else max_trials + table.num_forked


def _left_of(trial: Trial, full_iteration: int) -> float:
    """Return how long a full training still takes at the trial's pace; 0 without results."""
    spent_s = float(trial.last_result.get(TIME_TOTAL_S) or 0.0)
    return (
        spent_s * max(0, full_iteration - trial.iteration) / trial.iteration
        if trial.iteration
        else 0.0
    )


def why_waiting(experiment: Experiment, trial: Trial) -> str:
    """Return what a trial waits for at present, as half a sentence; empty if for nothing."""
    num_open = len(trial.open_validations)
    if trial in experiment.held_trials:
        return (
            f"waits in report until one of the {num_open} validations of its checkpoints that have "
            "not ended does, as max_pending says"
        )
    if trial is next(iter(experiment.trial_table.ready), None) and _waiting_for(experiment):
        return f"waits for {_waiting_for(experiment)}"
    if trial.is_finished and num_open:
        return f"is over when {num_open} more of its checkpoints have been validated"
    return ""


def _waiting_for(experiment: Experiment) -> str:
    trial_table, limit = experiment.trial_table, experiment.settings.max_concurrent
    if trial_table.held and not (trial_table.live or trial_table.ready or trial_table.backlog):
        return f"{', '.join(list(trial_table.held)[:3])} to be resumed"
    if not trial_table.ready:
        return ""
    if limit is not None and len(trial_table.live) >= limit:
        return f"one of {limit} concurrent trials to end"
    first = next(iter(trial_table.ready))
    group = first.group
    wanted = group.resized(group.fewest).total if group else first.resources
    free = {
        resource: amount - trial_table.nodes.used.get(resource, 0.0)
        for resource, amount in trial_table.nodes.capacity.items()
    }
    short = [resource for resource, amount in wanted.items() if amount > free.get(resource, 0.0)]
    workers = f" for {group.fewest} workers" if group and group.fewest > 1 else ""
    if not short and not trial_table.nodes.is_local:
        return f"room on a node{workers}"  # what is free is on several of them
    return f"free {' and '.join(short)}{workers}" if short else ""
