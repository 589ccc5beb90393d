"""Preparation of inputs in the quality benchmark, and the generated problems."""

import numpy as np
import pytest

from benchmarks.quality import econometrics, generated
from benchmarks.quality.preparation import prepared
from benchmarks.quality.problems import raw, with_missing

INPUTS = np.array([[1, 0], [2, 1], [3, 1], [6, 2], [9, 0], [4, 5]], dtype=np.float32)
TARGETS = np.array([0, 1, 1, 0, 1, 0])
GENERATED = {
    "friedman": (lambda: generated.friedman(1, 0.5, 50, 40, 1), 10),
    "ratios": (lambda: generated.friedman(3, 0.5, 50, 40, 1), 4),
    "hastie": (lambda: generated.hastie("log_loss", 50, 40, 1), 10),
    "moons": (lambda: generated.moons("error", 0.3, 50, 40, 1), 2),
    "classes": (lambda: generated.classes("error", 5, 50, 40, 1), 20),
}
STATSMODELS = {
    "affairs": (lambda: econometrics.affairs("log_loss", 50, 40, 1), 8),
    "party": (lambda: econometrics.party(50, 40, 1), 8),
    "vote": (lambda: econometrics.vote(50, 40, 1), 8),
    "doctor_visits": (lambda: econometrics.doctor_visits(50, 40, 1), 9),
    "school_scores": (lambda: econometrics.school_scores(50, 40, 1), 20),
    "next_sunspots": (lambda: econometrics.next_sunspots(12, 50, 40), 12),
    "next_inflation": (lambda: econometrics.next_inflation(50, 40, 1), 13),
    "travel_mode": (lambda: econometrics.travel_mode(50, 40, 1), 17),
    "investments": (lambda: econometrics.investments(50, 40, 1), 14),
}


@pytest.fixture
def problem():
    """Four training examples, the last column of which is a category; two for validation."""
    return raw("error", INPUTS, TARGETS, (4, 2), 0, categories=(1,))


def checked(make, num_columns):
    problem, again = make(), make()
    assert [part[0].shape for part in (problem.train, problem.valid)] == [
        (50, num_columns),
        (40, num_columns),
    ]
    assert all(np.isfinite(part[0]).all() for part in (problem.train, problem.valid))
    for part, same in zip(
        (*problem.train, *problem.valid), (*again.train, *again.valid), strict=True
    ):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_problems(name):
    checked(*GENERATED[name])


@pytest.mark.parametrize("name", STATSMODELS)
def test_problems_of_statsmodels(name):
    pytest.importorskip("statsmodels", reason="its data sets are needed")
    checked(*STATSMODELS[name])


def test_raw_problems_keep_their_inputs(problem):
    rows = {tuple(row) for row in INPUTS}
    assert {tuple(row) for row in np.vstack([problem.train[0], problem.valid[0]])} == rows
    assert problem.categories == (1,)


def test_equal_preparations_are_one_object(problem):
    assert prepared(problem, {"scaler": "rank"}) is prepared(problem, {"scaler": "rank", "lr": 1})
    assert prepared(problem, {"scaler": "rank"}) is not prepared(problem, {"scaler": "none"})


def test_categories_are_encoded_from_training_examples(problem):
    kinds = np.unique(problem.train[0][:, 1])
    plain = {"scaler": "none"}
    ordinal = prepared(problem, {**plain, "encoder": "ordinal"}).train[0]
    np.testing.assert_array_equal(ordinal, problem.train[0])
    one_hot = prepared(problem, {**plain, "encoder": "one-hot"})
    assert one_hot.train[0].shape == (4, 1 + len(kinds))
    np.testing.assert_array_equal(one_hot.train[0][:, 1:].sum(axis=1), 1.0)
    is_known = np.isin(problem.valid[0][:, 1], kinds)
    np.testing.assert_array_equal(one_hot.valid[0][:, 1:].sum(axis=1), is_known)
    frequency = prepared(problem, {**plain, "encoder": "frequency"}).train[0][:, 1]
    target = prepared(problem, {**plain, "encoder": "target"}).train[0][:, 1]
    for row, kind in enumerate(problem.train[0][:, 1]):
        same = problem.train[0][:, 1] == kind
        assert frequency[row] == pytest.approx(same.mean())
        total = problem.train[1][same].sum() + problem.train[1].mean()
        assert target[row] == pytest.approx(total / (same.sum() + 1))


