import builtins
import json
import math

import pytest

from searchers import OptunaSearch
from searchers.space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState

SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "model": {"layers": [randint(1, 4), 8], "act": choice(["relu", "tanh"])},
    "epochs": 5,
}


def prepared(config=SPACE, *, seed=0, metric="loss", mode="min", **arguments):
    searcher = OptunaSearch(metric=metric, mode=mode, **arguments)
    assert searcher.set_search_properties(None, None, config, seed=seed)
    return searcher


def loss_of(config):
    return (math.log10(config["lr"]) + 2) ** 2 + config["model"]["layers"][0]


def evaluate(searcher, trial_id):
    config = searcher.suggest(trial_id)
    for iteration in (1, 2):
        searcher.on_trial_result(
            trial_id, {"loss": loss_of(config) + 1 / iteration, "training_iteration": iteration}
        )
    searcher.on_trial_complete(trial_id, {"loss": loss_of(config) + 0.5, "training_iteration": 2})
    return config


def test_configurations_have_the_form_and_types_of_the_space():
    searcher = prepared()
    for number in range(5):
        config = searcher.suggest(str(number))
        assert SPACE["lr"].contains(config["lr"])
        assert type(config["model"]["layers"][0]) is int
        assert config["model"]["layers"][1] == 8
        assert config["model"]["act"] in {"relu", "tanh"}
        assert config["epochs"] == 5


def test_parameters_are_named_by_their_paths_in_the_study():
    searcher = prepared()
    searcher.suggest("a")
    assert set(searcher.study.trials[0].params) == {"lr", "model/layers/0", "model/act"}


@pytest.mark.parametrize(
    "domain",
    [
        uniform(0, 1),
        quniform(0, 0.3, 0.1),
        loguniform(1e-3, 1),
        qloguniform(0.1, 0.9, 0.1),
        randint(0, 3),
        qrandint(0, 9, 3),
        lograndint(1, 9),
        qlograndint(4, 16, 4),
        choice([1, 2]),
        choice([True, 1]),
        choice([[8], [8, 8]]),
        choice([None, "x"]),
    ],
)
def test_every_suggestion_lies_in_its_domain(domain):
    searcher = prepared({"x": domain})
    for number in range(15):
        config = searcher.suggest(str(number))
        assert domain.contains(config["x"])
        assert domain.cast(config["x"]) == config["x"]
        searcher.on_trial_complete(str(number), {"loss": float(number % 4)})


def test_categories_are_returned_as_the_same_objects():
    categories = [[64], [64, 64]]
    assert any(
        prepared({"x": choice(categories)}).suggest("a")["x"] is category for category in categories
    )


@pytest.mark.property
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_study_optimises_in_the_direction_of_the_mode(mode):
    searcher = prepared({"x": uniform(0, 1)}, mode=mode)
    for number in range(40):
        config = searcher.suggest(str(number))
        searcher.on_trial_complete(str(number), {"loss": config["x"]})
    last = [trial.params["x"] for trial in searcher.study.trials[-10:]]
    assert (sum(last) / 10 < 0.25) if mode == "min" else (sum(last) / 10 > 0.75)


def test_a_completed_trial_is_complete_with_final_and_intermediate_values():
    searcher = prepared()
    config = evaluate(searcher, "a")
    trial = searcher.study.trials[0]
    assert trial.state == State.COMPLETE
    assert trial.value == loss_of(config) + 0.5
    assert trial.intermediate_values == {1: loss_of(config) + 1, 2: loss_of(config) + 0.5}


def test_a_trial_stopped_early_is_pruned_with_its_intermediate_values():
    searcher = prepared()
    searcher.suggest("a")
    searcher.on_trial_result("a", {"loss": 3.0, "training_iteration": 1})
    searcher.on_trial_complete("a", {"loss": 2.0, "training_iteration": 2}, stopped=True)
    trial = searcher.study.trials[0]
    assert trial.state == State.PRUNED
    assert trial.intermediate_values == {1: 3.0, 2: 2.0}


def test_a_trial_stopped_before_it_reported_is_pruned():
    searcher = prepared()
    searcher.suggest("a")
    searcher.on_trial_complete("a", stopped=True)
    assert searcher.study.trials[0].state == State.PRUNED


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"loss": None},
        {"loss": math.nan},
        {"loss": "low"},
        {"loss": 10**400},
        {"loss": 1j},
    ],
)
def test_a_trial_without_a_final_number_is_fail(result):
    searcher = prepared()
    searcher.suggest("a")
    searcher.on_trial_complete("a", result)
    assert searcher.study.trials[0].state == State.FAIL


