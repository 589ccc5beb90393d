"""Parameters against the metric: parallel coordinates, and one chart per parameter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from searchers.plain_values import describe
from tuner.analysis.importances import is_logarithmic
from tuner.analysis.ranking import Mode, check_mode, is_finite, rank
from tuner.core.pareto import Objectives
from tuner.core.trial import Trial
from tuner.storage.strict_json import Opaque

from .downsample import spread
from .pareto import pareto
from .source import Source, state_of
from .style import (
    BEST,
    GOOD,
    INFEASIBLE,
    OTHER,
    Lines,
    config_text,
    label,
    linear_ticks,
    log_axis,
    log_ticks,
    metric_axis,
    new_figure,
    new_panels,
    number,
    offer_log_scale,
    wrapped,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

Scale = Literal["linear", "log", "category"]
"""Scale of an axis: numbers on a linear or logarithmic scale, or categories."""
MAX_CATEGORIES: Final = 12
"""Maximum number of categories; rarer ones are drawn as a single one."""
OTHERS: Final = "others"
_MAX_MARKS: Final = 8
_MISSING = -0.09
"""Position on an axis, below its end, for trials without the parameter."""
_MIN_TICK_DISTANCE = 0.06
"""Minimum distance of two ticks, as a share of the axis."""
_MAX_COLUMNS = 3
NAME_WIDTH: Final = 14
"""Maximum number of characters in a line of an axis's name, and in a category's text."""
_LINE_PX = 14
_LEGEND_PX = 30


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter that differs between trials.

    Attributes:
        name: The parameter, flattened, e.g. ``"model/depth"``.
        scale: The scale of its values.
        low: The smallest number; 0 for categories.
        high: The largest number; the index of the last one for categories.
        categories: The categories in their order, as text; empty for numbers.
        marks: The numbers themselves if there are at most eight, each of several trials; else
            empty.
    """

    name: str
    scale: Scale
    low: float
    high: float
    categories: Sequence[str] = ()
    marks: Sequence[float] = ()

    def place(self, value: Any) -> float | None:
        """Return the position of a value on the axis, from 0 to 1; None if it is not on it."""
        if self.scale == "category":
            text = as_text(value)
            known = text if text in self.categories else OTHERS
            return (
                self.categories.index(known) / max(1, len(self.categories) - 1)
                if known in self.categories
                else None
            )
        if not is_finite(value):
            return None
        low, high, at = (
            (math.log(number) for number in (self.low, self.high, value))
            if self.scale == "log"
            else (self.low, self.high, value)
        )
        return (at - low) / (high - low) if high > low else 0.5

    def shown(self, value: Any) -> Any:
        """Return what is drawn for a value: the number, or the text of its category."""
        if self.scale != "category":
            return value
        text = as_text(value)
        return text if text in self.categories else OTHERS


@dataclass(frozen=True, slots=True)
class TrialPoint:
    """Parameters and outcome of a trial.

    Attributes:
        trial_id: The trial.
        state: Its state, see `state_of`.
        value: Its last value of the metric, NaN for none.
        is_best: Whether it is the best one.
        is_feasible: Whether it keeps all constraints.
        config: The flattened configuration in force at that value, without parameters that are the
            same in all trials.
    """

    trial_id: str
    state: str
    value: float
    is_best: bool
    is_feasible: bool
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrialLine:
    """A trial as a line over its parameters and one metric or several.

    Attributes:
        trial_id: The trial.
        values: Its last value of each metric.
        is_best: Whether it is the best one, or with several metrics on the Pareto front.
        is_feasible: Whether it keeps all constraints.
        config: See `TrialPoint`.
    """

    trial_id: str
    values: Sequence[float]
    is_best: bool
    is_feasible: bool
    config: Mapping[str, Any]


def as_text(value: Any) -> str:
    """Return the name of a category: strings as they are, other values by their description."""
    if isinstance(value, str):
        return value
    return value.text if isinstance(value, Opaque) else describe(value)


def axes(source: Source) -> list[Axis]:
    """Return the parameters that differ between trials, in order of first appearance.

    A parameter that some trials lack is included. Numbers are drawn on the scale, linear or
    logarithmic, on which they are spread more evenly; a parameter with other values than finite
    numbers has categories.
    """
    configs = [source.config_of(trial) for trial in source.trials]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {name: [config[name] for config in configs if name in config] for name in names}
    return [
        _axis(name, values) for name, values in columns.items() if _is_varied(values, len(configs))
    ]


