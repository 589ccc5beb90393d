import math

import numpy as np
import pytest

from tuner.stopping.stop_search import StopSearch

NEAR_END = [*(10.0 - n for n in range(10)), *([0.0] * 55)]
"""Ten trials that improve, and fifty-five that do not."""


def reason(criterion, values):
    """Why the search ends after trials with these values, or pairs of values."""
    return criterion.reason_to_stop(
        [
            None if value is None else value if isinstance(value, tuple) else (value,)
            for value in values
        ]
    )


def numbers(criterion, values):
    found = reason(criterion, values)
    return found and found.numbers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patience": 0}, "patience must be a whole number of trials, at least 1, got 0"),
        ({"patience": 2.5}, "patience must be a whole number of trials, at least 1, got 2.5"),
        ({"patience": True}, "patience must be .* got True"),
        ({"min_trials": None}, "min_trials must be .* got None"),
        ({"min_delta": -1.0}, "min_delta must be a finite gain of the metric, at least 0, got -1"),
        ({"min_delta": math.nan}, "min_delta must be .* got nan; leave it out"),
        ({"min_delta": "1%"}, "min_delta must be .* got '1%'"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        StopSearch(**arguments)


def test_a_search_ends_where_neither_the_estimate_nor_the_last_trials_gain_anything():
    found = numbers(StopSearch(), NEAR_END)
    assert found["gain"] == found["observed"] == 0.0
    assert found["num_next"] == 20


def test_a_search_that_still_improves_goes_on():
    improving = [100.0 - n for n in range(100)]
    assert reason(StopSearch(), improving) is None
    # Nor does it end right after an improvement that the order of the values does not show.
    late = [*[5.0, 6.0, 7.0] * 20, *[0.0] * 30]
    assert reason(StopSearch(), late) is None
    assert numbers(StopSearch(), [*late, *[0.0] * 21])["observed"] == 0.0


def test_random_draws_with_an_uncertain_best_go_on_until_it_is_certain():
    rng = np.random.default_rng(1)
    costs = (rng.random((2_000, 2)) ** 2).sum(axis=1).tolist()
    criterion = StopSearch()
    ends = next(n for n in range(1, 2_000) if reason(criterion, costs[:n]))
    assert 80 < ends < 1_500
    found = numbers(criterion, costs[:ends])
    gained = min(costs[:ends]) - min(costs[: ends + 20])
    assert gained <= found["gain"] + 3 * found["deviation"]


@pytest.mark.parametrize("num", [1, 20, 59])
def test_it_never_ends_before_the_least_number_of_trials(num):
    assert reason(StopSearch(), [0.0] * num) is None
    assert reason(StopSearch(patience=1), [0.0] * num) is None


def test_patience_counts_the_last_trials():
    criterion = StopSearch(patience=5, min_trials=20)
    costs = [*range(30, 10, -1), 9.0, *[9.5] * 4]
    assert reason(criterion, costs) is None
    assert numbers(criterion, [*costs, 12.0]) == {"num_last": 5, "gain": 0.0, "worth": 0.0}
    tolerant = StopSearch(patience=5, min_delta=2.5, min_trials=20)
    assert numbers(tolerant, costs)["gain"] == 2.0


def test_a_gain_worth_having_may_be_named():
    costs = [*(10.0 - n for n in range(10)), 0.2, *[0.5] * 55]
    assert reason(StopSearch(min_delta=0.01), costs) is None
    assert numbers(StopSearch(min_delta=0.5), costs)["worth"] == 0.5


def test_trials_without_a_value_count_like_the_worst_one():
    failing = [cost for pair in zip(NEAR_END, [None] * 65, strict=True) for cost in pair]
    assert numbers(StopSearch(), failing)["worth"] == numbers(StopSearch(), NEAR_END)["worth"]


def test_it_does_not_end_before_ten_trials_have_a_value():
    assert reason(StopSearch(), [*[0.0] * 9, *[None] * 60]) is None
    assert reason(StopSearch(), [*[0.0] * 10, *[None] * 60])


def a_front(num, distance=1.0):
    """As many points on a line, evenly spread and in no order."""
    shares = [(number * 0.618) % 1.0 for number in range(num)]
    return [(distance * share, distance * (1 - share)) for share in shares]


BEFORE = a_front(30, 1.5)
"""The first trials of a search that then finds the line at a distance of 1."""


def test_with_several_metrics_the_front_has_to_grow():
    found = numbers(StopSearch(), [*BEFORE, *a_front(150)])
    assert 0 < found["observed"] < found["worth"] == 0.03
    assert 0 < found["gain"] < found["gain"] + found["deviation"] <= 0.03
    assert reason(StopSearch(), [*BEFORE, *a_front(60)]) is None
    # Each of the last trials is on the front, further than all before.
    moving = [point for number in range(100) for point in a_front(1, 1 - number / 200)]
    assert reason(StopSearch(), [*BEFORE, *moving]) is None


def test_patience_counts_trials_that_add_nothing_to_the_front():
    criterion = StopSearch(patience=20, min_trials=30)
    behind = [(1.2, 1.2)] * 19
    assert reason(criterion, [*a_front(30), *behind]) is None
    assert numbers(criterion, [*a_front(30), *behind, None]) == {
        "num_last": 20,
        "gain": 0.0,
        "worth": 0.0,
    }
    between = (0.1, 0.3)  # before the line, but neither first in one metric nor in the other
    assert reason(criterion, [*a_front(30), *behind, between]) is None
    tolerant = StopSearch(patience=20, min_trials=30, min_delta=0.5)
    assert 0 < numbers(tolerant, [*a_front(30), *behind, between])["gain"] < 0.5


def test_trials_of_which_none_counted_before_go_on():
    assert (
        reason(StopSearch(patience=20, min_trials=30), [*[None] * 40, *[(1.0, 1.0)] * 20]) is None
    )
    assert reason(StopSearch(patience=20, min_trials=30), [(1.0, 1.0)] * 40)
