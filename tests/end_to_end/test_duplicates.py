"""Experiments whose searcher proposes configurations again."""

import pytest

import tuner as tune
from searchers import BasicVariantGenerator, ConcurrencyLimiter, OptunaSearch, Repeater
from tuner import TuneConfig, Tuner

SPACE = {"x": tune.randint(0, 4), "kind": tune.choice(["a", "b"])}


def train(config):
    for step in range(1, 4):
        tune.report({"loss": config["x"] + 1.0 / step})


def settings(**given):
    return {
        "metric": "loss",
        "mode": "min",
        "seed": 3,
        "max_concurrent_trials": 2,
        "num_samples": 30,
        **given,
    }


def configs(grid):
    return [(result.config["x"], result.config["kind"]) for result in grid]


def test_by_default_duplicates_run(fit):
    grid = fit(train, SPACE, tune=settings(search_alg=BasicVariantGenerator()), executor="inline")
    assert (len(grid), len(set(configs(grid)))) == (30, 8)


@pytest.mark.parametrize("policy", ["skip", "reuse"])
def test_each_configuration_of_a_finite_space_is_run_once(fit, policy):
    grid = fit(train, SPACE, tune=settings(duplicates=policy), executor="inline")
    assert (len(grid), len(set(configs(grid)))) == (8, 8)


def test_a_restored_experiment_still_knows_its_duplicates(fit, tmp_path):
    fit(train, SPACE, tune=settings(duplicates="reuse", num_samples=5), executor="inline")
    grid = Tuner.restore(tmp_path / "experiment", train, num_samples=30).fit()
    assert (len(grid), len(set(configs(grid)))) == (8, 8)


def test_what_a_searcher_learns_from_reuse_survives_a_restore(fit, tmp_path):
    given = {"duplicates": "reuse", "max_concurrent_trials": 1}
    whole = fit(
        train,
        SPACE,
        tune=settings(search_alg=OptunaSearch(), num_samples=7, **given),
        executor="inline",
        name="whole",
    )
    fit(
        train,
        SPACE,
        tune=settings(search_alg=OptunaSearch(), num_samples=4, **given),
        executor="inline",
        name="cut",
    )
    grid = Tuner.restore(tmp_path / "cut", train, num_samples=7).fit()
    assert configs(grid) == configs(whole)


def test_repeats_come_out_as_one_to_the_searcher(fit):
    searcher = Repeater(ConcurrencyLimiter(OptunaSearch(), 1), 3)
    grid = fit(
        train,
        {"x": tune.uniform(0, 4)},
        tune=settings(search_alg=searcher, num_samples=12),
        executor="inline",
    )
    assert [result.config["__trial_index__"] for result in grid] == [0, 1, 2] * 4
    assert len({result.config["x"] for result in grid}) == 4
    assert len(searcher.searcher.searcher.study.get_trials(deepcopy=False)) == 4


def test_an_unknown_policy_is_refused():
    with pytest.raises(
        ValueError, match="duplicates must be one of 'repeat', 'skip', 'reuse', got 'ignore'"
    ):
        TuneConfig(duplicates="ignore")


def test_a_metric_named_twice_is_reported_for_the_searcher_inside_the_wrapper():
    with pytest.raises(
        ValueError, match="mode=None in OptunaSearch; give them in one of the two places"
    ):
        Tuner(
            train,
            param_space=SPACE,
            tune_config=TuneConfig(
                **settings(search_alg=OptunaSearch(metric="a"), duplicates="skip")
            ),
        )
