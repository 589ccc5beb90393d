"""Searches with several metrics, and with constraints on what trials report."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import AutoSearch, GPSearch, TreeSearch
from searchers.models.expected_hypervolume import boxes, log_expected_hypervolume
from searchers.models.tradeoffs import scalarised
from searchers.objectives import (
    OutcomeConstraint,
    hypervolume,
    outcome_constraints,
    pareto_front,
)
from searchers.space import choice, uniform
from tests.tiers import examples

OBJECTIVES = (("gain", "max"), ("cost", "min"))
LIMIT = OutcomeConstraint("size", "<=", 1.0)
KINDS = [AutoSearch, GPSearch, TreeSearch]


def made(kind, *, seed=0, objectives=OBJECTIVES, constraints=(LIMIT,), **arguments):
    searcher = kind(n_initial_points=6, **arguments)
    metric, mode = objectives[0] if len(objectives) == 1 else (None, None)
    space = {"x": uniform(0, 1), "y": uniform(0, 1), "kind": choice(["a", "b"])}
    assert searcher.set_search_properties(
        metric, mode, space, seed=seed, objectives=objectives, constraints=constraints
    )
    return searcher


def outcome(config):
    """Gain and cost grow with x; only a small y keeps the limit."""
    x, y, handicap = config["x"], config["y"], 0.3 * (config["kind"] == "a")
    return {
        "gain": x - handicap,
        "cost": x**2 + (y - 0.1) ** 2,
        "size": 4 * y,
        "training_iteration": 1,
    }


def play(searcher, num, first=0):
    configs = []
    for number in range(first, first + num):
        config = searcher.suggest(f"t{number}")
        configs.append(config)
        searcher.on_trial_complete(f"t{number}", outcome(config))
    return configs


def volume_of(configs):
    points = [
        (-result["gain"], result["cost"]) for result in map(outcome, configs) if result["size"] <= 1
    ]
    return hypervolume(points, (0.3, 2.0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.process
def test_it_finds_more_of_the_feasible_front_than_chance(kind):
    rng = np.random.default_rng(0)
    drawn = [
        {"x": x, "y": y, "kind": "ab"[int(k > 0.5)]} for x, y, k in rng.random((30, 3)).tolist()
    ]
    configs = play(made(kind), 30)
    assert volume_of(configs) > volume_of(drawn)
    # They spread over the trade-off rather than collect at one end of it.
    feasible = [config["x"] for config in configs[10:] if config["y"] <= 0.25]
    assert min(feasible) < 0.45
    assert max(feasible) > 0.65


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.process
def test_one_metric_is_optimised_where_the_constraint_is_kept(kind):
    searcher = made(kind, objectives=(("gain", "max"),))
    results = [outcome(config) for config in play(searcher, 30)]
    best = max(result["gain"] for result in results if result["size"] <= 1)
    assert best > 0.85
    assert sum(result["size"] <= 1 for result in results[15:]) > 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.process
def test_both_bounds_of_a_metric_are_kept(kind):
    between = outcome_constraints({"size": [">= 2", "<= 2.6"]})
    searcher = made(kind, objectives=(("cost", "min"),), constraints=between)
    results = [outcome(config) for config in play(searcher, 30)]
    kept = [result for result in results[12:] if 2 <= result["size"] <= 2.6]
    assert len(kept) > 6  # three of them by chance
    # The least of them, at x=0 and y=0.5.
    assert min(result["cost"] for result in kept) < 0.3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.process
def test_a_restored_search_goes_on_as_if_nothing_had_happened(kind):
    searcher, again = made(kind), made(kind)
    play(searcher, 14)
    again.load_state_dict(json.loads(json.dumps(searcher.state_dict())))
    assert play(again, 4, first=14) == play(searcher, 4, first=14)
    assert again.explain_suggestion() == searcher.explain_suggestion()


def test_what_is_known_beforehand_counts():
    points = [{"x": x, "y": 0.1, "kind": "b"} for x in (0.1, 0.5, 0.9)]
    rewards = [outcome(point) for point in points]
    searcher = made(TreeSearch, points_to_evaluate=points, evaluated_rewards=rewards)
    assert searcher.observations.num_observed == 3
    assert searcher.tradeoffs.excesses(list(searcher.observations.trials)).max() < 0
    for reward in (0.5, [0.5, 1.0], {"gain": 0.5}, {"gain": 0.5, "cost": math.nan}):
        with pytest.raises(ValueError, match="the numbers of 'gain', 'cost', 'size'"):
            made(TreeSearch, points_to_evaluate=points[:1], evaluated_rewards=[reward])


@pytest.mark.parametrize("later", [{}, {"size": None, "cost": None}, {"size": "small"}])
def test_a_number_counts_until_another_one_is_reported(later):
    searcher = made(TreeSearch)
    searcher.on_trial_result("t0", {**outcome(searcher.suggest("t0")), "size": 0.75})
    searcher.on_trial_complete("t0", {"gain": 0.5, "training_iteration": 2, **later})
    assert searcher.tradeoffs.excesses(["t0"]).tolist() == [[-0.25]]
    searcher.on_trial_complete("t0", {"gain": 0.5, "training_iteration": 3, "size": math.nan})
    assert searcher.tradeoffs.excesses(["t0"]).tolist() == [[math.inf]]


def test_a_constraint_that_is_measured_late_says_nothing_about_trials_stopped_before():
    searcher = made(AutoSearch, objectives=(("gain", "max"),))
    for name, size, time in (("short", None, 1), ("long", 3.0, 9), ("bare", None, 9)):
        result = {**outcome(searcher.suggest(name)), "size": size, "training_iteration": time}
        searcher.on_trial_complete(name, result, stopped=time < 9)
    searcher.suggest("failed")
    searcher.on_trial_complete("failed", error=True)
    names = ["short", "long", "bare", "failed"]
    is_open = searcher.tradeoffs.unmeasured(names, searcher.observations)
    assert is_open.tolist() == [[True], [False], [False], [False]]
    searcher.tradeoffs.scalarise(searcher.observations, [1.0])
    scores = {name: [*searcher.observations.trials[name].curve.values()] for name in names[:3]}
    assert math.isfinite(scores["short"][0])
    assert scores["long"][0] < scores["bare"][0] == math.inf


@pytest.mark.process
def test_the_search_leaves_the_region_where_a_late_constraint_is_missed():
    searcher = made(AutoSearch, objectives=(("gain", "max"),), seed=1)
    for number in range(16):
        config = searcher.suggest(f"t{number}")
        # Whatever keeps the constraint is stopped before it is measured.
        is_long = config["y"] > 0.7
        result = {**outcome(config), "training_iteration": 9 if is_long else 1}
        if not is_long:
            del result["size"]
        searcher.on_trial_complete(f"t{number}", result, stopped=not is_long)
    assert np.mean([searcher.suggest(f"n{number}")["y"] for number in range(8)]) < 0.5


def test_a_list_holds_the_values_of_several_metrics_where_there_are_no_constraints():
    searcher = made(TreeSearch, constraints=())
    point = {"x": 0.1, "y": 0.1, "kind": "b"}
    searcher.add_evaluated_point(point, [0.5, 2.0])
    searcher.add_evaluated_point({**point, "x": 0.2}, [0.4, 1.0], intermediate_values=[[0, 9], []])
    searcher.add_evaluated_point({**point, "x": 0.3}, [0.4, 1.0], error=True)
    kept = searcher.observations
    costs = [trial.curve or trial.reward for trial in kept.trials.values()]
    assert costs == [0.0, {0: 0.0, 8: 0.0}, None]
    one = searcher.tradeoffs.of_objective(1, kept).trials.values()
    assert [trial.curve or trial.reward for trial in one] == [2.0, {0: 9, 8: 1.0}, None]


def test_ignored_failures_and_values_teach_nothing():
    searcher = made(TreeSearch, failed_trials="ignore")
    for number, size in enumerate((1.0, math.nan, 2.0)):
        searcher.suggest(f"t{number}")
        searcher.on_trial_result(f"t{number}", {"gain": 1.0, "cost": 1.0, "size": size})
    searcher.on_trial_complete("t2", error=True)
    assert searcher.observations.table().names == ("t0",)
    assert searcher.tradeoffs.of_objective(0, searcher.observations).table().names == ("t0",)


def test_what_is_known_outlives_another_bound():
    searcher = made(TreeSearch)
    play(searcher, 3)
    before = searcher.tradeoffs.excesses(["t0", "t1"])
    again = {"objectives": OBJECTIVES, "constraints": (OutcomeConstraint("size", "<=", 3.0),)}
    space = {"x": uniform(0, 1), "y": uniform(0, 1), "kind": choice(["a", "b"])}
    assert searcher.set_search_properties(None, None, space, seed=0, **again)
    assert np.allclose(searcher.tradeoffs.excesses(["t0", "t1"]), before - 2)


@pytest.mark.process
def test_an_explanation_tells_what_is_sought_and_whether_it_will_be_feasible():
    searcher = made(GPSearch)
    play(searcher, 8)
    why, feasible = searcher.explain_suggestion().split("; ")
    assert why == "Gaussian processes for hypervolume, fitted to 7 trials"
    assert re.fullmatch(r"feasible with probability [01]\.\d\d", feasible)
    trees = made(TreeSearch, random_fraction=0)
    play(trees, 8)
    assert re.match(r"randomised trees of 0\.\d\d gain \+ 0\.\d\d cost", trees.explain_suggestion())


def test_a_size_that_is_reported_once_holds_for_all_later_results():
    searcher = made(TreeSearch)
    searcher.suggest("a")
    searcher.on_trial_result("a", {"gain": 0.1, "training_iteration": 1})
    assert not searcher.observations.is_known("a")
    searcher.on_trial_result("a", {"cost": 3, "size": 9, "training_iteration": 2})
    searcher.on_trial_result("a", {"gain": 0.4, "training_iteration": 4})
    assert searcher.observations.is_known("a")
    assert searcher.tradeoffs.excesses(["a", "unknown"]).tolist() == [[8.0], [math.inf]]


def test_infeasible_points_come_after_all_feasible_ones_and_failures_last():
    points = np.array([[5.0, 9.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [math.inf, 0.0]])
    scores = scalarised(points, np.array([0.0, 2.0, 0.0, 1.0, 0.0]), [0.3, 0.7])
    assert np.argsort(scores, kind="stable").tolist() == [2, 0, 3, 1, 4]
    assert scalarised(points, np.full(5, math.inf), [0.5, 0.5]).tolist() == [math.inf] * 5


@settings(max_examples=examples(60))
@given(
    st.integers(1, 4).flatmap(
        lambda size: st.lists(
            st.tuples(*[st.integers(0, 6)] * size), min_size=0, max_size=6, unique=True
        ).map(lambda points: (size, points))
    )
)
def test_boxes_are_what_the_front_leaves_of_the_space_before_the_reference(given_points):
    size, points = given_points
    reference = np.full(size, 6.0)
    kept = [points[place] for place in pareto_front(points, ["min"] * size)]
    lows, highs = boxes(np.array(kept, dtype=float).reshape(len(kept), size), reference)
    within = (np.minimum(highs, reference) - np.maximum(lows, 0.0)).clip(min=0).prod(axis=1)
    assert within.sum() == 6**size - hypervolume(kept, (6,) * size)


@pytest.mark.process
def test_the_expected_gain_is_the_mean_of_the_gains_of_draws():
    rng = np.random.default_rng(0)
    front = np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 2.0], [2.0, 0.0, 0.0]])
    reference = np.full(3, 3.0)
    means, deviations = np.array([[0.8, 0.9, 0.7]]), np.array([[0.5, 0.3, 0.4]])
    expected = math.exp(log_expected_hypervolume(means, deviations, *boxes(front, reference))[0])
    before = hypervolume(list(map(tuple, front)), (3, 3, 3))
    gains = [
        hypervolume([*map(tuple, front), tuple(draw)], (3, 3, 3)) - before
        for draw in rng.normal(means[0], deviations[0], size=(4000, 3)).tolist()
    ]
    assert abs(np.mean(gains) - expected) < 4 * np.std(gains) / math.sqrt(4000)
