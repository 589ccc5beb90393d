"""The scheduler that is put to the test: made ready for a replay, so that the one that was given stays as it is."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schedulers import create_scheduler
from schedulers.scheduler import NoExperiment, Scheduler
from schedulers.trial_scheduler import TrialSchedulerAdapter, adapted
from tuner.analysis.ranking import Mode, check_mode, mode_for
from tuner.spec.experiment_spec import derived_seed

from .recording import Recording
from .replaying import cannot_be_replayed


@dataclass(frozen=True, slots=True)
class Objective:
    """What counts as quality.

    Attributes:
        metric: Flattened name of the metric.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
    """

    metric: str
    mode: Mode


def checked(given: Any, arguments: Mapping[str, Any]) -> Scheduler:
    """Return a scheduler of its own for a replay.

    Args:
        given: A scheduler, also one with Ray Tune's signatures, or the short name of one.
        arguments: Those of a scheduler that is named.

    Raises:
        TypeError: If it is neither, or arguments are given that nobody takes.
        ValueError: If there is no scheduler of that name, or it changes trials, which no recording can answer to; or if it has
            Ray Tune's signatures and has run before, since there is no telling how it was constructed.
    """
    scheduler = create_scheduler(given, **arguments) if isinstance(given, str) else adapted(given)
    if not isinstance(scheduler, Scheduler):
        raise TypeError(
            f"scheduler must be a scheduler or the name of one, got {given!r}; e.g. 'asha'"
        )
    if arguments and not isinstance(given, str):
        raise TypeError(
            f"arguments must come with the name of a scheduler, got {sorted(arguments)}; give them to the scheduler itself"
        )
    if scheduler.changes_trials or getattr(scheduler, "needs_population", False):
        raise ValueError(cannot_be_replayed(scheduler))
    return _fresh(scheduler)


def _fresh(scheduler: Scheduler) -> Scheduler:
    """Return an equal scheduler that has seen nothing."""
    if isinstance(scheduler, TrialSchedulerAdapter) and scheduler.has_run:
        raise ValueError(
            f"scheduler must not have run before, got {scheduler.adapted!r}, which has; construct another one"
        )
    if isinstance(scheduler.experiment, NoExperiment):
        return copy.deepcopy(scheduler)
    kind = type(scheduler)
    bound = inspect.signature(kind).bind_partial()
    bound.arguments.update(scheduler.declared_arguments)
    return kind(*bound.args, **bound.kwargs)


def objective_for(
    scheduler: Scheduler, recording: Recording, metric: str | None, mode: str | None
) -> Objective:
    """Return what counts as quality: what is given here, what the scheduler names, or what the recorded experiment optimised.

    Raises:
        ValueError: If metric or mode are nowhere named, or named twice and differently.
    """
    for what, given, own in (("metric", metric, scheduler.metric), ("mode", mode, scheduler.mode)):
        if given and own and given != own:
            raise ValueError(
                f"{what} must be given once, got {given!r} here and {own!r} in {type(scheduler).__name__}; leave one out"
            )
    name = metric or scheduler.metric or recording.metric
    if not name:
        told = ", ".join(f"{metric!r} ({mode})" for metric, mode in recording.several)
        why = (
            f"optimised several: {told}; name one of them"
            if told
            else "names none; name one with its mode"
        )
        raise ValueError(f"metric must be given, as the recorded experiment {why}")
    direction = (
        mode
        or scheduler.mode
        or mode_for(name, recording.metric, recording.mode, recording.several)
    )
    if direction is None:
        told = ", ".join(repr(metric) for metric, _ in recording.several) or repr(recording.metric)
        raise ValueError(
            f"mode must be given with metric={name!r}, got None; the recorded experiment optimised {told}"
        )
    return Objective(name, check_mode(direction))


def connect(scheduler: Scheduler, objective: Objective, recording: Recording) -> None:
    """Give a scheduler its metric, mode and seed, as the recorded experiment would have.

    Raises:
        ValueError: If it cannot work with them.
    """
    metric = None if scheduler.metric else objective.metric
    mode = None if scheduler.mode else objective.mode
    scheduler.set_search_properties(metric, mode, seed=derived_seed(recording.seed, "scheduler"))


def description_of(scheduler: Scheduler) -> str:
    """Return a scheduler as it was constructed, e.g. ``AsyncHyperBandScheduler(max_t=27)``."""
    if isinstance(scheduler, TrialSchedulerAdapter):
        return f"{type(scheduler.adapted).__name__}(...)"
    listed = ", ".join(f"{name}={value!r}" for name, value in scheduler.declared_arguments.items())
    return f"{type(scheduler).__name__}({listed})"
