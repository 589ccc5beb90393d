"""Curves as bars, kept in bounded memory."""

import math

import pytest

from tuner.callbacks.console.sparklines import Curve, Curves, sparkline
from tuner.core.trial import Trial
from tuner.core.trial_metrics import MetricSummary


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
    assert sparkline(values) == drawn


def test_one_odd_value_does_not_flatten_the_others():
    drawn = sparkline([1000.0, 4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0])
    assert drawn[0] == "█"
    assert len(set(drawn[1:])) > 2


def curve_after(looks):
    """Return the curve of 0, 1, 2, ..., rendered whenever it has one of the given lengths."""
    curve, summary = Curve(), MetricSummary()
    for number in range(looks[-1]):
        summary.add(float(number))
        if number + 1 in looks:
            curve.update(summary)
    return curve


@pytest.mark.parametrize("period", [1, 7, 10, 25])
def test_a_curve_is_thinned_out_evenly(period):
    for num in [1, 2, 9, 63, 64, 65, 127, 128, 129, 1_000]:
        curve = curve_after([*range(period, num, period), num])
        first = max(0, min(period, num) - 10)
        num_known = num - first
        # Points may be as far apart as a 32nd of the whole, and looks as far as they are.
        within = num_known / 32 + period
        for num_cells in (1, 8, 20):
            averages = curve.averages(num_cells)
            assert len(averages) == min(num_cells, num_known), (num, num_cells)
            middles = [
                first + (index + 0.5) * num_known / len(averages) - 0.5
                for index in range(len(averages))
            ]
            assert averages == pytest.approx(middles, abs=within), (num, num_cells)


def test_memory_is_constant():
    assert len(curve_after(range(1, 1_000))._points) <= 64


def test_all_is_known_if_looks_are_frequent_enough():
    assert curve_after([5, 15, 16]).averages(20) == [float(number) for number in range(16)]


def test_of_what_came_since_the_last_look_the_latest_ten_are_known():
    assert curve_after([30]).averages(20) == [float(number) for number in range(20, 30)]
    assert curve_after([2, 14]).averages(20) == [
        0.0,
        1.0,
        1.0,
        1.0,
        *(float(number) for number in range(4, 14)),
    ]


@pytest.fixture
def curves():
    return Curves("val/loss")


def report(trial, *values, name="val/loss"):
    for value in values:
        trial.summarise({"training_iteration": 1, name: value})


def test_what_trials_report_is_drawn(curves):
    one, other = Trial("t00000", {}, {}), Trial("t00001", {}, {})
    report(one, 3.0, 2.0)
    report(other, 1.0, name="acc")
    curves.update([one, other])
    report(one, 1.0)
    assert (curves.draw(one, 8), curves.draw(other, 8)) == ("█▁", "")
    curves.update([one, other])
    assert (curves.draw(one, 8), curves.draw(other, 8)) == ("█▅▁", "")


def test_without_a_metric_there_are_no_curves():
    trial = Trial("t00000", {}, {})
    report(trial, 1.0)
    assert Curves(None).draw(trial, 8) == ""


def test_a_trial_without_updates_has_a_curve_of_its_summary(curves):
    trial = Trial("t00000", {}, {})
    report(trial, *map(float, range(100)))
    assert len(curves.draw(trial, 20)) == 10


def test_a_trial_that_is_restarted_gets_a_new_curve(curves):
    trial = Trial("t00000", {}, {})
    report(trial, 3.0, 2.0, 1.0)
    curves.update([trial])
    trial.restart()
    report(trial, 9.0, 10.0)
    curves.update([trial])
    assert curves.draw(trial, 8) == "▁█"


def test_of_many_trials_only_those_that_are_shown_are_remembered(curves):
    trials = [Trial(f"t{number:05d}", {}, {}) for number in range(1_100)]
    for _ in range(2):
        for trial in trials[:3]:
            report(trial, *map(float, range(10)))
        for trial in trials[3:]:
            report(trial, 0.0)
        curves.update(trials[:1_100])
    curves.update(trials[:2])
    assert [len(curves.draw(trial, 40)) for trial in trials[:3]] == [20, 20, 10]
