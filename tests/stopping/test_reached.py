"""The hypervolume by which a search with several metrics is judged."""

import math

import numpy as np
import pytest

from searchers.objectives import hypervolume
from tuner.stopping.reached import ReachedFront, reached_by


def random_points(num, num_metrics):
    rng = np.random.default_rng(num_metrics)
    return [tuple(point) for point in rng.random((num, num_metrics)).tolist()]


@pytest.mark.parametrize("num_metrics", [2, 3])
def test_the_means_over_all_directions_are_parts_of_the_hypervolume(num_metrics):
    points = random_points(80, num_metrics)
    front = ReachedFront(points)
    is_early = [number < 30 for number in range(80)]
    by_directions = -front.costs[:30].min(axis=0).mean()
    assert by_directions == pytest.approx(front.part_of(is_early), rel=0.05)
    assert front.part_of([True] * 80) == 1.0


def test_the_reference_is_a_tenth_beyond_the_worst_values_of_the_front():
    points = [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0), *[(1.0, 1.0)] * 20]
    volumes = [hypervolume(some, (1.1, 1.1)) for some in (points[:1], points)]
    first = [number == 0 for number in range(23)]
    assert ReachedFront(points).part_of(first) == pytest.approx(volumes[0] / volumes[1])


def test_a_trial_at_an_end_of_the_front_that_has_diverged_does_not_stretch_the_scale():
    points = random_points(80, 2)
    before = ReachedFront(points).gain_of_last(60)
    diverged = [*points[:10], (1e9, -0.01), *points[10:]]
    assert before / 2 < ReachedFront(diverged).gain_of_last(60) < 2 * before


def test_a_metric_that_is_the_same_in_all_trials_does_not_count():
    points = [(value, 3.0) for (value, _) in random_points(30, 2)]
    front = ReachedFront(points)
    assert front.gain_of_last(29) > 0
    assert front.costs.min() == pytest.approx(-1.0)


def test_where_all_trials_are_alike_nothing_is_gained():
    front = ReachedFront([(1.0, 2.0)] * 9)
    assert front.gain_of_last(3) == 0.0
    assert not front.costs.any()


def test_units_do_not_matter():
    points = random_points(60, 2)
    scaled = [(1e6 * one - 5, 1e-3 * other) for one, other in points]
    gains = [ReachedFront(each).gain_of_last(40) for each in (points, scaled)]
    assert gains[0] == pytest.approx(gains[1])


def test_trials_without_a_value_add_nothing():
    points = random_points(40, 2)
    front = ReachedFront([*points, None, None])
    assert front.gain_of_last(2) == 0.0
    assert not front.costs[-2:].any()


def test_one_metric_is_judged_in_its_own_unit():
    best = reached_by([(4.0,), None, (2.0,), (1.0,)])
    assert (best.gain_of_last(1), best.worth) == (1.0, 0.005)
    assert best.costs.tolist() == [[4.0], [4.0], [2.0], [1.0]]
    assert reached_by([None, (4.0,)]).gain_of_last(1) == math.inf