@pytest.mark.parametrize("stopped", [False, True])
def test_a_failed_trial_is_fail_even_with_results(stopped):
    searcher = prepared()
    searcher.suggest("a")
    searcher.on_trial_complete(
        "a", {"loss": 1.0, "training_iteration": 1}, error=True, stopped=stopped
    )
    assert searcher.study.trials[0].state == State.FAIL


def test_a_repeated_result_replaces_the_older_one():
    searcher = prepared()
    searcher.suggest("a")
    for loss in (3.0, 2.0):
        searcher.on_trial_result("a", {"loss": loss, "training_iteration": 1})
    assert searcher.study.trials[0].intermediate_values == {1: 2.0}


def test_an_intermediate_nan_is_reported_and_a_value_that_is_no_number_is_not():
    searcher = prepared()
    searcher.suggest("a")
    for iteration, loss in enumerate([math.nan, "x", None, 1.0], start=1):
        searcher.on_trial_result("a", {"loss": loss, "training_iteration": iteration})
    searcher.on_trial_result("a", {"loss": 1.0})
    assert list(searcher.study.trials[0].intermediate_values) == [1, 4]


def test_unknown_trials_are_ignored():
    searcher = prepared()
    searcher.on_trial_result("z", {"loss": 1.0, "training_iteration": 1})
    searcher.on_trial_complete("z", {"loss": 1.0})
    assert searcher.study.trials == []


def test_points_come_first_and_missing_parameters_are_chosen_by_the_sampler():
    searcher = prepared(
        points_to_evaluate=[
            {"lr": 0.01, "model": {"layers": [2, 8], "act": "tanh"}},
            {"model/act": "relu"},
            {"lr": 0.05},
        ]
    )
    first, second, third = [searcher.suggest(name) for name in "abc"]
    assert first == {"lr": 0.01, "model": {"layers": [2, 8], "act": "tanh"}, "epochs": 5}
    assert second["model"]["act"] == "relu"
    assert third["lr"] == 0.05


def test_points_with_rewards_are_added_and_not_run():
    points = [
        {"lr": 0.01, "model": {"layers": [2, 8], "act": "tanh"}},
        {"lr": 0.02, "model": {"layers": [1, 8], "act": "relu"}},
    ]
    searcher = prepared(points_to_evaluate=points, evaluated_rewards=[0.5, 0.7])
    config = searcher.suggest("a")
    complete = searcher.study.get_trials(states=[State.COMPLETE])
    assert [(trial.params["lr"], trial.value) for trial in complete] == [(0.01, 0.5), (0.02, 0.7)]
    assert config["lr"] not in {0.01, 0.02}


def test_points_for_categories_that_optuna_cannot_store_are_encoded():
    categories = [[8], [16]]
    assert prepared({"x": choice(categories)}, points_to_evaluate=[{"x": [16]}]).suggest("a") == {
        "x": [16]
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points_to_evaluate": [{"lr": 5}]}, "'lr' must lie in Float.*, got 5; widen"),
        ({"points_to_evaluate": [{"typo": 5}]}, "'typo' must be a name in the space"),
        (
            {"points_to_evaluate": [{"lr": 0.01}], "evaluated_rewards": [1.0]},
            r"must be complete, got none of \['model/act', 'model/layers/0'\]",
        ),
        (
            {"points_to_evaluate": [{"lr": 0.01}], "evaluated_rewards": [math.nan]},
            "evaluated_rewards must hold numbers, got nan",
        ),
    ],
)
def test_points_that_do_not_fit_are_refused_before_the_first_suggestion(arguments, message):
    with pytest.raises(ValueError, match=message):
        prepared(**arguments)


def test_dictionaries_of_optuna_distributions_are_searched():
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        "model": {"n": optuna.distributions.IntDistribution(1, 3)},
    }
    config = prepared({"epochs": 5}, space=space, points_to_evaluate=[{"model": {"n": 2}}]).suggest(
        "a"
    )
    assert 1e-4 <= config["lr"] <= 1e-1
    assert config["model"]["n"] == 2
    assert config["epochs"] == 5


def define(trial):
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    if optimizer == "sgd":
        trial.suggest_float("sgd/momentum", 0.0, 0.9)
    return {"epochs": 5, "sgd": {"nesterov": True}}


def test_space_functions_may_be_conditional():
    searcher = prepared(
        {"data": "mnist"},
        space=define,
        points_to_evaluate=[{"optimizer": "sgd", "sgd": {"momentum": 0.5}}],
    )
    assert searcher.suggest("a") == {
        "data": "mnist",
        "optimizer": "sgd",
        "sgd": {"momentum": 0.5, "nesterov": True},
        "epochs": 5,
    }
    for number in range(20):
        config = searcher.suggest(str(number))
        assert ("momentum" in config["sgd"]) == (config["optimizer"] == "sgd")


