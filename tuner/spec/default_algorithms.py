"""The default scheduler and searcher of an experiment.

Where metric and mode are known, both are chosen to find the best configuration. A population
method varies configurations itself, and is given random ones to begin with; beside a searcher that
is given, every trial is trained to its end. ``"auto"`` asks for the choice in any case.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, Final

# The packages, not their classes: only the chosen scheduler and searcher are imported.
import schedulers
import searchers
from schedulers.scheduler import Scheduler
from searchers.random_search import BasicVariantGenerator
from searchers.searcher import Searcher, unwrapped
from searchers.space import Normal, SearchSpace
from tuner.core.result import TRAINING_ITERATION
from tuner.core.stoppers import MaximumIterationStopper
from tuner.execution.trainable import can_be_saved
from tuner.wire.record import record

from .config import AUTO, RunConfig, TuneConfig

REDUCTION_FACTOR: Final = 3
"""One trial in three continues from level to level."""
NUM_RUNGS: Final = 3
"""Levels below a full training: the first is after a 27th of it."""
NO_END: Final = REDUCTION_FACTOR**10
"""The highest level if the length of a full training is unknown."""
FULL_SCOUT_SHARE: Final = 0.2
"""Share of the scouts that are trained to the end without a comparison."""
MAX_SAMPLES: Final = 1_000
"""With more samples than this, trials are presumably so short that asking a model would take longer
than training."""
_CHOSEN: Final = {None: "default", AUTO: 'chosen by "auto"'}


@record
class Choice:
    """A scheduler and a searcher.

    Attributes:
        scheduler: The scheduler.
        searcher: The searcher.
        remark: Message about the choice for the start; empty if there is nothing to search.
    """

    scheduler: Scheduler
    searcher: Searcher
    remark: str = ""


def chosen(tune: TuneConfig, run: RunConfig, space: Mapping[str, Any], trainable: Any) -> Choice:
    """Return the scheduler and the searcher that were given, or the default ones.

    The default searcher is `AutoSearch` if there is something to search: several samples of a space
    without grids, and a metric, which a given scheduler may name, or several in the settings.
    Unless ``"auto"`` asks for it, it is used for at most `MAX_SAMPLES` samples, and not beside a
    population method.

    The default scheduler is ASHA for one metric, MOASHA for several. Its first level is a 27th of a
    full training if `RunConfig.stop` says how long that is, otherwise the first report; see
    `asha_for`. Unless ``"auto"`` asks for it, it is used only if it cannot do harm: if trials are
    saved on demand, so that paused ones can continue, or the length of a full training is known, so
    that the first comparison is not too early.
    """
    is_search = _is_search(tune, space)
    metric, mode = _objective(tune)
    has_several = len(tune.objectives) > 1
    has_objective = has_several or bool(metric and mode)
    is_open = is_search and has_objective and tune.num_samples <= MAX_SAMPLES
    full = _full_training(run.stop)
    is_harmless = can_be_saved(trainable) or full is not None
    wants_asha = tune.scheduler == AUTO or (
        tune.scheduler is None
        and is_open
        and is_harmless
        and not isinstance(tune.search_alg, Searcher)
    )
    wants_model = is_search and (
        tune.search_alg == AUTO
        or (tune.search_alg is None and is_open and not _varies_itself(tune.scheduler))
    )
    if isinstance(tune.search_alg, Searcher):
        searcher = tune.search_alg
    elif wants_model:
        # What TuneConfig names reaches it from there, also when a restore changes it.
        is_named = has_several or None not in (tune.only_metric, tune.only_mode)
        searcher = (
            searchers.AutoSearch() if is_named else searchers.AutoSearch(metric=metric, mode=mode)
        )
    else:
        searcher = BasicVariantGenerator()
    asha = (
        asha_for(searcher, full, tune.num_samples, has_several=has_several)
        if wants_asha
        else schedulers.FIFOScheduler()
    )
    scheduler = tune.scheduler if isinstance(tune.scheduler, Scheduler) else asha
    has_own_space = isinstance(tune.search_alg, Searcher) and tune.num_samples != 1
    is_worth_saying = is_search or has_own_space or bool(SearchSpace(space).grid_axes)
    return Choice(
        scheduler,
        searcher,
        _start_line(scheduler, searcher, tune, space) if is_worth_saying else "",
    )


def full_iteration(stop: Any, scheduler: Scheduler) -> int | None:
    """Return the ``training_iteration`` at which a trial ends that is not stopped early.

    Args:
        stop: The stop criterion, as the user gave it.
        scheduler: The scheduler, which may end trials at a ``max_t`` of iterations.

    Returns:
        The lower limit of the two; None if neither has one.
    """
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(type(scheduler)).parameters.items()
    }
    given |= scheduler.declared_arguments  # without those left at their defaults
    limits = [_full_training(stop)]
    if given.get("time_attr") == TRAINING_ITERATION and given.get("stop_last_trials", True):
        limits.append(_iterations(given.get("max_t")))
    return min((limit for limit in limits if limit is not None), default=None)


def _start_line(
    scheduler: Scheduler, searcher: Searcher, tune: TuneConfig, space: Mapping[str, Any]
) -> str:
    """Return which searcher and scheduler are used, and why if the user has not given them."""
    by_searcher = f"Searcher: {type(unwrapped(searcher)).__name__}{_why(searcher, tune, space)}."
    if isinstance(scheduler, schedulers.FIFOScheduler):
        return f"{by_searcher} Scheduler: none; every trial trains to the end."
    name = type(getattr(scheduler, "adapted", scheduler)).__name__
    if isinstance(tune.scheduler, Scheduler):
        return f"{by_searcher} Scheduler: {name}."
    why = _CHOSEN[tune.scheduler]
    return f"{by_searcher} Scheduler: {name} ({why}); weaker trials are stopped early."


def _why(searcher: Searcher, tune: TuneConfig, space: Mapping[str, Any]) -> str:
    """Return in parentheses why a searcher is used, empty if it was given."""
    if isinstance(tune.search_alg, Searcher):
        return ""
    if not isinstance(searcher, BasicVariantGenerator):
        return f" ({_CHOSEN[tune.search_alg]})"
    if SearchSpace(space).grid_axes:
        return " (every point of the grid)"
    if _varies_itself(tune.scheduler):
        return f" (random; {type(tune.scheduler).__name__} changes configurations itself)"
    if len(tune.objectives) < 2 and not all(_objective(tune)):  # noqa: PLR2004
        several = isinstance(tune.scheduler, Scheduler) and len(tune.scheduler.objectives) > 1
        why = "the scheduler compares several metrics" if several else "no metric and mode are set"
        return f" (random, since {why})"
    return f" (random, since num_samples={tune.num_samples:,} is more than {MAX_SAMPLES:,})"


def asha_for(
    searcher: Searcher,
    full: int | None,
    num_samples: int,
    *,
    has_several: bool = False,
    **arguments: Any,
) -> Scheduler:
    """Return the default ASHA, or MOASHA.

    Args:
        searcher: The searcher, in wrappers or without.
        full: The iteration at which a trial ends that is not stopped early; None if unknown.
        num_samples: How many trials there will be; -1 for no limit.
        has_several: Whether there are several metrics, so that it is MOASHA.
        **arguments: Other arguments of the scheduler.
    """
    # Trials end by the stop criterion, which a restore may change: `stop_last_trials` is off.
    max_t, grace_period = (
        (NO_END, 1) if full is None else (full, max(1, full // REDUCTION_FACTOR**NUM_RUNGS))
    )
    # What a model suggests after its first points is mostly good, and among good configurations the
    # first results often say next to nothing. On the tables of the quality benchmark, among the
    # best tenth, the rank correlation of values after a 27th of the training with those at its end
    # is between -0.2 and 0.4, after a third between 0.2 and 0.7. So beside a model only as many
    # scouts as it has first points are compared at each level. Later trials are not compared before
    # the highest level below half of a full training, unless their results show that lower levels
    # can be believed. Some scouts are trained to the end whatever their values: where early values
    # mislead, those that were chosen by them would show this too late.
    num_scouts = unwrapped(searcher).num_first_points(num_samples)
    if full is not None and num_scouts:
        arguments |= {
            "num_scouts": num_scouts,
            "num_full_scouts": int(FULL_SCOUT_SHARE * num_scouts),
            "later_grace_period": "auto",
        }
    fixed = {
        "max_t": max_t,
        "grace_period": grace_period,
        "reduction_factor": REDUCTION_FACTOR,
        "stop_last_trials": False,
    }
    kind = schedulers.MOASHAScheduler if has_several else schedulers.ASHAScheduler
    return kind(**{**fixed, **arguments})


def is_outgrown(tune: TuneConfig) -> bool:
    """Return whether a recorded scheduler is the default one for another number of metrics.

    What was chosen by default is recorded as if it had been given. A scheduler that was given with
    exactly these arguments is taken for it, too.

    Args:
        tune: The settings of a restored experiment, whose metrics may have changed.
    """
    has_several = len(tune.objectives) > 1
    other = schedulers.ASHAScheduler if has_several else schedulers.MOASHAScheduler
    if type(tune.scheduler) is not other:
        return False
    arguments = tune.scheduler.declared_arguments
    full = _iterations(arguments.get("max_t"))
    default = asha_for(
        BasicVariantGenerator(),
        None if full == NO_END else full,
        tune.num_samples,
        has_several=not has_several,
    )
    by_samples = {"num_scouts", "num_full_scouts", "later_grace_period"}
    return default.declared_arguments == {
        name: value for name, value in arguments.items() if name not in by_samples
    }


def _objective(tune: TuneConfig) -> tuple[str | None, str | None]:
    """Return metric and mode, from the settings or else from a scheduler that was given.

    Neither is known where there are several metrics, or the scheduler compares several.
    """
    metric, mode = tune.only_metric, tune.only_mode
    if not isinstance(tune.scheduler, Scheduler) or len(tune.objectives) > 1:
        return metric, mode
    if len(tune.scheduler.objectives) > 1:
        return None, None
    return metric or tune.scheduler.metric, mode or tune.scheduler.mode


def _varies_itself(scheduler: Any) -> bool:
    """Return whether a scheduler is a population method, which changes configurations itself."""
    return bool(getattr(scheduler, "needs_population", False))


def _is_search(tune: TuneConfig, space: Mapping[str, Any]) -> bool:
    """Return whether there are several samples of something that a model can learn about."""
    declared = SearchSpace(space)
    words = [parameter.domain for parameter in declared.parameters]
    return (
        tune.num_samples != 1
        and bool(words)
        and not declared.grid_axes
        and not any(isinstance(word, Normal) for word in words)
    )


def _full_training(stop: Any) -> int | None:
    """Return the iteration at which the stop criterion ends trials, None if it names none."""
    limit = stop.get(TRAINING_ITERATION) if isinstance(stop, Mapping) else None
    if isinstance(stop, MaximumIterationStopper):
        limit = stop.max_iter
    return _iterations(limit)


def _iterations(limit: Any) -> int | None:
    return int(limit) if isinstance(limit, int | float) and 1 <= limit < math.inf else None
