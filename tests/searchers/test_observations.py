"""Observations ranked over levels of training, and final scores extrapolated from them."""

import json
import math

import numpy as np
import pytest

from searchers.models.observations import (
    MIN_TRIALS,
    Observations,
    extrapolate_final_scores,
    number_in,
    slot_of,
)
from tests.searchers.observed import observed


def order_of(observations):
    table = observations.table()
    return [table.names[place] for place in np.argsort(table.quantiles, kind="stable")]


def test_trials_of_one_level_are_ranked_by_their_values():
    observations = observed({"a": {1: 0.3}, "b": {1: 0.1}, "c": {1: 0.2}, "running": {}})
    assert order_of(observations) == ["b", "c", "a"]
    assert observations.table().quantiles.tolist() == pytest.approx([5 / 6, 1 / 6, 3 / 6])


def test_trials_at_a_higher_level_share_the_ranks_they_had_below():
    curves = {"a": {1: 1}, "b": {1: 2, 3: 9}, "c": {1: 3}, "d": {1: 4, 3: 5}, "e": {1: 5}}
    # b and d had the second and fourth place; d is better above.
    assert order_of(observed(curves)) == ["a", "d", "c", "b", "e"]


def test_values_of_different_levels_are_never_compared():
    rising = {"a": {1: 0.1, 9: 100.0}, "b": {1: 0.2, 9: 101.0}, "c": {1: 0.3}, "d": {1: 0.4}}
    assert order_of(observed(rising)) == ["a", "b", "c", "d"]


def test_equal_values_share_their_ranks():
    assert observed(
        {"a": {1: 1}, "b": {1: 1}, "c": {1: 2}, "d": {1: 1}}
    ).table().quantiles.tolist() == pytest.approx([3 / 8, 3 / 8, 7 / 8, 3 / 8])


def test_failures_and_values_that_are_not_numbers_count_as_worst():
    observations = observed(
        {"a": {1: math.nan}, "b": {1: 5}, "c": {1: 0.1}, "d": {1: -math.inf}, "e": {}},
        failed=["c", "e"],
    )
    table = observations.table()
    assert order_of(observations)[0] == "b"
    assert table.quantiles[[2, 4]].min() > table.quantiles[[0, 1, 3]].max()


def test_many_reports_make_one_row_and_few_slots():
    observations = observed({"a": {time: 1 / time for time in range(1, 1001)}})
    assert len(observations.table().vectors) == 1
    assert len(observations.trials["a"].curve) < 90


def test_trials_are_compared_at_the_rungs_of_a_scheduler():
    # All rest at 5; the one that went on had the worst value there, and a better one before and
    # after.
    curves = {f"rests {number}": {4: 1.0, 5: 0.5 + number} for number in range(4)} | {
        "unfinished": {4: 0.0, 5: 9.0, 6: 0.0}
    }
    assert order_of(observed(curves))[-1] == "unfinished"


def test_known_rewards_are_compared_at_the_highest_level():
    observations = observed({"a": {1: 1.0, 9: 0.5}, "b": {1: 2.0, 9: 0.7}, "c": {1: 3.0}})
    observations.add_evaluated("given", [0.1], 0.6)
    assert order_of(observations)[0] == "a"
    assert observations.table().heights[-1] == 1


def test_a_reward_alone_counts_as_a_result():
    observations = Observations()
    observations.add_evaluated("given", [0.1], 0.6)
    assert (observations.num_observed, observations.table().quantiles.tolist()) == (1, [0.5])


def test_results_of_unknown_trials_are_ignored():
    observations = Observations()
    observations.record("unknown", 1, 0.5)
    observations.end("unknown", is_failed=False)
    assert observations.num_observed == 0
    assert observations.table().vectors.shape[0] == 0


def test_the_state_is_strict_json_and_complete():
    observations = observed({"a": {1: 0.5, 3: math.nan}, "b": {}}, failed=["b"])
    observations.add("absent", [math.nan])
    observations.add_evaluated("given", [0.1], 0.6)
    again = Observations()
    again.load_state_dict(json.loads(json.dumps(observations.state_dict(), allow_nan=False)))
    assert repr(again.trials) == repr(observations.trials)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"x": 1}, 1.0),
        ({"x": np.float32(2)}, 2.0),
        ({"x": 10**400}, math.inf),
        ({}, None),
        ({"x": np.array(3.0)}, 3.0),
    ],
)
def test_numbers_are_read_from_results(result, expected):
    assert number_in(result, "x") == expected


@pytest.mark.parametrize("value", [None, "0.5", [1], math.nan, np.array([1, 2])])
def test_entries_that_are_not_numbers_are_nan(value):
    assert math.isnan(number_in({"x": value}, "x"))


