"""How long the engine waits for a worker."""

import pytest

from tests.core.conversation import BOOM, Conversation, answers, kills
from tuner.core.commands import TrialSilent
from tuner.core.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointStarted,
    StopRequested,
    TrialStopRequested,
)
from tuner.core.settings import CheckpointPolicy
from tuner.core.timeouts import TERM_GRACE_S, Timeouts
from tuner.core.trial import CheckpointRecord

SAVES = CheckpointPolicy(can_save_on_demand=True)


def names(overdue):
    return [one.trial_id for one in overdue]


def test_a_silent_worker_runs_out_of_time_and_the_reason_names_the_setting():
    patience = Timeouts(10.0, 3.0)
    patience.expect_report("a", 5.0)
    assert patience.next_s == 15.0
    assert patience.take_overdue(14.9) == []
    [overdue] = patience.take_overdue(15.0)
    assert overdue.trial_id == "a"
    assert "report_timeout_s=10.0" in overdue.reason
    assert overdue.term_grace_s == TERM_GRACE_S < 1.0
    assert patience.take_overdue(99.0) == []


def test_without_a_timeout_a_worker_may_be_silent_for_ever():
    patience = Timeouts(None, 3.0)
    patience.expect_report("a", 5.0)
    assert patience.take_overdue(1e9) == []


def storing(talk, *, is_asked):
    """Let a trial begin to store a checkpoint, of its own accord or since it was asked to, and be at it for long; return who is killed."""
    talk.begin(1)
    if is_asked:
        talk.say(CheckpointRequested("t00000"))
        assert answers(talk.report("t00000", 1)) == [("t00000", "continue", True)]
    started = talk.say(CheckpointStarted("t00000", 1), after_s=5.0)
    return kills([*started, *talk.say(after_s=1000.0)])


def ends(talk, *, is_asked, fails):
    if fails:
        talk.say(CheckpointFailed("t00000", 1, BOOM))
    elif is_asked:
        talk.saved("t00000", 0, 1)
    else:
        talk.report("t00000", 2, CheckpointRecord(0, 2))


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_no_time_runs_while_a_checkpoint_is_stored_and_all_of_it_is_left_afterwards(
    is_asked, fails
):
    talk = Conversation(max_trials=1, report_timeout_s=10.0, checkpoints=SAVES)
    assert storing(talk, is_asked=is_asked) == []
    ends(talk, is_asked=is_asked, fails=fails)
    assert talk.experiment.next_deadline_s() == talk.now_s + 10.0
    assert kills(talk.say(after_s=9.9)) == []
    assert kills(talk.say(after_s=0.1)) == ["t00000"]


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_worker_that_stores_a_checkpoint_for_long_is_not_called_silent(is_asked):
    talk = Conversation(max_trials=1, checkpoints=SAVES)
    assert storing(talk, is_asked=is_asked) == []
    assert not [notice for notice in talk.notices if isinstance(notice, TrialSilent)]