def test_space_functions_may_return_none():
    def define_only(trial):
        trial.suggest_float("x", 0, 1)

    assert 0 <= prepared({}, space=define_only).suggest("a")["x"] <= 1


def test_constants_are_nested_by_their_names_like_parameters():
    def define_with_constants(trial):
        trial.suggest_float("model/lr", 0, 1)
        return {"model/depth": 3, "model": {"act": "relu"}, "data": {"name": "mnist"}}

    config = prepared({"data": {"size": 5}}, space=define_with_constants).suggest("a")
    assert config.pop("data") == {"name": "mnist", "size": 5}
    assert config["model"].pop("lr") >= 0
    assert config == {"model": {"depth": 3, "act": "relu"}}


@pytest.mark.parametrize("constants", [{"model/lr": 3}, {"model": {"lr": 3}}])
def test_a_constant_must_not_have_the_name_of_a_suggested_parameter(constants):
    def define_twice(trial):
        trial.suggest_float("model/lr", 0, 1)
        return constants

    with pytest.raises(
        ValueError,
        match=r"must not return constants for what it asks the trial for, got \['model/lr'\]",
    ):
        prepared({}, space=define_twice)


def test_space_functions_must_return_a_dictionary_or_none():
    with pytest.raises(
        TypeError, match="a space function must return a dictionary of constants or None, got 3"
    ):
        prepared({}, space=lambda _: 3).suggest("a")


def test_points_with_rewards_get_the_distributions_of_the_space_function():
    searcher = prepared(
        {}, space=define, points_to_evaluate=[{"optimizer": "adam"}], evaluated_rewards=[0.1]
    )
    searcher.suggest("a")
    assert searcher.study.trials[0].params == {"optimizer": "adam"}
    assert searcher.study.trials[0].value == 0.1


def test_any_sampler_can_be_used():
    searcher = prepared(sampler=optuna.samplers.RandomSampler(seed=3))
    searcher.suggest("a")
    assert isinstance(searcher.study.sampler, optuna.samplers.RandomSampler)


def test_the_default_sampler_is_tpe():
    searcher = prepared()
    searcher.suggest("a")
    assert isinstance(searcher.study.sampler, optuna.samplers.TPESampler)


def test_same_seed_same_search():
    assert [evaluate(one, str(n)) for one in [prepared(seed=1)] for n in range(15)] == [
        evaluate(other, str(n)) for other in [prepared(seed=1)] for n in range(15)
    ]


def test_another_seed_gives_another_search_and_the_own_seed_takes_precedence():
    assert prepared(seed=1).suggest("a") != prepared(seed=2).suggest("a")
    assert OptunaSearchSeeded(7, 1).suggest("a") == OptunaSearchSeeded(7, 2).suggest("a")


def OptunaSearchSeeded(own, given):  # noqa: N802  (reads like a constructor)
    searcher = OptunaSearch(metric="loss", mode="min", seed=own)
    searcher.set_search_properties(None, None, SPACE, seed=given)
    return searcher


@pytest.mark.parametrize("num_before", [0, 1, 3, 14])
def test_a_restored_search_continues_as_if_uninterrupted(num_before):
    points = [{"lr": 0.01}, {"lr": 0.02}]
    straight = prepared(seed=4, points_to_evaluate=points)
    expected = [evaluate(straight, str(number)) for number in range(16)]
    first = prepared(seed=4, points_to_evaluate=points)
    before = [evaluate(first, str(number)) for number in range(num_before)]
    second = prepared(seed=99, points_to_evaluate=points)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + [evaluate(second, str(number)) for number in range(num_before, 16)] == expected


def test_a_restored_search_keeps_the_states_and_open_trials_of_its_study():
    first = prepared()
    for name in "abcd":
        first.suggest(name)
        first.on_trial_result(name, {"loss": 1.0, "training_iteration": 1})
    first.on_trial_complete("a", {"loss": 1.0})
    first.on_trial_complete("b", stopped=True)
    first.on_trial_complete("c", error=True)
    second = prepared()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [trial.state for trial in second.study.trials] == [
        State.COMPLETE,
        State.PRUNED,
        State.FAIL,
        State.RUNNING,
    ]
    assert [trial.params for trial in second.study.trials] == [
        trial.params for trial in first.study.trials
    ]
    second.on_trial_complete("d", {"loss": 0.5, "training_iteration": 2})
    assert second.study.trials[3].state == State.COMPLETE
    assert second.study.trials[3].intermediate_values == {1: 1.0, 2: 0.5}


def test_a_stored_study_is_opened_again_and_keeps_its_trials():
    storage = optuna.storages.InMemoryStorage()
    points = [{"lr": 0.01}]
    first = prepared(storage=storage, points_to_evaluate=points)
    evaluate(first, "a")
    first.suggest("b")
    second = prepared(storage=storage, points_to_evaluate=points)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.on_trial_complete("b", {"loss": 1.0})
    assert [trial.state for trial in second.study.trials] == [State.COMPLETE, State.COMPLETE]
    assert len(storage.get_all_studies()) == 1


