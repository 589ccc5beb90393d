import json
import math
from statistics import mean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers import Pause, Reason, Resume, Stop
from schedulers.median import MedianStoppingRule, RunningAverages
from tests.schedulers.small_world import Stub, StubExperiment, World
from tests.tiers import examples

NAN = math.nan


def rule(no_more_trials=False, **arguments):
    given = {
        "time_attr": "training_iteration",
        "metric": "loss",
        "mode": "min",
        "grace_period": 0,
        "min_samples_required": 3,
    } | arguments
    scheduler = MedianStoppingRule(**given)
    scheduler.experiment = StubExperiment(no_more_trials=no_more_trials)
    return scheduler


def report_one(scheduler, name, time, loss):
    return list(scheduler.on_trial_result(Stub(name), {"training_iteration": time, "loss": loss}))


def talk(scheduler, *reports):
    """Report ``(trial, training_iteration, loss)``; return the reports answered with a decision."""
    return [(name, time) for name, time, loss in reports if report_one(scheduler, name, time, loss)]


def three_others(scheduler, *, scale=1.0):
    """Let trials report whose running averages at 2 are 2, 3 and 4."""
    talk(
        scheduler,
        *[
            (name, time, scale * loss)
            for name, losses in OTHERS.items()
            for time, loss in enumerate(losses, start=1)
        ],
    )


OTHERS = {"a": (3, 1), "b": (4, 2), "c": (5, 3)}


def test_a_trial_is_stopped_when_its_best_is_worse_than_the_median_of_averages():
    scheduler = rule(min_samples_required=3)
    three_others(scheduler)
    assert talk(scheduler, ("d", 1, 4.0)) == []  # at 1 the averages are 3, 4 and 5
    assert report_one(scheduler, "d", 2, 3.1) == [
        Stop(
            "d", Reason("median.stop", {"best": 3.1, "median": 3.0, "num_compared": 3, "time": 2.0})
        )
    ]


@pytest.mark.parametrize(
    ("losses", "stops"),
    [((3.0, 9.0), []), ((9.0, 3.0), [("d", 1)]), ((4.0, 3.0), []), ((3.1, 3.1), [("d", 2)])],
)
def test_it_is_the_best_so_far_that_counts(losses, stops):
    scheduler = rule()
    three_others(scheduler)
    assert talk(scheduler, ("d", 1, losses[0]), ("d", 2, losses[1]))[:1] == stops


def test_large_values_are_good_in_mode_max():
    scheduler = rule(mode="max")
    three_others(scheduler, scale=-1.0)
    assert talk(scheduler, ("d", 1, -4.0)) == []
    (stop,) = report_one(scheduler, "d", 2, -3.1)
    assert stop.reason.numbers == {"best": -3.1, "median": -3.0, "num_compared": 3, "time": 2.0}


def test_no_trial_is_judged_by_too_few_others():
    scheduler = rule(min_samples_required=4)
    three_others(scheduler)
    assert talk(scheduler, ("d", 1, 9), ("d", 2, 9)) == []
    assert talk(scheduler, ("e", 1, 10)) == [("e", 1)]


def test_a_trial_is_not_compared_with_itself():
    scheduler = rule(min_samples_required=1)
    assert talk(scheduler, *[("a", time, time) for time in range(1, 9)]) == []


def test_only_what_others_had_up_to_the_same_time_counts():
    scheduler = rule()
    three_others(scheduler)
    talk(scheduler, *[(name, 9, 0.0) for name in "abc"])
    assert talk(scheduler, ("d", 2, 2.9)) == []
    assert talk(scheduler, ("d", 9, 2.9)) == [("d", 9)]


def test_a_shorter_trial_counts_with_its_last_average():
    scheduler = rule()
    three_others(scheduler)
    assert talk(scheduler, ("d", 50, 3.1)) == [("d", 50)]


def test_nothing_counts_within_the_grace_period():
    scheduler = rule(grace_period=2)
    three_others(scheduler)  # averages from 2 on: 1, 2 and 3
    assert talk(scheduler, ("d", 1, 99), ("d", 1.9, 99)) == []
    assert talk(scheduler, ("d", 2, 2.0)) == []
    # Its best counts, though, whenever it was.
    assert talk(scheduler, ("e", 1, 1.5), ("e", 2, 99)) == []
    assert talk(scheduler, ("f", 2, 2.9)) == [("f", 2)]


def test_trials_that_are_over_still_count():
    scheduler = rule()
    three_others(scheduler)
    scheduler.on_trial_complete(Stub("a"), None)
    scheduler.on_trial_error(Stub("b"))
    assert talk(scheduler, ("d", 2, 3.1)) == [("d", 2)]


