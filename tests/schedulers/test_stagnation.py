import json
import math

import pytest

from schedulers.halving.stagnation import PATIENCE, Stagnation


def stagnation(*results):
    counted = Stagnation()
    for trial_id, time, value in results:
        counted.note(trial_id, time, value)
    return counted


def test_before_the_first_result_nothing_stagnates():
    assert stagnation().part == stagnation().spared_share == 0


def test_training_counts_since_the_best_value():
    assert stagnation(("a", 2, 0.5), ("b", 3, 0.6), ("a", 5, 0.5)).part == 6 / 8


def test_a_better_value_ends_it():
    assert stagnation(("a", 9, 0.5), ("b", 9, 0.4)).part == 0


def test_repeated_results_count_once():
    once = stagnation(("a", 4, 0.5), ("b", 4, 0.6))
    again = stagnation(("a", 4, 0.5), ("b", 4, 0.6), ("b", 1, 0.9), ("b", 4, 0.6))
    assert again.state_dict() == once.state_dict()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_no_improvement(value):
    assert stagnation(("a", 1, 0.5), ("b", 1, value)).part == 0.5
    assert stagnation(("b", 1, math.nan), ("a", 1, 0.5)).part == 0


def test_no_trial_is_spared_before_the_patience_is_over():
    assert stagnation(("a", 100, 0.5), ("b", 100 * PATIENCE, 0.6)).spared_share == 0
    assert stagnation(("a", 10, 0.5), ("b", 30, 0.6)).spared_share > 0


def test_a_trial_that_is_over_is_forgotten_but_not_its_training():
    counted = stagnation(("a", 5, 0.5), ("b", 5, 0.6))
    counted.forget("b")
    counted.forget("no such trial")
    assert counted.part == 0.5
    assert counted.state_dict()["times"] == {"a": 5}


def test_it_is_restored():
    first = stagnation(("a", 5, 0.5), ("b", 5, 0.6))
    second = Stagnation()
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    for each in (first, second):
        each.note("b", 8, 0.7)
    assert second.state_dict() == first.state_dict()
