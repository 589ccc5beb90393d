"""Times of attempts, decisions and results, from the journal alone."""

import math

import pytest

from schedulers.decisions import Exploit, Pause, Reason, Resume, Save, Stop
from tests.core.conversation import BOOM
from tuner.analysis.charts.timeline import Improvement, TimedAttempt, Timeline
from tuner.core.events import (
    Outcome,
    PauseRequested,
    ResultReported,
    TrialStopRequested,
    TurnEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.recorded_decisions import RecordedDecision
from tuner.journal.records import encode, mark

RUNG = Reason("asha.rung", {"rung": 3, "value": 0.5, "cutoff": "nan"})


def told(*happened):
    """Return the records of events, one each second, with what was decided on them."""
    return [
        encode(event, float(second), [RecordedDecision(0, decision) for decision in said])
        for second, (event, said) in enumerate(happened)
    ]


def started(trial_id, attempt=1):
    return WorkerStarted(trial_id, attempt, 4711), ()


def result(trial_id, iteration, loss, *said):
    return ResultReported(trial_id, 1, {"training_iteration": iteration, "loss": loss}), said


def exited(trial_id, outcome, attempt=1):
    return WorkerExited(trial_id, attempt, outcome, BOOM if outcome is Outcome.FAILED else None), ()


def test_attempts_have_their_times_and_the_last_decision():
    records = told(
        started("a"),
        started("b"),
        result("a", 1, 0.5, Pause("a", RUNG)),
        exited("a", Outcome.STOPPED),
        started("a", 2),
        exited("b", Outcome.FAILED),
        exited("a", Outcome.COMPLETED, 2),
    )
    assert Timeline(records, {"a", "b"}).attempts == [
        TimedAttempt("a", 1, 0.0, 3.0, "stopped", "pause"),
        TimedAttempt("b", 1, 1.0, 5.0, "failed"),
        TimedAttempt("a", 2, 4.0, 6.0, "completed"),
    ]


def test_a_stop_takes_precedence_over_other_decisions():
    records = told(
        started("a"),
        result("a", 9, 0.1, Stop("a", RUNG, is_complete=True), Pause("a", RUNG)),
        exited("a", Outcome.STOPPED),
    )
    assert Timeline(records, {"a"}).attempts == [
        TimedAttempt("a", 1, 0.0, 2.0, "stopped", "stop", is_complete=True)
    ]


@pytest.mark.parametrize(
    ("wish", "last_decision"), [(PauseRequested("a"), "pause"), (TrialStopRequested("a"), "stop")]
)
def test_requests_of_the_user_count_as_decisions(wish, last_decision):
    assert (
        Timeline(told(started("a"), (wish, ()), exited("a", Outcome.STOPPED)), {"a"})
        .attempts[0]
        .last_decision
        == last_decision
    )


def test_an_attempt_without_an_end_lasts_until_the_last_record_or_the_next_driver():
    restarted = {"t": 9.0, "k": "restarted"}
    records = [
        *told(started("a"), result("a", 1, 0.5)),
        restarted,
        encode(started("a", 2)[0], 10.0),
        mark("close", 12.0),
    ]
    assert Timeline(records, {"a"}).attempts == [
        TimedAttempt("a", 1, 0.0, 1.0),
        TimedAttempt("a", 2, 10.0, 12.0),
    ]


def test_decisions_know_the_iteration_and_numbers_that_json_does_not():
    clone = Exploit("b", "a", {"lr": 1.0}, Reason("pbt.exploit", {"score": 0.5}))
    records = told(
        result("a", 3, 0.5, Pause("a", RUNG), Save("a", RUNG)),
        (TurnEnded(), [Resume("a", RUNG), clone]),
    )
    decisions = Timeline(records, {"a", "b"}).decisions
    assert [(one.trial_id, one.time_s, one.iteration, one.kind) for one in decisions] == [
        ("a", 0.0, 3, "pause"),
        ("a", 1.0, 3, "resume"),
        ("b", 1.0, 0, "exploit"),
    ]
    assert math.isnan(decisions[0].number("missing", "cutoff"))
    assert decisions[0].number("level", "rung") == 3
    assert decisions[0].number("nothing") is None


def test_numbers_that_were_read_as_texts_are_texts():
    records = told((TurnEnded(), [Stop("a", Reason("pbt.exploit", {"donor": "t00001"}))]))
    assert Timeline(records, {"a"}).decisions[0].number("donor") is None


@pytest.mark.parametrize(("mode", "expected"), [("min", [0.9, 0.3]), ("max", [0.9, 1.5])])
def test_improvements_are_results_better_than_all_before_them(mode, expected):
    losses = [math.nan, 0.9, 0.9, 0.3, math.inf, 1.5, 0.8]
    records = told(*(result("a", number, loss) for number, loss in enumerate(losses, start=1)))
    found = Timeline(records, {"a"}, "loss", mode).improvements
    assert [one.value for one in found] == expected
    assert found[0] == Improvement(1.0, "a", 2, 0.9)


def test_other_trials_are_left_out():
    records = told(
        started("a"),
        started("b"),
        result("b", 1, 0.5, Stop("b", RUNG)),
        exited("b", Outcome.STOPPED),
    )
    timeline = Timeline(records, {"a"}, "loss", "min")
    assert (
        [one.trial_id for one in timeline.attempts],
        timeline.decisions,
        timeline.improvements,
    ) == (["a"], [], [])


def test_reports_tell_when_a_level_was_first_reached():
    records = told(result("a", 1, 0.5), result("a", 4, 0.4), result("a", 5, 0.3))
    reports = Timeline(records, {"a"}, "loss", "min").reports["a"]
    assert (reports.at(1), reports.at(3), reports.at(6)) == ((0.0, 0.5), (1.0, 0.4), None)
