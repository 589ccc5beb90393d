import json
import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.decisions import Reason, Stop
from schedulers.halving.fronts import epsilon_net
from schedulers.halving.moasha import MOASHAScheduler
from schedulers.halving.pareto_rungs import ParetoRungs
from searchers.objectives import dominates
from tests.schedulers.play import Actor
from tests.tiers import examples

NAN = math.nan


def moasha(**arguments):
    return MOASHAScheduler(
        **{"metrics": {"accuracy": "max", "latency": "min"}, "max_t": 9, "reduction_factor": 2}
        | arguments
    )


def reported(scheduler, trial_id, time, accuracy, latency):
    result = {"training_iteration": time, "accuracy": accuracy, "latency": latency}
    return list(scheduler.on_trial_result(Actor(trial_id, status="RUNNING"), result))


def fallen(scheduler, *reports):
    return [report[0] for report in reports if reported(scheduler, *report)]


def test_a_small_history_matches_a_calculation_by_hand():
    assert fallen(
        moasha(),
        ("a", 1, 0.8, 5.0),  # alone
        # None dominates another; one of two: a comes second in accuracy, b survives.
        (
            "b",
            1,
            0.9,
            9.0,
        ),
        ("c", 1, 0.7, 6.0),  # a dominates c: third, two of three survive
        # First front b a d; two of four: b, then d, who is farther from b than a.
        (
            "d",
            1,
            0.6,
            1.0,
        ),
        # First front b e a d; three of five: b, d, and of the others a is farther from both.
        (
            "e",
            1,
            0.85,
            6.0,
        ),
    ) == ["c", "e"]


def test_a_stop_carries_the_numbers_it_is_based_on():
    scheduler = moasha()
    reported(scheduler, "a", 1, 0.8, 5.0)
    (stop,) = reported(scheduler, "b", 1, 0.7, 6.0)
    assert stop == Stop(
        "b",
        Reason(
            "moasha.rung",
            {
                "rung": 1,
                "accuracy": 0.7,
                "latency": 6.0,
                "front": 2,
                "num_better": 1,
                "position": 1,
                "num_recorded": 2,
                "num_kept": 1,
                "time": 1.0,
                "bracket": 0,
            },
        ),
    )
    assert reported(scheduler, "b", 2, 1.0, 0.0) == [stop]


def test_trials_end_at_max_t():
    (stop,) = reported(moasha(), "a", 9, 0.8, 5.0)
    assert (stop.reason.rule, stop.is_complete) == ("moasha.max_t", True)
    assert reported(moasha(stop_last_trials=False), "a", 9, 0.8, 5.0) == []


@pytest.mark.parametrize("bad", [NAN, None, math.inf, -math.inf])
def test_a_metric_that_is_no_number_is_worse_than_all_numbers(bad):
    scheduler = moasha()
    reported(scheduler, "a", 1, 0.1, 9.0)
    (stop,) = reported(scheduler, "b", 1, 0.9, bad)
    assert (stop.reason.numbers["front"], stop.reason.numbers["latency"]) == (2, "nan")
    json.dumps(dict(stop.reason.numbers), allow_nan=False)
    alone = moasha()
    assert fallen(alone, ("b", 1, bad, 1.0), ("c", 1, bad, 1.0), ("a", 1, 0.1, 9.0)) == ["c"]


def test_a_metric_that_is_no_number_is_tolerated_at_the_first_level_only():
    assert fallen(moasha(), ("a", 1, NAN, 5.0), ("a", 2, NAN, 5.0), ("b", 1, 0.5, 9.0)) == ["a"]
    assert fallen(moasha(), ("a", 1, NAN, 5.0), ("a", 2, 0.1, 5.0)) == []
    assert fallen(moasha(), ("a", 1, 0.8, 5.0), ("a", 2, 0.8, math.inf)) == ["a"]


def test_a_missing_metric_decides_nothing():
    scheduler = moasha()
    assert (
        list(scheduler.on_trial_result(Actor("a"), {"training_iteration": 1, "accuracy": 0.5}))
        == []
    )
    assert "results without a number under 'latency'" in scheduler.debug_string()
    assert "level 1: 0 recorded, 0 skipped, 0 not dominated" in scheduler.debug_string()


def test_units_do_not_matter():
    reports = [("a", 0.8, 5.0), ("b", 0.9, 9.0), ("d", 0.6, 1.0), ("e", 0.85, 6.0), ("f", 0.5, 0.5)]
    plain, scaled = moasha(), moasha()
    for trial_id, accuracy, latency in reports:
        one = reported(plain, trial_id, 1, accuracy, latency)
        other = reported(scaled, trial_id, 1, 100 * accuracy, latency / 1024)
        assert bool(one) == bool(other)


