"""Running summaries of metrics, and the newest and best value of one."""

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation import BOOM, Conversation
from tuner.core.events import Outcome, WorkerStarted
from tuner.core.trial_metrics import Evaluation, MetricSummary, TrackedMetric
from tuner.core.worker_records import CheckpointRecord

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


def test_scopes_choose_the_value():
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


def tracked(*values, mode="min"):
    results = [
        {"training_iteration": number, **({} if value is None else {"loss": value})}
        for number, value in enumerate(values, 1)
    ]
    return TrackedMetric.of_results(results, "loss", mode)


def test_without_values_there_is_neither_last_nor_best():
    none = tracked(None, "0.1", True)
    assert (none.last, none.best) == (None, None)


def test_the_last_value_is_the_newest_one_and_the_best_belongs_to_its_own_result():
    found = tracked(0.5, 0.2, 0.4, None)
    assert (found.last, found.best) == (Evaluation(0.4, 3, 3), Evaluation(0.2, 2, 2))


@pytest.mark.parametrize(("mode", "value"), [("min", 0.1), ("max", 0.9)])
def test_of_equal_best_values_the_newest_counts(mode, value):
    assert tracked(value, 0.5, value, 0.5, mode=mode).best == Evaluation(value, 3, 3)


def test_a_value_that_is_not_finite_can_be_last_and_is_never_best():
    found = tracked(0.5, -math.inf, math.nan)
    assert math.isnan(found.last.value)
    assert found.best == Evaluation(0.5, 1, 1)


def attempts(talk, reports):
    """Let one trial report values, None for a result without one, and "fail" attempts."""
    for what in reports:
        if what == "fail":
            talk.exit("t00000", Outcome.FAILED, BOOM)
            talk.say(WorkerStarted("t00000", talk.trial("t00000").attempt, pid=2))
            continue
        iteration, value, index = what
        checkpoint = None if index is None else CheckpointRecord(index, iteration)
        talk.report("t00000", iteration, checkpoint, **({} if value is None else {"loss": value}))


def conversation():
    talk = Conversation(max_trials=1, max_failures=9, metric="loss", mode="min")
    talk.begin(1)
    return talk


@pytest.mark.parametrize(
    ("reports", "last", "best"),
    [
        ([(1, 0.5, None), (2, 0.1, None), "fail", (1, 0.6, None)], (0.6, 1), (0.6, 1)),
        ([(1, 0.5, 0), (2, 0.1, None), "fail", (2, None, None)], (0.5, 1), (0.5, 1)),
        (
            [(1, 0.5, None), (2, None, 0), (3, 0.1, None), "fail", (3, 0.7, None)],
            (0.7, 3),
            (0.5, 1),
        ),
        (
            [
                (1, 0.5, 0),
                (2, 0.4, 1),
                (3, 0.1, None),
                "fail",
                (3, 0.2, None),
                (4, 0.0, None),
                "fail",
                (3, None, None),
            ],
            (0.4, 2),
            (0.4, 2),
        ),
    ],
)
def test_a_later_attempts_report_of_an_iteration_replaces_the_earlier_one(reports, last, best):
    talk = conversation()
    attempts(talk, reports)
    objective = talk.trial("t00000").objective
    assert (
        (objective.last.value, objective.last.iteration),
        (objective.best.value, objective.best.iteration),
    ) == (last, best)


NUMBERS = st.one_of(st.none(), st.sampled_from([0.0, 0.1, 0.2, 0.5, math.nan, math.inf]))


