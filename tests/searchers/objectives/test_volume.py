"""Hypervolume, compared with a count of the cells of a grid."""

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.objectives import hypervolume, hypervolumes
from tests.tiers import examples

SIDE = 5


def cells_dominated(points, size):
    """Return how many cells of a grid from 0 to SIDE lie between a point and the corner."""
    return sum(
        any(all(p <= c for p, c in zip(point, cell, strict=True)) for point in points)
        for cell in itertools.product(range(SIDE), repeat=size)
    )


def points_of(size):
    return st.lists(st.tuples(*[st.integers(0, SIDE + 1)] * size), max_size=8)


@settings(max_examples=examples(300))
@given(st.integers(1, 4).flatmap(lambda size: st.tuples(st.just(size), points_of(size))))
def test_it_is_the_volume_of_the_cells_between_points_and_reference(given_points):
    size, points = given_points
    reference = (SIDE,) * size
    assert hypervolume(points, reference) == cells_dominated(points, size)
    assert hypervolumes(points, reference) == [
        cells_dominated(points[: number + 1], size) for number in range(len(points))
    ]


def test_points_that_do_not_count_leave_it_as_it_is():
    assert hypervolumes([None, (1, 1), None, (0, 5)], (4, 4)) == [0, 9, 9, 9]
    assert hypervolume([], (1, 1)) == 0


def test_units_of_very_different_sizes_keep_their_digits():
    assert math.isclose(hypervolume([(1e-9, 1e9)], (2e-9, 3e9)), 2.0)
