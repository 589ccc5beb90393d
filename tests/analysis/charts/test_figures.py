"""Charts show their data, also unusual ones, and never interpret texts of the user as markup."""

import importlib.machinery
import json
import math
import pickle
import re
import sys

import pytest

from tests.analysis.real_runs import HOSTILE
from tuner.analysis import ResultGrid
from tuner.analysis.charts.style import (
    BEST,
    label,
    linear_ticks,
    log_ticks,
    metric_axis,
    number,
    seconds,
)
from tuner.journal.rows import MemoryRows

pytest.importorskip("plotly")
pytestmark = pytest.mark.process

OURS = re.compile(r"<br>|<extra></extra>|</?b>")
"""The markup that charts have of themselves."""
EVERY = (
    "learning_curves",
    "parallel_coordinates",
    "slice",
    "history",
    "rungs",
    "lineage",
    "schedules",
    "slots",
)


@pytest.fixture
def grid(make, tmp_path):
    def build(trials, rows=None, metric="loss", mode="min"):
        return ResultGrid(trials, str(tmp_path), MemoryRows(rows or {}), metric, mode)

    return build


def reported(make, reports, configs=None):
    rows = {name: make.rows(name, results) for name, results in reports.items()}
    return [
        make.trial(name, results, config=(configs or {}).get(name, {}))
        for name, results in reports.items()
    ], rows


@pytest.mark.parametrize("kind", ["asha", "promotion", "hyperband", "pbt", "plain"])
@pytest.mark.parametrize("name", EVERY)
def test_every_chart_of_every_experiment_is_valid(experiment, kind, name):
    drawn = json.loads(getattr(experiment(kind).plot, name)().to_json())
    assert drawn["layout"]["height"] >= 100


def test_the_best_curve_is_on_top_and_in_its_colour(experiment):
    grid = experiment("asha")
    best = grid.plot.learning_curves().data[-1]
    assert (best.name, best.line.color) == (f"best: {grid.get_best_result().trial_id}", BEST)
    assert [value for value in best.y if value is not None] == [
        row["loss"] for row in grid._rows.of(grid.get_best_result().trial_id)
    ]


def test_another_metric_has_another_best_trial(make, grid):
    trials, rows = reported(
        make, {"a": [{"loss": 1.0, "size": 1.0}], "b": [{"loss": 0.5, "size": 9.0}]}
    )
    plot = grid(trials, rows).plot
    assert plot.learning_curves().data[-1].name == "best: b"
    assert plot.learning_curves("size", "min").data[-1].name == "best: a"
    assert plot.learning_curves("size", "max").layout.yaxis.title.text == "size (higher is better)"


def test_without_a_metric_charts_that_need_one_say_so(make, grid):
    plot = grid([make.trial("a", [{"loss": 1.0}])], metric=None, mode=None).plot
    for name in ("learning_curves", "parallel_coordinates", "slice", "history", "importances"):
        with pytest.raises(ValueError, match="metric must be given"):
            getattr(plot, name)()
    assert plot.slots().data == plot.rungs().data == ()


def test_an_empty_grid_has_empty_charts(grid):
    for name in EVERY:
        assert sum(len(trace.x or ()) for trace in getattr(grid([]).plot, name)().data) == 0


def test_values_that_are_not_finite_leave_a_gap(make, grid):
    trials, rows = reported(
        make,
        {"a": [{"loss": math.nan}, {"loss": 1.0}, {"loss": math.inf}, {"loss": 0.5}]},
        {"a": {"x": 1}},
    )
    plot = grid(trials, rows).plot
    assert plot.learning_curves().data[-1].y == (None, 1.0, None, 0.5, None)
    for name in EVERY:
        json.loads(getattr(plot, name)().to_json(), parse_constant=pytest.fail)


def test_a_clone_that_goes_back_begins_a_new_line(make, grid):
    trials, _ = reported(make, {"a": [{"loss": 3.0}, {"loss": 2.0}, {"loss": 1.0}]})
    rows = [
        {"loss": 3.0, "training_iteration": 5},
        {"loss": 2.0, "training_iteration": 4},
        {"loss": 1.0, "training_iteration": 5},
    ]
    plot = ResultGrid(trials, "/nowhere", _Rows(rows), "loss", "min").plot
    assert plot.learning_curves().data[-1].x == (5.0, None, 4.0, 5.0, None)


