"""Search spaces, and how searchers accept and convert them."""

import importlib

import numpy as np
import pytest

import searchers
from searchers import AxSearch, BayesOptSearch, BOHBSearch, HyperOptSearch, OptunaSearch, TreeSearch
from searchers.space import (
    ConfigView,
    SearchSpace,
    choice,
    constants,
    domains,
    experiment_tag,
    grid_axes,
    grid_search,
    loguniform,
    randint,
    resolve,
    sample_from,
    uniform,
)
from tuner import TuneConfig, Tuner

rng = np.random.default_rng


def resolved(space, assignments=None, seed=0):
    return resolve(space, assignments or {}, rng(seed))


def test_domains_are_found_at_any_depth_and_by_kind():
    space = {
        "a": uniform(0, 1),
        "b": [{"c": randint(0, 3)}, (1, choice([1]))],
        "d": {"e": grid_search([1, 2])},
        "f": sample_from(int),
    }
    assert list(domains(space)) == [("a",), ("b", 0, "c"), ("b", 1, 1)]
    assert grid_axes(space) == {("d", "e"): [1, 2]}
    assert list(SearchSpace(space).words) == [
        ("a",),
        ("b", 0, "c"),
        ("b", 1, 1),
        ("d", "e"),
        ("f",),
    ]


def test_every_domain_is_replaced_and_containers_keep_their_types():
    config = resolved({"a": [uniform(0, 1), (choice(["x"]), 2)], "b": {"c": randint(3, 4)}})
    assert 0 <= config["a"][0] < 1
    assert config == {"a": [config["a"][0], ("x", 2)], "b": {"c": 3}}


def test_constants_of_any_type_are_passed_by_reference():
    array, function = np.zeros(3), lambda: None
    space = {"data": array, "loss": function, "nested": {"array": array}, "lr": uniform(0, 1)}
    config = resolved(space)
    assert config["data"] is array
    assert config["loss"] is function
    assert config["nested"]["array"] is array


def test_configurations_share_no_containers_with_each_other_or_the_space():
    space = {"model": {"layers": [randint(0, 9)], "constant": [{"a": 1}]}}
    one, other = resolved(space), resolved(space)
    one["model"]["layers"].append("mine")
    one["model"]["constant"][0]["a"] = "mine"
    assert len(other["model"]["layers"]) == len(space["model"]["layers"]) == 1
    assert other["model"]["constant"] == space["model"]["constant"] == [{"a": 1}]


def test_assigned_values_are_used_and_only_the_others_are_sampled():
    space = {
        "lr": uniform(0, 1),
        "depth": grid_search([2, 3]),
        "twice": sample_from(lambda config: config["lr"] * 2),
    }
    assert resolved(space, {("lr",): 0.25, ("depth",): 3}) == {"lr": 0.25, "depth": 3, "twice": 0.5}
    assert resolved(space, {("lr",): 0.25, ("depth",): 3, ("twice",): 7})["twice"] == 7


def test_a_grid_axis_without_a_value_is_refused():
    with pytest.raises(
        ValueError, match="grid axis 'model/depth' must be assigned, got no value; choose one"
    ):
        resolved({"model": {"depth": grid_search([1])}})


def test_sampling_without_a_generator_is_refused():
    with pytest.raises(ValueError, match="rng must be a numpy generator to sample from Float"):
        resolve({"lr": uniform(0, 1)}, {}, None)


def test_same_seed_same_configuration():
    space = {"lr": loguniform(1e-4, 1), "depth": randint(0, 100), "act": choice(["relu", "tanh"])}
    assert resolved(space, seed=1) == resolved(space, seed=1)
    assert resolved(space, seed=1) != resolved(space, seed=2)


@pytest.mark.parametrize("space", [[uniform(0, 1)], None, "lr"])
def test_a_space_is_a_dictionary(space):
    with pytest.raises(
        TypeError, match=r"a space must be a dictionary, got .*; give each parameter a name"
    ):
        SearchSpace(space)


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ([], "lr must be given one value at least"),
        ([uniform(0, 1)], "lr must be given plain values"),
    ],
)
def test_hand_written_grids_are_checked_with_the_space(axis, message):
    with pytest.raises(ValueError, match=message):
        SearchSpace({"lr": {"grid_search": axis}})


