import numpy as np
import pytest

from searchers.models.candidates import latin, mutants, spread_out
from searchers.models.encoding import Encoding
from searchers.models.linear_trend import LinearTrend
from searchers.space import choice, randint, uniform

ENCODING = Encoding({"x": uniform(0, 1), "kind": choice(["a", "b", "c"]), "n": randint(0, 5)}, "me")


@pytest.mark.parametrize(("num_points", "num_columns"), [(1, 3), (7, 2), (10, 5), (4, 0)])
def test_a_latin_design_has_one_point_in_each_slice(num_points, num_columns):
    design = latin(np.random.default_rng(0), num_points, num_columns)
    assert design.shape == (num_points, num_columns)
    assert all(
        sorted((column * num_points).astype(int)) == list(range(num_points)) for column in design.T
    )


def test_mutants_lie_in_the_space_and_bring_absent_parameters_to_life():
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


def test_a_trend_is_found_and_goes_on_beyond_what_was_seen():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.random(80) / 2, rng.integers(3, size=80)])
    trend = LinearTrend(rows, 4 * rows[:, 0] + (rows[:, 1] == 1), (0, 3))
    low, high, step = trend.predict(np.array([[0.1, 0], [0.9, 0], [0.1, 1]]), trend.weights)
    assert high > low + 1.0
    assert step > low + 0.5


def test_drawn_trends_agree_where_much_was_seen_and_less_elsewhere():
    rng = np.random.default_rng(0)
    rows = rng.random((60, 1)) / 3
    trend = LinearTrend(rows, rows[:, 0] + rng.normal(size=60), (0,))
    seen, unseen = trend.predict(np.array([[0.15], [1.0]]), trend.sample_weights(rng, 200)).std(
        axis=0
    )
    assert unseen > 1.5 * seen


def test_what_is_absent_has_no_trend():
    rows = np.array([[0.1], [0.9], [np.nan]])
    trend = LinearTrend(rows, np.array([0.0, 1.0, 5.0]), (0,))
    assert np.isfinite(trend.predict(rows, trend.weights)).all()
