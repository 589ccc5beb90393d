import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.models.candidates import (
    LEAST_STEP,
    latin,
    mutants,
    spread_out,
    without_repeated_numbers,
)
from searchers.models.encoding import Encoding
from searchers.space import choice, only_if, randint, uniform

ENCODING = Encoding({"x": uniform(0, 1), "kind": choice(["a", "b", "c"]), "n": randint(0, 5)}, "me")


@pytest.mark.parametrize(("num_points", "num_columns"), [(1, 3), (7, 2), (10, 5), (4, 0)])
def test_a_latin_design_has_one_point_in_each_slice(num_points, num_columns):
    design = latin(np.random.default_rng(0), num_points, num_columns)
    assert design.shape == (num_points, num_columns)
    assert all(
        sorted((column * num_points).astype(int)) == list(range(num_points)) for column in design.T
    )


def test_mutants_lie_in_the_space_and_fill_newly_active_parameters():
    parents = np.tile([0.99, 2.0, np.nan], (200, 1))
    children = mutants(np.random.default_rng(0), ENCODING, parents, np.full(200, 0.3), 0.3)
    assert ((children[:, 0] >= 0) & (children[:, 0] <= 1)).all()
    assert set(children[:, 1]) == {0.0, 1.0, 2.0}
    assert set(np.round(children[:, 2], 6)) == {0.1, 0.3, 0.5, 0.7, 0.9}


def test_the_first_candidate_keeps_its_distance():
    known = np.array([[0.5, 0.0, 0.1]])
    near, other, far = [0.51, 0.0, 0.1], [0.5, 1.0, 0.1], [0.9, 0.0, 0.1]
    assert spread_out(np.array([near, far, other]), known, ENCODING)[0].tolist() == far
    assert spread_out(np.array([near, other]), known, ENCODING)[0].tolist() == other
    assert spread_out(np.array([near]), known, ENCODING).tolist() == [near]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.floats(0, 1), st.integers(0, 2**32))
def test_numbers_that_a_trial_has_are_moved_and_others_stay(known, x, seed):
    trials = np.array([[each, 1.0, 0.3] for each in known])
    moved = without_repeated_numbers([x, 1.0, 0.3], trials, ENCODING, np.random.default_rng(seed))
    assert moved[1:] == [1.0, pytest.approx(0.3)]
    assert 0 <= moved[0] <= 1
    is_known = np.abs(np.array(known) - x).min() < 1e-9
    assert abs(moved[0] - x) > 1e-3 * LEAST_STEP if is_known else moved[0] == pytest.approx(x)


def test_inactive_numbers_stay_so():
    encoding = Encoding(
        {"kind": choice(["a", "b"]), "x": only_if({"kind": "b"}, uniform(0, 1))}, "me"
    )
    known = np.array([[0.0, np.nan], [1.0, 0.5]])
    rng = np.random.default_rng(0)
    assert without_repeated_numbers([0.0, np.nan], known, encoding, rng) == [
        0.0,
        pytest.approx(np.nan, nan_ok=True),
    ]
    assert without_repeated_numbers([1.0, 0.5], known, encoding, rng)[1] != 0.5


def test_a_number_on_which_others_depend_is_not_moved_across_their_condition():
    encoding = Encoding(
        {"x": uniform(0, 1), "y": only_if({"x": lambda x: x > 0.5}, uniform(0, 1))}, "me"
    )
    known = np.array([[0.499, np.nan]])
    moved = [
        without_repeated_numbers(known[0].tolist(), known, encoding, np.random.default_rng(seed))
        for seed in range(20)
    ]
    assert all(np.isnan(y) and x <= 0.5 for x, y in moved)
    assert len({x for x, _ in moved}) > 5
