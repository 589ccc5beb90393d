"""Optuna's samplers in spaces with a relation between parameters."""

import json
import warnings

import optuna
import pytest
from optuna import samplers
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from searchers import OptunaSearch, Searcher
from searchers.space import Space, choice, randint, uniform

SPACE = {"low": uniform(0, 1), "high": uniform(0, 1), "deep": {"n": randint(1, 9)}, "fixed": 1}
SAMPLERS = {
    "tpe": lambda: None,
    "multivariate": lambda: samplers.TPESampler(multivariate=True),
    "nsga": lambda: samplers.NSGAIISampler(population_size=4),
    "random": samplers.RandomSampler,
    "qmc": samplers.QMCSampler,
}


def is_related(config):
    return config["low"] < config["high"] and config["deep"]["n"] * config["low"] <= 3


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def made(entries=SPACE, where="low < high and deep.n * low <= 3", sampler=None, **given):
    searcher = OptunaSearch(sampler=sampler, **given)
    space = entries if where is None else Space(entries, where)
    assert searcher.set_search_properties("loss", "min", space, seed=3, experiment="x")
    return searcher


def play(searcher, num, first=0):
    configs = []
    for number in range(first, first + num):
        config = searcher.suggest(str(number))
        if config == Searcher.FINISHED:
            break
        configs.append(config)
        searcher.on_trial_complete(str(number), {"loss": -config["low"], "training_iteration": 1})
    return configs


@pytest.mark.process  # some samplers take longer than a unit test may
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("where", ["low < high and deep.n * low <= 3", is_related])
def test_suggestions_satisfy_the_relation_also_after_a_restore(name, where):
    searcher = made(where=where, sampler=SAMPLERS[name]())
    configs = play(searcher, 8)
    saved = json.loads(json.dumps(searcher.state_dict()))
    configs += play(searcher, 4, 8)
    assert all(map(is_related, configs))
    restored = made(where=where, sampler=SAMPLERS[name]())
    restored.load_state_dict(saved)
    assert play(restored, 4, 8) == configs[8:]


def test_refused_proposals_are_explained_and_are_no_trials_of_the_study():
    searcher = made(where="low < 0.2", sampler=samplers.RandomSampler())
    explanations = []
    for number in range(6):
        assert searcher.suggest(str(number))["low"] < 0.2
        explanations.append(searcher.explain_suggestion())
    assert any("that violated where='low < 0.2'" in each for each in explanations)
    assert len(searcher.study.trials) == 6


def test_after_many_refusals_a_suggestion_is_drawn_at_random():
    searcher = made(where="high < low / 100", sampler=samplers.RandomSampler())
    configs = play(searcher, 3)
    assert all(config["high"] < config["low"] / 100 for config in configs)
    assert len({config["low"] for config in configs}) == 3
    assert searcher.explain_suggestion().endswith("; drawn at random")


@pytest.mark.process  # all draws take longer than a unit test may
def test_a_relation_that_nothing_satisfies_is_refused_before_a_trial():
    with pytest.raises(ValueError, match=r"no configuration satisfies .* after 20,000 draws"):
        made(where="low > 2")


def test_points_to_evaluate_are_completed_or_refused():
    searcher = made(where="low < high", points_to_evaluate=[{"low": 0.97}, {"high": 0.5}])
    configs = play(searcher, 2)
    assert configs[0]["low"] == 0.97 < configs[0]["high"]
    assert configs[1]["low"] < configs[1]["high"] == 0.5
    with pytest.raises(ValueError, match=r"points_to_evaluate\[0\].* must satisfy where="):
        made(where="low < high", points_to_evaluate=[{"low": 0.9, "high": 0.1, "deep/n": 1}])


def test_a_grid_is_finished_when_all_that_satisfies_it_was_run():
    entries = {"low": randint(0, 4), "high": randint(0, 4)}
    grid = {"low": [0, 1, 2, 3], "high": [0, 1, 2, 3]}
    for sampler in (samplers.GridSampler(grid, seed=1), samplers.BruteForceSampler(seed=1)):
        configs = play(made(entries, "low < high", sampler), 20)
        assert len({tuple(config.items()) for config in configs}) == len(configs) == 6
        assert all(config["low"] < config["high"] for config in configs)


