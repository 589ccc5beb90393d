"""The Gaussian process: predictions, noise, categories, inactive parameters, its likelihood."""

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from searchers import AutoSearch, GPSearch
from searchers.models import gp_search, process_search
from searchers.models.gaussian_process import (
    GaussianProcess,
    _gaps,
    _negative_log_posterior,
    log_expected_improvement,
    one_blas_thread,
)
from searchers.space import choice, only_if, uniform


@pytest.fixture(autouse=True)
def one_thread():
    """Use the processor as searchers do: threads of the linear algebra wait for each other."""
    with one_blas_thread():
        yield


def smooth(rows):
    return np.sin(4 * rows[:, 0]) + rows[:, 1] ** 2


def test_a_smooth_function_is_predicted_between_its_points():
    rng = np.random.default_rng(0)
    rows, probe = rng.random((40, 2)), rng.random((20, 2))
    means, _ = GaussianProcess(rows, smooth(rows), (0, 0)).predict(probe)
    assert np.abs(means - smooth(probe)).max() < 0.05


def test_deviations_grow_with_the_distance_from_the_points():
    rows = np.linspace(0, 0.5, 10)[:, None]
    process = GaussianProcess(rows, np.sin(12 * rows[:, 0]), (0,))
    _, deviations = process.predict(np.array([[0.25], [0.6], [0.9]]))
    assert deviations[0] < deviations[1] < deviations[2]


def test_noise_is_learnt_from_repeated_points():
    rng = np.random.default_rng(1)
    rows = np.repeat(np.linspace(0, 1, 10), 6)[:, None]
    noisy = GaussianProcess(rows, rows[:, 0] + 0.3 * rng.normal(size=60), (0,))
    means, _ = noisy.predict(np.array([[0.5]]))
    assert abs(means[0] - 0.5) < 0.15


def test_categories_have_no_order():
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.random(60), rng.integers(4, size=60)])
    offsets = np.array([0.0, 3.0, 0.0, 3.0])
    process = GaussianProcess(rows, rows[:, 0] + offsets[rows[:, 1].astype(int)], (0, 4))
    means, _ = process.predict(np.array([[0.5, kind] for kind in range(4)]))
    assert np.allclose(means, 0.5 + offsets, atol=0.1)


def test_inactive_parameters_differ_from_all_active_ones():
    rng = np.random.default_rng(3)
    first = rng.random(50)
    rows = np.column_stack([first, np.where(np.arange(50) % 2, rng.random(50), np.nan)])
    process = GaussianProcess(rows, first + np.isnan(rows[:, 1]), (0, 0))
    means, _ = process.predict(np.array([[0.5, np.nan], [0.5, 0.5]]))
    assert np.allclose(means, [1.5, 0.5], atol=0.1)


def test_a_believed_point_leaves_means_and_lowers_deviations():
    rng = np.random.default_rng(4)
    rows, probe = rng.random((15, 2)), rng.random((10, 2))
    process = GaussianProcess(rows, smooth(rows), (0, 0))
    means, deviations = process.predict(probe)
    process.believe(probe[:3])
    later_means, later_deviations = process.predict(probe)
    assert np.allclose(means, later_means, atol=1e-3)
    assert (later_deviations <= deviations + 1e-9).all()
    assert (later_deviations[:3] < 0.9 * deviations[:3]).all()


def test_believed_points_count_like_observed_means():
    rng = np.random.default_rng(7)
    rows, believed, probe = rng.random((15, 2)), rng.random((3, 2)), rng.random((10, 2))
    targets = smooth(rows) - smooth(rows).mean()
    process = GaussianProcess(rows, targets, (0, 0))
    means, _ = process.predict(believed)
    process.believe(believed)
    _, deviations = process.predict(probe)
    together = GaussianProcess(
        np.concatenate([rows, believed]),
        np.concatenate([targets, means]),
        (0, 0),
        logs=process.logs,
    )
    _, expected = together.predict(probe)
    ratios = deviations / expected
    assert np.allclose(ratios, ratios[0], rtol=1e-3)


def test_means_are_the_predictions_for_the_rows_themselves():
    rng = np.random.default_rng(8)
    rows = rng.random((20, 2))
    process = GaussianProcess(rows, smooth(rows) + rng.normal(size=20), (0, 0))
    before = process.means()
    process.believe(rng.random((2, 2)))
    assert np.allclose(before, process.predict(rows)[0])
    assert (process.means() == before).all()


def test_a_process_may_keep_the_hyperparameters_of_an_earlier_one():
    rng = np.random.default_rng(9)
    rows = rng.random((31, 2))
    earlier = GaussianProcess(rows[:30], smooth(rows[:30]), (0, 0))
    assert GaussianProcess(rows, smooth(rows), (0, 0)).logs != earlier.logs
    assert GaussianProcess(rows, smooth(rows), (0, 0), logs=earlier.logs).logs == earlier.logs