def _is_varied(values: Sequence[Any], num_trials: int) -> bool:
    return len(values) < num_trials or len({as_text(value) for value in values}) > 1


def _axis(name: str, values: Sequence[Any]) -> Axis:
    numbers = [float(value) for value in values if is_finite(value)]
    if len(numbers) == len(values):
        marks = sorted(set(numbers))
        scale: Scale = "log" if is_logarithmic(marks) else "linear"
        # Values are marks if they recur, and are not few only because there are few trials.
        is_few = len(marks) <= _MAX_MARKS and 2 * len(marks) <= len(numbers) + 1
        return Axis(name, scale, marks[0], marks[-1], marks=marks if is_few else ())
    counts = Counter(as_text(value) for value in values)
    common = [text for text, _ in counts.most_common(MAX_CATEGORIES)]
    shown = sorted(common if len(counts) <= MAX_CATEGORIES else common[:-1])
    categories = (
        (*shown, OTHERS) if len(counts) > MAX_CATEGORIES and OTHERS not in shown else tuple(shown)
    )
    return Axis(name, "category", 0, len(categories) - 1, categories)


def trial_points(source: Source, max_trials: int | None = None) -> list[TrialPoint]:
    """Return the trials with their parameters, in the order of creation.

    Args:
        source: The experiment.
        max_trials: Maximum number, spread evenly over the ranks of the trials that have a value,
            including the best one; None for all.
    """
    names = [axis.name for axis in axes(source)]
    trials: Sequence[Trial] = source.trials
    if max_trials is not None and len(trials) > max_trials:
        chosen = {trial.trial_id for trial in spread(source.ranked(), max_trials)}
        trials = [trial for trial in trials if trial.trial_id in chosen]
    return [_trial_point(source, trial, names) for trial in trials]


def _trial_point(source: Source, trial: Trial, names: Sequence[str]) -> TrialPoint:
    return TrialPoint(
        trial.trial_id,
        state_of(trial),
        source.value_of(trial),
        trial is source.best,
        source.is_feasible(trial),
        _varied_config(source, trial, names),
    )


def _varied_config(source: Source, trial: Trial, names: Sequence[str]) -> dict[str, Any]:
    config = source.config_of(trial)
    return {name: config[name] for name in names if name in config}


def trial_lines(source: Source, max_trials: int | None = None) -> list[TrialLine]:
    """Return the trials as lines over their parameters and the metric.

    Of a trade-off these are the trials with a finite last value of each metric.

    Args:
        source: The experiment.
        max_trials: Maximum number: the best trial, or those on the Pareto front, and others spread
            evenly; None for all.
    """
    if not source.is_trade_off:
        return [
            TrialLine(one.trial_id, (one.value,), one.is_best, one.is_feasible, one.config)
            for one in trial_points(source, max_trials)
        ]
    points = pareto(source, source.several)
    if max_trials is not None and len(points) > max_trials:
        front = [point for point in points if point.is_on_front][:max_trials]
        rest = [point for point in points if not point.is_on_front]
        points = [*front, *spread(rest, max_trials - len(front))]
    names = [axis.name for axis in axes(source)]
    trials = {one.trial_id: one for one in source.trials}
    return [
        TrialLine(
            point.trial_id,
            point.values,
            point.is_on_front,
            point.is_feasible,
            _varied_config(source, trials[point.trial_id], names),
        )
        for point in points
    ]


