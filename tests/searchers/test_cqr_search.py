import numpy as np
import pytest

from searchers.models.cqr_search import _widening, boost

LEVELS = np.array([1, 2, 3, 4, 5]) / 6


def boosted(rows, targets, categories=None, seed=0):
    rows = np.asarray(rows, dtype=float)
    return boost(
        rows,
        np.asarray(targets, dtype=float),
        categories or (0,) * rows.shape[1],
        LEVELS,
        np.random.default_rng(seed),
    )


def test_each_quantile_has_its_share_below():
    rng = np.random.default_rng(1)
    rows, fresh = rng.random((1000, 2)), rng.random((1000, 2))
    trees = boosted(rows, rows[:, 0] + 0.3 * rng.normal(size=1000))
    below = (fresh[:, 0] + 0.3 * rng.normal(size=1000) < trees.predict(fresh)).mean(axis=1)
    assert below == pytest.approx(LEVELS, abs=0.08)


def test_categories_and_inactive_entries_are_distinguished():
    rows = [[0.0], [1.0], [2.0], [np.nan]] * 25
    found = boosted(rows, [0.0, 5.0, 1.0, 9.0] * 25, (3,)).predict(np.array(rows[:4]))[2]
    assert found == pytest.approx([0, 5, 1, 9], abs=0.3)


def test_one_row_is_enough():
    assert boosted([[0.5]], [2.0]).predict(np.array([[0.1]])).ravel().tolist() == [2.0] * 5


def test_held_out_values_widen_quantiles_that_are_too_narrow_and_narrow_wide_ones():
    targets = np.linspace(-3, 3, 60)
    narrow, wide = (
        np.repeat([[-0.1], [-0.05], [0.0], [0.05], [0.1]], 60, axis=1),
        np.repeat([[-9.0], [-8], [0], [8], [9]], 60, axis=1),
    )
    for predicted in (narrow, wide):
        corrected = predicted + _widening(predicted, targets, LEVELS)[:, None]
        held = [
            ((corrected[low] <= targets) & (targets <= corrected[4 - low])).mean() for low in (0, 1)
        ]
        assert held == pytest.approx([4 / 6, 2 / 6], abs=0.08)
    assert _widening(narrow, targets, LEVELS)[2] == 0
