"""Points to evaluate of a later session come next, in order, but for those that have been run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import (
    AutoSearch,
    AxSearch,
    BasicVariantGenerator,
    BayesOptSearch,
    BOHBSearch,
    ConcurrencyLimiter,
    CQRSearch,
    DuplicateGuard,
    GPSearch,
    HyperOptSearch,
    NevergradSearch,
    OptunaSearch,
    Repeater,
    TreeSearch,
)
from searchers.space import randint, uniform
from tests.restore.sessions import Sessions
from tests.tiers import examples

SPACE = {"a": uniform(0, 1), "n": randint(0, 9)}
MAKERS = {
    "random": BasicVariantGenerator,
    "tree": TreeSearch,
    "gp": GPSearch,
    "cqr": CQRSearch,
    "bohb": BOHBSearch,
    "auto": AutoSearch,
    "optuna": OptunaSearch,
    "hyperopt": HyperOptSearch,
    "bayesopt": BayesOptSearch,
    "ax": AxSearch,
    "nevergrad": NevergradSearch,
    "limited": lambda **given: ConcurrencyLimiter(TreeSearch(**given), 1),
    "guarded": lambda **given: DuplicateGuard(TreeSearch(**given), "skip"),
    "reusing": lambda **given: DuplicateGuard(BasicVariantGenerator(**given), "reuse"),
    "repeated": lambda **given: Repeater(TreeSearch(**given), 1, set_index=False),
}
HEAVY = ("hyperopt", "bayesopt", "ax", "nevergrad")
QUICK = [name for name in MAKERS if name not in {*HEAVY, "optuna"}]


def named(*but):
    """Return parameters for all searchers except some, with marks for large libraries."""
    return [
        pytest.param(name, marks=pytest.mark.heavy if name in HEAVY else ())
        for name in MAKERS
        if name not in but
    ]


@pytest.fixture(params=named())
def make(request):
    try:
        MAKERS[request.param]()
    except ImportError as missing:
        pytest.skip(str(missing))
    return MAKERS[request.param]


def point(number):
    return {"a": 0.125 * number, "n": number}


def known_values(searcher):
    """Return the values of all trials from which a searcher learns."""
    while hasattr(searcher, "searcher"):
        searcher = searcher.searcher
    if hasattr(searcher, "observations"):
        trials = searcher.observations.trials.values()
        return [trial.reward for trial in trials] + [
            value for trial in trials for value in trial.curve.values()
        ]
    if hasattr(searcher, "_history"):
        return [each.value for each in searcher._history]
    return [trial.value for trial in searcher.study.get_trials()]


def test_points_of_a_second_session_come_next_and_the_rest_follows(make):
    sessions = Sessions()
    before = sessions.run(make(), SPACE, 3)
    points = [point(1), {"a": 0.25}]
    after = sessions.run(make(points_to_evaluate=points), SPACE, 6)
    assert after[0] == point(1)
    assert after[1]["a"] == 0.25
    assert len(after) == 3
    assert not any(config in before for config in after)
    assert sessions.run(make(points_to_evaluate=points), SPACE, 6) == []


def test_a_longer_list_goes_on_behind_what_was_run(make):
    sessions = Sessions()
    first = make(points_to_evaluate=[point(1), point(2), point(3)])
    assert sessions.run(first, SPACE, 3, limit=2) == [point(1), point(2)]
    longer = [point(4), point(2), {"n": 1}, point(3), point(5)]
    after = sessions.run(make(points_to_evaluate=longer), SPACE, 5)
    assert after[:3] == [point(4), point(3), point(5)]
    assert len(sessions.configs) == 5


def test_points_are_run_although_the_samples_are_used_up(make):
    sessions = Sessions()
    sessions.run(make(), SPACE, 3)
    after = sessions.run(make(points_to_evaluate=[point(1), point(2)]), SPACE, 3)
    assert after == [point(1), point(2)]


@pytest.mark.property
@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=examples(8))
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 6), max_size=5, unique=True), st.integers(0, 6)),
        min_size=2,
        max_size=4,
    )
)
def test_whatever_the_lists_were_all_points_of_the_last_one_have_been_run(name, declared):
    sessions = Sessions()
    for numbers, limit in declared:
        given_points = [point(number) for number in numbers]
        left = [each for each in given_points if each not in sessions.configs]
        is_last = numbers is declared[-1][0]
        made = MAKERS[name](points_to_evaluate=given_points)
        ran = sessions.run(made, SPACE, 6, limit=50 if is_last else limit)
        assert ran[: len(left)] == left[: len(ran)]
    assert all(each in sessions.configs for each in given_points)
    assert len(sessions.configs) == len({tuple(config.values()) for config in sessions.configs})


@pytest.mark.parametrize("name", named("random", "reusing", "ax", "nevergrad"))
def test_rewards_of_a_later_session_are_learnt_and_their_points_not_run(name):
    sessions = Sessions()
    sessions.run(MAKERS[name](), SPACE, 2)
    points, rewards = [point(1), point(2)], [-1.0, 5.0]
    made = MAKERS[name](points_to_evaluate=points, evaluated_rewards=rewards)
    after = sessions.run(made, SPACE, 4)
    assert len(after) == 2
    assert not any(each in after for each in points)
    assert {-1.0, 5.0} <= set(known_values(made))


@pytest.mark.parametrize("name", named("random", "reusing", "repeated", "ax", "nevergrad"))
def test_another_searcher_learns_from_what_has_been_run(name):
    sessions = Sessions()
    sessions.run(BasicVariantGenerator(), SPACE, 5)
    made = MAKERS[name]()
    assert len(sessions.run(made, SPACE, 8)) == 3
    values = [number * 7 % 11 / 11 for number in range(5)]
    assert all(
        any(known == pytest.approx(value) for known in known_values(made) if known is not None)
        for value in values
    )


@pytest.mark.property
@pytest.mark.parametrize("name", ["tree", "gp", "bohb", "auto", "limited", "guarded"])
def test_more_samples_continue_alike_from_a_journal_and_from_a_snapshot(name):
    continued = []
    for from_snapshot in (True, False):
        sessions = Sessions()
        sessions.run(MAKERS[name](), SPACE, 12)
        # So many that the model begins later: the replay suggests otherwise than the trials ran.
        continued.append(sessions.run(MAKERS[name](), SPACE, 60, 5, from_snapshot=from_snapshot))
    assert continued[0] == continued[1]