def test_hand_written_grids_must_hold_a_list():
    with pytest.raises(TypeError, match="lr must be given a list, got 3"):
        SearchSpace({"lr": {"grid_search": 3}})


def test_functions_read_items_attributes_and_the_older_form():
    space = {
        "model": {"depth": 3, "units": [4, 5]},
        "item": sample_from(lambda config: config["model"]["depth"]),
        "attribute": sample_from(lambda config: config.model.depth),
        "legacy": sample_from(lambda spec: spec.config.model.depth),
        "list": sample_from(lambda config: config.model.units[1]),
        "none": sample_from(lambda: 3),
    }
    config = resolved(space)
    assert [config[key] for key in ("item", "attribute", "legacy", "list", "none")] == [
        3,
        3,
        3,
        5,
        3,
    ]


def test_a_parameter_named_config_takes_precedence_over_the_older_form():
    assert resolved({"config": {"x": 1}, "y": sample_from(lambda spec: spec.config.x)})["y"] == 1


def test_functions_read_sampled_values_and_each_others():
    space = {
        "c": sample_from(lambda config: config.b + 1),
        "b": sample_from(lambda config: config.a + 1),
        "a": randint(5, 6),
    }
    assert resolved(space) == {"a": 5, "b": 6, "c": 7}


def test_functions_inside_lists_read_each_others_values():
    space = {
        "layers": [
            sample_from(lambda config: config["layers"][1] * 2),
            sample_from(lambda config: config["layers"][2] * 2),
            8,
        ]
    }
    assert resolved(space) == {"layers": [32, 16, 8]}


def test_get_with_a_default_waits_for_values_not_known_yet():
    space = {
        "b": sample_from(lambda config: config.get("a", "default")),
        "a": sample_from(lambda: 1),
    }
    assert resolved(space)["b"] == 1


def test_iterating_over_the_configuration_returns_known_values():
    space = {"a": sample_from(lambda config: [*config]), "b": 1, "c": randint(0, 5)}
    assert resolved(space)["a"] == ["b", "c"]


def test_part_of_the_configuration_can_be_returned():
    config = resolved(
        {"model": {"depth": 3}, "copy": sample_from(lambda config: {"of": config.model})}
    )
    assert type(config["copy"]["of"]) is dict
    assert config["copy"] == {"of": {"depth": 3}}
    assert config["copy"]["of"] is not config["model"]


def test_built_in_functions_without_a_signature_are_called_without_arguments():
    assert resolved({"a": sample_from(rng(3).random)})["a"] == rng(3).random()


def test_functions_may_return_domains():
    def learning_rate(config):
        return {"lr": loguniform(1e-2, 1) if config.optimizer == "sgd" else loguniform(1e-4, 1e-3)}

    space = {"options": sample_from(learning_rate), "optimizer": choice(["sgd", "adam"])}
    for seed in range(20):
        config = resolved(space, seed=seed)
        assert (config["options"]["lr"] >= 1e-2) == (config["optimizer"] == "sgd")
    assert resolved(space, seed=3) == resolved(space, seed=3)


def test_functions_may_return_functions():
    space = {
        "a": sample_from(lambda: {"x": sample_from(lambda config: config.b + 1)}),
        "b": sample_from(lambda: 1),
    }
    assert resolved(space) == {"a": {"x": 2}, "b": 1}


def test_functions_must_not_return_grids():
    with pytest.raises(
        ValueError, match="sample_from must not return a grid, got one at 'a'; declare"
    ):
        resolved({"a": sample_from(lambda: grid_search([1]))})


def test_functions_in_a_circle_are_named():
    space = {
        "a": sample_from(lambda config: config.b.c),
        "b": {"c": sample_from(lambda config: config.a)},
        "d": sample_from(lambda: 1),
        "e": sample_from(lambda config: config.d),
    }
    with pytest.raises(
        ValueError, match="functions in a circle at 'a', 'b/c'; let one of them read no other"
    ):
        resolved(space)


def test_a_function_that_reads_itself_is_named():
    with pytest.raises(ValueError, match="functions in a circle at 'a'"):
        resolved({"a": sample_from(lambda config: config["a"])})


