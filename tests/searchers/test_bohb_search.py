import numpy as np
import pytest

from searchers.models.bohb_search import MIN_BANDWIDTH, Density, num_good_of
from searchers.models.encoding import Encoding
from searchers.space import choice, randint, uniform

SPACE = Encoding({"x": uniform(0, 1), "kind": choice(["a", "b", "c"]), "n": randint(0, 5)}, "me")


def density_of(rows):
    return Density(np.asarray(rows, dtype=float), SPACE)


def test_the_density_is_highest_near_its_rows():
    density = density_of([[0.2, 0, 0.1], [0.25, 0, 0.1], [0.3, 1, 0.1]])
    near, far, other = density.log_densities(
        np.array([[0.24, 0, 0.1], [0.9, 0, 0.1], [0.24, 2, 0.1]])
    )
    assert near > other > far or near > far > other
    assert near > max(far, other)


def test_samples_lie_in_the_space_and_near_the_rows():
    drawn = density_of([[0.2, 0, 0.1], [0.25, 0, 0.1], [0.3, 0, 0.3]]).sample(
        np.random.default_rng(0), SPACE, 300, factor=1.0
    )
    assert ((drawn[:, 0] >= 0) & (drawn[:, 0] <= 1)).all()
    assert abs(np.median(drawn[:, 0]) - 0.25) < 0.05
    assert set(np.round(drawn[:, 2], 6)) <= {0.1, 0.3, 0.5, 0.7, 0.9}
    assert (drawn[:, 1] == 0).mean() > 0.6


def test_equal_rows_give_the_minimum_bandwidth():
    density = density_of([[0.5, 1, 0.1]] * 5)
    assert density.bandwidths.tolist() == [MIN_BANDWIDTH] * 3
    assert np.isfinite(density.log_densities(np.array([[0.9, 0, 0.9]]))).all()


def test_inactive_entries_are_near_to_each_other():
    density = density_of([[np.nan, 0, 0.1], [np.nan, 0, 0.3]])
    absent, there = density.log_densities(np.array([[np.nan, 0, 0.1], [0.5, 0, 0.1]]))
    assert absent > there
    assert not np.isnan(density.sample(np.random.default_rng(0), SPACE, 20, factor=3.0)).any()


@pytest.mark.parametrize(
    ("num_trials", "num_columns", "expected"),
    [(4, 7, 2), (10, 7, 5), (20, 7, 8), (100, 7, 15), (53, 2, 8)],
)
def test_the_number_of_good_trials_suffices_for_a_density_and_is_never_all(
    num_trials, num_columns, expected
):
    assert num_good_of(num_trials, num_columns) == expected < num_trials
