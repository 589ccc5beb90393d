"""Configurations of earlier experiments as starting points of a new search.

Values are restored to the types that the search space had given them, e.g. lists to tuples, which
JSON lacks. Values of `sample_from` are left out, since they are computed again.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final, Literal, overload

from searchers.space import Categorical, Domain, SearchSpace, flat_name
from searchers.space.conditions import Branching, holds_words, unwrapped
from searchers.space.recorded_forms import is_recorded_form, recorded_index
from searchers.space.sample_from import SampleFrom
from searchers.space.tree import GRID_KEY, is_grid
from searchers.wrappers.repeater import TRIAL_INDEX
from tuner.core.feasibility import is_feasible, newest
from tuner.core.pareto import Objectives, best_trials
from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.storage import strict_json
from tuner.storage.disk import SMALL_BYTES, read_file
from tuner.storage.layout import DECLARATION

from .flat_results import flat_metrics, value_at
from .open_experiment import OpenedExperiment, read_directory
from .ranking import Mode, check_mode, is_number, rank, unknown_metric
from .trial_files import TrialFiles, files_of_trials

_ABSENT: Final = object()
"""Marks a value that is left out."""
Point = dict[str, Any]
_MAX_LISTED = 10


def point_in_conditional_space(
    config: Mapping[str, Any], space: SearchSpace, *, is_whole: bool
) -> dict[str, Any]:
    """Return the entries of a configuration that a conditional space searches, nested.

    Args:
        config: The configuration, as recorded.
        space: The space.
        is_whole: Whether every parameter that is active with the others must have a value.

    Raises:
        ValueError: If a value is outside the space, or is missing.
    """
    point = {
        key: recast
        for key, value in config.items()
        if key in space.space
        and holds_words(space.space[key])
        and (recast := _recast(space.space[key], value)) is not _ABSENT
    }
    values = space.values_of(point)
    missing = [parameter.name for parameter in space.active(values) if parameter.name not in values]
    if is_whole and missing:
        raise ValueError(f"{missing[0]!r} must have a value, got none")
    return point


def original_category(domain: Categorical, value: Any) -> Any:
    """Return the category whose recorded form is this value; without one the value."""
    if domain.contains(value):
        return domain.cast(value)
    place = recorded_index(domain.categories, value)
    return value if place is None else domain.categories[place]


def _recast(node: Any, value: Any) -> Any:
    """Return a recorded value in the type of its search space, e.g. a list as a tuple."""
    node = unwrapped(node)
    match node:
        case SampleFrom():
            return _ABSENT
        case Branching():
            # The option that was chosen is not recorded: it is the first that can have the value.
            candidates = (_recast(option, value) for option in node.options)
            return next(
                (
                    one
                    for option, one in zip(node.options, candidates, strict=True)
                    if _fits(option, one)
                ),
                value,
            )
        case Categorical():
            return original_category(node, value)
        case dict() if is_grid(node):
            return original_category(Categorical(tuple(node[GRID_KEY])), value)
        case _:
            return _recast_inside(node, value)


def _recast_inside(node: Any, value: Any) -> Any:
    if isinstance(node, dict) and isinstance(value, dict):
        parts = {key: _recast(node.get(key), part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not _ABSENT}
    if isinstance(node, list | tuple) and isinstance(value, list) and len(value) == len(node):
        return type(node)(_recast(part, one) for part, one in zip(node, value, strict=True))
    return value


def _fits(node: Any, value: Any) -> bool:
    """Return whether a value could come from this part of a space.

    Conditions on other parameters are not checked.
    """
    node = unwrapped(node)
    match node:
        case Branching():
            return any(_fits(option, value) for option in node.options)
        case Domain():
            return bool(node.contains(value))
        case dict() if not is_grid(node):
            return isinstance(value, dict) and all(
                key in node and _fits(node[key], part) for key, part in value.items()
            )
        case list() | tuple():
            is_alike = type(value) is type(node) and len(value) == len(node)
            return is_alike and all(_fits(part, one) for part, one in zip(node, value, strict=True))
        case _:
            return is_recorded_form(node, value)


@overload
def points_from(
    path: str | os.PathLike[str],
    metric: str | None = None,
    mode: Mode | None = None,
    *,
    num_points: int = 10,
    space: Mapping[str, Any] | None = None,
    with_rewards: Literal[False] = False,
) -> list[Point]: ...


@overload
def points_from(
    path: str | os.PathLike[str],
    metric: str | None = None,
    mode: Mode | None = None,
    *,
    num_points: int = 10,
    space: Mapping[str, Any] | None = None,
    with_rewards: Literal[True],
) -> tuple[list[Point], list[Any]]: ...


def points_from(
    path: str | os.PathLike[str],
    metric: str | None = None,
    mode: Mode | None = None,
    *,
    num_points: int = 10,
    space: Mapping[str, Any] | None = None,
    with_rewards: bool = False,
) -> list[Point] | tuple[list[Point], list[Any]]:
    r"""Return configurations of an earlier experiment's best trials, as ``points_to_evaluate``.

    Reads the files in each trial's directory (``params.json``, ``result.json``, ``progress.csv``),
    of this engine's experiments and of Ray Tune's alike. Nothing is unpickled and no training code
    is needed; the experiment may still be running.

    Args:
        path: The experiment's directory.
        metric: Name of the metric, ``"a/b"`` for a nested one, by whose last number trials are
            compared; None for the experiment's own, if its directory names one, or several.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are; None for the
            experiment's own.
        num_points: How many configurations at most; of equal ones, that of the best trial is used.
        space: The search space of the new experiment. Points then contain only the parameters that
            it searches, under flattened names, or nested if it is conditional; values of
            `sample_from` are left out, since they are computed again. Points with a value outside
            the space are left out, with a warning that names their trials. None returns whole
            configurations as recorded: objects as text, tuples as lists. Searchers recognise these
            forms of what is in their space.
        with_rewards: Whether to return the metric's values as well, for a searcher's
            ``evaluated_rewards``. Points that lack a searched parameter are then left out, and,
            with a warning, trials that were not trained to the end. Where that is unknown, as in
            most directories of Ray Tune, only trials with as many iterations as the longest count.
            If no metric is given and the experiment optimised several, or had constraints, the
            reward of a point is a dictionary of all these metrics.

    Returns:
        The configurations, the best first, of several metrics those on the Pareto front; and those
        of trials that miss a constraint of the experiment last. With rewards a pair of two lists,
        without the latter if a metric is given.

    Raises:
        FileNotFoundError: If there is no such directory, or no trial in it.
        ValueError: If no trial reported the metric as a finite number, or metric or mode are
            unknown.

    Example:
        >>> import tuner as tune
        >>> trial = getfixture("tmp_path") / "train_0a1b2_00000_0_lr=0.1000_2026-11-21_05-33-04"
        >>> trial.mkdir()
        >>> _ = (trial / "params.json").write_text('{"lr": 0.1, "epochs": 5}')
        >>> _ = (trial / "progress.csv").write_text("loss,training_iteration\n0.7,1\n0.5,2\n")
        >>> space = {"lr": tune.uniform(0, 1), "epochs": 9}
        >>> tune.points_from(trial.parent, "loss", "min", space=space, with_rewards=True)
        ([{'lr': 0.1}], [0.5])

    Departures:
        Ray Tune's BayesOptSearch alone takes an earlier analysis.
    """
    if isinstance(num_points, bool) or not isinstance(num_points, int) or num_points < 1:
        raise ValueError(
            f"num_points must be a whole number of at least 1, got {num_points!r}; it limits how "
            f"many points are returned"
        )
    directory = Path(path).expanduser()
    opened = _opened(directory)
    name, direction = _objective(metric, mode, _declared(directory), opened.several)
    goals = _goals(opened, name) if with_rewards and metric is None else []
    reached = {trial.trial_id: _reached(trial, goals) for trial in opened.trials}
    infeasible = {
        trial.trial_id for trial in opened.trials if not is_feasible(trial, opened.constraints)
    }
    front = _front(opened) if metric is None else ()
    found = sorted(
        _found(directory, name),
        key=lambda each: (
            each.trial_id not in infeasible,
            each.trial_id in front,
            *rank(each.value, direction),
        ),
        reverse=True,
    )
    if with_rewards:
        found = _fully_trained(found, opened)
        if goals:
            required = [name, *(other for other, _ in opened.several)]
            found = [each for each in found if reached[each.trial_id].keys() >= {*required}]
        else:
            found = _feasible(found, infeasible)
    chosen, misfits = _chosen(
        found, None if space is None else SearchSpace(space), num_points, is_whole=with_rewards
    )
    if misfits:
        warnings.warn(
            f"trials that do not fit the space are left out: {_listed(misfits)}",
            RuntimeWarning,
            stacklevel=2,
        )
    points = [point for point, _ in chosen]
    if not with_rewards:
        return points
    return points, [reached[each.trial_id] if goals else each.value for _, each in chosen]


def _goals(opened: OpenedExperiment, metric: str) -> list[str]:
    """Return what counts in an experiment with several metrics or constraints; else nothing."""
    if not (opened.several or opened.constraints):
        return []
    bounded = (each.metric for each in opened.constraints)
    return list(dict.fromkeys([metric, *(name for name, _ in opened.several), *bounded]))


def _reached(trial: Trial, metrics: Iterable[str]) -> dict[str, float]:
    """Return the newest values of a trial, as far as they are finite."""
    values = {metric: newest(trial, metric) for metric in metrics}
    return {
        metric: value
        for metric, value in values.items()
        if value is not None and math.isfinite(value)
    }


def _front(opened: OpenedExperiment) -> set[str]:
    """Return the trials on the Pareto front of several metrics."""
    if not opened.several:
        return set()
    best = best_trials(opened.trials, opened.several, constraints=opened.constraints)
    return {trial.trial_id for trial in best}


@dataclass(frozen=True, slots=True)
class _RankedTrial:
    """Directory, id, configuration, value and length of a trial that reported the metric."""

    directory: str
    trial_id: str
    num_iterations: int
    config: Mapping[str, Any]
    value: float


def _found(directory: Path, metric: str) -> Iterator[_RankedTrial]:
    """Yield the trials that reported a finite number, in the order of their names."""
    trials = list(files_of_trials(directory))
    if not trials:
        raise FileNotFoundError(
            f"path must be the directory of an experiment, got {str(directory)!r}; it holds no "
            f"directory of a trial"
        )
    lasts = [_last(trial, metric) for trial in trials]
    if all(last is None for last in lasts):
        known = {
            name
            for trial in trials
            for row in trial.rows
            for name, value in flat_metrics(row).items()
            if is_number(value)
        }
        if metric in known:
            raise ValueError(
                f"metric must have a finite value in one trial at least, got {metric!r}, which "
                f"has none; choose another"
            )
        raise unknown_metric(metric, known, "a trial")
    for trial, last in zip(trials, lasts, strict=True):
        if last is not None:
            value, config = last
            # A Repeater adds the index of the repetition to each configuration.
            yield _RankedTrial(
                trial.path.name,
                trial.trial_id,
                _num_iterations(trial.rows),
                {key: item for key, item in config.items() if key != TRIAL_INDEX},
                value,
            )


def _num_iterations(rows: Sequence[Mapping[str, Any]]) -> int:
    last = rows[-1].get(TRAINING_ITERATION) if rows else 0
    return last if isinstance(last, int) else len(rows)


def _objective(
    metric: str | None, mode: Mode | None, declared: Mapping[str, Any], several: Objectives
) -> tuple[str, Mode]:
    """Return by which metric trials are compared, and its direction."""
    if metric is None and several:
        metric = several[0][0]
    name = metric or declared.get("metric")
    direction = check_mode(mode or dict(several).get(metric or "") or declared.get("mode"))
    if not isinstance(name, str):
        raise ValueError(  # noqa: TRY004  (it is missing)
            f"metric must be given where the directory names none, got {name!r}; pass metric=..."
        )
    return name, direction


def _opened(directory: Path) -> OpenedExperiment:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be read is unknown
        return read_directory(directory)


def _feasible(found: Sequence[_RankedTrial], infeasible: Collection[str]) -> list[_RankedTrial]:
    """Return the feasible trials: rewards of others would tell a searcher that they are good."""
    kept = [each for each in found if each.trial_id not in infeasible]
    if len(kept) < len(found):
        warnings.warn(
            f"{len(found) - len(kept)} of {len(found)} trials are left out, since they miss a "
            "constraint of the experiment; with_rewards=False returns them last",
            RuntimeWarning,
            stacklevel=3,
        )
    return kept


def _fully_trained(found: Sequence[_RankedTrial], opened: OpenedExperiment) -> list[_RankedTrial]:
    """Return the trials whose last value is known to be that of a full training."""
    endings = {trial.trial_id: (trial.status, trial.ending) for trial in opened.trials}
    longest = max((each.num_iterations for each in found), default=0)
    full: list[_RankedTrial] = []
    for each in found:
        status, ending = endings.get(each.trial_id, (Status.TERMINATED, None))
        is_unknown = status is Status.TERMINATED and ending is None
        if ending is TerminationReason.COMPLETED or (is_unknown and each.num_iterations == longest):
            full.append(each)
    if len(full) < len(found):
        warnings.warn(
            f"{len(found) - len(full)} of {len(found)} trials are left out, since they were not "
            "trained to the end, or may not have been; with_rewards=False returns all",
            RuntimeWarning,
            stacklevel=3,
        )
    return full


def _last(trial: TrialFiles, metric: str) -> tuple[float, Mapping[str, Any]] | None:
    """Return the last reported number and its configuration; None if it is not finite."""
    for row, branch in zip(reversed(trial.rows), reversed(trial.branches), strict=True):
        if is_number(value := value_at(row, metric)):
            config = trial.config
            if len(trial.configs) > 1:  # a scheduler changed it
                config = trial.configs[min(branch, len(trial.configs) - 1)]
            return (float(value), config) if math.isfinite(value) else None
    return None


def _declared(directory: Path) -> Mapping[str, Any]:
    """Return the experiment's declaration; empty if the directory has none."""
    try:
        declared = strict_json.loads(read_file(directory / DECLARATION, SMALL_BYTES))
    except (OSError, ValueError):
        return {}
    return declared if isinstance(declared, dict) else {}


