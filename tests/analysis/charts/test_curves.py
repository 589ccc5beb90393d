"""Learning curves, and the choice of trials and points if there are too many."""

import math

import pytest

from tuner.analysis.charts.curves import learning_curves
from tuner.analysis.charts.downsample import shown_places, shown_trials, spread
from tuner.analysis.charts.source import Source
from tuner.journal.rows import MemoryRows


def losses(*values):
    return [{"loss": value} for value in values]


@pytest.fixture
def source(make, tmp_path):
    def build(reported, metric="loss", mode="min"):
        trials = [make.trial(name, results) for name, results in reported.items()]
        return Source(
            trials,
            MemoryRows({name: make.rows(name, results) for name, results in reported.items()}),
            str(tmp_path),
            metric,
            mode,
        )

    return build


def test_a_curve_has_the_reported_values_in_order(source):
    curve, other = learning_curves(source({"a": losses(0.5, 0.25), "b": losses(0.9)}))
    assert (curve.trial_id, curve.xs, curve.values, curve.is_best, curve.num_results) == (
        "a",
        [1.0, 2.0],
        [0.5, 0.25],
        True,
        2,
    )
    assert (other.trial_id, other.values, other.is_best, other.state) == (
        "b",
        [0.9],
        False,
        "completed",
    )


def test_values_that_are_not_finite_are_kept_and_others_left_out(source):
    reported = {
        "a": [
            {"loss": math.nan},
            {"loss": "much"},
            {"loss": math.inf},
            {"loss": True},
            {"other": 1.0},
        ],
        "b": [{"other": 1.0}],
    }
    [curve] = learning_curves(source(reported))
    assert (curve.xs, math.isnan(curve.values[0]), curve.values[1]) == ([1.0, 3.0], True, math.inf)


def test_any_number_of_the_results_may_be_the_axis(source):
    [curve] = learning_curves(
        source({"a": [{"loss": 1.0, "cost": {"usd": 5}}, {"loss": 0.5, "cost": {"usd": 7}}]}),
        "cost/usd",
    )
    assert curve.xs == [5.0, 7.0]


def test_without_a_metric_there_is_nothing_to_draw(source):
    with pytest.raises(ValueError, match="metric must be given"):
        learning_curves(source({"a": losses(1.0)}, metric=None))


def test_of_too_many_trials_half_are_the_best_and_half_are_spread(source):
    experiment = source(
        {f"t{number:02d}": losses(float(number)) for number in range(40)}
        | {"nan": losses(math.nan)}
    )
    shown = [trial.trial_id for trial in shown_trials(experiment, 8)]
    assert shown == ["t00", "t01", "t02", "t03", "t04", "t16", "t28", "nan"]
    assert len(learning_curves(experiment, max_trials=8)) == 8
    assert len(shown_trials(experiment, 41)) == 41


def test_without_a_mode_trials_are_spread(source):
    experiment = source({f"t{number}": losses(float(number)) for number in range(9)}, mode=None)
    assert [trial.trial_id for trial in shown_trials(experiment, 3)] == ["t0", "t4", "t8"]


def test_first_last_and_extreme_points_stay(source):
    values = [5.0] * 1000
    values[333], values[777], values[5] = -1.0, 9.0, math.nan
    places = shown_places(values, 50)
    assert {0, 333, 777, 999} <= set(places)
    assert len(places) <= 50
    assert shown_places([math.nan] * 10, 4) == [0, 3, 6, 9]
    [curve] = learning_curves(source({"a": losses(*values)}), max_points=50)
    assert (curve.num_results, min(curve.values), max(curve.values)) == (1000, -1.0, 9.0)


def test_spreading_takes_as_many_as_are_asked_for():
    assert [spread([1, 2, 3], count) for count in range(5)] == [
        [],
        [1],
        [1, 3],
        [1, 2, 3],
        [1, 2, 3],
    ]