@pytest.mark.parametrize("time", [0, -1.0, 1e-300])
def test_times_of_zero_and_less_have_a_slot(time):
    assert slot_of(time) <= slot_of(1e-3) < slot_of(1) == 0 < slot_of(2)


def test_vectors_include_added_and_replaced_trials():
    observations = Observations()
    assert observations.vectors().tolist() == []
    observations.add("a", [0.1])
    assert observations.vectors().tolist() == [[0.1]]
    observations.add("b", [0.2])
    observations.record("b", 1, 5.0)
    observations.add_evaluated("c", [0.3], 1.0)
    assert observations.vectors().tolist() == [[0.1], [0.2], [0.3]]
    assert observations.table().vectors.tolist() == [[0.2], [0.3]]
    observations.add("a", [0.4])
    assert observations.vectors().tolist() == [[0.4], [0.2], [0.3]]


def observed_curves(curves, *, failed=()):
    """Return the table of trials with these pairs of position and values.

    A position is between 0 and 1; the values are by training time.
    """
    observations = Observations()
    for number, (x, curve) in enumerate(curves):
        observations.add(f"t{number}", [x])
        for time, value in curve.items():
            observations.record(f"t{number}", time, value)
        observations.end(f"t{number}", is_failed=number in failed)
    return observations.table()


def slow_learners(times_of, num=25):
    """Return curves that begin badly and end well where `x` is large."""
    return [
        (x, {time: (1 - x) + x * 3 / time for time in times_of(x)})
        for x in np.linspace(0.02, 0.98, num)
    ]


def test_slow_learners_are_expected_to_gain_like_those_trained_further():
    curves = slow_learners(lambda x: (1, 3, 9) if x < 0.35 or 0.5 < x < 0.7 else (1,), num=60)
    table = observed_curves(curves)
    left_behind = (table.vectors[:, 0] > 0.7) & (table.vectors[:, 0] < 0.8)
    assert table.quantiles[left_behind].mean() > 0.7
    assert extrapolate_final_scores(table, (0,)).quantiles[left_behind].mean() < 0.45


def seen_early(final_of, num=80):
    """Return the rank correlation of early values and of extrapolated scores.

    Every second trial is trained to the end, where it has `final_of` its early value; nothing
    depends on the configuration. The correlation is that of the other ones.
    """
    rng = np.random.default_rng(0)
    early = rng.random(num)
    final = final_of(early, rng)
    curves = [
        (x, {1: value} | ({9: end} if number % 2 else {}))
        for number, (x, value, end) in enumerate(zip(rng.random(num), early, final, strict=True))
    ]
    table = extrapolate_final_scores(observed_curves(curves), (0,))
    ranks = early[::2].argsort().argsort()
    return np.corrcoef(ranks, table.quantiles[::2])[0, 1]


def test_early_values_are_believed_as_far_as_they_agree_with_final_ones():
    assert seen_early(lambda early, rng: early) > 0.9
    assert seen_early(lambda early, rng: 1 - early) < -0.5


def test_fully_trained_trials_keep_their_order():
    table = extrapolate_final_scores(observed_curves(slow_learners(lambda x: (1, 3, 9))), (0,))
    assert table.quantiles.argsort().tolist() == table.vectors[:, 0].argsort()[::-1].tolist()
    assert sorted(table.quantiles.tolist()) == pytest.approx(
        [(place + 0.5) / 25 for place in range(25)]
    )


def test_only_the_order_of_values_counts():
    curves = slow_learners(lambda x: (1, 3) if x < 0.5 else (1,))
    bent = [(x, {time: np.exp(5 * value) for time, value in curve.items()}) for x, curve in curves]
    assert (
        extrapolate_final_scores(observed_curves(curves), (0,)).quantiles.tolist()
        == extrapolate_final_scores(observed_curves(bent), (0,)).quantiles.tolist()
    )


def test_failures_and_infinite_values_stay_last():
    curves = slow_learners(lambda x: (1, 3))
    curves[3] = (0.1, {1: float("nan"), 3: float("inf")})
    table = extrapolate_final_scores(observed_curves(curves, failed={7}), (0,))
    worst = set(np.argsort(table.quantiles)[-2:].tolist())
    assert worst == {3, 7}


@pytest.mark.parametrize(
    "curves", [slow_learners(lambda x: (1,)), slow_learners(lambda x: (1, 3))[: MIN_TRIALS - 1]]
)
def test_few_trials_or_a_single_level_are_not_extrapolated(curves):
    table = observed_curves(curves)
    assert extrapolate_final_scores(table, (0,)) is table
