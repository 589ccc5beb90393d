"""The best results so far."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.leaderboard import Leaderboard
from tuner.core.trial import Trial

REPORTS = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, math.nan, math.inf, -math.inf])),
    min_size=15,
    max_size=40,
)


def trials(num):
    return [Trial(f"t{number:05d}", {}, {}) for number in range(num)]


def test_nothing_is_best_before_a_finite_value_comes():
    board, (trial,) = Leaderboard("loss", "min"), trials(1)
    for value in (math.nan, math.inf, -math.inf, None, "0.1", True):
        board.consider(trial, {"loss": value})
    board.consider(trial, {"other": 0.1})
    assert (board.trial, board.leaders, board.result) == (None, (), {})
    assert math.isnan(board.value)


def test_without_a_metric_there_is_no_board():
    board, (trial,) = Leaderboard(None, None), trials(1)
    board.consider(trial, {"loss": 1.0, None: 2.0})
    assert (board.trial, board.leaders) == (None, ())


def test_of_equal_values_the_earlier_one_stays_ahead():
    board, (first, second) = Leaderboard("loss", "min"), trials(2)
    board.consider(second, {"loss": 0.5, "step": 1})
    board.consider(first, {"loss": 0.5, "step": 2})
    assert (board.trial, board.result["step"], board.leaders) == (second, 1, (second, first))


@pytest.mark.parametrize(("mode", "best"), [("min", 0), ("max", 2)])
def test_the_direction_decides(mode, best):
    board, ranked = Leaderboard("loss", mode), trials(3)
    for trial, value in zip(ranked, (0.1, 0.2, 0.3), strict=True):
        board.consider(trial, {"loss": value})
    assert (board.trial, board.leaders[0]) == (ranked[best], ranked[best])


@given(reports=REPORTS, mode=st.sampled_from(["min", "max"]))
def test_the_board_agrees_with_sorting_all_results(reports, mode):
    board, all_of_them = Leaderboard("loss", mode), trials(9)
    best = {}
    for at, (number, value) in enumerate(reports):
        board.consider(all_of_them[number], {"loss": value, "at": at})
        cost = value if mode == "min" else -value
        if math.isfinite(cost) and (number not in best or cost < best[number][0]):
            best[number] = (cost, at)
    order = sorted(best, key=lambda number: best[number])
    assert [trial.trial_id for trial in board.leaders] == [all_of_them[number].trial_id for number in order][:5]
    if order:
        cost, at = best[order[0]]
        assert (board.trial, board.result["at"]) == (all_of_them[order[0]], at)
        assert board.value == (cost if mode == "min" else -cost)
    else:
        assert board.trial is None


def test_a_trial_whose_results_no_longer_count_gives_way_to_the_next():
    board, (first, second) = Leaderboard("acc", "max"), trials(2)
    board.consider(first, {"acc": 0.9})
    board.consider(second, {"acc": 0.5})
    board.forget(first)
    assert (board.trial, board.value, board.leaders) == (second, 0.5, (second,))
    board.forget(second)
    assert (board.trial, math.isnan(board.value), board.leaders) == (None, True, ())
