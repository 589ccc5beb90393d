"""Stop criteria."""

import datetime as dt
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.decisions import Reason
from tuner.core.stoppers import (
    STOP,
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    MetricThresholdStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
    stopper_from,
    warning_of_direction,
)
from tuner.core.trial import Trial


def answers(stopper, values, metric="loss", trial_id="t"):
    return [stopper(trial_id, {metric: value}) for value in values]


# --------------------------------------------------------------------------------------------------
# -- thresholds


@pytest.mark.parametrize(
    ("threshold", "value", "is_reached"),
    [
        (0.5, 0.5, True),
        (0.5, 0.6, True),
        (0.5, 0.4, False),
        ("<= 0.5", 0.5, True),
        ("<=0.5", 0.4, True),
        ("<= 0.5", 0.6, False),
        ("< 0.5", 0.5, False),
        ("> 0.5", 0.5, False),
        (" >= 5e-1 ", 0.7, True),
        ("<= -1e3", -2000, True),
        (10, True, False),
        (True, True, True),
        (0.5, math.nan, False),
        ("<= 0.5", math.nan, False),
        (0.5, math.inf, True),
        (0.5, "0.9", False),
        (0.5, None, False),
    ],
)
def test_a_threshold_is_reached_as_it_compares(threshold, value, is_reached):
    assert MetricThresholdStopper({"loss": threshold})("t", {"loss": value}) is is_reached


@pytest.mark.parametrize(
    "thresholds",
    [{"env": {"reward": 2, "length": "<= 5"}}, {"env/reward": 2, "env": {"length": "<= 5"}}],
)
def test_a_threshold_may_be_nested_as_the_metric_is(thresholds):
    stopper = MetricThresholdStopper(thresholds)
    assert [stopper("t", {"env": {"reward": reward, "length": 9}}) for reward in (1, 2)] == [
        False,
        True,
    ]
    assert stopper("t", {"env/length": 5})
    with pytest.raises(ValueError, match=r"stop\['env/reward'\] must be a number"):
        MetricThresholdStopper({"env": {"reward": "high"}})


def test_any_threshold_is_enough_and_nested_metrics_have_flat_names():
    stopper = MetricThresholdStopper({"val/loss": "<= 0.1", "training_iteration": 5})
    assert not stopper("t", {"val": {"loss": 0.2}, "training_iteration": 4})
    assert stopper("t", {"val": {"loss": 0.1}, "training_iteration": 4})
    assert stopper("t", {"training_iteration": 5})
    assert not stopper("t", {"val": 0.0})


@given(step=st.integers(1, 50), limit=st.integers(1, 50))
def test_a_threshold_that_is_jumped_over_is_reached_all_the_same(step, limit):
    stopper = MetricThresholdStopper({"training_iteration": limit})
    reached = next(
        time for time in range(step, 999, step) if stopper("t", {"training_iteration": time})
    )
    assert reached - step < limit <= reached


@pytest.mark.parametrize("threshold", ["", "0.5", "= 0.5", "<= a lot", None, [1.0], "<="])
def test_what_is_no_threshold_is_refused_with_the_remedy(threshold):
    with pytest.raises(
        ValueError,
        match=r"stop\['loss'\] must be a number .* or a comparison such as '<= 0.1', got ",
    ):
        MetricThresholdStopper({"loss": threshold})


# --------------------------------------------------------------------------------------------------
# -- iterations


@given(limit=st.integers(1, 20), stride=st.integers(1, 7))
def test_a_trial_trains_all_its_iterations_however_rarely_the_stopper_is_asked(limit, stride):
    stopper = MaximumIterationStopper(limit)
    stopped = next(
        time for time in range(1, 99, stride) if stopper("t", {"training_iteration": time})
    )
    assert limit <= stopped < limit + stride


def test_results_that_are_repeated_after_a_crash_count_once():
    stopper = MaximumIterationStopper(3)
    assert [stopper("t", {"training_iteration": time}) for time in (1, 2, 1, 2, 3)] == [
        False
    ] * 4 + [True]


@pytest.mark.parametrize("max_iter", [0, -1])
def test_max_iter_must_be_at_least_one(max_iter):
    with pytest.raises(ValueError, match=f"max_iter must be at least 1, got {max_iter}"):
        MaximumIterationStopper(max_iter)


# --------------------------------------------------------------------------------------------------
# -- time


@pytest.mark.parametrize("timeout", [90, 90.0, dt.timedelta(minutes=1, seconds=30)])
def test_the_experiment_stops_when_the_time_is_up_and_not_before(timeout):
    stopper = TimeoutStopper(timeout)
    assert stopper.due_s == 90.0
    stopper.on_tick(89.999)
    assert not stopper.stop_all()
    stopper.on_tick(90.0)
    assert stopper.stop_all()
    assert not stopper("t", {"loss": 1.0})


@pytest.mark.parametrize("timeout", [0, -1.0, math.nan, dt.timedelta(0)])
def test_a_timeout_must_be_positive(timeout):
    with pytest.raises(
        ValueError, match="timeout must be a positive number of seconds or a timedelta, got"
    ):
        TimeoutStopper(timeout)


