"""Running statistics of a metric."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.summary import MetricSummary

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def summary_of(*values):
    summary = MetricSummary()
    for value in values:
        summary.add(value)
    return summary


def test_without_values_everything_is_nan_and_the_count_zero():
    summary = MetricSummary()
    assert summary.count == 0
    assert all(
        map(
            math.isnan, (summary.last, summary.min, summary.max, summary.avg, summary.recent_avg(5))
        )
    )


@pytest.mark.parametrize(
    "values", [(math.nan, 2.0, 1.0), (2.0, math.nan, 1.0), (2.0, 1.0, math.nan)]
)
def test_nan_is_left_out_of_the_extremes_and_makes_averages_nan(values):
    summary = summary_of(*values)
    assert (summary.min, summary.max, summary.count) == (1.0, 2.0, 3)
    assert math.isnan(summary.avg)
    assert math.isnan(summary.last) == math.isnan(values[-1])


def test_infinities_are_left_out_of_the_extremes():
    summary = summary_of(1.0, math.inf, -math.inf, 2.0)
    assert (summary.min, summary.max) == (1.0, 2.0)
    assert (summary.by_scope("all", "min"), summary.by_scope("all", "max")) == (1.0, 2.0)
    assert math.isnan(summary_of(math.inf).max)


@given(VALUES)
def test_a_summary_agrees_with_the_list_of_values(values):
    summary = summary_of(*values)
    assert (summary.min, summary.max, summary.last, summary.count) == (
        min(values),
        max(values),
        values[-1],
        len(values),
    )
    assert summary.avg == pytest.approx(statistics.fmean(values), abs=1e-6)
    for num in (1, 5, 10):
        assert summary.recent_avg(num) == pytest.approx(statistics.fmean(values[-num:]), abs=1e-6)


def test_scopes_say_what_counts():
    summary = summary_of(*map(float, range(1, 13)))
    scopes = {
        scope: summary.by_scope(scope, "max")
        for scope in ("last", "avg", "last-5-avg", "last-10-avg", "all")
    }
    assert scopes == {"last": 12.0, "avg": 6.5, "last-5-avg": 10.0, "last-10-avg": 7.5, "all": 12.0}
    assert summary.by_scope("all", "min") == 1.0


def test_an_unknown_scope_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match="scope must be one of last, avg, last-5-avg, last-10-avg, all, got 'best'"
    ):
        summary_of(1.0).by_scope("best", "max")
