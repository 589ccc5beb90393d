"""A finite space that was exhausted and has more options now: each of them is run once."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import (
    AutoSearch,
    BasicVariantGenerator,
    BOHBSearch,
    CQRSearch,
    DuplicateGuard,
    GPSearch,
    HyperOptSearch,
    OptunaSearch,
    TreeSearch,
)
from searchers.space import choice
from tests.restore.sessions import Sessions
from tests.tiers import examples


def with_sampler(make):
    optuna = pytest.importorskip("optuna")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the sampler is experimental
        return OptunaSearch(sampler=make(optuna.samplers))


MODELS = {
    "tree": lambda options: TreeSearch(),
    "gp": lambda options: GPSearch(),
    "cqr": lambda options: CQRSearch(),
    "bohb": lambda options: BOHBSearch(),
    "auto": lambda options: AutoSearch(),
    "guarded tree": lambda options: DuplicateGuard(TreeSearch(), "skip"),
    "guarded random": lambda options: DuplicateGuard(BasicVariantGenerator(), "skip"),
    "reused random": lambda options: DuplicateGuard(BasicVariantGenerator(), "reuse"),
}
LIBRARIES = {
    "brute force": lambda options: with_sampler(lambda kinds: kinds.BruteForceSampler(seed=1)),
    "grid": lambda options: with_sampler(lambda kinds: kinds.GridSampler({"a": options}, seed=1)),
    "guarded hyperopt": lambda options: DuplicateGuard(HyperOptSearch(), "skip"),
    "guarded optuna": lambda options: DuplicateGuard(OptunaSearch(), "skip"),
}
MAKERS = {**MODELS, **LIBRARIES}
HEAVY = pytest.param("guarded hyperopt", marks=pytest.mark.heavy)
SLOW = pytest.param("guarded optuna", marks=pytest.mark.property)


@pytest.mark.parametrize("name", [*MODELS, "brute force", "grid", HEAVY, SLOW])
def test_new_options_are_run_once(name):
    if "hyperopt" in name:
        pytest.importorskip("hyperopt")
    sessions = Sessions()
    seen = set()
    for options in ([1, 2, 3], [0, 1, 2, 3, 4], [2, 7], [0, 9, 7]):
        ran = sessions.run(MAKERS[name](options), {"a": choice(options)}, 30)
        assert sorted(config["a"] for config in ran) == sorted(set(options) - seen)
        assert sessions.run(MAKERS[name](options), {"a": choice(options)}, 30) == []
        seen |= set(options)


@pytest.mark.heavy
def test_hyperopt_runs_new_options_before_it_repeats_any():
    pytest.importorskip("hyperopt")
    sessions = Sessions()
    sessions.run(HyperOptSearch(), {"a": choice([1, 2, 3])}, 12)
    ran = sessions.run(HyperOptSearch(), {"a": choice([0, 1, 2, 3, 4])}, 15)
    assert {config["a"] for config in ran[:2]} == {0, 4}


options = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


@pytest.mark.property
@pytest.mark.parametrize("name", [*MODELS, "brute force"])
@settings(max_examples=examples(10))
@given(st.lists(st.tuples(options, options, st.integers(0, 12)), min_size=2, max_size=3))
def test_what_is_left_of_a_finite_space_is_run(name, declared):
    sessions = Sessions()
    for number, (firsts, seconds, limit) in enumerate(declared, start=1):
        space = {"a": choice(firsts), "b": {"c": choice(seconds)}}
        wanted = {(first, second) for first in firsts for second in seconds}
        wanted -= {(config["a"], config["b"]["c"]) for config in sessions.configs}
        limit = 50 if number == len(declared) else limit  # noqa: PLW2901
        ran = sessions.run(MAKERS[name](firsts), space, 100, limit=limit)
        assert len(ran) == min(limit, len(wanted))
        found = {(config["a"], config["b"]["c"]) for config in ran}
        assert len(found) == len(ran)
        assert found <= wanted
