import numpy as np
import pytest

from searchers.models.tree_search import MAX_DEPTH, grow


def forest_on(rows, targets, categories=None, num_trees=5, seed=0, **arguments):
    rows = np.asarray(rows, dtype=float)
    categories = categories or (0,) * rows.shape[1]
    return grow(
        rows,
        np.asarray(targets, dtype=float),
        categories,
        num_trees=num_trees,
        rng=np.random.default_rng(seed),
        **arguments,
    )


def test_full_trees_reproduce_their_training_data():
    rng = np.random.default_rng(1)
    rows, targets = rng.random((200, 3)), rng.normal(size=200)
    assert np.allclose(forest_on(rows, targets).predict(rows), targets)


def test_each_tree_may_have_targets_of_its_own():
    rows, targets = (
        np.random.default_rng(1).random((50, 2)),
        np.random.default_rng(2).normal(size=(3, 50)),
    )
    assert np.allclose(forest_on(rows, targets, num_trees=3).predict(rows), targets)


def test_categories_are_separated_without_an_order():
    rows = np.arange(60)[:, None] % 6
    targets = np.array([0.0, 5.0, 0.0, 5.0, 0.0, 5.0])[rows[:, 0]]
    assert np.allclose(
        forest_on(rows, targets, (6,)).predict(np.arange(6)[:, None]), [0, 5, 0, 5, 0, 5]
    )


def test_inactive_entries_are_separated_from_active_ones():
    rows = [[np.nan]] * 10 + [[place / 10] for place in range(10)]
    forest = forest_on(rows, [3.0] * 10 + [0.0] * 10)
    assert np.allclose(forest.predict(np.array([[np.nan], [0.5]])), [3.0, 0.0])


def test_an_inactive_category_is_separated_from_all_others():
    forest = forest_on([[np.nan], [0], [1], [2]] * 5, [3.0, 0.0, 1.0, 2.0] * 5, (3,))
    assert np.allclose(
        forest.predict(np.array([[np.nan], [0.0], [1.0], [2.0]])), [3.0, 0.0, 1.0, 2.0]
    )


def test_the_same_generator_grows_the_same_trees():
    rows, targets = np.random.default_rng(1).random((40, 2)), np.arange(40.0)
    probe = np.random.default_rng(2).random((30, 2))
    assert np.array_equal(
        forest_on(rows, targets).predict(probe), forest_on(rows, targets).predict(probe)
    )
    assert not np.array_equal(
        forest_on(rows, targets).predict(probe), forest_on(rows, targets, seed=1).predict(probe)
    )


def test_leaves_have_at_least_min_leaf_rows():
    rows = np.random.default_rng(1).random((60, 2))
    found = forest_on(rows, rows[:, 0], min_leaf=5).predict(rows)
    assert min(np.unique(tree, return_counts=True)[1].min() for tree in found) >= 5


def test_very_uneven_rows_end_at_the_greatest_depth():
    rows = 0.5 ** np.arange(400.0)[:, None]
    targets = np.arange(400.0) % 2
    found = forest_on(rows, targets, num_trees=2).predict(rows)
    assert np.isfinite(found).all()
    assert MAX_DEPTH < 400


@pytest.mark.parametrize(
    ("rows", "targets"), [([[0.5]], [2.0]), ([[0.5]] * 4, [2.0] * 4), ([[0.1], [0.9]], [2.0, 2.0])]
)
def test_without_a_possible_cut_the_mean_is_predicted(rows, targets):
    assert np.allclose(forest_on(rows, targets).predict(np.array([[0.3]])), 2.0)


def test_a_smooth_function_is_learnt():
    rng = np.random.default_rng(0)
    rows, probe = rng.random((300, 4)), rng.random((200, 4))
    truth = np.sin(3 * probe[:, 0]) + probe[:, 1]
    found = (
        forest_on(rows, np.sin(3 * rows[:, 0]) + rows[:, 1], num_trees=20)
        .predict(probe)
        .mean(axis=0)
    )
    assert np.corrcoef(found, truth)[0, 1] > 0.95