@pytest.mark.parametrize(
    ("scaler", "low", "high"),
    [("minmax", 0.0, 1.0), ("rank", -1.0, 0.5), ("none", 0.0, 9.0)],
)
def test_scalers_have_their_range(problem, scaler, low, high):
    train = prepared(problem, {"scaler": scaler, "encoder": "ordinal"}).train[0]
    assert (train.min() >= low, train.max() <= high) == (True, True)
    if scaler != "none":
        assert (train.min(), train.max()) == (low, high)


def test_a_robust_scale_has_the_median_at_0():
    problem = generated.classes("error", 2, 101, 20, 1)
    robust = prepared(problem, {"scaler": "robust"}).train[0]
    np.testing.assert_allclose(np.median(robust, axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.ptp(np.quantile(robust, [0.25, 0.75], axis=0), axis=0), 1.0)
    standard = prepared(problem, {}).train[0]
    np.testing.assert_allclose(standard.std(axis=0), 1.0, rtol=1e-5)


def test_columns_are_selected():
    problem = generated.friedman(1, 0.1, 200, 50, 1)
    assert prepared(problem, {"selection": "all"}).train[0].shape == (200, 10)
    best = prepared(problem, {"selection": "best", "num_selected": 2})
    # The function is 20 (x3 - 0.5)^2 + 10 x4 + 5 x5 + 10 sin(pi x1 x2), and linear only in two.
    columns = [
        int(np.abs(best.train[0][:, [place]] - prepared(problem, {}).train[0]).max(axis=0).argmin())
        for place in range(2)
    ]
    assert 3 in columns
    assert set(columns) < {0, 1, 3, 4}
    components = prepared(problem, {"selection": "components", "num_selected": 3}).train[0]
    np.testing.assert_allclose(np.corrcoef(components, rowvar=False), np.eye(3), atol=1e-5)
    assert prepared(problem, {"selection": "random", "num_selected": 4}).valid[0].shape == (50, 4)


@pytest.mark.parametrize(
    ("imputer", "value"),
    [("mean", np.nanmean), ("median", np.nanmedian)],
)
def test_missing_values_are_replaced(imputer, value):
    problem = with_missing(generated.classes("error", 2, 100, 50, 1), 0.2, 1)
    is_missing = np.isnan(problem.train[0])
    assert 0.15 < is_missing.mean() < 0.25
    filled = prepared(problem, {"imputer": imputer, "scaler": "none"}).train[0]
    expected = np.broadcast_to(value(problem.train[0], axis=0), filled.shape)
    np.testing.assert_allclose(filled[is_missing], expected[is_missing], rtol=1e-5)
    np.testing.assert_allclose(filled[~is_missing], problem.train[0][~is_missing], rtol=1e-6)


def test_missing_values_can_be_flagged_or_put_below_all_others():
    problem = with_missing(generated.classes("error", 2, 100, 50, 1), 0.2, 1)
    is_missing = np.isnan(problem.train[0])
    flagged = prepared(problem, {"imputer": "flag", "scaler": "none"})
    np.testing.assert_array_equal(flagged.train[0][:, 20:], is_missing)
    assert flagged.valid[0].shape == (50, 40)
    low = prepared(problem, {"imputer": "low", "scaler": "none"}).train[0]
    assert all(
        low[is_missing[:, column], column].max() < low[~is_missing[:, column], column].min()
        for column in range(20)
    )