@given(
    st.lists(st.tuples(NUMBERS, st.booleans(), st.booleans()), max_size=25),
    st.sampled_from(["min", "max"]),
)
def test_it_agrees_with_the_rows_that_count(steps, mode):
    found, rows, saved = TrackedMetric("loss", mode), [], []
    for index, (value, saves, goes_back) in enumerate(steps):
        if goes_back:
            at = saved[-1] if saved else 0
            rows = rows[:at]
        rows.append(value)
        flat = {"training_iteration": len(rows), **({} if value is None else {"loss": value})}
        found.take(flat, len(rows))
        if saves:
            found.mark(index)
            saved.append(len(rows))
        saved = [row for row in saved if row <= len(rows)]
        found_again = TrackedMetric.from_state(json.loads(json.dumps(found.state())))
        assert repr((found_again.last, found_again.best)) == repr((found.last, found.best))
    expected = TrackedMetric.of_results(
        [
            {"training_iteration": row, **({} if value is None else {"loss": value})}
            for row, value in enumerate(rows, 1)
        ],
        "loss",
        mode,
    )
    assert repr((found.last, found.best)) == repr((expected.last, expected.best))


@pytest.mark.parametrize("num_values", [3, 25])
def test_a_corrected_value_replaces_the_one_that_was_added(num_values):
    values = [float(number) for number in range(num_values)]
    summary = summary_of(*values)
    summary.replace(values[-2], 100.0)
    values[-2] = 100.0
    assert summary.count == num_values
    assert summary.max == 100.0
    assert summary.last == values[-1]
    assert summary.avg == pytest.approx(statistics.fmean(values))
    assert summary.recent == tuple(values[-10:])


def test_a_wrong_extreme_of_few_values_leaves_nothing_behind():
    summary = summary_of(0.5, 9.0, 0.7)
    summary.replace(9.0, 0.6)
    assert (summary.min, summary.max) == (0.5, 0.7)


def with_checkpoints(mode, *values):
    """Return the record of results of which some lack the value, all with a checkpoint."""
    metric = TrackedMetric("acc", mode)
    for row, value in enumerate(values, start=1):
        known = {} if value is None else {"acc": value}
        metric.take({"training_iteration": row, **known}, row)
        metric.mark(row)
    return metric


def supply(metric, row, value):
    metric.correct({"training_iteration": row, "acc": value}, row, row)


def test_values_that_come_late_count_as_if_they_had_come_at_once():
    late = with_checkpoints("max", None, None, None)
    for row, value in ((1, 0.5), (2, 0.9), (3, 0.7)):
        supply(late, row, value)
    assert late.last == Evaluation(0.7, 3, 3)
    assert late.best == Evaluation(0.9, 2, 2)


def test_an_attempt_goes_back_to_the_values_of_its_checkpoint_also_if_they_came_late():
    late = with_checkpoints("max", None, None, None)
    for row, value in ((1, 0.5), (2, 0.9), (3, 0.7)):
        supply(late, row, value)
    late.take({"training_iteration": 3}, 3)  # reported again, after the second checkpoint
    assert late.last == Evaluation(0.9, 2, 2)
    late.take({"training_iteration": 2}, 2)
    assert late.last == late.best == Evaluation(0.5, 1, 1)


def test_a_late_value_does_not_replace_a_newer_one():
    late = with_checkpoints("min", None, 0.4)
    supply(late, 1, 0.2)
    assert late.last == Evaluation(0.4, 2, 2)
    assert late.best == Evaluation(0.2, 1, 1)


def test_a_corrected_best_value_is_not_the_best_any_more():
    late = with_checkpoints("max", 0.5, 0.9, 0.6)
    supply(late, 2, 0.1)
    assert late.last == Evaluation(0.6, 3, 3)
    assert late.best == Evaluation(0.6, 3, 3)


def test_after_a_correction_the_best_value_is_looked_for_at_the_other_checkpoints():
    late = with_checkpoints("max", 0.8, 0.9, 0.7, 0.6)
    supply(late, 2, 0.1)
    assert late.last == Evaluation(0.6, 4, 4)
    assert late.best == Evaluation(0.8, 1, 1)
    supply(late, 1, 0.2)
    assert late.best == Evaluation(0.7, 3, 3)
    late.take({"training_iteration": 3}, 3)  # reported again, after the second checkpoint
    assert late.best == Evaluation(0.2, 1, 1)