# --------------------------------------------------------------------------------------------------
# -- plateaus


def test_a_trial_stops_when_its_latest_values_hardly_differ():
    stopper = TrialPlateauStopper("loss", std=0.01, num_results=3, grace_period=0)
    assert answers(stopper, [1.0, 0.5, 0.5, 0.5, 0.1]) == [False, False, False, True, False]


def test_the_grace_period_counts_results_of_each_trial():
    stopper = TrialPlateauStopper("loss", std=0.1, num_results=2, grace_period=4)
    assert answers(stopper, [0.5] * 4, trial_id="a") == [False, False, False, True]
    assert answers(stopper, [0.5] * 4, trial_id="b") == [False, False, False, True]


@pytest.mark.parametrize(
    ("mode", "value", "stops"),
    [("min", 0.3, True), ("min", 0.5, False), ("max", 0.5, True), ("max", 0.3, False)],
)
def test_a_plateau_counts_only_where_the_metric_is_good_enough(mode, value, stops):
    stopper = TrialPlateauStopper(
        "loss", num_results=2, grace_period=0, metric_threshold=0.4, mode=mode
    )
    assert answers(stopper, [value, value]) == [False, stops]


def test_infinite_and_missing_values_are_no_plateau():
    stopper = TrialPlateauStopper("loss", std=math.inf, num_results=2, grace_period=0)
    assert answers(stopper, [math.inf, math.inf, math.nan, math.nan]) == [False] * 4
    assert answers(stopper, [None, "flat"]) == [False, False]
    assert answers(stopper, [1.0, 1.0]) == [False, True]


@given(
    values=st.lists(st.floats(-10, 10), min_size=4, max_size=12),
    std=st.floats(0, 3),
    num_results=st.integers(1, 5),
    grace_period=st.integers(0, 6),
)
def test_a_plateau_is_found_by_its_definition(values, std, num_results, grace_period):
    stopper = TrialPlateauStopper("loss", std, num_results, grace_period)
    for count, answer in enumerate(answers(stopper, values), 1):
        window = values[max(count - num_results, 0) : count]
        assert answer == (
            count >= grace_period
            and len(window) == num_results
            and statistics.pstdev(window) <= std
        )


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"num_results": 0}, "num_results must be at least 1"),
        ({"std": -0.1}, "std at least 0, got num_results=4, grace_period=4, std=-0.1"),
        ({"grace_period": -1}, "grace_period"),
        (
            {"metric_threshold": 0.5},
            "mode must be 'min' or 'max' where metric_threshold is given, got None",
        ),
        ({"metric_threshold": 0.5, "mode": "low"}, "got 'low'"),
    ],
)
def test_a_plateau_must_make_sense(settings, part):
    with pytest.raises(ValueError, match=part):
        TrialPlateauStopper("loss", **settings)


def test_the_experiment_stops_when_its_best_values_have_come_to_rest():
    stopper = ExperimentPlateauStopper("loss", std=0.0, top=2, patience=1)
    # Worse values leave the best where they are, and a trial is told to stop only together with all
    # others.
    assert answers(stopper, [0.5, 0.4, 0.4, 0.9]) == [False, False, False, True]
    assert stopper.stop_all()


def test_an_experiment_that_improves_continues():
    stopper = ExperimentPlateauStopper("acc", std=0.0, top=2, mode="max")
    assert answers(stopper, [0.1, 0.2, 0.3, 0.4], metric="acc") == [False] * 4


def test_improvement_resets_the_patience():
    stopper = ExperimentPlateauStopper("loss", std=0.0, top=2, patience=1)
    assert answers(stopper, [0.5, 0.5, 0.1, 0.1, 0.1]) == [False, False, False, False, True]


def test_values_that_are_no_numbers_do_not_count_for_a_plateau():
    stopper = ExperimentPlateauStopper("loss", std=0.0, top=2)
    assert answers(stopper, [0.5, math.nan, math.inf, None]) == [False] * 4
    assert answers(stopper, [0.5]) == [True]


@pytest.mark.parametrize("settings", [{"top": 1}, {"std": -1.0}, {"patience": -1}])
def test_the_rest_of_an_experiment_must_make_sense(settings):
    with pytest.raises(
        ValueError, match="top must be at least 2, std and patience at least 0, got"
    ):
        ExperimentPlateauStopper("loss", **settings)


def test_the_direction_of_an_experiment_plateau_must_be_known():
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got 'up'"):
        ExperimentPlateauStopper("loss", mode="up")


# --------------------------------------------------------------------------------------------------
# -- combinations


class Hearing(Stopper):
    """Records the results that it receives."""

    def __init__(self, *, stops=False, due_s=None):
        self.stops = stops
        self.heard = []
        self.asked = 0
        self._due_s = due_s

    @property
    def due_s(self):
        return self._due_s

    def __call__(self, trial_id, result):
        self.heard.append((trial_id, result["loss"]))
        return self.stops

    def stop_all(self):
        self.asked += 1
        return self.stops

    def on_tick(self, elapsed_s):
        self.heard.append(elapsed_s)