def test_the_gradient_is_that_of_the_posterior():
    rng = np.random.default_rng(5)
    rows, targets = rng.random((20, 3)), rng.normal(size=20)
    gaps = _gaps(rows, np.arange(3), 3)
    evaluate = _negative_log_posterior(gaps, targets, rng.random(20), np.zeros(4), np.ones(4))
    logs = rng.normal(size=4)
    _, gradient = evaluate(logs)
    steps = 1e-5 * np.eye(4)
    numeric = [(evaluate(logs + step)[0] - evaluate(logs - step)[0]) / 2e-5 for step in steps]
    assert np.allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


def test_the_gradient_is_that_of_the_posterior_with_levels():
    rng = np.random.default_rng(2)
    num_pairs = 20 * 19 // 2
    evaluate = _negative_log_posterior(
        rng.random((3, num_pairs)),
        rng.normal(size=20),
        2 + rng.random(20),
        np.zeros(4),
        np.ones(4),
        factors=0.5 + 0.1 * rng.random(num_pairs),
        offsets=0.1 * rng.random(num_pairs),
        lasting=0.1 * (rng.random(num_pairs) < 0.2),
    )
    logs = rng.normal(size=4)
    _, gradient = evaluate(logs)
    steps = 1e-5 * np.eye(4)
    numeric = [(evaluate(logs + step)[0] - evaluate(logs - step)[0]) / 2e-5 for step in steps]
    assert np.allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


def test_values_of_a_lower_level_tell_the_shape_and_those_of_the_highest_the_height():
    low, high = np.linspace(0, 1, 15)[:, None], np.array([[0.1], [0.5], [0.8]])
    rows = np.concatenate([low, high])
    targets = np.concatenate([3 + np.sin(5 * low[:, 0]), np.sin(5 * high[:, 0])])
    depths = np.concatenate([np.ones(15), np.zeros(3)])
    process = GaussianProcess(rows, targets, (0,), depths=depths)
    probe = np.array([[0.3], [0.65]])
    means, deviations = process.predict(probe)
    assert np.abs(means - np.sin(5 * probe[:, 0])).max() < 0.15
    assert (process.predict(high)[1] < deviations.min()).all()


def test_a_trial_that_differs_from_others_like_it_is_expected_to_go_on_like_that():
    rng = np.random.default_rng(0)
    x, own = rng.random(40), rng.normal(size=40)
    rows = np.repeat(x, 2)[:, None]
    depths, trials = np.tile([1.0, 0.0], 40), np.repeat(np.arange(40), 2)
    targets = np.repeat(own, 2) + depths + 0.1 * rng.normal(size=80)
    is_seen = (trials < 30) | (depths == 1.0)
    process = GaussianProcess(
        rows[is_seen], targets[is_seen], (0,), depths=depths[is_seen], trials=trials[is_seen]
    )
    means, deviations = process.predict(x[30:, None], np.arange(30, 40))
    assert np.corrcoef(means, own[30:])[0, 1] > 0.9
    assert (deviations > process.predict(x[:10, None], np.arange(10))[1]).all()


def test_a_believed_point_lowers_deviations_where_rows_have_levels():
    rng = np.random.default_rng(0)
    rows, depths = rng.random((12, 1)), np.repeat([1.0, 0.5, 0.0], 4)
    process = GaussianProcess(rows, rows[:, 0] + depths, (0,), depths=depths)
    probe = np.array([[0.2], [0.9]])
    means, deviations = process.predict(probe)
    process.believe(probe[:1])
    believed = process.predict(probe)
    assert np.allclose(believed[0], means)
    assert believed[1][0] < deviations[0]


@pytest.mark.parametrize("z", [-30.0, -5.0, -1.1, -0.9, 0.0, 2.0])
def test_log_expected_improvement(z):
    found = log_expected_improvement(np.array([-z]), np.array([1.0]), 0.0)[0]
    if z > -6:
        assert math.isclose(math.exp(found), norm.pdf(z) + z * norm.cdf(z), rel_tol=1e-6)
    else:
        # The first terms of its series far below: density / z ** 2.
        assert math.isclose(found, norm.logpdf(z) - 2 * math.log(-z), rel_tol=1e-3)


def test_constant_targets_are_no_error():
    means, deviations = GaussianProcess(
        np.random.default_rng(6).random((8, 2)), np.ones(8), (0, 0)
    ).predict(np.array([[0.5, 0.5]]))
    assert np.isclose(means[0], 1.0)
    assert np.isfinite(deviations).all()


def played(searcher, space, loss, num_trials, seed=0):
    assert searcher.set_search_properties("loss", "min", space, seed=seed)
    configs = []
    for number in range(num_trials):
        config = searcher.suggest(f"t{number}")
        configs.append(config)
        searcher.on_trial_complete(f"t{number}", {"loss": loss(config), "training_iteration": 1})
    return configs


