import numpy as np
import pytest

from searchers.models.candidates import latin, mutants, spread_out
from searchers.models.encoding import Encoding
from searchers.space import choice, randint, uniform

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