def coordinates_figure(
    lines: Sequence[TrialLine], axes: Sequence[Axis], objectives: Objectives
) -> go.Figure:
    """Return parallel coordinates: a line per trial over its parameters and the metrics.

    Trials without a finite value of each are left out. The legend hides and shows the best tenth
    and the others, with several metrics the Pareto front and the others, and the infeasible ones,
    which are dotted.

    Args:
        lines: The trials.
        axes: Their parameters.
        objectives: Metric and mode (``"min"`` or ``"max"``: the direction in which it is optimised)
            of each value, which are on the last axes; better is up.
    """
    is_single = len(objectives) == 1
    known = sorted(
        (one for one in lines if all(map(math.isfinite, one.values))),
        key=lambda one: rank(one.values[0], check_mode(objectives[0][1])),
        reverse=True,
    )
    outcomes = [
        _outcome_axis(metric, check_mode(mode), [one.values[place] for one in known])
        for place, (metric, mode) in enumerate(objectives)
    ]
    is_turned = [mode == "min" for _, mode in objectives]
    feasible = [one for one in known if one.is_feasible]
    num_good = max(1, len(feasible) // 10) if is_single else 0
    # Drawn as lines of an ordinary chart: Plotly's own parallel coordinates need WebGL, print badly
    # and have neither a legend nor hover texts.
    num_lines = max(_name_of(axis).count("<br>") + 1 for axis in (*axes, *outcomes))
    names_px = 16 + _LINE_PX * num_lines
    top_px, bottom_px, plot_px = names_px + _LEGEND_PX, 24, 346
    margin = {"l": 52, "r": 60, "t": top_px, "b": bottom_px}
    figure = new_figure(plot_px + top_px + bottom_px, margin=margin)
    figure.update_layout(legend={"y": 1 + names_px / plot_px})
    best = [one for one in known if one.is_best]
    others = [one for one in feasible if not one.is_best]
    groups = [
        ("infeasible", [one for one in known if not one.is_feasible], OTHER, 1.0, 0.55),
        ("others", others[num_good:], OTHER, 1.0, 0.35),
        ("best tenth", others[:num_good], GOOD, 1.5, 0.75),
        ("best", best, BEST, 3.2 if is_single else 1.8, 1.0),
    ]
    best_name = f"best: {label(best[0].trial_id)}" if best and is_single else "Pareto front"
    for name, members, color, width, opacity in groups:
        if members:
            drawn = _lines(members, axes, outcomes, is_turned)
            title = best_name if name == "best" else name
            figure.add_scatter(
                x=drawn.xs,
                y=drawn.ys,
                text=drawn.texts,
                name=title,
                mode="lines",
                line={
                    "color": color,
                    "width": width,
                    "shape": "linear",
                    "dash": "dot" if name == "infeasible" else "solid",
                },
                opacity=opacity,
                hovertemplate="%{text}<extra></extra>",
            )
    _draw_axes(figure, axes, outcomes, is_turned)
    is_whole = all(axis.name in one.config for one in known for axis in axes)
    figure.update_yaxes(visible=False, range=[-0.04 if is_whole else _MISSING - 0.04, 1.03])
    return figure


def _outcome_axis(metric: str, mode: Mode, values: Sequence[float]) -> Axis:
    scale: Scale = "log" if metric_axis(metric, mode, values).get("type") == "log" else "linear"
    return Axis(metric, scale, min(values, default=0), max(values, default=1))


def _lines(
    trials: Sequence[TrialLine],
    axes: Sequence[Axis],
    outcomes: Sequence[Axis],
    is_turned: Sequence[bool],
) -> Lines:
    lines = Lines()
    for one in trials:
        places = [_place(axis, one.config) for axis in axes]
        for outcome, value, is_down in zip(outcomes, one.values, is_turned, strict=True):
            height = outcome.place(value) or 0.0
            places.append(1 - height if is_down else height)
        reached = ", ".join(map(label, one.values))
        text = f"{label(one.trial_id)}: {reached}<br>{config_text(one.config)}"
        lines.add(range(len(places)), places, text)
    return lines


def _place(axis: Axis, config: Mapping[str, Any]) -> float:
    place = axis.place(config[axis.name]) if axis.name in config else None
    return _MISSING if place is None else place


def _draw_axes(
    figure: go.Figure,
    params: Sequence[Axis],
    outcomes: Sequence[Axis],
    is_turned: Sequence[bool],
) -> None:
    last = len(params) + len(outcomes) - 1
    is_down = [*(False for _ in params), *is_turned]
    for column, axis in enumerate([*params, *outcomes]):
        figure.add_shape(
            type="line",
            x0=column,
            x1=column,
            y0=0,
            y1=1,
            line={"color": "rgba(128,140,155,0.8)", "width": 1},
            layer="below",
        )
        for place, text in _ticks(axis):
            figure.add_annotation(
                x=column,
                y=1 - place if is_down[column] else place,
                text=text,
                showarrow=False,
                xanchor="left",
                xshift=5,
                font={"size": 10.5},
                borderpad=1,
            )
        name = _name_of(axis)
        figure.add_annotation(
            x=column,
            y=1,
            text=f"<b>{name}</b>" if column >= len(params) else name,
            hovertext=label(axis.name, 200),
            showarrow=False,
            yanchor="bottom",
            yshift=10,
            font={"size": 11},
            textangle=0,
        )
    figure.update_xaxes(visible=False, range=[-0.25, last + 0.35])


def _name_of(axis: Axis) -> str:
    return wrapped(axis.name, NAME_WIDTH)


def _ticks(axis: Axis) -> list[tuple[float, str]]:
    """Return positions and texts of an axis's ticks: round numbers, and the ends if they fit."""
    if axis.scale == "category":
        return [(axis.place(name) or 0.0, label(name, NAME_WIDTH)) for name in axis.categories]
    inner = axis.marks or _round_ticks(axis)
    places = [
        (place, number(tick)) for tick in inner if 0 <= (place := axis.place(tick) or 0.0) <= 1
    ]
    ends = [
        (axis.place(end) or 0.0, number(float(f"{end:.3g}")))
        for end in dict.fromkeys((axis.low, axis.high))
    ]
    kept: list[tuple[float, str]] = []
    for place, text in [*places, *ends]:
        if all(abs(place - other) > _MIN_TICK_DISTANCE for other, _ in kept):
            kept.append((place, text))
    return kept


def _round_ticks(axis: Axis) -> list[float]:
    return (
        log_ticks(axis.low, axis.high) if axis.scale == "log" else linear_ticks(axis.low, axis.high)
    )


def slice_figure(
    trials: Sequence[TrialPoint], axes: Sequence[Axis], metric: str, mode: Mode | None
) -> go.Figure:
    """Return a chart for each parameter: its values against the metric's last ones.

    Args:
        trials: The trials.
        axes: The parameters.
        metric: The metric, on the vertical axes.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
    """
    panels = new_panels(
        len(axes), _MAX_COLUMNS, horizontal_gap=0.03, vertical_gap=0.36, shared_yaxes=True
    )
    figure = panels.figure
    figure.update_layout(height=60 + 270 * panels.num_rows)
    for place, axis in enumerate(axes):
        _add_slice(figure, trials, axis, panels.place(place), has_legend=place == 0)
    vertical = metric_axis(
        metric, mode, [one.value for one in trials], is_short=panels.num_rows > 1
    )
    # The axes are shared within a row, so only those of the first column have a title.
    figure.update_yaxes(**{key: value for key, value in vertical.items() if key != "title_text"})
    figure.update_yaxes(title_text=vertical["title_text"], col=1)
    offer_log_scale(
        figure,
        [name for name in figure.layout if name.startswith("yaxis")],
        [one.value for one in trials],
    )
    return figure


def _add_slice(
    figure: go.Figure,
    trials: Sequence[TrialPoint],
    axis: Axis,
    place: Mapping[str, int],
    *,
    has_legend: bool,
) -> None:
    known = [one for one in trials if axis.name in one.config and math.isfinite(one.value)]
    infeasible = [one for one in known if not one.is_feasible]
    dot = {"mode": "markers", "marker": {"color": GOOD, "size": 6, "opacity": 0.55}}
    for name, style, members in (
        *([("infeasible", INFEASIBLE, infeasible)] if infeasible else []),
        ("trials", dot, [one for one in known if one.is_feasible and not one.is_best]),
        (
            "best",
            {"mode": "markers", "marker": {"color": BEST, "size": 11, "opacity": 1.0}},
            [one for one in known if one.is_best],
        ),
    ):
        shown = [axis.shown(one.config[axis.name]) for one in members]
        figure.add_scatter(
            x=[label(value, 16) for value in shown] if axis.scale == "category" else shown,
            y=[one.value for one in members],
            text=[f"{label(one.trial_id)}<br>{config_text(one.config)}" for one in members],
            name=name,
            legendgroup=name,
            showlegend=has_legend,
            hovertemplate="%{text}<br>%{y:.6g}<extra></extra>",
            **style,
            **place,
        )
    categorical = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [label(name, 16) for name in axis.categories],
    }
    numeric = log_axis(axis.low, axis.high) if axis.scale == "log" else {"type": "linear"}
    if axis.marks:
        shown = [
            (tick, text)
            for place, text in _ticks(axis)
            for tick in axis.marks
            if axis.place(tick) == place
        ]
        numeric |= {
            "tickmode": "array",
            "tickvals": [tick for tick, _ in shown],
            "ticktext": [text for _, text in shown],
        }
    figure.update_xaxes(
        title_text=wrapped(axis.name, 26, 2),
        **place,
        **(categorical if axis.categories else numeric),
    )