def test_endless_functions_end_after_twenty_passes():
    def again():
        return sample_from(again)

    with pytest.raises(ValueError, match="functions in a circle at 'a'"):
        resolved({"a": again()})


def test_chains_resolve_within_twenty_passes():
    chain = {
        f"p{number}": sample_from(lambda config, number=number: config[f"p{number + 1}"] + 1)
        for number in range(19)
    }
    assert resolved({**chain, "p19": 0})["p0"] == 19


def test_errors_of_functions_name_their_parameter():
    with pytest.raises(KeyError) as caught:
        resolved({"model": {"x": sample_from(lambda config: config["missing"])}})
    assert caught.value.__notes__ == ["raised by the function of sample_from at 'model/x'"]
    with pytest.raises(AttributeError, match=r"the configuration has no 'missing', only \['x'\]"):
        resolved({"x": sample_from(lambda config: config.missing)})


def test_a_view_is_a_mapping_of_known_values():
    view = ConfigView({"a": 1, "b": sample_from(int), "c": {"d": 2}})
    assert dict(view.c) == {"d": 2}
    assert len(view) == 2
    assert {**view}["a"] == 1
    assert "a" in repr(view)


def test_points_are_checked_and_converted():
    space = SearchSpace(
        {
            "lr": uniform(0, 1),
            "n": randint(0, 5),
            "grid": grid_search(["a", "b"]),
            "f": sample_from(int),
            "c": 7,
        }
    )
    found = space.assignments({"lr": 1, "n": np.int64(3), "grid": "b", "f": "anything", "c": 7})
    assert found == {("lr",): 1.0, ("n",): 3, ("grid",): "b", ("f",): "anything"}
    assert [type(value) for value in found.values()] == [float, int, str, str]


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"lr": 2}, "'lr' must lie in Float.*, got 2; widen the space or leave the parameter out"),
        ({"n": 5}, "'n' must lie in Integer.*, got 5"),
        ({"n": 2.5}, "'n' must lie in Integer.*, got 2.5"),
        ({"grid": "z"}, "'grid' must lie in .*, got 'z'"),
        ({"c": 8}, "'c' must be 7 as in the space, got 8"),
        ({"typo": 1}, "'typo' must be a name in the space"),
    ],
)
def test_points_outside_the_space_are_refused(point, message):
    with pytest.raises(ValueError, match=message):
        SearchSpace(
            {"lr": uniform(0, 1), "n": randint(0, 5), "grid": grid_search(["a", "b"]), "c": 7}
        ).assignments(point)


def test_constants_exclude_searched_leaves():
    space = {
        "a": uniform(0, 1),
        "b": {"c": 1, "d": grid_search([1])},
        "e": [1, randint(0, 2)],
        "f": {"g": sample_from(int)},
        "h": [1],
        "i": {},
    }
    assert constants(space) == {"b": {"c": 1}, "h": [1], "i": {}}


def test_the_tag_lists_searched_parameters_in_order_of_their_names():
    space = {
        "z": uniform(0, 1),
        "opt": {"lr": loguniform(1e-4, 1)},
        "layers": [randint(0, 9), 5],
        "epochs": 5,
        "act": choice(["relu"]),
    }
    config = {"z": 0.5, "opt": {"lr": 0.00012}, "layers": [3, 5], "epochs": 5, "act": "relu"}
    assert experiment_tag(7, config, space) == "7_act=relu,layers_0=3,lr=0.0001,z=0.5000"
    assert experiment_tag(7, config, SearchSpace(space)) == experiment_tag(7, config, space)


def test_the_tag_of_a_space_without_parameters_is_the_number():
    assert experiment_tag(3, {"epochs": 5}, {"epochs": 5}) == "3"


def test_the_tag_is_cut_to_a_hundred_characters_of_one_line():
    tag = experiment_tag(1, {"text": "a\nb " * 100}, {"text": choice(["x"])})
    assert tag.startswith("1_text=a b a b")
    assert len(tag) == 100


def test_the_tag_names_functions_and_leaves_out_what_the_configuration_lacks():
    assert (
        experiment_tag(1, {"loss": max}, {"loss": choice([max, min]), "lr": uniform(0, 1)})
        == "1_loss=max"
    )


