"""Parameters as axes: numbers, categories, and parameters that some trials lack."""

import math

import pytest

from tuner.analysis.charts.importance import param_importances
from tuner.analysis.charts.parameters import OTHERS, axes, trial_points
from tuner.analysis.charts.plots import PlotData
from tuner.analysis.charts.source import Source
from tuner.journal.rows import MemoryRows
from tuner.storage.strict_json import Opaque


@pytest.fixture
def source(make, tmp_path):
    def build(configs, losses=None):
        values = losses or range(len(configs))
        trials = [
            make.trial(f"t{n}", [{"loss": float(loss)}], config=config)
            for n, (config, loss) in enumerate(zip(configs, values, strict=True))
        ]
        return Source(trials, MemoryRows({}), str(tmp_path), "loss", "min")

    return build


def the_axis(source):
    [axis] = axes(source)
    return axis


def test_numbers_lie_on_the_scale_on_which_they_are_even(source):
    lr = the_axis(source([{"lr": 10.0**-power} for power in range(1, 6)]))
    assert (lr.name, lr.scale, lr.low, lr.high, lr.place(1e-3)) == (
        "lr",
        "log",
        1e-5,
        0.1,
        pytest.approx(0.5),
    )
    depth = the_axis(source([{"model": {"depth": depth}} for depth in (2, 4, 6)]))
    assert (depth.name, depth.scale, depth.place(3)) == ("model/depth", "linear", 0.25)


def test_few_numbers_that_come_again_are_marked(source):
    assert the_axis(source([{"size": size} for size in (16, 32, 64, 16, 32)])).marks == [
        16.0,
        32.0,
        64.0,
    ]
    assert the_axis(source([{"size": size} for size in (16, 32, 64)])).marks == ()
    assert the_axis(source([{"size": size % 9} for size in range(40)])).marks == ()


def test_texts_lists_truth_values_and_objects_are_categories(source):
    assert the_axis(source([{"act": "relu"}, {"act": "gelu"}])).categories == ("gelu", "relu")
    layers = the_axis(source([{"layers": [8, 4]}, {"layers": [16]}, {"layers": [16]}]))
    assert (layers.categories, layers.place([16]), layers.place([8, 4]), layers.place([1])) == (
        ("[16]", "[8, 4]"),
        0.0,
        1.0,
        None,
    )
    assert the_axis(source([{"flag": True}, {"flag": False}])).scale == "category"
    assert the_axis(
        source([{"loss": Opaque("<function mse>")}, {"loss": Opaque("<function mae>")}])
    ).categories == (
        "<function mae>",
        "<function mse>",
    )
    assert the_axis(source([{"x": 1.0}, {"x": math.nan}])).scale == "category"


def test_rare_categories_are_one(source):
    axis = the_axis(
        source([{"name": f"n{number:03d}"} for number in range(300)] + [{"name": "n007"}])
    )
    assert (len(axis.categories), axis.categories[-1], axis.place("n299")) == (12, OTHERS, 1.0)
    assert axis.shown("n299") == OTHERS
    assert axis.shown("n007") == "n007"


def test_parameters_that_are_the_same_everywhere_have_no_axis_but_those_that_some_lack_have(source):
    experiment = source([{"same": 1, "only": 3}, {"same": 1}])
    assert [axis.name for axis in axes(experiment)] == ["only"]
    assert [dict(one.config) for one in trial_points(experiment)] == [{"only": 3}, {}]


def test_of_too_many_trials_the_best_one_stays(source):
    experiment = source([{"x": number} for number in range(100)])
    shown = trial_points(experiment, 10)
    assert (len(shown), shown[0].is_best, shown[0].trial_id, shown[-1].trial_id) == (
        10,
        True,
        "t0",
        "t99",
    )


def test_frames_have_a_column_for_each_parameter_and_a_row_for_each_setting(source):
    data = PlotData(source([{"x": 1, "act": "a"}, {"x": 2, "act": "b"}], [0.5, 0.25]))
    frame = data.parallel_coordinates()
    assert frame.to_dict("list") == {
        "trial_id": ["t0", "t1"],
        "state": ["completed"] * 2,
        "value": [0.5, 0.25],
        "is_best": [False, True],
        "is_feasible": [True, True],
        "config/x": [1, 2],
        "config/act": ["a", "b"],
    }
    assert data.slice(["x"])[["parameter", "setting", "value"]].to_numpy().tolist() == [
        ["x", 1, 0.5],
        ["x", 2, 0.25],
    ]
    assert data.parallel_coordinates(mode="max")["is_best"].tolist() == [True, False]


@pytest.mark.process
def test_importances_are_those_of_the_grid(source):
    pytest.importorskip("optuna")
    experiment = source(
        [{"x": number / 40, "noise": number * 7 % 40} for number in range(40)],
        [number / 40 for number in range(40)],
    )
    found = param_importances(experiment)
    assert list(found.shares) == ["x", "noise"]
    assert sum(found.shares.values()) == pytest.approx(1)
    assert (found.num_trials, found.iteration) == (40, 1)
    assert PlotData(experiment).importances()["parameter"].tolist() == ["x", "noise"]
