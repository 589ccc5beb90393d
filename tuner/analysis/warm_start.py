"""Configurations of earlier experiments as starting points of a new search.

JSON has no tuples, and what `sample_from` computed is computed again; everything else is restored
as the search space gave it.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final, Literal, overload

from searchers.space import Categorical, Domain, SearchSpace, flat_name
from searchers.space.conditions import Branching, holds_words, unwrapped
from searchers.space.sample_from import SampleFrom
from searchers.space.tree import GRID_KEY, is_grid
from searchers.wrappers.repeater import TRIAL_INDEX
from tuner.storage import strict_json
from tuner.storage.layout import DECLARATION
from tuner.storage.reading import SMALL_BYTES, read_file

from .frames import flat_metrics, value_at
from .ranking import Mode, check_mode, is_number, rank, unknown_metric
from .trial_files import TrialFiles, files_of_trials

_ABSENT: Final = object()
"""Stands for what is left out."""
Point = dict[str, Any]
_MAX_LISTED = 10


def point_in_conditional_space(
    config: Mapping[str, Any], space: SearchSpace, *, is_whole: bool
) -> dict[str, Any]:
    """Return what a configuration says about the searched entries of a conditional space, nested.

    Args:
        config: The configuration, as it was written down.
        space: The space.
        is_whole: Whether every parameter that exists beside the others has to have a value.

    Raises:
        ValueError: If it has a value that lies outside the space, or lacks one.
    """
    point = {
        key: recast
        for key, value in config.items()
        if key in space.space
        and holds_words(space.space[key])
        and (recast := _recast(space.space[key], value)) is not _ABSENT
    }
    values = space.values_of(point)
    lacking = [parameter.name for parameter in space.active(values) if parameter.name not in values]
    if is_whole and lacking:
        raise ValueError(f"{lacking[0]!r} must be there, got nothing")
    return point


def original_category(domain: Categorical, value: Any) -> Any:
    """Return the category that would be written down like this value, or the value."""
    return next(
        (category for category in domain.categories if _as_written(category) == value), value
    )


def _recast(node: Any, value: Any) -> Any:
    """Return a value as the search space gives it, e.g. lists as tuples."""
    node = unwrapped(node)
    match node:
        case SampleFrom():
            return _ABSENT
        case Branching():
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
            return bool(_as_written(node) == value)


def _as_written(value: Any) -> Any:
    match value:
        case tuple() | list():
            return [_as_written(item) for item in value]
        case dict():
            return {key: _as_written(item) for key, item in value.items()}
        case bool() | int() | float() | str() | None:
            return value
        case _:
            return object()  # equals nothing that is written


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
) -> tuple[list[Point], list[float]]: ...


def points_from(
    path: str | os.PathLike[str],
    metric: str | None = None,
    mode: Mode | None = None,
    *,
    num_points: int = 10,
    space: Mapping[str, Any] | None = None,
    with_rewards: bool = False,
) -> list[Point] | tuple[list[Point], list[float]]:
    r"""Return configurations of an earlier experiment's best trials, as ``points_to_evaluate``.

    Reads the files that each trial leaves for people (``params.json``, ``result.json``,
    ``progress.csv``), of this engine's experiments and of Ray Tune's alike. Nothing is unpickled
    and no training code is needed; the experiment may still be running.

    Args:
        path: The experiment's directory.
        metric: Name of the metric, ``"a/b"`` for a nested one, whose last reported number counts;
            None for the experiment's own, where its directory tells.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are; None for the
            experiment's own.
        num_points: How many configurations at most; of equal ones the best trial counts.
        space: The search space of the experiment to come. Points then hold its searched parameters
            only, under flattened names, or, where it is conditional, nested; what `sample_from`
            computes is left out, to be computed anew. Points with a value that lies outside the
            space are left out as a whole, with a warning that names their trials. None returns
            whole configurations as they were written down: objects as text, tuples as lists.
        with_rewards: Whether to return the metric's values as well, for a searcher's
            ``evaluated_rewards``. Points that lack a searched parameter are left out then.

    Returns:
        The configurations, the best first; with rewards a pair of two lists.

    Raises:
        FileNotFoundError: If there is no directory, or no trial in it.
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
    declared = _declared(directory)
    name, direction = metric or declared.get("metric"), check_mode(mode or declared.get("mode"))
    if not isinstance(name, str):
        raise ValueError(  # noqa: TRY004  (it lacks)
            f"metric must be given where the directory names none, got {name!r}; pass metric=..."
        )
    found = sorted(
        _found(directory, name), key=lambda each: rank(each.value, direction), reverse=True
    )
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
    return (points, [value for _, value in chosen]) if with_rewards else points


@dataclass(frozen=True, slots=True)
class _RankedTrial:
    """A trial that reported the metric: its directory, configuration and value."""

    directory: str
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
            yield _RankedTrial(
                trial.path.name,
                {key: item for key, item in config.items() if key != TRIAL_INDEX},
                value,
            )


def _last(trial: TrialFiles, metric: str) -> tuple[float, Mapping[str, Any]] | None:
    """Return the last reported number and the configuration then; None if it is not finite."""
    for row, branch in zip(reversed(trial.rows), reversed(trial.branches), strict=True):
        if is_number(value := value_at(row, metric)):
            config = (
                trial.configs[min(branch, len(trial.configs) - 1)]
                if len(trial.configs) > 1
                else trial.config
            )
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
) -> tuple[list[tuple[Point, float]], list[str]]:
    """Return the first distinct points that fit with their values, and why others do not fit."""
    chosen: dict[str, tuple[Point, float]] = {}
    misfits: list[str] = []
    for each in found:
        try:
            point = (
                dict(each.config)
                if space is None
                else _fitted(each.config, space, is_whole=is_whole)
            )
        except ValueError as misfit:
            misfits.append(f"{each.directory!r} ({misfit})")
            continue
        chosen.setdefault(json.dumps(point, sort_keys=True, default=repr), (point, each.value))
        if len(chosen) == num_points:
            break
    return list(chosen.values()), misfits


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
                raise ValueError(f"{name!r} must be there, got nothing") from None
            continue
        value = original_category(domain, value) if isinstance(domain, Categorical) else value
        if not domain.contains(value):
            raise ValueError(f"{name!r} must lie in {domain!r}, got {value!r}")
        point[name] = domain.cast(value)
    return point