SPACE = {"x": uniform(0, 1), "y": uniform(0, 1)}


def bowl(config):
    return (config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2


def rugged(config):
    return math.sin(20 * config["x"]) * math.sin(17 * config["y"])


@pytest.mark.property
def test_the_minimum_of_a_bowl_is_found_to_three_digits():
    assert min(map(bowl, played(GPSearch(), SPACE, bowl, 30))) < 1e-5


@pytest.mark.property
def test_the_default_search_finds_it_too():
    assert min(map(bowl, played(AutoSearch(), SPACE, bowl, 40))) < 1e-4


def test_running_trials_are_not_suggested_again():
    searcher = GPSearch()
    played(searcher, SPACE, rugged, 14)
    running = [searcher.suggest(f"r{number}") for number in range(4)]
    gaps = [
        math.dist(first.values(), second.values())
        for place, first in enumerate(running)
        for second in running[:place]
    ]
    assert min(gaps) > 0.01


@pytest.mark.property
@pytest.mark.parametrize("kind", [GPSearch, AutoSearch])
def test_conditional_spaces_and_failures(kind):
    space = {
        "kind": choice(["a", "b"]),
        "rate": only_if({"kind": "b"}, uniform(0, 1)),
    }

    def loss(config):
        return (config["rate"] - 0.5) ** 2 if config["kind"] == "b" else math.nan

    configs = played(kind(), space, loss, 30)
    assert min(abs(config.get("rate", 9) - 0.5) for config in configs) < 0.01


def test_both_models_have_their_turn():
    by_both = played(AutoSearch(), SPACE, bowl, 16)
    assert by_both != played(GPSearch(), SPACE, bowl, 16)


@pytest.mark.property
@pytest.mark.parametrize(("num_levels", "low", "high"), [(1, 0.35, 0.65), (2, 0.08, 0.35)])
def test_the_process_has_fewer_turns_with_several_levels(monkeypatch, num_levels, low, high):
    turns = []

    def counted(searcher, table, encoding, rng):
        turns.append(1)
        return encoding.from_cube(rng.random((8, 2)))

    monkeypatch.setattr(gp_search, "_candidates_by_process", counted)
    searcher = AutoSearch(n_initial_points=4)
    assert searcher.set_search_properties("loss", "min", SPACE, seed=0)
    for number in range(104):
        config = searcher.suggest(f"t{number}")
        for level in range(1 + number % num_levels):
            searcher.on_trial_result(
                f"t{number}", {"loss": bowl(config) + level, "training_iteration": 3**level}
            )
        searcher.on_trial_complete(f"t{number}", stopped=True)
    assert low < len(turns) / 100 < high


@pytest.mark.property
@pytest.mark.parametrize("num_levels", [1, 3])
@pytest.mark.parametrize("kind", [GPSearch, AutoSearch])
def test_a_search_that_is_restored_before_each_suggestion_goes_on_the_same(kind, num_levels):
    plain = restored = kind(n_initial_points=4)
    assert plain.set_search_properties("loss", "min", SPACE, seed=0)
    for number in range(30):
        state = json.dumps(restored.state_dict(), allow_nan=False)
        restored = kind(n_initial_points=4)
        assert restored.set_search_properties("loss", "min", SPACE, seed=0)
        restored.load_state_dict(json.loads(state))
        config = plain.suggest(f"t{number}")
        assert restored.suggest(f"t{number}") == config
        for searcher in (plain, restored):
            for level in range(1 + number % num_levels):
                searcher.on_trial_result(
                    f"t{number}", {"loss": bowl(config) + level, "training_iteration": 3**level}
                )
            searcher.on_trial_complete(f"t{number}", stopped=True)


def test_hyperparameters_are_fitted_again_when_there_are_more_trials(monkeypatch):
    is_fitted = []

    def counted(*arguments, **named):
        is_fitted.append(named["logs"] is None)
        return GaussianProcess(*arguments, **named)

    monkeypatch.setattr(process_search, "GaussianProcess", counted)
    searcher = GPSearch(n_initial_points=20)
    played(searcher, SPACE, bowl, 25)
    # With 20, 21 and 23 (of 22.05) trials; not with 22 and 24 (of 24.15).
    assert is_fitted == [True, True, False, True, False]


def test_a_state_without_hyperparameters_is_fitted_anew():
    searcher = GPSearch(n_initial_points=4)
    played(searcher, SPACE, bowl, 6)
    state = searcher.state_dict()
    del state["process"]
    earlier = GPSearch(n_initial_points=4)
    assert earlier.set_search_properties("loss", "min", SPACE, seed=0)
    earlier.load_state_dict(state)
    assert earlier.suggest("next").keys() == SPACE.keys()
