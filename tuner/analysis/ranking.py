"""Comparison of trials by a metric: modes, ranks, and the best trial and step."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

from searchers.objectives.outcome_constraint import Constraints, number_of
from tuner.core.feasibility import is_feasible
from tuner.core.metric_watch import meant_by
from tuner.core.result import DELIMITER, TRAINING_ITERATION
from tuner.core.trial import Trial
from tuner.core.trial_metrics import Evaluation, MetricSummary, TrackedMetric
from tuner.journal.rows import Rows

from .flat_results import flat_metrics, value_at

if TYPE_CHECKING:
    from tuner.core.pareto import Objectives

Mode = Literal["min", "max"]
"""The direction in which a metric is optimised."""
MODES: tuple[Mode, ...] = get_args(Mode)
_MAX_LISTED = 10
Scope = Literal["last", "avg", "last-5-avg", "last-10-avg", "all"]
"""Which value of a trial's metric counts: its latest, a mean, or its best."""
SCOPES: tuple[Scope, ...] = ("last", "avg", "last-5-avg", "last-10-avg", "all")


def check_mode(mode: str | None, name: str = "mode") -> Mode:
    """Return the mode if it is ``"min"`` or ``"max"``.

    Args:
        mode: What was given.
        name: Name of the argument, for the message.

    Raises:
        ValueError: If it is not one of them.
    """
    for known in MODES:  # returned instead of the argument, whose type is any string
        if mode == known:
            return known
    if mode is None:
        raise ValueError(
            f"{name} must be 'min' or 'max', got None; pass it, or set it in TuneConfig"
        )
    close = difflib.get_close_matches(str(mode).lower(), MODES, n=1, cutoff=0.3)
    raise ValueError(
        f"{name} must be 'min' or 'max', got {mode!r}"
        + (f"; did you mean {close[0]!r}?" if close else "")
    )


def mode_for(
    metric: str | None, own_metric: str | None, own_mode: Mode | None, several: Objectives = ()
) -> Mode | None:
    """Return the direction in which an experiment optimises a metric; None if it is unknown.

    The direction of one metric does not apply to another one.

    Args:
        metric: The metric in question; None for the experiment's own.
        own_metric: The metric that the experiment optimises; None if it does not name one, in which
            case its mode applies to every metric.
        own_mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None for unknown.
        several: Metric and mode of each objective of an experiment that has several.
    """
    if metric is not None and several:
        mode = dict(several).get(metric)
        return mode if mode is None else check_mode(mode)
    return own_mode if metric is None or own_metric in (None, metric) else None


def objective_of(
    metric: str | None, mode: str | None, several: Objectives = (), *, name: str = "mode"
) -> tuple[str, Mode]:
    """Return metric and mode, checked.

    Args:
        metric: The metric, if there is one.
        mode: Its mode, if there is one.
        several: The objectives of an experiment that has several.
        name: Name of the argument that holds the mode, for the message.

    Raises:
        ValueError: If there is no metric, no mode, or no such mode.
    """
    if not metric and several:
        names = ", ".join(name for name, _ in several)
        raise ValueError(
            f"metric must be given, as the experiment has {len(several)} objectives: {names}; "
            "name one, weigh them with ResultGrid.get_best_result(weights=...), or take the Pareto "
            "front with ResultGrid.pareto()"
        )
    if not metric:
        raise ValueError(
            "metric must be given, as the experiment names none; pass metric=..., or set it in "
            "TuneConfig"
        )
    if mode is None:
        raise ValueError(
            f"{name} must be 'min' or 'max', got None; pass it, as the experiment does not say "
            f"whether {metric!r} is minimised"
        )
    return metric, check_mode(mode, name)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a metric's value can be compared: an int or a float, but not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number within the range of floats."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


def given_number(value: Any) -> float:
    """Return a number of the user's, one of NumPy included, as a float; NaN for anything else."""
    number = number_of(value)
    return math.nan if number is None else number


