"""What a session says at its start about the experiment that it continues."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from schedulers import FIFOScheduler
from searchers.searcher import unwrapped
from tuner.core.events import DriverRestarted, ResumeType
from tuner.core.experiment import Experiment
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.execution.group_trainable import GroupTrainable
from tuner.spec.experiment_spec import ExperimentSpec

_FINISHED: Final = "finished"
_PAUSED: Final = "paused"
_TO_CONTINUE: Final = "to continue"
_TO_START: Final = "to start"
_LEFT_OUT: Final = "left out"
_PLACES: Final = ("tune_config.", "run_config.")
"""What precedes the names of arguments that users give `Tuner.restore` without it."""


def continuing_line(
    name: str, experiment: Experiment, event: DriverRestarted, spec: ExperimentSpec
) -> str:
    """Return how much of an experiment is done, what is left, and who decides about it.

    Args:
        name: Its name.
        experiment: Its state at the end of the last session.
        event: What becomes of its trials now.
        spec: What is declared now.

    Returns:
        Empty for a single training, which is no search.
    """
    if isinstance(spec.trainable, GroupTrainable) and not spec.space:
        return ""
    table, total = experiment.trial_table, event.settings.max_trials
    treatments = table.treatments_of_never_admitted(total, event.left_out)
    trials = [
        (trial, _standing(trial, treatments.get(trial) or event.treatment_of(trial)))
        for trial in experiment.trials
    ]
    counts = Counter(standing for _, standing in trials)
    of = ""
    if total is not None:
        total += table.num_forked
        counts[_TO_START] += max(total - len(trials), 0)
        of = f" of {max(total, len(trials) - counts[_LEFT_OUT])}"
    num_failed = sum(
        trial.status is Status.ERROR and standing == _FINISHED for trial, standing in trials
    )
    failed = f" ({num_failed} failed)" if num_failed else ""
    done = f"{counts[_FINISHED]}{of} trials finished{failed}"
    left = [f"{counts[kind]} {kind}" for kind in (_PAUSED, _TO_CONTINUE, _TO_START) if counts[kind]]
    return f"Continuing {name}: {', '.join([done, *left])} ({_algorithms(spec)})"


def changed_line(change: str) -> str:
    """Return how a difference between two declarations is shown.

    Example:
        >>> changed_line("tune_config.num_samples: 20 -> 70")
        'Changed since the last run: num_samples 20 → 70'
    """
    place, _, values = change.partition(": ")
    for prefix in _PLACES:
        place = place.removeprefix(prefix)
    return f"Changed since the last run: {place} {values.replace(' -> ', ' → ', 1)}"


def _standing(trial: Trial, treatment: ResumeType) -> str:
    """Return what becomes of a trial in this session, by its word in the line."""
    if treatment is ResumeType.SKIP:
        is_over = trial.is_finished and trial.ending is not TerminationReason.INTERRUPTED
        return _FINISHED if is_over else _LEFT_OUT
    if treatment is ResumeType.RESTART or not (trial.last_result or trial.source):
        return _TO_START
    return _PAUSED if trial.status is Status.PAUSED else _TO_CONTINUE


def _algorithms(spec: ExperimentSpec) -> str:
    scheduler: Any = getattr(spec.scheduler, "adapted", spec.scheduler)
    searcher = unwrapped(spec.searcher)
    is_none = isinstance(scheduler, FIFOScheduler)
    shown = "no scheduler" if is_none else f"scheduler {type(scheduler).__name__}"
    return f"searcher {type(searcher).__name__}, {shown}"
