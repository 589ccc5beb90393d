"""Rows of all levels of training, and their warped values."""

import numpy as np
import pytest

from searchers.models.level_rows import MAX_ROWS, half_warped, level_rows
from tests.searchers.observed import observed


def test_a_trial_has_a_row_for_each_level_that_it_has_reached():
    curves = {"a": {1: 3.0, 4: 2.0, 16: 1.0}, "b": {1: 5.0, 4: 4.0}, "c": {1: 6.0}}
    rows = level_rows(observed(curves).table())
    assert rows.places.tolist() == [0, 1, 2, 0, 1, 0]
    assert rows.depths.tolist() == [1.0, 1.0, 1.0, 0.5, 0.5, 0.0]
    assert rows.targets.argsort().tolist() == [5, 3, 0, 4, 1, 2]


def test_a_failed_trial_is_worst_after_a_full_training():
    curves = {"a": {1: 3.0, 4: 2.0}, "b": {1: 1.0}, "c": {}}
    rows = level_rows(observed(curves, failed={"c"}).table())
    assert (rows.places[-1], rows.depths[-1]) == (2, 0.0)
    assert rows.targets.argmax() == 3


def test_of_many_rows_the_highest_levels_and_some_of_all_others_are_kept():
    curves = {f"t{number}": {1: 1.0 + number} for number in range(2 * MAX_ROWS)}
    curves |= {f"t{number}": {1: 1.0 + number, 9: 0.5} for number in range(40, 60)}
    rows = level_rows(observed(curves).table())
    assert len(rows.places) == MAX_ROWS
    assert rows.places[rows.depths == 0].tolist() == list(range(40, 60))
    assert rows.places[rows.depths == 1].max() > 1.9 * MAX_ROWS


def test_the_better_half_keeps_its_shape_and_the_worse_half_only_its_order():
    values = np.array([1.0, 2.0, 4.0, 5.0, 6.0, 1e9, 1e12])
    warped = half_warped(values)
    assert np.diff(warped[:4]) / np.diff(values[:4]) == pytest.approx(
        np.full(3, warped[1] - warped[0])
    )
    assert warped[3] == 0
    assert (np.diff(warped) > 0).all()
    bent = half_warped(np.array([1.0, 2.0, 4.0, 5.0, 7.0, 8.0, 9.0]))
    assert bent.tolist() == warped.tolist()


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**1021])
def test_values_of_any_scale_have_the_same_targets(scale):
    values = np.array([-3.0, 1.0, 2.0, 3.0, 3.5, np.inf])
    with np.errstate(all="raise"):
        assert half_warped(values * scale).tolist() == half_warped(values).tolist()


def test_how_bad_the_worst_value_is_changes_nothing():
    bad, worse = np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 2.0, 3.0, 1e300])
    assert half_warped(worse).tolist() == half_warped(bad).tolist()


@pytest.mark.parametrize("values", [[2.0, 2.0, 2.0], [np.inf, np.inf], [1.0], [1.0, 1.0, 5.0]])
def test_any_values_have_finite_targets(values):
    assert np.isfinite(half_warped(np.array(values))).all()