def test_a_conditional_space_may_have_a_relation():
    options = [{"name": "sgd", "momentum": uniform(0, 1)}, {"name": "adam"}, "none"]
    searcher = made(
        {"low": uniform(0, 1), "optimizer": choice(options)},
        "optimizer.momentum < low and optimizer.name != 'adam'",
        samplers.RandomSampler(),
    )
    configs = play(searcher, 12)
    for config in configs:
        optimizer = config["optimizer"]
        assert optimizer == "none" or optimizer["momentum"] < config["low"]
    assert {str(type(config["optimizer"])) for config in configs} == {str(dict), str(str)}


def test_optunas_own_distributions_may_have_a_relation():
    space = Space(
        {
            "low": FloatDistribution(0.1, 1, log=True),
            "n": IntDistribution(1, 9, step=2),
            "kind": CategoricalDistribution(["a", "b"]),
        },
        "n * low < 2 and kind == 'a'",
    )
    searcher = OptunaSearch(
        space, metric="loss", mode="min", sampler=samplers.RandomSampler(seed=1)
    )
    configs = [searcher.suggest(str(number)) for number in range(8)]
    assert all(config["n"] * config["low"] < 2 and config["kind"] == "a" for config in configs)
    with pytest.raises(ValueError, match="a space without where"):
        OptunaSearch.convert_search_space(space)


def test_a_relation_beside_a_space_function_is_refused():
    searcher = OptunaSearch(lambda trial: {"x": trial.suggest_float("y", 0, 1)})
    with pytest.raises(ValueError, match="param_space must have no where beside the space"):
        searcher.set_search_properties("loss", "min", Space({"z": 1}, "z < 2"))


def test_waiting_trials_that_violate_the_relation_are_not_run():
    study = optuna.create_study()
    study.enqueue_trial({"low": 0.9, "high": 0.1, "deep/n": 1})
    study.enqueue_trial({"low": 0.1, "high": 0.9, "deep/n": 1})
    study.enqueue_trial({"low": 0.95})
    searcher = made(where="low < high", study=study)
    with pytest.warns(RuntimeWarning, match="trial 0 of the study, which is waiting, is not run"):
        configs = play(searcher, 3)
    assert [config["low"] for config in configs[:2]] == [0.1, 0.95]
    assert all(config["low"] < config["high"] for config in configs)
    states = [trial.state for trial in study.get_trials()]
    assert states == [TrialState.WAITING, *[TrialState.COMPLETE] * 3]


def test_a_trial_that_violates_the_relation_by_now_is_learnt():
    searcher = made(where="low < high")
    searcher.suggest("0")
    assert searcher.on_trial_replaced("0", {"low": 0.9, "high": 0.1, "deep": {"n": 1}, "fixed": 1})
    searcher.on_trial_complete("0", {"loss": 1.0, "training_iteration": 1})
    assert [trial.state for trial in searcher.study.trials] == [TrialState.COMPLETE]
    assert all(config["low"] < config["high"] for config in play(searcher, 3, 1))


def test_refusals_are_shown_as_infeasible_to_a_sampler_that_would_repeat_itself():
    searcher = made(where="low < high", sampler=samplers.GPSampler(seed=2, n_startup_trials=99))
    configs = play(searcher, 8)
    assert all(config["low"] < config["high"] for config in configs)
    view = searcher.study
    with view.showing_refusals():
        trials = view.get_trials(deepcopy=False)
    refused = [trial for trial in trials if trial.constraints["where"] > 0]
    assert 0 < len(refused) <= 8
    assert all(trial.params["low"] >= trial.params["high"] for trial in refused)
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    mean = -sum(config["low"] for config in configs) / 8
    assert all(trial.values == [pytest.approx(mean)] for trial in refused)
    assert len(view.trials) == 8


@pytest.mark.process  # a Gaussian process takes longer than a unit test may
def test_a_gaussian_process_of_optuna_learns_refusals():
    searcher = made(
        where="low + high < 0.8", sampler=samplers.GPSampler(seed=2, n_startup_trials=5)
    )
    configs = play(searcher, 10)
    assert all(config["low"] + config["high"] < 0.8 for config in configs)
    restored = made(
        where="low + high < 0.8", sampler=samplers.GPSampler(seed=2, n_startup_trials=5)
    )
    restored.load_state_dict(json.loads(json.dumps(searcher.state_dict())))
    assert restored.suggest("x") == searcher.suggest("x")
