"""Newest values of metrics that need not be in each result."""

import json
import math

import pytest

from searchers.objectives.newest_values import NewestValues


def test_each_metric_has_its_own_newest_value():
    newest = NewestValues(["size", "fairness"])
    newest.note("a", {"size": 3, "loss": 0.5})
    newest.note("b", {"size": 9})
    assert newest.note("a", {"fairness": 0.8, "size": None}) == {"size": 3, "fairness": 0.8}
    newest.forget("a")
    assert (newest.of("a"), newest.of("b")) == ({}, {"size": 9})


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_kept_as_json(odd):
    newest = NewestValues(["size"])
    newest.note("a", {"size": odd})
    copy = NewestValues(["size"])
    copy.load_state_dict(json.loads(json.dumps(newest.state_dict(), allow_nan=False)))
    assert math.isnan(copy.of("a")["size"])
    assert copy.state_dict() == newest.state_dict()
