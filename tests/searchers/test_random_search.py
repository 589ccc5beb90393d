import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers import BasicVariantGenerator
from searchers.space import (
    choice,
    grid_search,
    loguniform,
    only_if,
    randint,
    sample_from,
    uniform,
)

SPACE = {
    "lr": loguniform(1e-4, 1e-1),
    "model": {"depth": grid_search([2, 3]), "act": choice(["relu", "tanh"])},
    "epochs": 5,
}


def prepared(space=SPACE, *, seed=0, num_samples=1, **arguments):
    searcher = BasicVariantGenerator(**arguments)
    assert searcher.set_search_properties(None, None, space, seed=seed, num_samples=num_samples)
    return searcher


def drawn(searcher, limit=2000):
    configs = []
    while (
        len(configs) < limit
        and (config := searcher.suggest(f"t{len(configs)}")) != searcher.FINISHED
    ):
        configs.append(config)
    return configs


@given(st.lists(st.integers(1, 4), max_size=3), st.integers(0, 4))
def test_the_full_grid_is_repeated_for_each_sample(sizes, num_samples):
    space = {f"axis{number}": grid_search(range(size)) for number, size in enumerate(sizes)}
    searcher = prepared(space, num_samples=num_samples)
    found = [tuple(config.values()) for config in drawn(searcher)]
    assert sorted(found) == sorted(list(product(*map(range, sizes))) * num_samples)
    assert searcher.num_trials_for(num_samples) == len(found)


def test_the_first_axis_varies_fastest():
    configs = drawn(prepared({"a": grid_search([1, 2]), "b": grid_search(["x", "y"])}))
    assert [(config["a"], config["b"]) for config in configs] == [
        (1, "x"),
        (2, "x"),
        (1, "y"),
        (2, "y"),
    ]


def test_random_values_are_drawn_anew_at_every_point_of_the_grid():
    values = [config["lr"] for config in drawn(prepared(num_samples=3))]
    assert len(set(values)) == len(values) == 6


def test_a_constant_grid_search_keeps_random_values_over_the_grid():
    configs = drawn(prepared(num_samples=3, constant_grid_search=True))
    values = [(config["lr"], config["model"]["act"]) for config in configs]
    assert values[0::2] == values[1::2]
    assert len(set(values)) == 3
    assert [config["model"]["depth"] for config in configs] == [2, 3] * 3


def test_a_space_without_domains_gives_its_constants_for_each_sample():
    assert drawn(prepared({"epochs": 5}, num_samples=2)) == [{"epochs": 5}] * 2


def test_after_the_last_suggestion_the_search_is_finished_for_good():
    searcher = prepared({"epochs": 5})
    searcher.suggest("a")
    assert [searcher.suggest("b"), searcher.suggest("c")] == [searcher.FINISHED] * 2


def test_minus_one_samples_are_endless():
    searcher = prepared(num_samples=-1)
    assert searcher.num_trials_for(-1) is None
    assert len(drawn(searcher, limit=50)) == 50


def test_a_huge_grid_is_never_built():
    searcher = prepared({f"axis{number}": grid_search(range(1000)) for number in range(5)})
    assert searcher.num_trials_for(1) == 1000**5
    assert searcher.suggest("a")["axis0"] == 0
    searcher.load_state_dict(searcher.state_dict() | {"next": 1000**5 - 1})
    assert set(searcher.suggest("b").values()) == {999}
    assert searcher.suggest("c") == searcher.FINISHED


def test_points_come_first_and_each_replaces_a_sample():
    searcher = prepared(
        {"lr": uniform(0, 1), "n": randint(0, 9)},
        num_samples=3,
        points_to_evaluate=[{"lr": 0.5, "n": 3}, {"lr": 0.25, "n": 4}],
    )
    assert searcher.num_trials_for(3) == 3
    configs = drawn(searcher)
    assert configs[:2] == [{"lr": 0.5, "n": 3}, {"lr": 0.25, "n": 4}]
    assert len(configs) == 3


def test_more_points_than_samples_are_all_evaluated():
    searcher = prepared({"lr": uniform(0, 1)}, points_to_evaluate=[{"lr": 0.1}, {"lr": 0.2}])
    assert searcher.num_trials_for(1) == 2
    assert drawn(searcher) == [{"lr": 0.1}, {"lr": 0.2}]


def test_missing_parameters_of_points_are_sampled():
    config = prepared(
        {"lr": uniform(0, 1), "model": {"n": randint(0, 9)}}, points_to_evaluate=[{"model/n": 3}]
    ).suggest("a")
    assert config["model"]["n"] == 3
    assert 0 <= config["lr"] < 1


def test_points_are_crossed_with_the_axes_they_leave_open():
    space = {"a": grid_search([1, 2]), "b": grid_search([1, 2, 3])}
    searcher = prepared(space, num_samples=3, points_to_evaluate=[{"a": 2}, {"a": 1, "b": 3}])
    found = [tuple(config.values()) for config in drawn(searcher)]
    assert found[:4] == [(2, 1), (2, 2), (2, 3), (1, 3)]
    assert len(found) == searcher.num_trials_for(3) == 3 + 1 + 6


def test_points_outside_the_space_are_refused_before_the_first_suggestion():
    with pytest.raises(ValueError, match="'lr' must lie in"):
        prepared({"lr": uniform(0, 1)}, points_to_evaluate=[{"lr": 3}])


@given(st.integers(0, 2**32))
def test_same_seed_same_suggestions(seed):
    assert drawn(prepared(seed=seed, num_samples=3)) == drawn(prepared(seed=seed, num_samples=3))


