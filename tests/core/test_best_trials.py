"""Ranking of trials while results keep coming."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.objectives import outcome_constraints
from tuner.core.best_trials import BestTrials
from tuner.core.trial import Trial, trial_fields, trial_from

REPORTS = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, math.nan, math.inf, -math.inf]),
    ),
    min_size=15,
    max_size=200,
)


def trials(num):
    made = [Trial(f"t{number:05d}", {}, {}) for number in range(num)]
    for number, trial in enumerate(made):
        trial.number = number
    return made


def consider(board, trial, **metrics):
    flat = {"training_iteration": trial.iteration + 1, **metrics}
    trial.last_result = flat
    trial.summarise(flat)
    board.update(trial, flat)


def test_nothing_is_best_before_a_finite_value_comes():
    board, (trial,) = BestTrials("loss", "min"), trials(1)
    for value in (math.nan, math.inf, -math.inf, None, "0.1", True):
        consider(board, trial, loss=value)
    consider(board, trial, other=0.1)
    assert (board.trial, board.leaders) == (None, ())
    assert math.isnan(board.value)


def test_a_trial_that_misses_a_constraint_is_never_best():
    board = BestTrials("loss", "min", outcome_constraints({"size": "<= 4"}))
    small, large, unknown = trials(3)
    consider(board, large, loss=0.1, size=4.43)
    consider(board, unknown, loss=0.2)
    assert (board.trial, board.leaders) == (None, ())
    consider(board, small, loss=0.9, size=3)
    assert board.leaders == (small,)
    # The newest value counts, from whichever result it is.
    consider(board, small, loss=0.8)
    consider(board, large, loss=0.1, size=4)
    consider(board, unknown, size=1)
    assert board.leaders == (large, unknown, small)
    consider(board, large, loss=0.05, size=math.nan)
    assert board.leaders == (unknown, small)


def test_without_a_metric_there_is_no_board():
    board, (trial,) = BestTrials(None, None), trials(1)
    consider(board, trial, loss=1.0)
    assert (board.trial, board.leaders) == (None, ())


def test_the_newest_value_counts_even_if_it_is_worse():
    board, (first, second) = BestTrials("loss", "min"), trials(2)
    consider(board, first, loss=0.1)
    consider(board, second, loss=0.5)
    consider(board, first, loss=0.9)
    assert (board.trial, board.value, board.leaders) == (second, 0.5, (second, first))
    consider(board, second, loss=math.nan)
    assert (board.trial, board.leaders) == (first, (first,))


def test_of_equal_values_the_trial_created_first_is_ahead():
    board, (first, second) = BestTrials("loss", "min"), trials(2)
    consider(board, second, loss=0.5)
    consider(board, first, loss=0.5)
    assert board.leaders == (first, second)


@pytest.mark.parametrize(("mode", "best"), [("min", 0), ("max", 2)])
def test_the_direction_decides(mode, best):
    board, ranked = BestTrials("loss", mode), trials(3)
    for trial, value in zip(ranked, (0.1, 0.2, 0.3), strict=True):
        consider(board, trial, loss=value)
    assert (board.trial, board.leaders[0]) == (ranked[best], ranked[best])


@given(reports=REPORTS, mode=st.sampled_from(["min", "max"]))
def test_the_board_agrees_with_sorting_all_newest_values(reports, mode):
    board, all_of_them = BestTrials("loss", mode), trials(9)
    newest = {}
    for number, value in reports:
        consider(board, all_of_them[number], loss=value)
        newest[number] = value if mode == "min" else -value
        order = sorted((cost, number) for number, cost in newest.items() if math.isfinite(cost))
        assert [trial.number for trial in board.leaders] == [number for _, number in order][:5]
        assert board.trial is (all_of_them[order[0][1]] if order else None)
    again = BestTrials("loss", mode)
    again.load([_copy(trial) for trial in all_of_them])
    assert [trial.number for trial in again.leaders] == [trial.number for trial in board.leaders]


def _copy(trial):
    copy = trial_from(trial_fields(trial))
    copy.number = trial.number
    return copy


def test_snapshots_of_earlier_releases_give_values_and_known_iterations():
    board, (first, second, third) = BestTrials("loss", "min"), trials(3)
    consider(board, first, loss=0.1)
    consider(board, first, loss=0.4)
    consider(board, second, loss=0.3)
    consider(board, second, other=1.0)
    fields = [trial_fields(trial) for trial in (first, second, third)]
    for each in fields:
        del each["objective"]
    again = [trial_from(each) for each in fields]
    for number, trial in enumerate(again):
        trial.number = number
    board = BestTrials("loss", "min")
    board.rebuild(again)
    assert [trial.trial_id for trial in board.leaders] == ["t00001", "t00000"]
    told = [
        (one.value, one.iteration)
        for trial in again[:2]
        for one in (trial.objective.last, trial.objective.best)
    ]
    assert told == [(0.4, 2), (0.1, None), (0.3, None), (0.3, None)]


def test_a_trial_whose_results_no_longer_count_is_not_ranked():
    board, (first, second) = BestTrials("acc", "max"), trials(2)
    consider(board, first, acc=0.9)
    consider(board, second, acc=0.5)
    board.forget(first)
    assert (board.trial, board.value, board.leaders) == (second, 0.5, (second,))
    board.forget(second)
    assert (board.trial, math.isnan(board.value), board.leaders) == (None, True, ())
