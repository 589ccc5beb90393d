"""Experiments whose configurations satisfy a relation: run, restored, changed, and learnt from."""

import json

import pytest

import tuner as tune
from schedulers import MFPopulationBasedTraining, PopulationBasedTraining
from schedulers.population.explore import named_generator

SPACE = {"low": tune.uniform(0, 1), "high": tune.uniform(0, 1)}


def train(config):
    tune.report({"loss": config["low"]})


def holds(config):
    return config["low"] < config["high"]


def fitted(path, space, **tune_config):
    return tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(**{"num_samples": 6, "seed": 1, **tune_config}),
        run_config=tune.RunConfig(name="related", storage_path=path, executor="inline", verbose=0),
    ).fit()


@pytest.mark.parametrize("alg", ["random", "auto", "tree", "optuna"])
def test_an_experiment_is_restored_with_its_relation(tmp_path, alg):
    space = tune.Space(SPACE, where="low < high")
    goal = {} if alg == "random" else {"metric": "loss", "mode": "min"}
    fitted(str(tmp_path), space, search_alg=alg, **goal)
    recorded = json.loads((tmp_path / "related" / "experiment.json").read_text())
    assert recorded["param_space"]["where"] == "low < high"
    restored = tune.Tuner.restore(str(tmp_path / "related"), train, num_samples=9).fit()
    assert len(restored) == 9
    assert all(holds(result.config) for result in restored)


def test_a_restore_changes_the_relation_of_further_trials(tmp_path):
    first = fitted(str(tmp_path), tune.Space(SPACE, where="low < high"), search_alg="random")
    changed = tune.Space(SPACE, where="low > high")
    restored = tune.Tuner.restore(
        str(tmp_path / "related"), train, param_space=changed, num_samples=9
    ).fit()
    configs = [result.config for result in restored]
    assert configs[:6] == [result.config for result in first]
    assert [holds(config) for config in configs] == [True] * 6 + [False] * 3


def test_a_function_has_to_be_given_again(tmp_path):
    fitted(str(tmp_path), tune.Space(SPACE, where=holds), search_alg="random")
    with pytest.raises(ValueError, match=r"param_space.where .*holds"):
        tune.Tuner.restore(str(tmp_path / "related"), train)
    restored = tune.Tuner.restore(
        str(tmp_path / "related"), train, param_space=tune.Space(SPACE, where=holds), num_samples=8
    ).fit()
    assert all(holds(result.config) for result in restored)


def test_a_searcher_that_would_ignore_it_is_refused(tmp_path):
    class Own(tune.search.Searcher):
        def suggest(self, trial_id):
            return {"low": 1.0, "high": 0.0}

    with pytest.raises(ValueError, match="no where with Own, which would not respect 'low < high'"):
        fitted(str(tmp_path), tune.Space(SPACE, where="low < high"), search_alg=Own())


def test_what_nothing_satisfies_is_refused_at_construction(tmp_path):
    with pytest.raises(ValueError, match="no configuration satisfies where='low > 2' after 20,000"):
        tune.Tuner(train, param_space=tune.Space(SPACE, where="low > 2"))
    assert not list(tmp_path.iterdir())


def test_points_of_an_experiment_that_violate_the_relation_are_left_out(tmp_path):
    fitted(str(tmp_path), SPACE, search_alg="random", num_samples=12)
    space = tune.Space(SPACE, where="low < high")
    with pytest.warns(RuntimeWarning, match="it must satisfy where='low < high'"):
        points = tune.points_from(tmp_path / "related", "loss", "min", space=space, num_points=12)
    assert 0 < len(points) < 12
    assert all(point["low"] < point["high"] for point in points)


@pytest.mark.parametrize("kind", [PopulationBasedTraining, MFPopulationBasedTraining])
def test_varied_configurations_satisfy_it(kind):
    mutations = {"low": tune.uniform(0, 1), "high": tune.uniform(0, 1)}
    scheduler = kind(hyperparam_mutations=mutations)
    scheduler.completed_space(tune.Space(SPACE, where="low < high - 0.5"))
    config = {"low": 0.2, "high": 0.8}
    for number in range(50):
        new = scheduler._explorer(config, named_generator(str(number)))
        assert new["low"] < new["high"] - 0.5