def test_two_parameters_never_share_a_flat_name():
    with pytest.raises(ValueError, match="'a/b' both as"):
        SearchSpace({"a/b": uniform(0, 1), "a": {"b": 2}})


SPACE = {"a": uniform(0, 1), "n": {"b": uniform(1, 2)}, "constant": 3}


def suggestion_of(searcher):
    assert searcher.set_search_properties("loss", "min", {}, seed=0)
    return searcher.suggest("t")


@pytest.mark.heavy
def test_bounds_of_ranges():
    pytest.importorskip("bayes_opt")
    bounds = BayesOptSearch.convert_search_space(SPACE)
    assert bounds == {"a": (0, 1), "n/b": (1, 2)}
    suggestion = suggestion_of(BayesOptSearch(bounds))
    assert 0 <= suggestion["a"] <= 1 <= suggestion["n"]["b"] <= 2


@pytest.mark.parametrize("word", [loguniform(1e-3, 1), randint(0, 5), choice([1, 2])])
def test_parameters_with_more_than_bounds_are_refused(word):
    with pytest.raises(
        ValueError,
        match=r"convert_search_space must have uniform ranges for BayesOptSearch, got .* for 'a'",
    ):
        BayesOptSearch.convert_search_space({"a": word})


def test_distributions_of_optuna():
    optuna = pytest.importorskip("optuna")
    converted = OptunaSearch.convert_search_space({**SPACE, "c": choice([1, 2])})
    assert converted == {
        "a": optuna.distributions.FloatDistribution(0.0, 1.0),
        "n/b": optuna.distributions.FloatDistribution(1.0, 2.0),
        "c": optuna.distributions.CategoricalDistribution([1, 2]),
    }
    suggestion = suggestion_of(OptunaSearch(converted))
    assert 0 <= suggestion["a"] <= 1 <= suggestion["n"]["b"] <= 2
    with pytest.raises(ValueError, match=r"categories that Optuna can store, got .* for 'c'"):
        OptunaSearch.convert_search_space({"c": choice([[1], [2]])})


@pytest.mark.parametrize("kind", [HyperOptSearch, AxSearch])
def test_other_searchers_accept_the_space_unchanged(kind):
    assert kind.convert_search_space(SPACE) == SPACE


@pytest.mark.parametrize("config", [{"a": (0, 1)}, {"a": [0.5, 2], "b": "constant"}])
@pytest.mark.heavy
def test_bounds_in_param_space_are_refused_by_bayesopt(config):
    pytest.importorskip("bayes_opt")
    with pytest.raises(
        ValueError,
        match=r"param_space must hold domains for BayesOptSearch, got .* for 'a'.* "
        r"tune.uniform",
    ):
        BayesOptSearch().set_search_properties("loss", "min", config)
    assert BayesOptSearch().set_search_properties("loss", "min", {**config, "c": uniform(0, 1)})


@pytest.mark.parametrize(
    ("name", "remedy"), [("generation_strategy", "give method"), ("db_settings", "leave it out")]
)
def test_arguments_of_the_older_client_of_ax_are_refused_by_name(name, remedy):
    with pytest.raises(
        TypeError,
        match=f"AxSearch takes no argument '{name}', which belongs to Ax's older AxClient; "
        f"{remedy}",
    ):
        AxSearch(**{name: object()})


def test_a_client_of_ax_and_two_seeds_are_refused():
    with pytest.raises(ValueError, match="ax_client must be None"):
        AxSearch(ax_client=object())
    with pytest.raises(
        ValueError, match="seed and random_seed must not both be given, got 1 and 2"
    ):
        AxSearch(seed=1, random_seed=2)


@pytest.mark.heavy
def test_the_seed_of_the_older_client_is_recorded_by_its_name():
    pytest.importorskip("ax.api.client")
    assert AxSearch(random_seed=3).declared_arguments == {"random_seed": 3}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("optuna", "OptunaSearch"),
        ("hyperopt", "HyperOptSearch"),
        ("bayesopt", "BayesOptSearch"),
        ("ax", "AxSearch"),
        ("bohb", "BOHBSearch"),
        ("nevergrad", "NevergradSearch"),
        ("basic_variant", "BasicVariantGenerator"),
        ("concurrency_limiter", "ConcurrencyLimiter"),
        ("repeater", "Repeater"),
    ],
)
def test_import_paths_of_ray_tune(module, name):
    assert getattr(importlib.import_module(f"tuner.search.{module}"), name) is getattr(
        searchers, name
    )