def rank(value: float, mode: Mode) -> tuple[bool, float]:
    """Return a sort key that is larger for better values; NaN is worse than everything.

    Args:
        value: The metric's value.
        mode: ``"max"`` if larger values are better, ``"min"`` if smaller ones are.

    Example:
        >>> max([0.3, float("nan"), 0.1], key=lambda loss: rank(loss, "min"))
        0.1
    """
    if math.isnan(value):
        return (False, 0.0)
    return (True, value if mode == "max" else -value)


def step_rank(value: float, mode: Mode) -> tuple[bool, float]:
    """Return a sort key that is larger for better steps; values that are not finite are worst."""
    return rank(value if is_finite(value) else math.nan, mode)


def unknown_metric(metric: str, known: Collection[str], whose: str) -> ValueError:
    """Return the error for a metric that was not reported, suggesting the closest existing ones.

    Args:
        metric: The name asked for.
        known: The metrics that exist, flattened.
        whose: Subject of the message, e.g. ``"a trial"``.
    """
    message = f"metric must be one that {whose} reported as a number, got {metric!r}"
    if close := meant_by(metric, sorted(known)):
        return ValueError(f"{message}; did you mean {' or '.join(repr(name) for name in close)}?")
    listed = ", ".join(sorted(known)[:_MAX_LISTED]) or "none"
    return ValueError(
        f"{message}; reported were: {listed}{', ...' if len(known) > _MAX_LISTED else ''}"
    )


def tracked(trial: Trial, rows: Rows, metric: str, mode: Mode) -> TrackedMetric:
    """Return the newest and the best value of a metric in a trial, with their iterations.

    Args:
        trial: The trial.
        rows: Source of its results; not read for the experiment's own metric, which the engine
            tracks.
        metric: Flattened name of the metric.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
    """
    if metric not in trial.summary:
        return TrackedMetric(metric, mode)
    known = trial.objective
    # The row is 0 if it is unknown; the results are read then.
    is_exact = _is_tracked(trial, metric, mode) and not _may_be_corrected(trial)
    if is_exact and all(one is None or one.row for one in (known.last, known.best)):
        return known
    return TrackedMetric.of_results(map(flat_metrics, rows.of(trial.trial_id)), metric, mode)


def value_of(
    trial: Trial, rows: Rows, metric: str, mode: Mode | None, scope: Scope = "last"
) -> float:
    """Return a trial's value of a metric within a scope; NaN if it has none.

    Args:
        trial: The trial.
        rows: Its results, read if the engine's summary does not suffice.
        metric: Flattened name of the metric.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised, which matters for the
            scope ``all``.
        scope: Which of its values.
    """
    if metric not in trial.summary:
        return math.nan
    if scope == "last" and _is_tracked(trial, metric, mode):
        return trial.objective.last.value if trial.objective.last else math.nan
    if scope == "all" and _is_tracked(trial, metric, mode):
        best = tracked(trial, rows, metric, mode or check_mode(trial.objective.mode)).best
        return best.value if best else math.nan
    return float(_summary(trial, rows, metric, scope).by_scope(scope, mode or "min"))


def best_first(
    trials: Sequence[Trial],
    rows: Rows,
    metric: str,
    mode: Mode,
    *,
    scope: Scope = "last",
    constraints: Constraints = (),
) -> list[tuple[int, float]]:
    """Return index and value of each trial that reported the metric, best first.

    Of equal trials the one created first comes first. NaN comes last, and infinities are compared
    as numbers. Trials that miss a constraint come behind all that are feasible.
    """
    values = [
        (index, value_of(trial, rows, metric, mode, scope))
        for index, trial in enumerate(trials)
        if metric in trial.summary
    ]
    # Sorting is stable, also in reverse: equal trials stay in the order of creation.
    return sorted(
        values,
        key=lambda found: (is_feasible(trials[found[0]], constraints), *rank(found[1], mode)),
        reverse=True,
    )