class _Rows:
    def __init__(self, rows):
        self.rows = rows

    def of(self, trial_id):
        return self.rows

    def configs_by_branch(self, trial_id):
        return ()


def test_users_texts_are_shown_as_they_are(make, grid):
    name = "<b>" + HOSTILE
    trials, rows = reported(
        make,
        {f"t{n}": [{name: n + 1.0, "z": 2.0 * n}] for n in range(3)},
        {f"t{n}": {name: f"{HOSTILE}{n}", "<i>": n} for n in range(3)},
    )
    plot = grid(trials, rows, metric=name).plot
    for drawn in (
        plot.learning_curves(),
        plot.parallel_coordinates(),
        plot.slice(),
        plot.history("trials"),
        plot.pareto((name, "z"), ("min", "min")),
    ):
        found = [OURS.sub("", text) for text in strings(json.loads(drawn.to_json()))]
        assert any("&lt;/script&gt;" in text for text in found)
        assert [text for text in found if "<" in text] == []


def strings(value):
    """Return every text in a chart."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in strings(part)]


def test_parameters_may_be_chosen_and_have_to_exist(make, grid):
    trials, rows = reported(
        make,
        {"a": [{"loss": 1.0}], "b": [{"loss": 2.0}]},
        {"a": {"x": 1, "y": 1, "z": 0}, "b": {"x": 2, "y": 2, "z": 0}},
    )
    plot = grid(trials, rows).plot
    assert plot.slice(["y"]).layout.xaxis.title.text == "y"
    for unknown in ("z", "w"):
        with pytest.raises(
            ValueError,
            match=r"params must be parameters that differ between trials, \['x', 'y'\], got "
            rf"'{unknown}'",
        ):
            plot.parallel_coordinates([unknown])


def test_lines_of_the_best_tenth_and_the_best_trial_stand_out(make, grid):
    trials, rows = reported(
        make,
        {f"t{n:02d}": [{"loss": float(n)}] for n in range(31)},
        {f"t{n:02d}": {"x": n, "y": -n} for n in range(31)},
    )
    others, good, best = grid(trials, rows).plot.parallel_coordinates().data
    assert [sum(x is None for x in trace.x) for trace in (others, good, best)] == [27, 3, 1]
    assert best.y[:3] == (0.0, 1.0, 1.0)  # the smallest x, the largest y, and the best loss is up


def test_a_parameter_that_a_trial_lacks_is_below_its_axis(make, grid):
    trials, rows = reported(
        make, {"a": [{"loss": 1.0}], "b": [{"loss": 2.0}]}, {"a": {}, "b": {"x": 2}}
    )
    [_, best] = grid(trials, rows).plot.parallel_coordinates().data
    assert best.y[0] < 0


def test_frames_have_states_of_one_word(experiment):
    data = experiment("asha").plot.data
    for frame in (data.learning_curves(), data.parallel_coordinates(), data.slots()):
        assert (
            {"completed", "stopped_early"}
            <= set(frame["state"])
            <= {"completed", "stopped_early", "paused"}
        )


def test_rungs_show_how_many_trials_came_and_continued(experiment):
    figure = experiment("asha").plot.rungs()
    counts = [annotation.text for annotation in figure.layout.annotations]
    frame = experiment("asha").plot.data.rungs()
    num_on = [int((frame.query("level == @level")["fate"] == "went on").sum()) for level in (1, 3)]
    assert counts[0] == f"20 → {num_on[0]}"
    assert counts[1] == f"{num_on[0]} → {num_on[1]}"


def test_of_many_schedules_the_best_one_is_always_drawn(experiment, monkeypatch):
    monkeypatch.setattr("tuner.analysis.charts.lineage.MAX_MEMBERS", 1)
    others, best = experiment("pbt").plot.schedules().data[:2]
    assert sum(x is None for x in others.x) == 1
    assert (best.name, sum(x is None for x in best.x)) == ("best trial", 1)


def test_the_best_lineage_ends_where_it_was_left(experiment):
    plot = experiment("pbt").plot
    best = next(trace for trace in plot.lineage().data if trace.name == "led to the best trial")
    steps = plot.data.schedules().query("is_best")
    assert list(best.x[0::3]) == steps["first_iteration"].tolist()
    assert list(best.x[1::3]) == steps["last_iteration"].tolist()


def test_many_runs_are_lines_and_few_are_bars(experiment, monkeypatch):
    assert {trace.type for trace in experiment("asha").plot.slots().data} == {"bar"}
    monkeypatch.setattr("tuner.analysis.charts.slots._MAX_BARS", 3)
    assert {trace.type for trace in experiment("asha").plot.slots().data} == {"scatter"}


def test_a_metric_that_falls_far_is_logarithmic_and_one_that_rises_is_not():
    assert metric_axis("loss", "min", [1e-5, 1.0])["type"] == "log"
    for mode, values in (
        ("max", [1e-5, 1.0]),
        ("min", [-1.0, 1.0]),
        ("min", [0.5, 1.0]),
        ("min", []),
        ("min", [math.nan]),
    ):
        assert "type" not in metric_axis("loss", mode, values)


@pytest.mark.parametrize(("low", "high"), [(1e-9, 1e9), (0.5, 0.6), (3.0, 3.0), (7.0, 7000.0)])
def test_ticks_are_few_and_in_reach(low, high):
    assert 1 <= len(linear_ticks(low, high)) <= 8
    assert 1 <= len(log_ticks(low, high)) <= 12


def test_numbers_and_durations_are_short():
    assert [number(value) for value in (1e-5, 0.25, 123456.0, 1e20)] == [
        "1e-5",
        "0.25",
        "123456",
        "1e20",
    ]
    assert [seconds(value) for value in (None, math.inf, 59.94, 60, 3599, 86_400)] == [
        "unknown",
        "unknown",
        "59.9 s",
        "1 min",
        "59 min 59 s",
        "1 d",
    ]
    assert label("x" * 50) == "x" * 39 + "…"
    assert label("a\n b") == "a b"


def test_without_plotly_the_extra_is_named(make, grid, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r'pip install "tuner-hpo\[report\]"'):
        grid([make.trial("a", [{"loss": 1.0}])]).plot.history("trials")


def test_a_pareto_front_has_a_plane_for_each_pair_of_metrics(experiment):
    grid = experiment("tradeoff")
    both = grid.plot.pareto()
    assert [(trace.name, trace.mode) for trace in both.data] == [
        ("trials", "markers"),
        ("Pareto front", "lines+markers"),
    ]
    assert sum(len(trace.x) for trace in both.data) == len(grid)
    assert (both.layout.xaxis.title.text, both.layout.yaxis.title.text) == (
        "accuracy (higher is better)",
        "size (lower is better)",
    )
    three = grid.plot.pareto(["accuracy", "size", "other"], ["max", "min", "max"])
    assert len(three.data) == 6
    assert (three.layout.xaxis3.title.text, three.layout.yaxis3.title.text) == (
        "size (lower is better)",
        "other (higher is better)",
    )


def test_a_notebook_shows_a_figure_without_nbformat_and_which_charts_there_are(
    experiment, monkeypatch
):
    formatter = pytest.importorskip("IPython.core.formatters").IPythonDisplayFormatter()
    grid = experiment("asha")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    for draw in ("learning_curves", "rungs", "slice", "history", "pareto"):
        figure = getattr(grid.plot, draw)(
            *([["loss", "training_iteration"], ["min", "min"]] if draw == "pareto" else [])
        )
        assert not formatter(figure)  # left to the MIME bundle
        assert "application/vnd.plotly.v1+json" in figure._repr_mimebundle_(
            include=None, exclude=None
        )
        assert type(pickle.loads(pickle.dumps(figure))) is type(figure)  # noqa: S301  (our own)
    # Where nbformat is there as well, an exported notebook takes the HTML of the figure.
    found = importlib.machinery.ModuleSpec("nbformat", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found)
    assert not formatter(figure)
    monkeypatch.undo()
    assert "Plotly.newPlot" in figure._repr_html_()
    assert ".pareto(): Draw the trials" in repr(grid.plot)
    shown = grid.plot._repr_html_()
    assert "Charts of 20 trials by loss (lower is better)" in shown
    assert "<code>.pareto()</code>" in shown