def test_a_stop_is_repeated():
    scheduler = rule()
    three_others(scheduler)
    first = report_one(scheduler, "d", 2, 9)
    before = scheduler.state_dict()
    assert (
        report_one(scheduler, "d", 2, 0)
        == report_one(scheduler, "d", 1, 0)
        == report_one(scheduler, "d", 3, 0)
        == first
    )
    assert scheduler.state_dict() == before
    scheduler.on_trial_complete(Stub("d"), None)
    assert scheduler.state_dict()["verdicts"] == {}


def test_repeated_and_belated_results_change_nothing():
    scheduler = rule()
    three_others(scheduler)
    talk(scheduler, ("d", 1, 4), ("d", 2, 2.5))
    before = scheduler.state_dict()
    assert talk(scheduler, ("a", 1, 0), ("d", 1, 99), ("d", 2, 99), ("a", 2, 99)) == []
    assert scheduler.state_dict() == before


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, NAN, None])
def test_what_has_diverged_is_worse_than_any_median(mode, value):
    scheduler = rule(mode=mode)
    for name in "abc":
        assert talk(scheduler, (name, 1, 5)) == []
    assert talk(scheduler, ("d", 1, value)) == [("d", 1)]
    assert talk(scheduler, ("e", 1, value)) == [("e", 1)]


def test_trials_that_all_diverge_do_not_keep_each_other_alive():
    scheduler = rule()
    assert talk(scheduler, *[(name, 1, NAN) for name in "abcdef"]) == [("d", 1), ("e", 1), ("f", 1)]
    json.dumps(scheduler.state_dict(), allow_nan=False)
    assert talk(scheduler, ("g", 1, 1e300)) == []


def test_one_value_that_is_not_a_number_spoils_an_average_but_no_best():
    scheduler = rule(min_samples_required=1)
    talk(scheduler, ("a", 1, 1.0), ("a", 2, NAN))
    assert talk(scheduler, ("b", 1, 0.5), ("b", 2, NAN)) == []
    assert talk(scheduler, ("c", 2, 99)) == []


def test_without_metric_or_time_nothing_is_decided_and_the_debug_string_shows_it():
    scheduler = rule()
    three_others(scheduler)
    for result in (
        {"training_iteration": 2},
        {"loss": 9},
        {"training_iteration": math.inf, "loss": 9},
        {"training_iteration": 2, "loss": "9"},
    ):
        assert list(scheduler.on_trial_result(Stub("d"), result)) == []
    assert (
        "results without a number under 'loss'; results without a number under 'training_iteration'"
        in scheduler.debug_string()
    )
    assert talk(scheduler, ("d", 2, 9)) == [("d", 2)]


# Pausing.


def test_a_trial_is_paused_and_resumed_once_nothing_else_needs_the_slot():
    scheduler = rule(hard_stop=False)
    three_others(scheduler)
    numbers = {"best": 9.0, "median": 3.0, "num_compared": 3, "time": 2.0}
    assert report_one(scheduler, "d", 2, 9) == [Pause("d", Reason("median.pause", numbers))]
    assert report_one(scheduler, "e", 2, 8) != []
    paused = [Stub("d", status="PAUSED"), Stub("e", status="PAUSED")]
    assert list(scheduler.on_idle(paused, 1)) == []
    scheduler.experiment.no_more_trials = True
    assert list(scheduler.on_idle(paused, 1)) == [Resume("d", Reason("median.resume", numbers))]
    assert [decision.trial_id for decision in scheduler.on_idle(paused[1:], 5)] == ["e"]
    assert talk(scheduler, ("d", 3, 99), ("e", 3, 99), ("d", 1, 99)) == []


def test_a_pause_is_repeated_and_results_until_it_count():
    scheduler = rule(hard_stop=False)
    three_others(scheduler)
    first = report_one(scheduler, "d", 2, 9)
    assert report_one(scheduler, "d", 3, 1) == first
    assert scheduler.state_dict()["curves"]["d"]["averages"] == [9, 5]


def test_no_trial_is_paused_before_it_has_had_its_slice():
    scheduler = rule(hard_stop=False, min_time_slice=3)
    three_others(scheduler)
    assert talk(scheduler, ("d", 2, 9), ("d", 3, 9)) == [("d", 3)]
    hard = rule(min_time_slice=3)
    three_others(hard)
    assert talk(hard, ("d", 2, 9)) == [("d", 2)]


# What it is made of.


NUMBERS = st.floats(-1e9, 1e9)


@given(st.lists(NUMBERS, min_size=1, max_size=30), st.integers(0, 40))
def test_a_curve_knows_its_average_at_every_time(costs, time):
    curve = RunningAverages()
    for number, cost in enumerate(costs):
        curve.add(number, cost, number, counts=True)
    violation, average = curve.standing_at(time)
    assert average == pytest.approx(mean(costs[: time + 1]), rel=1e-6, abs=1e-6)
    assert violation == min(time, len(costs) - 1)
    assert RunningAverages().standing_at(time) is None


