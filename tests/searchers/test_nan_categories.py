"""NaN, and values that are equal but of different types, are options like any others."""

import math

import pytest

import tuner as tune
from searchers import BOHBSearch, GPSearch, OptunaSearch, TreeSearch
from searchers.space import SearchSpace, choice
from tuner import RunConfig, TuneConfig, Tuner
from tuner.spec import argument_codec


def train(config):
    tune.report({"loss": config["b"]})


def space():
    return {"a": tune.choice([math.nan, 1, 2]), "b": tune.choice([1, 2])}


def all_suggestions(searcher, given, limit=20):
    searcher.set_search_properties("loss", "min", given, seed=1, num_samples=limit)
    found = []
    for number in range(limit):
        config = searcher.suggest(f"t{number}")
        if config == searcher.FINISHED:
            return found
        searcher.on_trial_complete(f"t{number}", {"loss": 1.0})
        found.append(repr(config))
    raise AssertionError(f"it goes on after {found}")


def test_another_nan_is_the_same_option():
    parsed = SearchSpace({"a": choice([math.nan, 1])})
    (value,) = parsed.assignments({"a": float("nan")}).values()
    assert math.isnan(value)
    assert choice([1, math.nan]).index(float("nan")) == 1


def define(trial):
    trial.suggest_categorical("a", [float("nan"), 1, 2])  # another NaN in each call
    trial.suggest_int("b", 1, 2)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("given", [space(), None], ids=["declared", "function"])
def test_an_exhaustive_sampler_ends_where_optuna_ends(given):
    samplers = pytest.importorskip("optuna").samplers
    searcher = OptunaSearch(None if given else define, sampler=samplers.BruteForceSampler())
    found = all_suggestions(searcher, given or {})
    assert len(found) == len(set(found)) == 6


@pytest.mark.parametrize("kind", [TreeSearch, BOHBSearch, GPSearch])
@pytest.mark.parametrize("options", [[math.nan, 1, 2], [1, True, 1.0], [0, False, None, "0"]])
def test_each_option_is_suggested_once(kind, options):
    found = all_suggestions(kind(), {"a": tune.choice(options)})
    assert len(found) == len(set(found)) == len(options)


@pytest.mark.process
def test_a_restored_search_repeats_no_configuration_with_nan(tmp_path):
    run_config = RunConfig(storage_path=tmp_path, name="x", verbose=0, executor="inline")
    tune_config = TuneConfig(
        metric="loss", mode="min", num_samples=3, seed=1, search_alg=TreeSearch()
    )
    Tuner(train, param_space=space(), tune_config=tune_config, run_config=run_config).fit()
    again = {"a": tune.choice([float("nan"), 1, 2]), "b": tune.choice([1, 2])}
    results = Tuner.restore(
        tmp_path / "x", train, param_space=again, num_samples=20, executor="inline"
    ).fit()
    assert len(results) == len({repr(result.config) for result in results}) == 6


def test_nan_in_a_declaration_is_no_difference():
    then, now = ({"a": tune.choice([float("nan"), 1]), "b": float("nan")} for _ in range(2))
    notes = [argument_codec.note(each) for each in (then, now)]
    assert list(argument_codec.differences(*notes, "param_space")) == []
