"""Where trials would stand after a full training."""

import numpy as np
import pytest

from searchers.models.observations import MIN_TRIALS, Observations, extrapolate_final_scores


def observed(curves, *, failed=()):
    """Return what is known of trials from pairs of a place between 0 and 1 and values by training time."""
    observations = Observations()
    for number, (x, curve) in enumerate(curves):
        observations.add(f"t{number}", [x])
        for time, value in curve.items():
            observations.record(f"t{number}", time, value)
        observations.end(f"t{number}", is_failed=number in failed)
    return observations.table()


def slow_learners(times_of, num=25):
    """Return curves of which those with a large `x` begin badly and end well."""
    return [
        (x, {time: (1 - x) + x * 3 / time for time in times_of(x)})
        for x in np.linspace(0.02, 0.98, num)
    ]


def test_slow_learners_are_expected_to_gain_as_those_did_that_were_trained_further():
    curves = slow_learners(lambda x: (1, 3, 9) if x < 0.35 or 0.5 < x < 0.7 else (1,), num=60)
    table = observed(curves)
    left_behind = (table.vectors[:, 0] > 0.7) & (table.vectors[:, 0] < 0.8)
    assert table.quantiles[left_behind].mean() > 0.7
    assert extrapolate_final_scores(table, (0,)).quantiles[left_behind].mean() < 0.45


def test_those_who_were_trained_to_the_end_keep_their_order():
    table = extrapolate_final_scores(observed(slow_learners(lambda x: (1, 3, 9))), (0,))
    assert table.quantiles.argsort().tolist() == table.vectors[:, 0].argsort()[::-1].tolist()
    assert sorted(table.quantiles.tolist()) == pytest.approx(
        [(place + 0.5) / 25 for place in range(25)]
    )


def test_only_the_order_of_values_counts():
    curves = slow_learners(lambda x: (1, 3) if x < 0.5 else (1,))
    bent = [(x, {time: np.exp(5 * value) for time, value in curve.items()}) for x, curve in curves]
    assert (
        extrapolate_final_scores(observed(curves), (0,)).quantiles.tolist()
        == extrapolate_final_scores(observed(bent), (0,)).quantiles.tolist()
    )


def test_failures_and_values_that_are_none_stay_last():
    curves = slow_learners(lambda x: (1, 3))
    curves[3] = (0.1, {1: float("nan"), 3: float("inf")})
    table = extrapolate_final_scores(observed(curves, failed={7}), (0,))
    worst = set(np.argsort(table.quantiles)[-2:].tolist())
    assert worst == {3, 7}


@pytest.mark.parametrize(
    "curves", [slow_learners(lambda x: (1,)), slow_learners(lambda x: (1, 3))[: MIN_TRIALS - 1]]
)
def test_few_trials_and_a_single_level_are_taken_as_they_are(curves):
    table = observed(curves)
    assert extrapolate_final_scores(table, (0,)) is table