def train(config):
    raise AssertionError("nothing is run here")


@pytest.mark.parametrize(
    "bounds",
    [
        {"a": (0, 1), "b": [2.0, 3]},
        {"a": (np.int64(0), np.int64(1)), "b": [np.float32(2.0), np.float32(3.0)]},
    ],
)
@pytest.mark.heavy
def test_bounds_are_ranges_for_bayesopt(bounds):
    pytest.importorskip("bayes_opt")
    searcher = BayesOptSearch(bounds, "loss", "min")
    for name in "123":
        config = searcher.suggest(name)
        assert 0 <= config["a"] <= 1
        assert 2 <= config["b"] <= 3
        assert isinstance(config["a"], float)


@pytest.mark.heavy
def test_bounds_beside_domains_are_refused():
    pytest.importorskip("bayes_opt")
    message = (
        r"got both: 'a' is \(0, 1\); write tune.uniform\(0, 1\), and put constants into param_space"
    )
    with pytest.raises(ValueError, match=message):
        BayesOptSearch({"a": (0, 1), "b": uniform(0, 1)})


@pytest.mark.heavy
def test_ax_accepts_its_list_of_dictionaries():
    pytest.importorskip("ax")
    space = [
        {"name": "x", "type": "range", "bounds": [0.0, 1.0]},
        {
            "name": "lr",
            "type": "range",
            "bounds": [1e-4, 1.0],
            "value_type": "float",
            "log_scale": True,
        },
        {"name": "n", "type": "range", "bounds": [1, 8]},
        {"name": "kind", "type": "choice", "values": ["a", "b"]},
        {"name": "fixed", "type": "fixed", "value": 7},
    ]
    config = AxSearch(space, "loss", "min", method="random_search").suggest("1")
    assert {name: type(value).__name__ for name, value in config.items()} == {
        "x": "float",
        "lr": "float",
        "n": "int",
        "kind": "str",
        "fixed": "int",
    }
    with pytest.raises(
        ValueError,
        match=r"'x' must be a range with bounds, .*; write the space with functions such as",
    ):
        AxSearch([{"name": "x", "type": "range", "bounds": [0, 1], "digits": 3}])


@pytest.mark.heavy
def test_domains_of_hyperopt_are_refused():
    hp = pytest.importorskip("hyperopt").hp
    space = {"deep": {"x": hp.uniform("x", 0, 1)}}
    message = "got a domain of hyperopt for 'deep/x'; write \"deep/x\": tune.uniform\\(0, 1\\)"
    for make in (
        HyperOptSearch,
        lambda given: TreeSearch(space=given),
        lambda given: BOHBSearch(space=given),
    ):
        with pytest.raises(ValueError, match=message):
            make(space)
    with pytest.raises(
        ValueError, match=rf"param_space must hold constants and tuner's domains, {message}"
    ):
        Tuner(train, param_space=space)
    with pytest.raises(
        TypeError,
        match="space must be a dictionary for HyperOptSearch, got a space of hyperopt; write "
        "HyperOptSearch",
    ):
        HyperOptSearch(hp.choice("kind", [{"x": hp.uniform("x", 0, 1)}, {}]))


def test_distributions_of_optuna_are_accepted_by_optuna_only():
    optuna = pytest.importorskip("optuna")
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}
    assert 0 <= OptunaSearch(space, "loss", "min").suggest("1")["x"] <= 1
    Tuner(
        train,
        param_space=space,
        tune_config=TuneConfig(metric="loss", mode="min", search_alg=OptunaSearch()),
    )
    with pytest.raises(ValueError, match="got a domain of optuna for 'x'"):
        Tuner(train, param_space=space)


@pytest.mark.parametrize(
    "make",
    [
        lambda space: TreeSearch(space=space),
        pytest.param(HyperOptSearch, marks=pytest.mark.heavy),
    ],
)
def test_a_space_that_is_not_a_dictionary_is_refused(make):
    with pytest.raises(
        TypeError, match=r"space must be a dictionary for \w+, got \[1\]; write \w+\(space="
    ):
        make([1])