def test_an_average_of_huge_values_is_finite():
    curve = RunningAverages()
    for time in range(4):
        curve.add(time, 1.5e308 * (-1) ** time, 0.0, counts=True)
    assert curve.standing_at(1) == (0.0, pytest.approx(0))


@settings(max_examples=examples(50))
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), NUMBERS), max_size=60),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_the_rule_is_what_it_says(turns, min_samples, grace):
    scheduler = rule(min_samples_required=min_samples, grace_period=grace)
    curves, stopped = {name: [] for name in "abcdef"}, set()
    for name, loss in turns:
        if name in stopped:
            continue
        curves[name].append(loss)
        time = len(curves[name])
        counted = [
            curve[max(grace, 1) - 1 : time] for other, curve in curves.items() if other != name
        ]
        others = [mean(losses) for losses in counted if losses]
        expected = (
            time >= grace and len(others) >= min_samples and min(curves[name]) > median(others)
        )
        is_close = bool(others) and math.isclose(
            min(curves[name]), median(others), rel_tol=1e-6, abs_tol=1e-6
        )
        decided = bool(talk(scheduler, (name, time, loss)))
        assert decided == expected or is_close
        if decided:
            stopped.add(name)


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"grace_period": -1},
            ValueError,
            "grace_period must be at least 0 and finite, got -1; it is counted in time_attr units",
        ),
        ({"grace_period": NAN}, ValueError, "grace_period must be at least 0 and finite, got nan"),
        ({"grace_period": None}, TypeError, "grace_period must be a number, got None"),
        (
            {"min_time_slice": -0.5},
            ValueError,
            "min_time_slice must be at least 0 and finite, got -0.5",
        ),
        (
            {"min_samples_required": 0},
            ValueError,
            "min_samples_required must be at least 1, got 0; there is no median of no trials",
        ),
        (
            {"min_samples_required": 2.0},
            TypeError,
            "min_samples_required must be a whole number, got 2.0",
        ),
        ({"mode": "low"}, ValueError, "mode must be 'min', 'max' or None, got 'low'"),
        (
            {"time_attr": ""},
            ValueError,
            "time_attr must be the name of an entry of each result, got ''",
        ),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    with pytest.raises(error) as caught:
        rule(**arguments)
    assert str(caught.value).startswith(complaint)


def test_a_missing_metric_is_refused_before_the_first_trial():
    with pytest.raises(
        ValueError,
        match="metric must be the name of a metric, got None; give it to TuneConfig or to "
        "MedianStoppingRule",
    ):
        MedianStoppingRule().set_search_properties(None, "min", seed=0)


@pytest.mark.parametrize(
    "change", [{"grace_period": 1}, {"mode": "max"}, {"metric": "error"}, {"hard_stop": False}]
)
def test_the_state_of_a_different_rule_is_refused(change):
    with pytest.raises(
        ValueError,
        match=r"state must come from a scheduler with .*; construct it with the same arguments",
    ):
        rule().load_state_dict(rule(**change).state_dict())


# Whatever happens.


def made(hard_stop=True, grace_period=2, min_time_slice=0):
    return lambda: rule(
        hard_stop=hard_stop,
        grace_period=grace_period,
        min_samples_required=2,
        min_time_slice=min_time_slice,
    )


@pytest.mark.property
@settings(max_examples=examples(60))
@given(
    st.integers(0, 10**6),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([None, 1, 3]),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_every_experiment_ends(seed, hard_stop, num_slots, max_alive, times):
    World(made(hard_stop, *times), seed, num_slots=num_slots, max_alive=max_alive).run()


@pytest.mark.property
@settings(max_examples=examples(20))
@given(st.integers(0, 10**6), st.booleans())
def test_with_pauses_every_trial_comes_to_its_own_end(seed, hard_stop):
    world = World(made(hard_stop), seed, num_restarts=0)
    schedules = list(world.schedules)
    world.run()
    came_short = [
        trial
        for trial, schedule in zip(world.trials.values(), schedules, strict=True)
        if world.time[trial.trial_id] < min(schedule.ends_at, schedule.fails_at)
    ]
    assert hard_stop or not came_short


@pytest.mark.property
@settings(max_examples=examples(20))
@given(st.integers(0, 10**6), st.booleans(), st.integers(0, 150))
def test_a_restore_at_any_point_changes_no_decision(seed, hard_stop, cut):
    original, twin = (
        World(made(hard_stop), seed, num_restarts=0),
        World(made(hard_stop), seed, num_restarts=0),
    )
    advance = twin.advance

    def restore_once(trial):
        if twin.num_results_reported == cut:
            state = json.loads(json.dumps(twin.scheduler.state_dict(), allow_nan=False))
            twin.scheduler = twin.make_scheduler()
            twin.scheduler.load_state_dict(state)
            twin.scheduler.experiment = twin
        advance(trial)

    twin.advance = restore_once
    assert twin.run().log == original.run().log
