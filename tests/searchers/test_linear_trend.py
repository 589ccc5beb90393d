import numpy as np

from searchers.models.linear_trend import LinearTrend


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