def test_other_seeds_other_suggestions():
    assert drawn(prepared(seed=1)) != drawn(prepared(seed=2))


def test_more_samples_only_append():
    assert drawn(prepared(num_samples=5))[:6] == drawn(prepared(num_samples=3))


def test_a_random_state_overrides_the_experiments_seed():
    assert drawn(prepared(seed=1, random_state=7)) == drawn(prepared(seed=2, random_state=7))


@pytest.mark.parametrize(
    "make", [lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)]
)
def test_numpy_generators_serve_as_random_states(make):
    assert drawn(prepared(seed=1, random_state=make())) == drawn(
        prepared(seed=2, random_state=make())
    )


def test_without_a_seed_searches_differ():
    assert drawn(prepared(seed=None, num_samples=5)) != drawn(prepared(seed=None, num_samples=5))


def test_the_global_generators_are_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002  (what must not change)
    drawn(prepared(num_samples=3))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("num_before", range(7))
def test_a_restored_search_continues_as_if_uninterrupted(num_before):
    straight = drawn(prepared(num_samples=3, seed=5))
    first = prepared(num_samples=3, seed=5)
    before = drawn(first, limit=num_before)
    second = prepared(num_samples=3, seed=None)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + drawn(second) == straight


def test_the_limit_on_unfinished_trials_holds_and_survives_a_restore():
    searcher = prepared({"epochs": 1}, num_samples=3, max_concurrent=2)
    assert [searcher.suggest(name) for name in "abc"] == [{"epochs": 1}, {"epochs": 1}, None]
    restored = prepared({"epochs": 1}, num_samples=3, max_concurrent=2)
    restored.load_state_dict(json.loads(json.dumps(searcher.state_dict())))
    assert restored.suggest("c") is None
    restored.on_trial_complete("a", error=True)
    assert restored.suggest("c") == {"epochs": 1}
    assert restored.suggest("d") == restored.FINISHED


def test_computed_parameters_see_grid_and_random_values():
    space = {
        "batch": grid_search([8, 16]),
        "lr": uniform(0, 1),
        "scaled": sample_from(lambda config: config.lr * config.batch),
    }
    assert all(
        config["scaled"] == config["lr"] * config["batch"] for config in drawn(prepared(space))
    )


def test_suggesting_without_a_space_is_refused():
    with pytest.raises(RuntimeError, match="call set_search_properties first"):
        BasicVariantGenerator().suggest("a")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"max_concurrent": -1},
            ValueError,
            "max_concurrent must be 0 or more, got -1; 0 sets no limit",
        ),
        ({"random_state": -1}, ValueError, "random_state must be 0 or more, got -1"),
        (
            {"random_state": "x"},
            TypeError,
            "random_state must be an integer or a numpy generator, got 'x'",
        ),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        BasicVariantGenerator(**arguments)


CONDITIONAL = {
    "opt": choice([{"name": "sgd", "momentum": uniform(0, 1)}, {"name": "adam"}, "none"]),
    "lr": only_if({"opt": [0, 1]}, loguniform(1e-4, 1)),
    "depth": grid_search([2, 3]),
    "skip": only_if({"depth": 3}, {"kind": choice(["add", "concat"])}),
    "twice": only_if({"opt": 0}, sample_from(lambda config: 2 * config["opt"]["momentum"])),
}


def test_a_conditional_space_is_crossed_with_its_grid():
    configs = drawn(prepared(CONDITIONAL, num_samples=20))
    assert len(configs) == 40
    assert [config["depth"] for config in configs] == [2, 3] * 20
    assert all(("skip" in config) == (config["depth"] == 3) for config in configs)
    assert all(("lr" in config) == (config["opt"] != "none") for config in configs)
    assert all(
        ("twice" in config) == (isinstance(config["opt"], dict) and config["opt"]["name"] == "sgd")
        for config in configs
    )
    assert configs == drawn(prepared(CONDITIONAL, num_samples=20))


def test_a_constant_grid_search_keeps_values_beside_conditions():
    space = {
        "opt": grid_search(["sgd", "adam"]),
        "momentum": only_if({"opt": "sgd"}, uniform(0, 1)),
        "lr": uniform(0, 1),
    }
    values = [
        config["lr"] for config in drawn(prepared(space, num_samples=3, constant_grid_search=True))
    ]
    assert values[0::2] == values[1::2]
    assert len(set(values)) == 3


def test_points_of_a_conditional_space_are_written_as_configurations():
    points = [
        {"opt": {"name": "sgd", "momentum": 0.5}, "lr": 0.1, "twice": 7},
        {"opt": "none", "depth": 3, "skip/kind": "add"},
    ]
    first, second, third, *rest = drawn(
        prepared(CONDITIONAL, num_samples=3, points_to_evaluate=points)
    )
    assert first == {"opt": {"name": "sgd", "momentum": 0.5}, "lr": 0.1, "depth": 2, "twice": 7}
    assert second == {**first, "depth": 3, "skip": second["skip"]}
    assert third == {"opt": "none", "depth": 3, "skip": {"kind": "add"}}
    assert len(rest) == 2


@pytest.mark.parametrize(
    "point",
    [
        {"lr": 0.1},
        {"opt": "none", "lr": 0.1},
        {"skip": {"kind": "add"}},
        {"depth": 2, "skip": {"kind": "add"}},
    ],
)
def test_points_with_inactive_parameters_are_refused_with_the_space(point):
    with pytest.raises(ValueError, match=r"must come with|must be left out where"):
        prepared(CONDITIONAL, points_to_evaluate=[point])
