"""Whatever changes between sessions, what is run is what is declared and has not been run.

Each session is interrupted at a random point. The next one declares other samples, another grid,
other points or another space, or only another number of samples, in which case it begins with a
snapshot.
"""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import (
    AutoSearch,
    BasicVariantGenerator,
    BayesOptSearch,
    BOHBSearch,
    ConcurrencyLimiter,
    CQRSearch,
    DuplicateGuard,
    GPSearch,
    HyperOptSearch,
    OptunaSearch,
    Repeater,
    TreeSearch,
)
from searchers.space import choice, grid_search, randint, uniform
from tests.restore.sessions import Sessions
from tests.tiers import examples

GRIDS = {
    "plain": BasicVariantGenerator,
    "limited": lambda **given: ConcurrencyLimiter(BasicVariantGenerator(**given), 2),
    "one by one": lambda **given: BasicVariantGenerator(max_concurrent=1, **given),
    "constant": lambda **given: BasicVariantGenerator(constant_grid_search=True, **given),
}
FINITE = {
    "tree": TreeSearch,
    "gp": GPSearch,
    "cqr": CQRSearch,
    "bohb": BOHBSearch,
    "auto": AutoSearch,
    "guarded": lambda **given: DuplicateGuard(BasicVariantGenerator(**given), "skip"),
    "guarded tree": lambda **given: DuplicateGuard(TreeSearch(**given), "reuse"),
    "repeated": lambda **given: Repeater(TreeSearch(**given), 1, set_index=False),
}
ENDLESS = {
    **FINITE,
    "random": BasicVariantGenerator,
    "optuna": OptunaSearch,
    "hyperopt": HyperOptSearch,
    "bayesopt": BayesOptSearch,
}
del ENDLESS["guarded"], ENDLESS["guarded tree"]

values = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)
grids = st.dictionaries(st.sampled_from("ab"), values, min_size=1)
spots = st.lists(st.sampled_from([0.125, 0.25, 0.5]), max_size=2, unique=True)


def sessions_of(*declaration):
    """Draw sessions: what is declared, the number of samples, and where it is interrupted."""
    one = st.tuples(st.none() | st.tuples(*declaration), st.integers(0, 5), st.integers(0, 15))
    first = st.tuples(st.tuples(*declaration), st.integers(0, 5), st.integers(0, 15))
    return st.tuples(first, st.lists(one, min_size=1, max_size=3)).map(
        lambda drawn: [drawn[0], *drawn[1]]
    )


def frozen(config):
    return tuple(sorted(config.items()))


@pytest.mark.parametrize("name", GRIDS)
@settings(max_examples=examples(25))
@given(sessions_of(grids, spots))
def test_of_a_grid_each_combination_is_run(name, drawn):
    sessions, declared = Sessions(), None
    for number, (changed, num_samples, limit) in enumerate(drawn, start=1):
        grid, xs = declared = changed or declared
        space = {axis: grid_search(found) for axis, found in grid.items()}
        space["x"] = uniform(0, 1)
        left = left_of(grid, xs, num_samples, sessions.configs)
        searcher = GRIDS[name](points_to_evaluate=[{"x": x} for x in xs])
        limit = 200 if number == len(drawn) else limit  # noqa: PLW2901
        ran = sessions.run(searcher, space, num_samples, limit, from_snapshot=changed is None)
        num_points = len([each for each in left if "x" in each])
        assert len(ran) == min(limit, len(left))
        assert ran[:num_points] == left[: min(num_points, len(ran))]
        combinations = Counter(frozen({**each, "x": 0}) for each in ran)
        wanted = Counter(frozen({**each, "x": 0}) for each in left)
        assert combinations == wanted if len(ran) == len(left) else combinations <= wanted


def left_of(grid, xs, num_samples, done):
    """Return what is declared and not done; what is drawn is left out."""
    combinations = [
        dict(zip(grid, reversed(found), strict=True)) for found in product(*reversed(grid.values()))
    ]
    done = [config for config in done if config.keys() == {*grid, "x"}]
    left = []
    for point in [{**each, "x": x} for x in xs for each in combinations]:
        if point in done:
            done.remove(point)
        else:
            left.append(point)
    for point in combinations * max(num_samples - len(xs), 0):
        found = next((config for config in done if {**config, **point} == config), None)
        if found is None:
            left.append(point)
        else:
            done.remove(found)
    return left


@pytest.mark.parametrize("name", FINITE)
@settings(max_examples=examples(10))
@given(sessions_of(values, values))
def test_of_a_finite_space_each_configuration_is_run_once(name, drawn):
    sessions, declared = Sessions(), None
    for number, (changed, _, limit) in enumerate(drawn, start=1):
        firsts, seconds = declared = changed or declared
        space = {"a": choice(firsts), "b": choice(seconds)}
        left = {(first, second) for first in firsts for second in seconds}
        left -= {tuple(config.values()) for config in sessions.configs}
        limit = 200 if number == len(drawn) else limit  # noqa: PLW2901
        ran = sessions.run(FINITE[name](), space, 100, limit, from_snapshot=changed is None)
        assert len(ran) == min(limit, len(left))
        assert Counter(tuple(config.values()) for config in ran) <= Counter(left)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.heavy if name in {"hyperopt", "bayesopt"} else ())
        for name in ENDLESS
    ],
)
@settings(max_examples=examples(8))
@given(sessions_of(spots, st.integers(1, 3)))
def test_of_an_endless_space_points_are_run_and_as_many_trials_as_are_declared(name, drawn):
    try:
        ENDLESS[name]()
    except ImportError as missing:
        pytest.skip(str(missing))
    sessions, declared = Sessions(), None
    for number, (changed, num_samples, limit) in enumerate(drawn, start=1):
        xs, width = declared = changed or declared
        space = {"x": uniform(0, width), "n": randint(0, 100)}
        points = [{"x": x, "n": 7} for x in xs]
        expected = points if name == "random" else points[:num_samples]
        left = [point for point in expected if point not in sessions.configs]
        num_left = max(len(left), num_samples - len(sessions.configs))
        limit = 50 if number == len(drawn) else limit  # noqa: PLW2901
        searcher = ENDLESS[name](points_to_evaluate=points)
        ran = sessions.run(searcher, space, num_samples, limit, from_snapshot=changed is None)
        assert len(ran) == min(limit, num_left)
        assert ran[: len(left)] == left[: len(ran)]
    configs = [tuple(config.values()) for config in sessions.configs]
    assert len(set(configs)) == len(configs), "a draw was repeated"
