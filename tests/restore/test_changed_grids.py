"""After a restore each combination of the grid, as it is declared now, has been run num_samples
times; what has left the grid is history."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import BasicVariantGenerator, ConcurrencyLimiter, DuplicateGuard, Repeater
from searchers.space import choice, grid_search, only_if, randint, uniform
from tests.restore.sessions import Sessions
from tests.tiers import examples

axes = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
    min_size=1,
    max_size=3,
)
declarations = st.lists(
    st.tuples(axes, st.integers(0, 3), st.integers(0, 20)), min_size=2, max_size=4
)
MAKERS = {
    "plain": BasicVariantGenerator,
    "constant": lambda: BasicVariantGenerator(constant_grid_search=True),
    "one at a time": lambda: BasicVariantGenerator(max_concurrent=1),
    "limited": lambda: ConcurrencyLimiter(BasicVariantGenerator(), 1),
}


def point(config, axis_names):
    return tuple(sorted((name, config[name]) for name in axis_names))


def count(configs):
    return Counter(tuple(sorted(config.items())) for config in configs)


@pytest.mark.property
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@settings(max_examples=examples(25))
@given(declarations)
def test_what_is_run_is_what_is_declared_and_has_not_been_run(make, declared):
    sessions = Sessions()
    for number, (grid, num_samples, limit) in enumerate(declared, start=1):
        space = {name: grid_search(values) for name, values in grid.items()}
        combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        wanted = count(combinations * num_samples) - count(sessions.configs)
        is_last = number == len(declared)
        ran = sessions.run(make(), space, num_samples, limit=200 if is_last else limit)
        assert count(ran) == wanted if is_last else count(ran) <= wanted
    assert sessions.run(make(), space, num_samples) == []


def test_a_value_at_the_front_is_run_and_no_other_again():
    sessions = Sessions()
    sessions.run(BasicVariantGenerator(), {"a": grid_search([1, 2, 3])}, 3)
    space = {"a": grid_search([0, 1, 2, 3])}
    assert [each["a"] for each in sessions.run(BasicVariantGenerator(), space, 3)] == [0, 0, 0]


def test_true_is_another_value_than_one():
    sessions = Sessions()
    sessions.run(BasicVariantGenerator(), {"a": grid_search([1, 0])}, 1)
    ran = sessions.run(BasicVariantGenerator(), {"a": grid_search([True, 1.0, False])}, 1)
    assert [repr(each["a"]) for each in ran] == ["True", "False"]


@pytest.mark.property
@settings(max_examples=examples(25))
@given(declarations, st.booleans())
def test_random_parameters_beside_the_grid_are_drawn_once_and_count_by_the_grid(declared, constant):
    sessions = Sessions()
    last = declared[-1]
    for grid, num_samples, limit in declared:
        space = {**{name: grid_search(values) for name, values in grid.items()}, "x": uniform(0, 1)}
        made = BasicVariantGenerator(constant_grid_search=constant)
        sessions.run(made, space, num_samples, limit=200 if grid is last[0] else limit)
    grid, num_samples, _ = last
    if grid:
        found = Counter(
            point(config, grid) for config in sessions.configs if config.keys() == {*grid, "x"}
        )
        assert all(
            found[tuple(sorted(zip(grid, values, strict=True)))] >= num_samples
            for values in product(*grid.values())
        )
    if not constant:
        drawn = [config["x"] for config in sessions.configs]
        assert len(set(drawn)) == len(drawn)
    assert (
        sessions.run(BasicVariantGenerator(constant_grid_search=constant), space, num_samples) == []
    )


def test_a_sample_keeps_its_drawn_values_for_what_is_added_to_a_constant_grid():
    sessions = Sessions()
    make = lambda: BasicVariantGenerator(constant_grid_search=True)  # noqa: E731
    space = {"a": grid_search([1, 2]), "x": uniform(0, 1)}
    first = sessions.run(make(), space, 2)
    added = sessions.run(make(), {**space, "a": grid_search([0, 1, 2])}, 2)
    assert [config["x"] for config in added] == [first[0]["x"], first[2]["x"]]


def test_a_parameter_that_is_drawn_from_elsewhere_now_does_not_repeat_the_grid():
    sessions = Sessions()
    sessions.run(BasicVariantGenerator(), {"a": grid_search([1, 2]), "x": uniform(0, 1)}, 1)
    space = {"a": grid_search([1, 2, 3]), "x": uniform(5, 6)}
    (added,) = sessions.run(BasicVariantGenerator(), space, 1)
    assert added["a"] == 3
    assert 5 <= added["x"] <= 6


def test_another_constant_makes_other_configurations_of_a_grid():
    sessions = Sessions()
    sessions.run(BasicVariantGenerator(), {"a": grid_search([1, 2]), "epochs": 5}, 1)
    space = {"a": grid_search([1, 2]), "epochs": 9}
    assert len(sessions.run(BasicVariantGenerator(), space, 1)) == 2
    back = {"a": grid_search([1, 2]), "epochs": 5}
    assert sessions.run(BasicVariantGenerator(), back, 1) == []


def test_a_constant_that_becomes_an_axis_has_been_run():
    sessions = Sessions()
    sessions.run(BasicVariantGenerator(), {"a": grid_search([1, 2]), "b": 5}, 1)
    space = {"a": grid_search([1, 2]), "b": grid_search([5, 6])}
    assert count(sessions.run(BasicVariantGenerator(), space, 1)) == count(
        [{"a": 1, "b": 6}, {"a": 2, "b": 6}]
    )


def test_a_grid_in_a_conditional_space_goes_on():
    def space(values):
        return {
            "a": grid_search(values),
            "m": only_if({"a": 1}, randint(0, 9)),
            "o": choice([{"k": uniform(0, 1)}, "none"]),
        }

    sessions = Sessions()
    sessions.run(BasicVariantGenerator(), space([1, 2, 3]), 2, limit=4)
    sessions.run(BasicVariantGenerator(), space([0, 1, 3]), 2)
    assert Counter(config["a"] for config in sessions.configs) == {1: 2, 2: 1, 3: 2, 0: 2}


def test_points_crossed_with_the_grid_are_run_first_and_count_as_samples():
    sessions = Sessions()
    space = {"a": grid_search([1, 2]), "x": uniform(0, 1)}
    sessions.run(BasicVariantGenerator(points_to_evaluate=[{"x": 0.5}]), space, 2, limit=3)
    points = [{"x": 0.5}, {"x": 0.25, "a": 2}]
    space = {"a": grid_search([0, 1, 2]), "x": uniform(0, 1)}
    added = sessions.run(BasicVariantGenerator(points_to_evaluate=points), space, 3)
    assert added[:2] == [{"a": 0, "x": 0.5}, {"a": 2, "x": 0.25}]
    assert sorted(config["a"] for config in added[2:]) == [0, 2]


@pytest.mark.property
@settings(max_examples=examples(25))
@given(declarations)
def test_with_skipped_duplicates_each_combination_is_run_once(declared):
    sessions = Sessions()
    for number, (grid, num_samples, limit) in enumerate(declared, start=1):
        space = {name: grid_search(values) for name, values in grid.items()}
        made = DuplicateGuard(BasicVariantGenerator(), "skip", max_tries=30)
        wanted = count(
            dict(zip(grid, values, strict=True)) for values in product(*grid.values())
        ) - count(sessions.configs)
        is_last = number == len(declared)
        ran = sessions.run(made, space, num_samples, limit=200 if is_last else limit)
        if is_last and num_samples:
            assert count(ran) == wanted


@pytest.mark.property
@settings(max_examples=examples(25))
@given(declarations)
def test_repeats_are_completed(declared):
    sessions = Sessions()
    for number, (grid, repeat, limit) in enumerate(declared, start=1):
        space = {name: grid_search(values) for name, values in grid.items()}
        repeat = max(repeat, 1)  # noqa: PLW2901
        made = Repeater(BasicVariantGenerator(), repeat)
        wanted = count(
            {**dict(zip(grid, values, strict=True)), "__trial_index__": place}
            for values in product(*grid.values())
            for place in range(repeat)
        ) - count(sessions.configs)
        is_last = number == len(declared)
        ran = sessions.run(made, space, repeat, limit=200 if is_last else limit)
        if is_last:
            assert count(ran) == wanted