def test_a_worker_that_was_told_to_leave_stores_its_checkpoint_within_its_grace():
    talk = Conversation(max_trials=1, report_timeout_s=10.0, stop_grace_s=30.0, checkpoints=SAVES)
    talk.begin(1)
    talk.say(TrialStopRequested("t00000"), CheckpointRequested("t00000"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", True)]
    assert kills(talk.say(CheckpointStarted("t00000", 1), after_s=29.0)) == []
    assert kills(talk.say(after_s=1.0)) == ["t00000"]


def test_what_an_earlier_attempt_stores_stops_no_clock():
    talk = Conversation(max_trials=1, report_timeout_s=10.0)
    talk.begin(1)
    talk.say(CheckpointStarted("t00000", 0), CheckpointStarted("t99999", 1))
    assert kills(talk.say(after_s=10.0)) == ["t00000"]


def test_while_it_is_our_turn_no_time_runs():
    patience = Timeouts(10.0, 3.0)
    patience.expect_report("a", 0.0)
    patience.on_report("a", 1.0)
    assert patience.take_overdue(99.0) == []


def test_a_worker_that_was_told_to_leave_gets_the_grace_period_and_signs_of_life_do_not_lengthen_it():
    patience = Timeouts(10.0, 3.0)
    patience.expect_exit("a", 0.0)
    patience.expect_report("a", 2.0)
    [overdue] = patience.take_overdue(3.0)
    assert "stop_grace_s=3.0" in overdue.reason


def test_the_next_attempt_of_a_trial_is_not_expected_to_leave():
    patience = Timeouts(10.0, 3.0)
    patience.expect_exit("a", 0.0)
    patience.forget("a")
    assert patience.next_s is None
    patience.expect_report("a", 1.0)
    assert patience.next_s == 11.0


def test_an_interruption_leaves_all_of_them_the_same_time_whenever_they_are_told():
    patience = Timeouts(None, 30.0)
    patience.expect_exit("told before", 0.0)
    patience.interrupt(5.0, 10.0)
    patience.expect_exit("told at once", 5.0)
    patience.expect_exit("told late", 14.0)
    assert patience.take_overdue(14.9) == []
    overdue = patience.take_overdue(15.0)
    assert set(names(overdue)) == {"told before", "told at once", "told late"}
    assert all("interrupt_grace_s=10.0" in one.reason for one in overdue)


def test_an_interruption_may_leave_more_time_than_an_ordinary_stop():
    patience = Timeouts(None, 3.0)
    patience.interrupt(0.0, 10.0)
    patience.expect_exit("a", 0.0)
    assert patience.next_s == 10.0


def test_another_polite_interruption_wins_no_time():
    patience = Timeouts(None, 30.0)
    patience.interrupt(0.0, 10.0)
    patience.expect_exit("a", 0.0)
    patience.interrupt(8.0, 10.0)
    assert names(patience.take_overdue(10.0)) == ["a"]


def test_urgency_leaves_no_time_at_all_and_no_last_words():
    patience = Timeouts(None, 30.0)
    patience.interrupt(0.0, 10.0)
    patience.expect_exit("a", 0.0)
    patience.interrupt(2.0, 10.0, is_urgent=True)
    patience.expect_exit("b", 2.0)
    assert sorted((one.trial_id, one.term_grace_s) for one in patience.take_overdue(2.0)) == [
        ("a", 0.0),
        ("b", 0.0),
    ]


def test_who_has_had_time_for_last_words_is_killed_at_once_when_it_becomes_urgent():
    patience = Timeouts(None, 3.0)
    patience.interrupt(0.0, 10.0)
    patience.expect_exit("a", 0.0)
    assert names(patience.take_overdue(10.0)) == ["a"]
    patience.interrupt(10.1, 10.0, is_urgent=True)
    assert [one.term_grace_s for one in patience.take_overdue(10.1)] == [0.0]


def test_a_worker_that_is_told_to_leave_while_it_stores_a_checkpoint_is_given_no_more_time():
    patience = Timeouts(10.0, 3.0)
    patience.expect_report("a", 5.0)
    patience.expect_exit("a", 6.0)
    patience.suspend("a")
    patience.expect_report("a", 7.0)
    assert patience.next_s == 9.0
    assert names(patience.take_overdue(9.0)) == ["a"]


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_worker_that_stores_a_checkpoint_while_everything_is_stopped_has_to_leave_in_time(
    is_asked,
):
    talk = Conversation(max_trials=1, interrupt_grace_s=3.0, checkpoints=SAVES)
    talk.begin(1)
    if is_asked:
        talk.say(CheckpointRequested("t00000"))
        talk.report("t00000", 1)
    talk.say(StopRequested("signal.SIGINT"))
    talk.say(CheckpointStarted("t00000", 1), after_s=1.0)
    assert kills(talk.say(after_s=1.0)) == []
    assert kills(talk.say(after_s=1.0)) == ["t00000"]
