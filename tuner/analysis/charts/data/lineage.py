"""Populations: who went on from whose checkpoint, and the schedule of hyperparameters that came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.core.result import flatten
from tuner.core.trial import Trial

from .source import Source


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a trial trained between two exploits.

    Attributes:
        trial_id: Which trial.
        branch: How many exploits lay behind it.
        first_iteration: ``training_iteration`` from which it went on.
        last_iteration: ``training_iteration`` that it had reached at the next exploit, or at its end.
        donor_id: From whose checkpoint it went on, None for from the beginning.
        donor_branch: How many exploits lay behind that one when it saved the checkpoint; None likewise.
        config: Its flattened configuration.
        is_in_best: Whether the best trial's training went through it.
    """

    trial_id: str
    branch: int
    first_iteration: int
    last_iteration: int
    donor_id: str | None
    donor_branch: int | None
    config: Mapping[str, Any]
    is_in_best: bool


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One step of the schedule that has led to where a trial is.

    Attributes:
        trial_id: Whose schedule.
        ancestor_id: Who trained this step: the trial itself, or one that it descends from.
        first_iteration: ``training_iteration`` from which on.
        last_iteration: ``training_iteration`` up to which.
        config: The flattened configuration of the step.
        is_best: Whether it is the best trial's schedule.
    """

    trial_id: str
    ancestor_id: str
    first_iteration: int
    last_iteration: int
    config: Mapping[str, Any]
    is_best: bool


def lineage(source: Source) -> list[Stretch]:
    """Return what each trial trained between exploits, in the order of the trials; empty where there were no exploits."""
    trials = {trial.trial_id: trial for trial in source.trials}
    if not any(trial.grafts for trial in source.trials):
        return []
    best = source.best
    in_best = (
        {(trial.trial_id, branch) for trial, branch, _ in _ancestry(best, trials)}
        if best
        else set()
    )
    return [
        _stretch(trial, branch, trials, in_best)
        for trial in source.trials
        for branch in range(len(trial.grafts) + 1)
    ]


def schedules(source: Source) -> list[ScheduleStep]:
    """Return the schedule of each trial, in the order of the trials and of the iterations; empty where there were no exploits."""
    trials = {trial.trial_id: trial for trial in source.trials}
    if not any(trial.grafts for trial in source.trials):
        return []
    return [
        step
        for trial in source.trials
        for step in _schedule(trial, trials, is_best=trial is source.best)
    ]


def _schedule(
    trial: Trial, trials: Mapping[str, Trial], *, is_best: bool
) -> Sequence[ScheduleStep]:
    steps = [
        ScheduleStep(
            trial.trial_id,
            ancestor.trial_id,
            _first(ancestor, branch),
            last,
            flatten(_config(ancestor, branch)),
            is_best,
        )
        for ancestor, branch, last in _ancestry(trial, trials)
    ]
    return [step for step in reversed(steps) if step.last_iteration > step.first_iteration]


def _ancestry(trial: Trial, trials: Mapping[str, Trial]) -> Iterator[tuple[Trial, int, int]]:
    """Yield what has led to where a trial is, the latest first: who trained, behind how many exploits, and up to which iteration."""
    branch, last = len(trial.grafts), trial.iteration
    while True:
        yield trial, branch, last
        if not branch:
            return
        graft = trial.grafts[branch - 1]
        if graft.donor_id not in trials:
            return
        last = graft.from_iteration
        trial = trials[graft.donor_id]
        branch = _branch_at(trial, graft.checkpoint.index)


def _stretch(
    trial: Trial, branch: int, trials: Mapping[str, Trial], in_best: set[tuple[str, int]]
) -> Stretch:
    graft = trial.grafts[branch - 1] if branch else None
    donor = trials.get(graft.donor_id) if graft else None
    return Stretch(
        trial_id=trial.trial_id,
        branch=branch,
        first_iteration=_first(trial, branch),
        last_iteration=trial.grafts[branch].iteration
        if branch < len(trial.grafts)
        else trial.iteration,
        donor_id=graft.donor_id if graft else None,
        donor_branch=_branch_at(donor, graft.checkpoint.index) if donor and graft else None,
        config=flatten(_config(trial, branch)),
        is_in_best=(trial.trial_id, branch) in in_best,
    )


def _first(trial: Trial, branch: int) -> int:
    return trial.grafts[branch - 1].from_iteration if branch else 0


def _config(trial: Trial, branch: int) -> Mapping[str, Any]:
    return trial.grafts[branch].config if branch < len(trial.grafts) else trial.config


def _branch_at(trial: Trial, checkpoint_index: int) -> int:
    """Return how many exploits lay behind a trial when it saved a checkpoint."""
    return sum(graft.first_checkpoint <= checkpoint_index for graft in trial.grafts)