def test_each_of_several_stoppers_sees_every_result():
    first, second = Hearing(stops=True), Hearing()
    combined = CombinedStopper(first, second)
    assert combined("t", {"loss": 1.0})
    combined.on_tick(3.0)
    assert combined.stop_all()
    assert first.heard == second.heard == [("t", 1.0), 3.0]
    assert first.asked == second.asked == 1


def test_several_stoppers_stop_when_one_does_and_not_otherwise():
    assert not CombinedStopper(Hearing(), Hearing())("t", {"loss": 1.0})
    assert not CombinedStopper(Hearing(), Hearing()).stop_all()
    assert CombinedStopper(Hearing(), Hearing(stops=True))("t", {"loss": 1.0})
    assert not CombinedStopper()("t", {"loss": 1.0})


def test_the_earliest_of_several_times_counts():
    assert CombinedStopper(Hearing(due_s=9.0), Hearing(), Hearing(due_s=4.0)).due_s == 4.0
    assert CombinedStopper(Hearing()).due_s is None


# --------------------------------------------------------------------------------------------------
# -- the stop argument


@pytest.mark.parametrize(
    ("criterion", "kind"),
    [
        (None, NoopStopper),
        ({"loss": 1.0}, MetricThresholdStopper),
        (lambda trial_id, result: True, FunctionStopper),
        ([NoopStopper(), TimeoutStopper(5)], CombinedStopper),
        ((NoopStopper(),), CombinedStopper),
    ],
)
def test_a_stop_argument_means_a_stopper(criterion, kind):
    assert type(stopper_from(criterion)) is kind


def test_a_stopper_stays_itself():
    stopper = TimeoutStopper(5)
    assert stopper_from(stopper) is stopper


@pytest.mark.parametrize("criterion", [5, "loss", [{"loss": 1.0}], TimeoutStopper, {1.0}])
def test_what_means_no_stopper_is_refused(criterion):
    with pytest.raises(TypeError, match="stop must be a dict, a function"):
        stopper_from(criterion)


def test_a_function_stops_what_it_calls_true():
    stopper = FunctionStopper(lambda trial_id, result: result["loss"] if trial_id == "a" else 0)
    assert stopper("a", {"loss": 2}) is True
    assert stopper("b", {"loss": 2}) is False
    with pytest.raises(TypeError, match="function must be callable as function"):
        FunctionStopper(3)


def test_nothing_is_stopped_by_default():
    stopper = NoopStopper()
    assert not stopper("t", {"loss": 0.0})
    assert not stopper.stop_all()
    assert stopper.due_s is None


# --------------------------------------------------------------------------------------------------
# -- a number meant as a comparison


def ended(value, num_rows=1, rule=STOP, metric="val/loss"):
    trial = Trial("t00000", {}, {})
    trial.num_rows, trial.reason = (
        num_rows,
        Reason(rule, {"training_iteration": num_rows, metric: value}),
    )
    return trial


def test_a_first_result_above_a_number_in_stop_warns_with_the_line_to_write():
    assert warning_of_direction(ended(2.5), "val/loss", {"val/loss": 0.1}) == (
        "trial t00000 was stopped at its first result, with val/loss=2.5: a number in stop is "
        "reached by an equal or larger value, "
        "also with mode='min'; to stop trials once val/loss has fallen to 0.1, write "
        "stop={'val/loss': '<= 0.1'}"
    )


@pytest.mark.parametrize(
    ("trial", "thresholds"),
    [
        (ended(2.5), {"val/loss": ">= 0.1"}),
        (ended(0.05), {"val/loss": "<= 0.1"}),
        (ended(2.5), {"training_iteration": 1}),
        (ended(2.5, num_rows=2), {"val/loss": 0.1}),
        (ended(2.5, rule="asha.rung"), {"val/loss": 0.1}),
        (ended(2.5, metric="accuracy"), {"val/loss": 0.1}),
        (Trial("t00000", {}, {}), {"val/loss": 0.1}),
    ],
)
def test_no_warning_where_a_trial_was_stopped_as_declared(trial, thresholds):
    assert warning_of_direction(trial, "val/loss", thresholds) == ""


def test_a_value_that_a_validation_leaves_as_it_was_is_not_counted_twice():
    stopper = CombinedStopper(TrialPlateauStopper("loss", std=0.1, num_results=2, grace_period=0))
    assert not stopper("t", {"loss": 1.0})
    assert not stopper.on_validated("t", {"loss": 1.0, "acc": 0.5}, {"acc"})
    assert stopper.on_validated("t", {"loss": 1.0, "acc": 0.5}, {"loss"})


def test_a_threshold_is_reached_by_what_a_validation_returns():
    stopper = MetricThresholdStopper({"acc": 0.9})
    assert not stopper("t", {"loss": 1.0})
    assert stopper.on_validated("t", {"loss": 1.0, "acc": 0.95}, {"acc"})
