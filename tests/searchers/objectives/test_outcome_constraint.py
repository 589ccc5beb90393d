"""Constraints on what trials report."""

import math

import pytest

from searchers.objectives import OutcomeConstraint, comparisons, outcome_constraints
from searchers.objectives.outcome_constraint import number_of


def violations(constraints, result):
    return tuple(each.violation(number_of(result.get(each.metric))) for each in constraints)


def test_a_bound_is_kept_by_the_value_that_equals_it():
    limits = outcome_constraints({"size_mb": "<=4", "fairness": " >= 0.8 "})
    assert limits == (
        OutcomeConstraint("size_mb", "<=", 4.0),
        OutcomeConstraint("fairness", ">=", 0.8),
    )
    assert violations(limits, {"size_mb": 4, "fairness": 0.8}) == (0, 0)
    assert violations(limits, {"size_mb": 6.5, "fairness": 0.3}) == (2.5, 0.5)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, "3", True, 10**400])
def test_what_is_no_finite_number_misses_every_bound(value):
    limits = outcome_constraints({"size_mb": "<= 4", "fairness": ">= 0"})
    assert violations(limits, {"size_mb": value, "fairness": value}) == (math.inf, math.inf)
    assert violations(limits, {}) == (math.inf, math.inf)


def test_a_comparison_reads_back_what_it_says():
    for text in ("<= 4", ">= 0.8", "<= -1e-09", ">= 123456789.123", "<= 0.12345678901234566"):
        (limit,) = outcome_constraints({"m": text})
        assert limit.comparison == text
        assert outcome_constraints({"m": limit.comparison}) == (limit,)


@pytest.mark.parametrize("text", ["4", "< 4", "== 4", "<= four", "<= nan", ">= inf", "", "<=4<=5"])
def test_what_is_no_comparison_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"constraints\['size'\].*write a comparison such as"):
        outcome_constraints({"size": text})


def test_a_metric_may_have_a_lower_and_an_upper_bound():
    limits = outcome_constraints({"size": (">= 1", "<= 4"), "fairness": [">= 0.8"]})
    assert list(map(str, limits)) == ["size >= 1", "size <= 4", "fairness >= 0.8"]
    assert violations(limits, {"size": 0.5, "fairness": 1}) == (0.5, 0, 0)
    given = comparisons(limits)
    assert given == {"size": [">= 1", "<= 4"], "fairness": ">= 0.8"}
    assert outcome_constraints(given) == limits
    assert outcome_constraints({"size": ["<= 4", ">= 4"]})


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([], "one comparison, or a list of a lower and an upper bound"),
        (["<= 4", "<= 5"], "one comparison, or a list of a lower and an upper bound"),
        ([">= 1", "<= 4", ">= 1"], "one comparison, or a list of a lower and an upper bound"),
        ([">= 4", "<= 1"], "leave values between its bounds.*exchange"),
        ([">= 1", "< 4"], "write a comparison such as"),
    ],
)
def test_bounds_that_no_value_needs_or_can_keep_are_refused(bounds, message):
    with pytest.raises(ValueError, match=rf"constraints\['size'\] must .*{message}"):
        outcome_constraints({"size": bounds})


@pytest.mark.parametrize(
    "given",
    [["size <= 4"], "size <= 4", {"size": 4}, {"size": ["<= 4", 1]}, {3: "<= 4"}, {"": "<= 4"}],
)
def test_what_is_no_dictionary_of_texts_is_refused(given):
    with pytest.raises(TypeError, match="constraints"):
        outcome_constraints(given)


def test_a_bound_of_a_hyperparameter_is_refused_before_a_trial_ends_without_it():
    with pytest.raises(ValueError, match=r"got 'config/depth'; bound hyperparameters by.*where="):
        outcome_constraints({"config/depth": "<= 4"})