def test_a_stored_study_of_the_same_name_is_extended_without_repeating_its_points():
    storage = optuna.storages.InMemoryStorage()
    arguments = {
        "storage": storage,
        "study_name": "mine",
        "points_to_evaluate": [{"lr": 0.01, "model/layers/0": 1, "model/act": "relu"}],
        "evaluated_rewards": [0.5],
    }
    evaluate(prepared(**arguments), "a")
    again = prepared(**arguments)
    config = again.suggest("b")
    assert len(again.study.trials) == 3
    assert config["lr"] not in {trial.params["lr"] for trial in again.study.trials[:2]}


def test_a_stored_study_of_the_other_direction_is_refused():
    storage = optuna.storages.InMemoryStorage()
    prepared(storage=storage, study_name="mine").suggest("a")
    with pytest.raises(
        ValueError,
        match="mode must be that of the stored study 'mine', got 'max'; choose another study_name",
    ):
        prepared(storage=storage, study_name="mine", mode="max").suggest("a")


@pytest.mark.process
def test_a_storage_may_be_a_url(tmp_path):
    searcher = prepared(storage=f"sqlite:///{tmp_path / 'study.db'}", study_name="mine")
    evaluate(searcher, "a")
    stored = optuna.load_study(study_name="mine", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [(trial.state, list(trial.intermediate_values)) for trial in stored.trials] == [
        (State.COMPLETE, [1, 2])
    ]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            grid_search([1]),
            (
                "'model/x' must be a range of floats or integers or a choice for OptunaSearch, got "
                "grid_search; use choice"
            ),
        ),
        (
            sample_from(int),
            "'model/x' must be .*, got sample_from; compute the value in the training code",
        ),
        (randn(), "'model/x' must be .*, got randn; use uniform"),
    ],
)
def test_domains_that_optuna_does_not_support_are_refused(word, message):
    with pytest.raises(ValueError, match=message):
        prepared({"model": {"x": word}})


@pytest.mark.parametrize(
    ("metric", "mode", "message"),
    [
        (
            None,
            "min",
            (
                r"metric must be the name of one metric for OptunaSearch, got None; set "
                r"TuneConfig\(metric"
            ),
        ),
        (
            ["loss", "size"],
            "min",
            "metric and mode must name as many different metrics as directions, got",
        ),
        ([], "min", "metric must be the name of one metric"),
        ("loss", None, r"mode must be one of .* for OptunaSearch, got None; set TuneConfig\(mode"),
        ("loss", "minimize", "mode must be one of .*, got 'minimize'"),
    ],
)
def test_a_missing_metric_or_mode_is_refused_with_the_space(metric, mode, message):
    with pytest.raises(ValueError, match=message):
        OptunaSearch().set_search_properties(metric, mode, SPACE)


def test_a_second_space_or_metric_is_not_accepted():
    assert not OptunaSearch(SPACE, "loss", "min").set_search_properties(None, None, SPACE)
    assert not OptunaSearch(SPACE, "loss", "min").set_search_properties("other", None, {})
    assert OptunaSearch(SPACE, "loss", "min").set_search_properties(None, None, {"epochs": 3})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"seed": 1, "sampler": optuna.samplers.RandomSampler()},
            "seed must be None beside a sampler, got 1; give the seed to the sampler",
        ),
        (
            {"evaluated_rewards": [1.0]},
            "evaluated_rewards must hold one value per point, got 1 for 0",
        ),
        ({"seed": -1}, "must be 0 or more, got -1"),
    ],
)
def test_contradicting_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        OptunaSearch(**arguments)


def test_suggesting_without_metric_mode_and_space_is_refused():
    with pytest.raises(RuntimeError, match="call set_search_properties"):
        OptunaSearch().suggest("a")


def test_optuna_logs_nothing_and_keeps_its_verbosity(capfd):
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    try:
        searcher = prepared(points_to_evaluate=[{"lr": 0.01}])
        evaluate(searcher, "a")
        evaluate(searcher, "b")
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
    finally:
        optuna.logging.set_verbosity(optuna.logging.INFO)
    assert capfd.readouterr().err == ""


def test_a_missing_optuna_is_named_with_the_command_that_installs_it(monkeypatch):
    imported = builtins.__import__

    def without_optuna(name, *arguments, **keywords):
        if name.split(".")[0] == "optuna":
            raise ImportError(name)
        return imported(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_optuna)
    with pytest.raises(ImportError, match=r'pip install "tuner-hpo\[optuna\]"'):
        OptunaSearch()
