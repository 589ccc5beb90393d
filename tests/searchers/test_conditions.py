"""Conditional spaces: only active parameters are in configurations, which convert to values."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.space import (
    Branching,
    Categorical,
    SearchSpace,
    choice,
    constants,
    domains,
    every_leaf,
    experiment_tag,
    grid_search,
    loguniform,
    only_if,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

rng = np.random.default_rng

OPTIMIZERS = [
    {"name": "sgd", "momentum": uniform(0, 1), "nesterov": choice([True, False])},
    {"name": "adam", "beta": uniform(0.8, 1)},
    "none",
]
SPACE = {
    "opt": choice(OPTIMIZERS),
    "lr": only_if({"opt": [0, 1]}, loguniform(1e-4, 1)),
    "model": {
        "kind": choice(["mlp", "cnn"]),
        "depth": randint(1, 6),
        "kernel": only_if(
            {"kind": "cnn"},
            {
                "size": choice([3, 5]),
                "stride": only_if({"size": 5}, randint(1, 3)),
                "padding": "same",
            },
        ),
        "skip": only_if({"depth": lambda depth: depth > 3}, choice(["add", "concat"])),
    },
    "epochs": 5,
}

words = st.sampled_from(
    [uniform(0, 1), randint(0, 4), choice([*"xyz"]), quniform(0, 1, 0.5), loguniform(0.1, 1)]
)
finite_words = st.sampled_from([randint(0, 3), choice([*"xy"]), quniform(0, 1, 0.5)])


@st.composite
def spaces(draw, leaf=words, depth=2, size=4):
    """A space whose choices have different options, with conditions on earlier parameters."""
    space = {}
    for name in "abcdef"[: draw(st.integers(1, size))]:
        kinds = ["leaf", "constant", "list", "only_if"] + (["dict", "choice"] if depth else [])
        node = draw(entries(leaf, depth, draw(st.sampled_from(kinds))))
        asked = {
            other: word
            for other, word in space.items()
            if isinstance(word, Categorical | Branching)
        }
        if asked and draw(st.booleans()):
            parent = draw(st.sampled_from(sorted(asked)))
            word = asked[parent]
            values = range(len(word.options)) if isinstance(word, Branching) else word.categories
            wanted = draw(st.lists(st.sampled_from(list(values)), min_size=1, max_size=2))
            node = only_if(
                {
                    parent: (lambda value, wanted=wanted: value in wanted)
                    if draw(st.booleans())
                    else wanted
                },
                node,
            )
        space[name] = node
    return space


@st.composite
def entries(draw, leaf, depth, kind):
    match kind:
        case "constant":
            return draw(st.integers(0, 3))
        case "list":
            return [draw(leaf), 7, (draw(leaf),)]
        case "dict":
            return draw(spaces(leaf, depth - 1, 3))
        case "choice":
            options = draw(st.lists(spaces(leaf, depth - 1, 2), min_size=1, max_size=2))
            return choice(
                [{"number": number, **option} for number, option in enumerate(options)]
                + ["none", draw(leaf)][: draw(st.integers(0, 1))]
            )
        case _:
            return draw(leaf)


seeds = st.integers(0, 2**32)


@given(spaces(), seeds)
def test_a_configuration_converts_to_values_and_back(space, seed):
    space = SearchSpace(space)
    config = space.resolve({}, rng(seed))
    values = space.values_of(config)
    assert space.config_of(values, None) == config
    assert list(values) == [parameter.name for parameter in space.active(values)]
    assert all(
        parameter.domain.contains(values[parameter.name]) for parameter in space.active(values)
    )


@given(spaces(), seeds)
def test_the_same_seed_gives_the_same_configuration(space, seed):
    space = SearchSpace(space)
    assert space.config_of({}, rng(seed)) == space.config_of({}, rng(seed))


@given(spaces(), seeds, st.data())
def test_given_values_are_kept_and_the_others_are_sampled(space, seed, data):
    space = SearchSpace(space)
    values = space.values_of(space.resolve({}, rng(seed)))
    number = data.draw(st.integers(0, len(values)))
    # Parents come first, so that no value lacks what it depends on.
    some = dict(itertools.islice(values.items(), number))
    again = space.values_of(space.config_of(some, rng(seed + 1)))
    assert some.items() <= again.items()
    assert {parameter.name for parameter in space.active(again)} == set(again)


@given(spaces(), seeds)
def test_values_of_inactive_parameters_are_refused(space, seed):
    space = SearchSpace(space)
    values = space.values_of(space.resolve({}, rng(seed)))
    for parameter in space.parameters:
        if parameter.name not in values:
            with pytest.raises(ValueError, match="must be left out, since it is not there beside"):
                space.config_of(
                    {**values, parameter.name: parameter.domain.sample(rng(seed))}, None
                )


@given(spaces())
def test_parents_come_first_and_names_are_unique(space):
    parameters = SearchSpace(space).parameters
    names = [parameter.name for parameter in parameters]
    assert len(set(names)) == len(names)
    for place, parameter in enumerate(parameters):
        assert {condition.name for condition in parameter.conditions} <= set(names[:place])


def all_values(parameters, values):
    """Return all sets of values of a finite space, by enumeration."""
    if not parameters:
        return [values]
    first, *rest = parameters
    if not first.is_active(values):
        return all_values(rest, values)
    domain = first.domain
    listed = (
        domain.categories
        if isinstance(domain, Categorical)
        else np.arange(domain.lower, domain.upper + 1e-9, domain.q).tolist()
    )
    return [
        found
        for value in listed
        for found in all_values(rest, {**values, first.name: domain.cast(value)})
    ]


@given(spaces(finite_words, depth=2, size=3))
def test_the_size_of_a_finite_space_is_counted(space):
    space = SearchSpace(space)
    number = space.num_configurations()
    if number < 3000:
        assert number == len(all_values(space.parameters, {}))


@pytest.mark.parametrize(
    ("space", "number"),
    [
        ({}, 1),
        ({"a": randint(0, 10), "b": grid_search([1, 2, 3]), "c": 5}, 30),
        ({"a": quniform(0, 1, 0.1)}, 11),
        ({"a": uniform(0, 1)}, None),
        ({"a": randn()}, None),
        ({"a": randint(0, 3), "b": sample_from(lambda: 3)}, None),
        ({"a": choice([1, 2]), "b": only_if({"a": 2}, uniform(0, 1))}, None),
        ({"a": randint(0, 2**62), "b": only_if({"a": [3, 5]}, choice([*"xyz"]))}, 2**62 + 4),
        ({"a": randint(0, 2**62), "b": only_if({"a": lambda a: a > 5}, choice([*"xyz"]))}, None),
        ({f"a{number}": randint(0, 2**40) for number in range(40)}, 2**1600),
        ({f"a{number}": choice([{"x": choice([*"xy"])}, "none"]) for number in range(60)}, 3**60),
        (
            {
                "a": choice(
                    [
                        {
                            f"b{number}": choice([{"x": choice([*"xy"])}, "none"])
                            for number in range(60)
                        },
                        "none",
                    ]
                )
            },
            3**60 + 1,
        ),
    ],
)
def test_sizes(space, number):
    assert SearchSpace(space).num_configurations() == number


def test_parameters_of_a_flat_space_follow_the_declaration():
    space = SearchSpace(
        {
            "lr": uniform(0, 1),
            "model": {"depth": grid_search([2, 3])},
            "f": sample_from(int),
            "c": 7,
        }
    )
    assert not space.is_conditional
    assert [
        (found.name, found.path, found.domain, found.conditions, found.is_grid)
        for found in space.parameters
    ] == [
        ("lr", ("lr",), uniform(0, 1), (), False),
        ("model/depth", ("model", "depth"), Categorical((2, 3)), (), True),
    ]
    config = space.config_of({"model/depth": 3}, rng(0))
    assert space.values_of(config) == {"lr": config["lr"], "model/depth": 3}
    assert config["c"] == 7


def test_names_and_conditions_of_a_conditional_space():
    seen = {
        found.name: (found.path, [str(condition) for condition in found.conditions])
        for found in SearchSpace(SPACE).parameters
    }
    assert seen == {
        "opt": (("opt",), []),
        "opt/0/momentum": (("opt", "momentum"), ["opt is 0"]),
        "opt/0/nesterov": (("opt", "nesterov"), ["opt is 0"]),
        "opt/1/beta": (("opt", "beta"), ["opt is 1"]),
        "lr": (("lr",), ["opt is 0 or 1"]),
        "model/kind": (("model", "kind"), []),
        "model/depth": (("model", "depth"), []),
        "model/kernel/size": (("model", "kernel", "size"), ["model/kind is 'cnn'"]),
        "model/kernel/stride": (
            ("model", "kernel", "stride"),
            ["model/kind is 'cnn'", "model/kernel/size is 5"],
        ),
        "model/skip": (("model", "skip"), ["model/depth fulfils <lambda>"]),
    }


def test_only_active_parameters_are_in_the_configuration():
    space = SearchSpace(SPACE)
    drawn = [space.resolve({}, rng(seed)) for seed in range(60)]
    for config in drawn:
        model, opt = config["model"], config["opt"]
        assert ("lr" in config) == (opt != "none")
        assert opt == "none" or set(opt) == (
            {"name", "momentum", "nesterov"} if opt["name"] == "sgd" else {"name", "beta"}
        )
        assert ("kernel" in model) == (model["kind"] == "cnn")
        assert ("skip" in model) == (model["depth"] > 3)
        assert "kernel" not in model or ("stride" in model["kernel"]) == (
            model["kernel"]["size"] == 5
        )
        assert "kernel" not in model or model["kernel"]["padding"] == "same"
    assert {
        config["opt"] if isinstance(config["opt"], str) else config["opt"]["name"]
        for config in drawn
    } == {"sgd", "adam", "none"}


def test_a_condition_prefers_a_parameter_beside_it_to_one_further_out():
    option = {
        "kind": choice(["a", "b"]),
        "x": only_if({"kind": "a"}, uniform(0, 1)),
        "y": only_if({"top": 1}, uniform(0, 1)),
    }
    space = SearchSpace(
        {"kind": choice(["c", "d"]), "top": choice([1, 2]), "of": choice([option, "none"])}
    )
    conditions = {
        found.name: [condition.name for condition in found.conditions] for found in space.parameters
    }
    assert conditions["of/0/x"] == ["of", "of/0/kind"]
    assert conditions["of/0/y"] == ["of", "top"]


def test_conditions_may_precede_their_parameter_and_refer_to_another_branch():
    space = SearchSpace(
        {
            "x": only_if({"y": "b"}, uniform(0, 1)),
            "y": only_if({"opt/0/z": 2}, choice([*"ab"])),
            "opt": choice([{"z": randint(1, 3)}, 0]),
        }
    )
    assert [found.name for found in space.parameters] == ["opt", "opt/0/z", "y", "x"]
    assert list(space.config_of({"opt": 1}, rng(0))) == ["opt"]
    assert list(space.config_of({"opt": 0, "opt/0/z": 2, "y": "b", "x": 0.5}, None)) == [
        "x",
        "y",
        "opt",
    ]


def test_conditions_on_one_entry_may_be_several():
    space = SearchSpace(
        {
            "a": choice([1, 2]),
            "b": choice([1, 2]),
            "c": only_if({"a": 1}, only_if({"b": 2}, 5)),
            "d": only_if({"a": 1, "b": 2}, 6),
        }
    )
    found = [space.config_of({"a": a, "b": b}, None) for a in (1, 2) for b in (1, 2)]
    assert [set(config) for config in found] == [
        {"a", "b"},
        {"a", "b", "c", "d"},
        {"a", "b"},
        {"a", "b"},
    ]


def test_conditions_compare_values_as_choices_do():
    arrays = [np.zeros(2), np.zeros(2)]
    space = SearchSpace(
        {
            "a": choice([True, 1, "x"]),
            "is_true": only_if({"a": True}, 1),
            "is_one": only_if({"a": [1, "x"]}, 1),
            "of": choice(arrays),
            "is_first": only_if({"of": arrays[0]}, 1),
            "f": choice([abs, max]),
            "is_abs": only_if({"f": abs}, 1),
            "n": randint(0, 5),
            "is_few": only_if({"n": range(3)}, 1),
        }
    )

    def found(**values):
        return set(
            space.config_of({"a": "x", "of": arrays[1], "f": max, "n": 4, **values}, None)
        ) - {"a", "of", "f", "n"}

    assert [found(a=True), found(a=1), found()] == [{"is_true"}, {"is_one"}, {"is_one"}]
    assert found(of=arrays[0]) == {"is_one", "is_first"}
    assert found(f=abs) == {"is_one", "is_abs"}
    assert found(n=np.int64(2)) == {"is_one", "is_few"}
    assert "opt/0/momentum" in {
        parameter.name for parameter in SearchSpace(SPACE).active({"opt": np.int64(0)})
    }


def test_a_choice_between_sub_spaces_is_no_grid():
    with pytest.raises(
        ValueError,
        match="grid must be asked of a choice between plain values, got one between sub-spaces",
    ):
        choice([uniform(0, 1), 8]).grid()


def test_conditions_may_depend_on_a_grid_axis():
    space = SearchSpace(
        {"opt": grid_search(["sgd", "adam"]), "momentum": only_if({"opt": "sgd"}, uniform(0, 1))}
    )
    assert space.grid_axes == {("opt",): ["sgd", "adam"]}
    assert space.resolve({("opt",): "adam"}, None) == {"opt": "adam"}
    assert set(space.resolve({("opt",): "sgd"}, rng(0))) == {"opt", "momentum"}
    with pytest.raises(ValueError, match="grid axis 'opt' must be assigned"):
        space.resolve({}, rng(0))


def test_only_active_functions_are_called_and_get_the_configuration():
    options = [
        {"x": uniform(0, 1), "twice": sample_from(lambda config: 2 * config["opt"]["x"])},
        "none",
    ]
    space = SearchSpace(
        {
            "opt": choice(options),
            "extra": only_if({"opt": 0}, sample_from(lambda config: config.opt.twice + 1)),
        }
    )
    config = space.config_of({"opt": 0}, rng(0))
    assert (config["opt"]["twice"], config["extra"]) == (
        2 * config["opt"]["x"],
        2 * config["opt"]["x"] + 1,
    )
    assert space.config_of({"opt": 1}, None) == {"opt": "none"}
    assert space.values_of(config) == {"opt": 0, "opt/0/x": config["opt"]["x"]}
    assert space.resolve(space.assignments({"opt": {"x": 0.5, "twice": 7}}), None) == {
        "opt": {"x": 0.5, "twice": 7},
        "extra": 8,
    }


def test_functions_must_not_return_conditional_spaces():
    with pytest.raises(
        ValueError,
        match="sample_from must return no conditional space, got one at 'a'; let the function "
        "itself choose",
    ):
        SearchSpace({"a": sample_from(lambda: choice([uniform(0, 1), "none"]))}).resolve({}, rng(0))


def test_errors_of_condition_functions_name_the_parameter_and_value():
    space = SearchSpace({"a": choice(["x", 2]), "b": only_if({"a": lambda a: a > 1}, 5)})
    with pytest.raises(TypeError) as caught:
        space.config_of({"a": "x"}, None)
    assert caught.value.__notes__ == ["raised by a condition of only_if on 'a', which was 'x'"]


def test_options_share_no_containers_with_the_space_or_each_other():
    space = SearchSpace({"opt": choice([{"sizes": [1], "x": uniform(0, 1)}, [2]])})
    one, other = (space.config_of({"opt": 0}, rng(0)) for _ in range(2))
    one["opt"]["sizes"].append(5)
    assert other["opt"]["sizes"] == [1]
    space.config_of({"opt": 1}, None)["opt"].append(5)
    assert space.config_of({"opt": 1}, None) == {"opt": [2]}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            {"a": only_if({"z": 1}, 5), "b": choice([1])},
            "only_if at 'a' must ask for parameters that are searched, got 'z'; there are 'b'",
        ),
        (
            {"a": only_if({"epochs": 5}, 1), "epochs": 5},
            "must ask for parameters that are searched, got 'epochs'; there are none",
        ),
        (
            {"a": only_if({"f": 1}, 5), "f": sample_from(int)},
            "must ask for parameters that are drawn, got 'f', which is computed; ask for its",
        ),
        (
            {"a": only_if({"a": 1}, randint(0, 3))},
            (
                "conditions must not go in a circle, got 'a' -> 'a'; let one of them be there "
                "in any "
                "case"
            ),
        ),
        (
            {
                "a": only_if({"b": 1}, randint(0, 3)),
                "b": only_if({"c": 1}, randint(0, 3)),
                "c": only_if({"a": 1}, randint(0, 3)),
            },
            "conditions must not go in a circle, got 'a' -> 'b' -> 'c' -> 'a'",
        ),
        (
            {"a": choice([*"xy"]), "b": only_if({"a": "z"}, 1)},
            "must ask for a value that 'a' can have, got 'z'; give such a value, a list of them",
        ),
        (
            {"a": choice([*"xy"]), "b": only_if({"a": ["x", "z"]}, 1)},
            r"must ask for values that 'a' can have, got \['z'\]; correct or leave them out",
        ),
        (
            {"a": choice([*"xy"]), "b": only_if({"a": []}, 1)},
            r"must ask for a value that 'a' can have, got \[\]",
        ),
        (
            {"a": choice([uniform(0, 1), 8]), "b": only_if({"a": 8}, 1)},
            "value that 'a' can have, got 8; ask for the number of an option",
        ),
        (
            {"a": choice([*"xy"]), "b": [only_if({"a": "x"}, 1)]},
            "only_if must stand at a name in a dictionary, got one in the list 'b'; use choice",
        ),
        (
            {"a": choice([{"b": uniform(0, 1)}, 1]), "a/b": 2},
            "parameter names must be unique, got 'a/b' both as",
        ),
        (
            {"a": choice([{"b": uniform(0, 1)}, 1]), "a/0/b": 2},
            "parameter names must be unique, got 'a/0/b' both as",
        ),
    ],
)
def test_impossible_spaces_are_refused_when_they_are_declared(space, message):
    with pytest.raises(ValueError, match=message):
        SearchSpace(space)


@pytest.mark.parametrize(
    "ask",
    [lambda space: space.domains, lambda space: space.words, lambda space: domains(space.space)],
)
def test_methods_that_use_paths_refuse_a_conditional_space(ask):
    with pytest.raises(
        ValueError,
        match="must be flat for this searcher, got the conditional parameter 'opt/0/momentum'; "
        "leave search_alg out",
    ):
        ask(SearchSpace(SPACE))


def test_partial_configurations_give_the_values_they_have():
    space = SearchSpace(SPACE)
    assert space.values_of({}) == {}
    assert space.values_of({"opt": {"momentum": 1}}) == {"opt": 0, "opt/0/momentum": 1.0}
    assert space.values_of({"opt": {"name": "adam"}, "epochs": 5}) == {"opt": 1}
    assert space.values_of(
        {"opt/name": "sgd", "opt/nesterov": False, "model/depth": 4, "model/skip": "add"}
    ) == {
        "opt": 0,
        "opt/0/nesterov": False,
        "model/depth": 4,
        "model/skip": "add",
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"opt": "rmsprop"},
            (
                "'opt' must fit an option of its choice, got 'rmsprop'; option 0: 'opt' must "
                "be .*; "
                "option 2: 'opt' must be 'none'"
            ),
        ),
        (
            {"opt": {}},
            (
                r"'opt' must fit one option of its choice, got {}, which could be one of \[0, "
                r"1\]; add "
                r"what tells them apart"
            ),
        ),
        ({"opt": {"name": "sgd", "beta": 0.9}}, "'opt' must fit an option of its choice"),
        ({"opt": {"momentum": 2}}, "option 0: 'opt/0/momentum' must lie in Float.*, got 2; widen"),
        ({"lr": 0.1}, "'lr' must come with 'opt', which decides whether it is there; add that"),
        (
            {"opt": "none", "lr": 0.1},
            "'lr' must be left out where 'opt' is 2; it is there only if opt is 0 or 1",
        ),
        (
            {"model": {"depth": 2, "skip": "add"}},
            "'model/skip' must be left out where 'model/depth' is 2",
        ),
        (
            {"model": {"kind": "cnn", "kernel": {"padding": "valid"}}},
            "'model/kernel/padding' must be 'same' as in the space, got 'valid'",
        ),
        (
            {"model": {"kind": "mlp", "kernel": {}}},
            "'model/kernel' must be left out where 'model/kind' is 'mlp'",
        ),
        ({"typo": 1}, "'typo' must be a name in the space, which has"),
        (
            {"model/kernel/typo": 1, "model/kind": "cnn"},
            "'model/kernel/typo' must be a name in the space",
        ),
    ],
)
def test_configurations_that_do_not_fit_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        SearchSpace(SPACE).values_of(config)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"typo": 1},
            "values must be those of parameters, got 'typo'; there are 'opt', 'opt/0/momentum'",
        ),
        ({"opt": 3}, "'opt' must lie in Categorical.*, got 3"),
        (
            {"opt": 1, "opt/0/momentum": 0.5},
            "'opt/0/momentum' must be left out, since it is not there beside",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        SearchSpace(SPACE).config_of(values, rng(0))


def test_where_several_options_fit_the_first_complete_one_of_the_right_types_counts():
    space = SearchSpace(
        {
            "a": choice(
                [
                    randint(0, 3),
                    uniform(0, 3),
                    1,
                    True,
                    {"x": uniform(0, 1)},
                    {"x": uniform(0, 1), "y": 3},
                ]
            )
        }
    )
    found = [
        space.values_of({"a": given})["a"]
        for given in (2, 2.0, 1, True, {"x": 0.5}, {"x": 0.5, "y": 3}, {"y": 3})
    ]
    assert found == [0, 1, 0, 3, 4, 5, 5]


def test_a_domain_may_be_an_option():
    space = SearchSpace({"a": choice(["auto", uniform(0, 1), choice([[uniform(2, 3)], None])])})
    for seed in range(20):
        config = space.resolve({}, rng(seed))
        assert space.config_of(space.values_of(config), None) == config


def test_suggestions_are_completed_with_the_constants_of_the_chosen_options():
    space = SearchSpace(SPACE)
    suggestion = {
        "opt": {"momentum": 0.5, "nesterov": True},
        "model": {"kind": "cnn", "depth": 2, "kernel": {"size": 3}},
        "lr": 0.1,
    }
    assert space.completed(suggestion) == {
        "opt": {"name": "sgd", "momentum": 0.5, "nesterov": True},
        "model": {"kind": "cnn", "depth": 2, "kernel": {"size": 3, "padding": "same"}},
        "lr": 0.1,
        "epochs": 5,
    }
    assert space.completed({"opt": "none", "model": {"kind": "mlp"}}) == {
        "opt": "none",
        "model": {"kind": "mlp"},
        "epochs": 5,
    }
    assert space.completed({"foreign": 1, "opt": {"beta": 0.9}}) == {
        "foreign": 1,
        "opt": {"name": "adam", "beta": 0.9},
        "epochs": 5,
    }
    assert space.completed({"foreign": 1, "opt": 7}) == {"foreign": 1, "opt": 7, "epochs": 5}
    assert constants(SPACE) == {"epochs": 5}


def test_the_tag_lists_active_parameters():
    config = {
        "opt": {"name": "adam", "beta": 0.9},
        "lr": 0.1,
        "model": {"kind": "mlp", "depth": 2},
        "epochs": 5,
    }
    assert experiment_tag(3, config, SPACE) == "3_lr=0.1000,depth=2,kind=mlp,opt=1,beta=0.9000"
    assert experiment_tag(3, {**config, "foreign": 1}, SPACE) == experiment_tag(3, config, SPACE)
    assert experiment_tag(3, {"opt": 7}, SPACE) == "3"


def test_every_leaf_is_found_inside_choices_and_conditions():
    found = {path: leaf for path, leaf in every_leaf(SPACE) if not isinstance(leaf, str | int)}
    assert list(found)[:5] == [
        ("opt", 0, "momentum"),
        ("opt", 0, "nesterov"),
        ("opt", 1, "beta"),
        ("lr",),
        ("model", "kind"),
    ]


def chained(length):
    return {
        f"p{number}": only_if({f"p{number + 1}": 1}, choice([1, 2])) for number in range(length)
    } | {f"p{length}": choice([1, 2])}


def test_long_chains_of_conditions_are_put_in_order():
    assert [parameter.name for parameter in SearchSpace(chained(1200)).parameters] == [
        f"p{number}" for number in range(1200, -1, -1)
    ]


def test_the_size_is_unknown_if_conditions_depend_on_each_other_too_much():
    assert SearchSpace(chained(90)).num_configurations() == 92
    assert SearchSpace(chained(200)).num_configurations() is None
    parents = {f"p{number}": choice([1, 2]) for number in range(14)}
    pairs = itertools.combinations(parents, 2)
    assert (
        SearchSpace(
            parents
            | {f"{one}{other}": only_if({one: 1, other: 1}, choice([1, 2])) for one, other in pairs}
        ).num_configurations()
        is None
    )
