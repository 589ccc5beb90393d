"""`what_if`: how a recorded experiment would have gone under another scheduler."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from schedulers import create_scheduler
from schedulers.scheduler import NoExperiment, Scheduler
from schedulers.trial_scheduler import TrialSchedulerAdapter, adapted
from tuner.analysis.flat_results import value_at
from tuner.analysis.ranking import check_mode, is_number, mode_for, unknown_metric
from tuner.analysis.result_grid import ResultGrid
from tuner.core.result import flatten
from tuner.spec.experiment_spec import derived_seed

from .answer import ReplayEnding, TrialOutcome, WhatIf, WhatIfComparison, outcome_of
from .recording import Recording, read_recording
from .replay import (
    CannotPauseRecording,
    Objective,
    Replay,
    ReplayedTrial,
    Slots,
    cannot_be_replayed,
    replay,
    run_as_recorded,
    run_in_full,
    slots_for,
)
from .shorter_search import ShorterSearch, shorter_search
from .trade_off import trade_off_of

if TYPE_CHECKING:
    from tuner.stopping.stop_search import StopSearch

_NOTABLE_DRIFT: Final = 0.2
"""Share by which the virtual clock may differ from the real one before a caveat is added."""
_REPORTED_TIME: Final = 4.0
"""Share by which it differs if training code reports its own ``time_this_iter_s``."""
_MAJORITY: Final = 0.5
_FIRST: Final = (
    "the best trials, and what is lost of them, are told by {!r}, the first of several metrics; "
    "name another one with metric="
)


def fresh_scheduler(given: Any, arguments: Mapping[str, Any]) -> Scheduler:
    """Return a scheduler for a replay, separate from the one given.

    Args:
        given: A scheduler, possibly with Ray Tune's signatures, or its short name.
        arguments: Arguments of a scheduler given by name.

    Raises:
        TypeError: If it is neither, or arguments are given that it does not take.
        ValueError: If there is no scheduler of that name, or it changes trials, which cannot be
            replayed; or if it has Ray Tune's signatures and has run before, since its
            arguments are not known.
    """
    scheduler = create_scheduler(given, **arguments) if isinstance(given, str) else adapted(given)
    if not isinstance(scheduler, Scheduler):
        raise TypeError(
            f"scheduler must be a scheduler or the name of one, got {given!r}; e.g. 'asha'"
        )
    if arguments and not isinstance(given, str):
        raise TypeError(
            f"arguments must come with the name of a scheduler, got {sorted(arguments)}; give "
            f"them to the scheduler itself"
        )
    if scheduler.changes_trials or getattr(scheduler, "needs_population", False):
        raise ValueError(cannot_be_replayed(scheduler))
    return _copy_of(scheduler)


def _copy_of(scheduler: Scheduler) -> Scheduler:
    """Return an equal scheduler that has seen no trial."""
    if isinstance(scheduler, TrialSchedulerAdapter) and scheduler.has_run:
        raise ValueError(
            f"scheduler must not have run before, got {scheduler.adapted!r}, which has; "
            f"construct another one"
        )
    if isinstance(scheduler.experiment, NoExperiment):
        return copy.deepcopy(scheduler)
    # One that has run refers to its experiment, so it is constructed anew instead of copied.
    kind = type(scheduler)
    bound = inspect.signature(kind).bind_partial()
    bound.arguments.update(scheduler.declared_arguments)
    return kind(*bound.args, **bound.kwargs)


def objective_for(
    scheduler: Scheduler, recording: Recording, metric: str | None, mode: str | None
) -> Objective:
    """Return metric and mode: those given, the scheduler's, or those of the recorded experiment.

    Raises:
        ValueError: If metric or mode are missing, or given twice with different values.
    """
    for what, given, own in (("metric", metric, scheduler.metric), ("mode", mode, scheduler.mode)):
        if given and own and given != own:
            raise ValueError(
                f"{what} must be given once, got {given!r} here and {own!r} in "
                f"{type(scheduler).__name__}; leave one out"
            )
    name = metric or scheduler.metric or recording.metric
    if not name and recording.several and _compares_all(scheduler, recording):
        name = recording.several[0][0]
    if not name:
        listed = ", ".join(f"{metric!r} ({mode})" for metric, mode in recording.several)
        why = (
            f"optimised several: {listed}; name one of them"
            if listed
            else "names none; name one with its mode"
        )
        raise ValueError(f"metric must be given, as the recorded experiment {why}")
    direction = (
        mode
        or scheduler.mode
        or mode_for(name, recording.metric, recording.mode, recording.several)
    )
    if direction is None:
        listed = ", ".join(repr(metric) for metric, _ in recording.several) or repr(
            recording.metric
        )
        raise ValueError(
            f"mode must be given with metric={name!r}, got None; the recorded experiment "
            f"optimised {listed}"
        )
    return Objective(name, check_mode(direction))


def _compares_all(scheduler: Scheduler, recording: Recording) -> bool:
    """Return whether a scheduler works with several metrics, without one that is named."""
    try:
        return fresh_scheduler(scheduler, {}).set_search_properties(
            None, None, objectives=recording.several, constraints=recording.constraints
        )
    except ValueError:
        return False


def connect(scheduler: Scheduler, objective: Objective, recording: Recording) -> None:
    """Set a scheduler's goals, seed and space, as the recorded experiment would have.

    Raises:
        ValueError: If it does not accept them.
    """
    metric = None if scheduler.metric else objective.metric
    mode = None if scheduler.mode else objective.mode
    scheduler.set_search_properties(
        metric,
        mode,
        seed=derived_seed(recording.seed, "scheduler"),
        objectives=recording.several,
        constraints=recording.constraints,
    )
    if recording.space:
        scheduler.completed_space(recording.space)


def description_of(scheduler: Scheduler) -> str:
    """Return the call that constructs a scheduler: ``ASHAScheduler(max_t=27)``."""
    if isinstance(scheduler, TrialSchedulerAdapter):
        return f"{type(scheduler.adapted).__name__}(...)"
    listed = ", ".join(f"{name}={value!r}" for name, value in scheduler.declared_arguments.items())
    return f"{type(scheduler).__name__}({listed})"


@overload
def what_if(
    path_or_grid: str | os.PathLike[str] | ResultGrid,
    *,
    stop_search: StopSearch | Literal["auto"],
    metric: str | None = None,
    mode: str | None = None,
) -> ShorterSearch: ...


@overload
def what_if(
    path_or_grid: str | os.PathLike[str] | ResultGrid,
    scheduler: Scheduler | str,
    *,
    slots: int | None = None,
    metric: str | None = None,
    mode: str | None = None,
    **arguments: Any,
) -> WhatIf: ...


@overload
def what_if(
    path_or_grid: str | os.PathLike[str] | ResultGrid,
    scheduler: Mapping[str, Scheduler | str],
    *,
    slots: int | None = None,
    metric: str | None = None,
    mode: str | None = None,
) -> WhatIfComparison: ...


def what_if(
    path_or_grid: str | os.PathLike[str] | ResultGrid,
    scheduler: Scheduler | str | Mapping[str, Scheduler | str] | None = None,
    *,
    stop_search: StopSearch | Literal["auto"] | None = None,
    slots: int | None = None,
    metric: str | None = None,
    mode: str | None = None,
    **arguments: Any,
) -> WhatIf | WhatIfComparison | ShorterSearch:
    """Estimate how a recorded experiment would have gone under another scheduler.

    With `stop_search` instead, it estimates how it would have gone if its search had ended early:
    the trials that were started before are those that would have been run.

    The recorded trials run once more on a virtual clock, in the order in which they were created:
    each reports the recorded results after the recorded times, until the scheduler stops or pauses
    it. Core, driver and scheduler are the real ones; nothing is trained, nothing is written, and
    the answer is always the same.

    A curve ends where the trial was stopped when it was recorded. If the scheduler would have
    trained it further, the answer is a bound (see `WhatIf`); to avoid this, record with
    `FIFOScheduler`. The recorded configurations are used, although a searcher might have suggested
    others. Population based training is refused, as a recording and as the scheduler.
    ``docs/what_if.md`` has more.

    Args:
        path_or_grid: Directory of the experiment, see `ResultGrid.from_directory`, or its results.
        scheduler: The other scheduler, which is not changed; its short name, see
            `create_scheduler`; or a mapping of several by names of your own.
        stop_search: As in `TuneConfig`, without a scheduler.
        slots: How many trials run at once, independent of their resources; None for as many as
            when recorded, which is one if they shared a process.
        metric: The metric that measures quality, flattened; None for the scheduler's own, or that
            of the experiment. Of several metrics it is the first one if the scheduler compares all
            of them, and a `TradeOff` tells what is left of the Pareto front.
        mode: ``"min"`` if smaller values of it are better, ``"max"`` if larger ones are; None
            for that of the scheduler or the experiment.
        **arguments: Arguments of a scheduler given by name.

    Returns:
        The answer; for several schedulers the answers by their names; a `ShorterSearch` with
        `stop_search`.

    Raises:
        FileNotFoundError: If there is no such directory, or no experiment in it.
        StorageError: If it cannot be read.
        TypeError: If an argument has the wrong type, or the named scheduler no such argument.
        ValueError: If the scheduler changes configurations or resources, the recording holds no
            results, or trials that continued from others' checkpoints, the metric was not reported,
            or one of several objectives has to be named.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     for step in range(1, 10):
        ...         tune.report({"loss": config["x"] / step, "time_this_iter_s": 60.0})
        >>> results = tune.Tuner(
        ...     train,
        ...     param_space={"x": tune.grid_search([1.0, 2.0, 3.0, 4.0])},
        ...     tune_config=tune.TuneConfig(
        ...         metric="loss", mode="min", scheduler=tune.create_scheduler("fifo")
        ...     ),
        ...     run_config=tune.RunConfig(storage_path=getfixture("tmp_path"), verbose=0),
        ... ).fit()
        >>> asha = tune.create_scheduler("asha", max_t=9, reduction_factor=3)
        >>> answer = tune.what_if(results.experiment_path, asha, slots=1)
        >>> answer.replayed.num_iterations, answer.regret, round(answer.saved_share, 2)
        (12, 0.0, 0.67)
    """
    if stop_search is not None:
        if scheduler is not None or slots is not None or arguments:
            raise ValueError(
                f"stop_search must come alone, got scheduler={scheduler!r}, slots={slots!r} and "
                f"{sorted(arguments)}; ask for a scheduler in a call of its own"
            )
        grid = _grid(path_or_grid)
        return shorter_search(
            Path(grid.local_directory), grid.experiment_path, stop_search, metric, mode
        )
    if isinstance(scheduler, Mapping):
        if not scheduler or arguments:
            listed = f"{dict(scheduler)} with {sorted(arguments)}" if arguments else "none"
            raise ValueError(
                f"scheduler must hold one scheduler at least, each with its own arguments, got "
                f"{listed}; construct them first"
            )
        scheduler_copies = {str(name): fresh_scheduler(one, {}) for name, one in scheduler.items()}
        recording = read_recording(_grid(path_or_grid))
        return WhatIfComparison(
            {
                name: _answer(recording, one, slots, metric, mode)
                for name, one in scheduler_copies.items()
            }
        )
    # The scheduler is checked first: reading a large experiment takes longer.
    scheduler_copy = fresh_scheduler(scheduler, arguments)
    return _answer(read_recording(_grid(path_or_grid)), scheduler_copy, slots, metric, mode)


def _grid(path_or_grid: str | os.PathLike[str] | ResultGrid) -> ResultGrid:
    return (
        path_or_grid
        if isinstance(path_or_grid, ResultGrid)
        else ResultGrid.from_directory(path_or_grid)
    )


def _answer(
    recording: Recording,
    scheduler: Scheduler,
    num_slots: int | None,
    metric: str | None,
    mode: str | None,
) -> WhatIf:
    objective = objective_for(scheduler, recording, metric, mode)
    is_first = not (metric or scheduler.metric or recording.metric)
    _check_reported(recording, objective.metric)
    slots = slots_for(recording, num_slots)
    description = description_of(scheduler)
    replayed, supposes_saves = _replayed(recording, scheduler, slots, objective)
    outcomes = [
        outcome_of(
            recorded,
            trial,
            replayed.replayed_trials.get(trial.trial_id, ReplayedTrial()),
            objective.metric,
            objective.mode,
        )
        for recorded, trial in zip(recording.trials, replayed.trials, strict=True)
    ]
    in_full = run_in_full(recording, slots, objective)
    as_recorded = run_as_recorded(recording, objective)
    # Times can be compared only if the replay has the trials and the slots of the recording.
    is_comparable = num_slots is None and not recording.is_inline and recording.is_whole
    drift = None
    if as_recorded and is_comparable and as_recorded.wall_clock_s:
        drift = in_full.wall_clock_s / as_recorded.wall_clock_s - 1
    return WhatIf(
        experiment=recording.path,
        scheduler=description,
        metric=objective.metric,
        mode=objective.mode,
        num_slots=slots.count,
        recorded=as_recorded,
        in_full=in_full,
        replayed=replayed.totals,
        trials=tuple(outcomes),
        decisions=replayed.decisions,
        supposes_saves=supposes_saves,
        drift=drift,
        caveats=(
            *_caveats(recording, outcomes, drift, supposes_saves=supposes_saves),
            *([_FIRST.format(objective.metric)] if is_first else []),
        ),
        trade_off=trade_off_of(recording, replayed),
        remarks=replayed.remarks,
        state=replayed.state,
    )


def _check_reported(recording: Recording, metric: str) -> None:
    known: set[str] = set()
    for point in itertools.chain.from_iterable(trial.curve.points for trial in recording.trials):
        if is_number(value_at(point.result, metric)):
            return
        known.update(name for name, value in flatten(point.result).items() if is_number(value))
    raise unknown_metric(metric, known, "a trial")


def _replayed(
    recording: Recording, scheduler: Scheduler, slots: Slots, objective: Objective
) -> tuple[Replay, bool]:
    """Return the replay, and whether it had to assume that trials save on demand."""
    can_save = recording.settings is not None and recording.settings.checkpoints.can_save_on_demand
    # A scheduler cannot be used twice; the copy is for a second replay, if the first one fails.
    second_copy = fresh_scheduler(scheduler, {})
    connect(scheduler, objective, recording)
    try:
        return replay(
            recording, scheduler, slots, objective.metric, objective.mode, can_save=can_save
        ), False
    except CannotPauseRecording:
        connect(second_copy, objective, recording)
        return replay(
            recording,
            second_copy,
            slots,
            objective.metric,
            objective.mode,
            can_save=True,
            supposes_saves=True,
        ), True


def _caveats(
    recording: Recording,
    outcomes: Sequence[TrialOutcome],
    drift: float | None,
    *,
    supposes_saves: bool,
) -> Iterator[str]:
    """Yield the limits of the answer, the most important first."""
    num_cut = sum(one.is_cut for one in outcomes)
    num_run_out = sum(one.ending is ReplayEnding.RAN_OUT for one in outcomes)
    beyond = (
        f"{num_run_out} of {len(outcomes)} trials would have trained longer than they were recorded"
    )
    if num_run_out > _MAJORITY * len(outcomes):
        yield (
            f"{beyond}, so this says little about the scheduler; record the experiment "
            f"with FIFOScheduler for an exact answer"
        )
    elif num_run_out:
        yield f"{beyond}: it would take longer than this, and might find something better"
    elif num_cut:
        yield (
            f"{num_cut} of {len(outcomes)} curves were cut short when they were recorded; the "
            "scheduler does not ask for more of them, but in full one of them might have been "
            "better than the best recorded, and more quality be lost than it seems"
        )
    if supposes_saves:
        yield (
            "the recorded trials saved no checkpoints, without which they cannot be paused: it "
            "is assumed that they save on demand in no time; a real run would refuse"
        )
    if recording.is_inline:
        yield (
            "the recorded trials shared one process, in which one trained at a time; the replay "
            "does the same, unless slots are given"
        )
    if drift is not None and drift > _REPORTED_TIME:
        yield (
            f"the results report {drift + 1:.3g} times as much time as really passed; the replay "
            f"uses the reported times"
        )
    elif drift is not None and abs(drift) > _NOTABLE_DRIFT:
        more = "more" if drift > 0 else "less"
        yield (
            f"the virtual clock takes {abs(drift):.0%} {more} for the experiment in full than "
            f"it really took; compare times with care"
        )
    yield from recording.caveats