def best_row_index(rows: Sequence[Mapping[str, Any]], metric: str, mode: Mode) -> int | None:
    """Return the index of the best finite value of the metric, the latest of equal ones.

    None if no result has a finite value of it.
    """
    scored = [
        (rank(value, mode), place)
        for place, row in enumerate(rows)
        if is_finite(value := value_at(row, metric))
    ]
    return max(scored)[1] if scored else None


def newest_of(trial: Trial, metric: str | None, mode: Mode | None = None) -> Evaluation | None:
    """Return the newest value of the experiment's metric in a trial.

    Its iteration is given if that is known without reading the trial's results.
    """
    if metric is None or metric not in trial.summary:
        return None
    if _is_tracked(trial, metric, mode):
        return trial.objective.last
    has_metric = is_number(value_at(trial.last_result, metric))
    return Evaluation(trial.summary[metric].last, trial.iteration if has_metric else None)


def config_at(trial: Trial, rows: Rows, row: int | None = None) -> Mapping[str, Any]:
    """Return the configuration in force at a result of a trial.

    A scheduler may have changed it since.

    Args:
        trial: The trial.
        rows: Source of its results, read only for trials that were read from their files.
        row: Position among the current results, counted from 1; None for the last one.
    """
    if trial.grafts:
        return trial.config_at(trial.num_rows if row is None else row)
    configs = rows.configs(trial.trial_id) if rows.configs_by_branch(trial.trial_id) else None
    if not configs:
        return trial.config
    if row is None:
        return configs[-1]
    return configs[row - 1] if 0 < row <= len(configs) else trial.config


def config_of(trial: Trial, rows: Rows, metric: str | None) -> Mapping[str, Any]:
    """Return the configuration in force at the newest value of a metric, or at the last result."""
    if not trial.grafts and not rows.configs_by_branch(trial.trial_id):
        return trial.config
    newest = (
        tracked(trial, rows, metric, check_mode(trial.objective.mode or "min")).last
        if metric
        else None
    )
    return config_at(trial, rows, newest.row if newest else None)


def with_newest(
    result: Mapping[str, Any], newest: Evaluation | None, metric: str | None
) -> dict[str, Any]:
    """Return a trial's last result, with the newest value of the metric if it lacks the metric.

    A metric such as ``"val/loss"`` is inserted nested and under its flattened name, since it is
    unknown how it was reported.
    """
    if metric is None or newest is None or not result or value_at(result, metric) is not None:
        return dict(result)
    return {**_inserted(result, metric.split(DELIMITER), newest.value), metric: newest.value}


def _inserted(node: Mapping[str, Any], path: Sequence[str], value: float) -> dict[str, Any]:
    head, *rest = path
    if not rest:
        return {**node, head: value}
    inner = node.get(head, {})
    return {**node, head: _inserted(inner, rest, value)} if isinstance(inner, dict) else dict(node)


def _is_tracked(trial: Trial, metric: str, mode: Mode | None) -> bool:
    return trial.objective.metric == metric and mode in (trial.objective.mode, None)


def _may_be_corrected(trial: Trial) -> bool:
    """Return whether a validation may have replaced one of the trial's values.

    What the engine keeps of all values cannot forget a best one that has got worse.
    """
    return any(one.is_validated for one in trial.validations.values())


def _summary(trial: Trial, rows: Rows, metric: str, scope: Scope) -> MetricSummary:
    """Summarise a metric over the current results.

    The engine's own summary includes results that a retry has superseded.
    """
    all_results = trial.summary.get(TRAINING_ITERATION)
    has_superseded = all_results is not None and all_results.count != trial.num_rows
    is_exact = not (has_superseded or _may_be_corrected(trial))
    if is_exact or (scope == "last" and is_number(value_at(trial.last_result, metric))):
        return trial.summary[metric]
    summary = MetricSummary()
    for row in rows.of(trial.trial_id):
        if is_number(value := value_at(row, metric)):
            summary.add(value)
    return summary