def _chosen(
    found: Iterable[_RankedTrial], space: SearchSpace | None, num_points: int, *, is_whole: bool
) -> tuple[list[tuple[Point, _RankedTrial]], list[str]]:
    """Return the first distinct points in the space with their trials, and why others are not."""
    chosen: dict[str, tuple[Point, _RankedTrial]] = {}
    misfits: list[str] = []
    for each in found:
        point = dict(each.config)
        try:
            if space is not None:
                point = _fitted(each.config, space, is_whole=is_whole)
                _check_allowed(point, space, is_evaluated=is_whole)
        except ValueError as misfit:
            misfits.append(f"{each.directory!r} ({misfit})")
            continue
        # Trials come in the order of their ranks, so of equal points the best value is kept.
        chosen.setdefault(json.dumps(point, sort_keys=True, default=repr), (point, each))
        if len(chosen) == num_points:
            break
    return list(chosen.values()), misfits


def _check_allowed(point: Point, space: SearchSpace, *, is_evaluated: bool) -> None:
    """Check that a point can be run; one with a value is only learnt from.

    Raises:
        ValueError: If it violates the relation of the space.
    """
    if space.where is not None and not is_evaluated:
        space.check_satisfiable(space.assignments(point), "it")


def _listed(misfits: list[str]) -> str:
    more = f"; and {len(misfits) - _MAX_LISTED} more" if len(misfits) > _MAX_LISTED else ""
    return "; ".join(misfits[:_MAX_LISTED]) + more


def _fitted(config: Mapping[str, Any], space: SearchSpace, *, is_whole: bool) -> Point:
    if space.is_conditional:
        return point_in_conditional_space(config, space, is_whole=is_whole)
    searched = {
        **space.domains,
        **{path: Categorical(tuple(values)) for path, values in space.grid_axes.items()},
    }
    point: Point = {}
    for path, domain in searched.items():
        name = flat_name(path)
        try:
            value = reduce(getitem, path, config)  # type: ignore[arg-type]
        except (LookupError, TypeError):
            if is_whole:
                raise ValueError(f"{name!r} must have a value, got none") from None
            continue
        value = original_category(domain, value) if isinstance(domain, Categorical) else value
        if not domain.contains(value):
            raise ValueError(f"{name!r} must lie in {domain!r}, got {value!r}")
        point[name] = domain.cast(value)
    return point