def test_the_experiment_may_have_a_metric_of_its_own():
    scheduler = moasha()
    assert scheduler.set_search_properties("loss", "min", seed=1)
    assert (scheduler.metric, scheduler.mode) == ("loss", "min")
    assert moasha().set_search_properties(None, None, seed=1)


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"metrics": "accuracy"},
            TypeError,
            "metrics must be names, or names with modes, got 'accuracy'",
        ),
        (
            {"metrics": ["accuracy"], "modes": "max"},
            ValueError,
            "metrics must be at least two different names, got ['accuracy']; for one",
        ),
        (
            {"metrics": ["a", "a"], "modes": "max"},
            ValueError,
            "metrics must be at least two different names, got ['a', 'a']",
        ),
        (
            {"metrics": ["a", ""], "modes": "max"},
            ValueError,
            "each of metrics must be the name of an entry of each result, got ''",
        ),
        (
            {"metrics": ["a", "b"]},
            ValueError,
            "modes must be 'min' or 'max' for each of ['a', 'b'], got [None, None]",
        ),
        (
            {"metrics": ["a", "b"], "modes": ["max"]},
            ValueError,
            "modes must be 'min' or 'max' for each of ['a', 'b'], got ['max']",
        ),
        (
            {"metrics": ["a", "b"], "modes": "up"},
            ValueError,
            "modes must be 'min' or 'max' for each of ['a', 'b'], got 'up'",
        ),
        (
            {"metrics": {"a": "min", "b": "up"}},
            ValueError,
            "modes must be 'min' or 'max' for each of ['a', 'b'], got ['min', 'up']",
        ),
        ({"modes": "max"}, ValueError, "modes must be None where metrics has them, got 'max'"),
    ],
)
def test_arguments_out_of_range_are_refused_at_construction(arguments, error, complaint):
    with pytest.raises(error) as caught:
        moasha(**arguments)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    "arguments",
    [
        {"metrics": ["accuracy", "latency"], "modes": ["max", "min"]},
        {"metrics": {"accuracy": "max", "latency": "min"}},
    ],
)
def test_metrics_and_modes_are_named_either_way(arguments):
    assert fallen(moasha(**arguments), ("a", 1, 0.8, 5.0), ("b", 1, 0.7, 6.0)) == ["b"]


def test_one_mode_may_hold_for_all():
    assert fallen(
        moasha(metrics=["accuracy", "latency"], modes="max"),
        ("a", 1, 0.8, 5.0),
        ("b", 1, 0.9, 6.0),
        ("c", 1, 0.1, 1.0),
    ) == ["c"]


def test_an_epsilon_net_takes_the_farthest_next():
    assert list(epsilon_net([(4.0, 0.0), (0.0, 4.0), (2.0, 2.0), (3.0, 1.0)])) == [1, 0, 2, 3]
    assert list(epsilon_net([(1.0, 1.0), (1.0, 1.0)])) == [0, 1]
    assert list(epsilon_net([(1.0,)])) == [0]


POINTS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda point: tuple(map(float, point))),
    max_size=30,
)


def fronts_of(points):
    """Peel fronts off one after the other, as the definition says."""
    left, fronts = list(range(len(points))), []
    while left:
        front = [n for n in left if not any(dominates(points[m], points[n]) for m in left)]
        fronts.append(front)
        left = [n for n in left if n not in front]
    return fronts


@settings(max_examples=examples(80))
@given(POINTS)
def test_fronts_are_kept_as_if_they_were_made_anew(points):
    rungs = ParetoRungs((1,), 2)
    for number, point in enumerate(points):
        standing = rungs.record(f"t{number}", 1, point)
        expected = fronts_of(points[: number + 1])
        assert rungs._rungs[0].fronts.fronts == expected
        assert number in expected[standing.front - 1]
        assert standing.num_better == sum(map(len, expected[: standing.front - 1]))


@settings(max_examples=examples(60))
@given(POINTS, st.sampled_from([2, 3, 4]))
def test_survivors_are_among_the_best_if_all_are_ranked_anew(points, factor):
    rungs = ParetoRungs((1,), factor)
    for number, point in enumerate(points):
        standing = rungs.record(f"t{number}", 1, point)
        ranking = []
        for front in fronts_of(points[: number + 1]):
            ranking += [front[n] for n in epsilon_net([points[m] for m in front])]
        assert standing.survives == (ranking.index(number) < math.ceil((number + 1) / factor))


def test_fronts_survive_a_restore():
    original, restored = moasha(brackets=2), moasha(brackets=2)
    points = [(f"t{a}{b}", a / 4, (b * 7 % 5) / 4) for a, b in product(range(4), range(4))]
    for trial_id, accuracy, latency in points[:9]:
        reported(original, trial_id, 1, accuracy, latency)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    for trial_id, accuracy, latency in points:
        for time in (1, 2, 4):
            assert reported(restored, trial_id, time, accuracy, latency) == reported(
                original, trial_id, time, accuracy, latency
            )
    assert restored.state_dict() == original.state_dict()
    assert restored.debug_string() == original.debug_string()


def test_the_state_of_other_metrics_is_refused():
    with pytest.raises(ValueError, match="state must come from a scheduler with"):
        moasha().load_state_dict(moasha(metrics={"accuracy": "max", "memory": "min"}).state_dict())
