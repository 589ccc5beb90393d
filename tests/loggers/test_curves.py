"""Curves as bars, and that remembering them stays cheap."""

import itertools
import math

import pytest

from tuner.core.trial import Trial
from tuner.loggers.curves import Curve, CurveKeeper, sparkline


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([0.3], "▄"),
        ([0.3, 0.3], "▄▄"),
        ([1.0, 0.0], "█▁"),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "▁▂▃▄▅▆▇█"),
        ([0.0, math.nan, 1.0, math.inf], "▁!█!"),
        ([math.nan], "!"),
        ([1e308, -1e308], "█▁"),
        ([5e-324, 0.0], "█▁"),
        ([1, 2], "▁█"),
    ],
)
def test_a_curve_is_drawn_from_its_minimum_to_its_maximum(values, drawn):
    assert sparkline(values, 8) == drawn


def test_more_values_than_cells_are_averaged():
    assert sparkline([0.0, 2.0, 3.0, 5.0], 2) == "▁█"
    assert len(sparkline([math.sin(x) for x in range(1000)], 20)) == 20


def test_one_odd_value_does_not_flatten_the_others():
    drawn = sparkline([1000.0, 4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0], 8)
    assert drawn[0] == "█"
    assert len(set(drawn[1:])) > 2


@pytest.mark.parametrize("num", [0, 1, 2, 63, 64, 65, 127, 128, 129, 100_000])
def test_a_curve_keeps_few_values_evenly_with_the_first_and_the_latest(num):
    curve = Curve()
    for value in range(num):
        curve.add(float(value))
    values = curve.values
    assert len(values) == num if num < 64 else 32 <= len(values) <= 64
    if num:
        assert (values[0], values[-1]) == (0.0, float(num - 1))
        steps = {after - before for before, after in itertools.pairwise(values[:-1])}
        assert len(steps) <= 1


def report(keeper, trial, **metrics):
    trial.summarise({"training_iteration": 1, **metrics})
    keeper.on_trial_result(iteration=1, trials=[trial], trial=trial, result=metrics)


@pytest.fixture
def keeper():
    keeper = CurveKeeper()
    keeper.setup(metric="val/loss")
    return keeper


def test_what_trials_report_is_remembered(keeper):
    one, other = Trial("t00000", {}, {}), Trial("t00001", {}, {})
    for value in (3.0, 2.0, 1.0):
        report(keeper, one, **{"val/loss": value})
    report(keeper, other, acc=1.0)
    assert list(keeper.curve_of(one)) == [3.0, 2.0, 1.0]
    assert list(keeper.curve_of(other)) == []


def test_results_without_the_metric_leave_no_mark(keeper):
    trial = Trial("t00000", {}, {})
    for metrics in ({"acc": 1.0}, {"val/loss": 2.0}, {"acc": 1.0}, {"val/loss": 1.0}, {"acc": 1.0}):
        report(keeper, trial, **metrics)
    assert list(keeper.curve_of(trial)) == [2.0, 1.0]


def test_another_metric_may_be_asked_for():
    keeper = CurveKeeper("acc")
    keeper.setup(metric="val/loss")
    trial = Trial("t00000", {}, {})
    report(keeper, trial, acc=0.5, **{"val/loss": 1.0})
    assert list(keeper.curve_of(trial)) == [0.5]


def test_without_a_metric_there_are_no_curves():
    keeper = CurveKeeper()
    keeper.setup()
    trial = Trial("t00000", {}, {})
    report(keeper, trial, loss=1.0)
    assert list(keeper.curve_of(trial)) == []


def test_after_a_restore_a_curve_begins_with_what_the_summary_still_knows(keeper):
    trial = Trial("t00000", {}, {})
    for value in range(20):
        trial.summarise({"val/loss": float(value)})
    assert list(keeper.curve_of(trial)) == [float(value) for value in range(10, 20)]
    report(keeper, trial, **{"val/loss": 20.0})
    report(keeper, trial, **{"val/loss": 21.0})
    assert list(keeper.curve_of(trial)) == [float(value) for value in range(11, 22)]


def test_a_trial_that_begins_anew_gets_a_new_curve(keeper):
    trial = Trial("t00000", {}, {})
    for value in (3.0, 2.0, 1.0):
        report(keeper, trial, **{"val/loss": value})
    trial.begin_anew()
    report(keeper, trial, **{"val/loss": 9.0})
    assert list(keeper.curve_of(trial)) == [9.0]


def test_of_many_trials_only_those_that_are_shown_are_remembered(keeper):
    trials = [Trial(f"t{number:05d}", {}, {}) for number in range(1_500)]
    for trial in trials:
        for value in range(20):
            report(keeper, trial, **{"val/loss": float(value)})
    keeper.forget_others(trials[:2])
    assert [len(keeper.curve_of(trial)) for trial in trials[:3]] == [20, 20, 10]
