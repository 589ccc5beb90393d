"""Deadlines, timeouts of workers and detection of hangs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.conversation import BOOM, Conversation, answers, kills, starts, suggest
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import TrialSilent
from tuner.core.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointStarted,
    StopRequested,
    TrialStopRequested,
    WorkerStarted,
)
from tuner.core.timeouts import TERM_GRACE_S, Deadlines, HangDetector, SuspectedHang, Timeouts
from tuner.core.worker_records import CheckpointRecord

KEYS = st.sampled_from("abc")
TIMES = st.integers(0, 12).map(float)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, TIMES),
    st.tuples(st.just("cancel"), KEYS),
    st.tuples(st.just("take"), TIMES),
)


def test_due_deadlines_are_returned_once_and_earliest_first():
    deadlines = Deadlines()
    for key, due_s in (("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 9.0)):
        deadlines.set(key, due_s)
    assert deadlines.next_s() == 1.0
    assert deadlines.take_due(3.0) == ["b", "c", "a"]
    assert deadlines.take_due(3.0) == []
    assert deadlines.next_s() == 9.0


def test_a_deadline_may_move_in_both_directions_and_be_removed():
    deadlines = Deadlines()
    deadlines.set("a", 5.0)
    deadlines.set("a", 8.0)
    assert deadlines.take_due(5.0) == []
    deadlines.set("a", 6.0)
    assert deadlines.next_s() == 6.0
    assert deadlines.take_due(7.0) == ["a"]
    deadlines.set("a", 1.0)
    deadlines.cancel("a")
    deadlines.cancel("never set")
    assert deadlines.next_s() is None


def test_moving_a_deadline_later_again_and_again_costs_no_memory():
    deadlines = Deadlines()
    for now_s in range(10_000):
        deadlines.set("a", now_s + 60.0)
        deadlines.take_due(float(now_s))
    assert len(deadlines._heap) <= 2


@given(st.lists(STEPS, min_size=15, max_size=40))
def test_deadlines_agree_with_a_dictionary(steps):
    deadlines, model = Deadlines(), {}
    for step in steps:
        match step:
            case ("set", key, due_s):
                deadlines.set(key, due_s)
                model[key] = due_s
            case ("cancel", key):
                deadlines.cancel(key)
                model.pop(key, None)
            case ("take", now_s):
                due = {key: due_s for key, due_s in model.items() if due_s <= now_s}
                taken = deadlines.take_due(now_s)
                assert sorted(taken) == sorted(due)
                assert [due[key] for key in taken] == sorted(due.values())
                model = {key: due_s for key, due_s in model.items() if key not in due}
        assert deadlines.next_s() == min(model.values(), default=None)


SAVES = CheckpointPolicy(can_save_on_demand=True)


def names(overdue):
    return [one.trial_id for one in overdue]


def test_a_silent_worker_runs_out_of_time_and_the_reason_names_the_setting():
    timeouts = Timeouts(10.0, 3.0)
    timeouts.expect_report("a", 5.0)
    assert timeouts.next_s == 15.0
    assert timeouts.take_overdue(14.9) == []
    [overdue] = timeouts.take_overdue(15.0)
    assert overdue.trial_id == "a"
    assert "report_timeout_s=10.0" in overdue.reason
    assert overdue.term_grace_s == TERM_GRACE_S < 1.0
    assert timeouts.take_overdue(99.0) == []


def test_loading_the_training_code_is_no_silence():
    talk = Conversation(max_trials=1, report_timeout_s=10.0)
    [asked] = talk.say()
    assert starts(talk.say(suggest(asked.trial_id))) == [("t00000", 1)]
    assert kills(talk.say(after_s=500.0)) == []
    talk.say(WorkerStarted("t00000", 1, 4711))
    assert talk.experiment.next_deadline_s() == talk.now_s + 10.0
    assert kills(talk.say(after_s=10.0)) == ["t00000"]


@pytest.mark.parametrize(("report_timeout_s", "limit_s"), [(10.0, 600.0), (1000.0, 1000.0)])
def test_a_process_that_never_loads_it_is_killed_for_that(report_timeout_s, limit_s):
    timeouts = Timeouts(report_timeout_s, 3.0)
    timeouts.expect_start("a", 5.0)
    assert timeouts.take_overdue(5.0 + limit_s - 0.1) == []
    again = Timeouts(report_timeout_s, 3.0)
    again.load_state_dict(json.loads(json.dumps(timeouts.state_dict())))
    for each in (timeouts, again):
        [overdue] = each.take_overdue(5.0 + limit_s)
        assert not overdue.is_silent
        assert (
            f"has not loaded the training code within {limit_s:g} s; the script" in overdue.reason
        )


def test_a_worker_that_is_to_leave_while_it_loads_has_its_grace_for_that():
    timeouts = Timeouts(10.0, 3.0)
    timeouts.expect_start("a", 0.0)
    timeouts.expect_exit("a", 1.0)
    [overdue] = timeouts.take_overdue(4.0)
    assert "stop_grace_s" in overdue.reason


def test_without_a_timeout_a_worker_may_be_silent_for_ever():
    timeouts = Timeouts(None, 3.0)
    timeouts.expect_report("a", 5.0)
    assert timeouts.take_overdue(1e9) == []


def storing(talk, *, is_asked):
    """Let a trial store a checkpoint, unasked or asked, for long; return which are killed."""
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


def test_a_worker_that_was_asked_to_leave_stores_its_checkpoint_within_its_grace():
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
    timeouts = Timeouts(10.0, 3.0)
    timeouts.expect_report("a", 0.0)
    timeouts.on_report("a", 1.0)
    assert timeouts.take_overdue(99.0) == []


def test_a_leaving_worker_gets_the_grace_period_which_reports_do_not_extend():
    timeouts = Timeouts(10.0, 3.0)
    timeouts.expect_exit("a", 0.0)
    timeouts.expect_report("a", 2.0)
    [overdue] = timeouts.take_overdue(3.0)
    assert "stop_grace_s=3.0" in overdue.reason


def test_the_next_attempt_of_a_trial_is_not_expected_to_leave():
    timeouts = Timeouts(10.0, 3.0)
    timeouts.expect_exit("a", 0.0)
    timeouts.forget("a")
    assert timeouts.next_s is None
    timeouts.expect_report("a", 1.0)
    assert timeouts.next_s == 11.0


def test_an_interruption_gives_all_workers_the_same_deadline():
    timeouts = Timeouts(None, 30.0)
    timeouts.expect_exit("told before", 0.0)
    timeouts.interrupt(5.0, 10.0)
    timeouts.expect_exit("told at once", 5.0)
    timeouts.expect_exit("told late", 14.0)
    assert timeouts.take_overdue(14.9) == []
    overdue = timeouts.take_overdue(15.0)
    assert set(names(overdue)) == {"told before", "told at once", "told late"}
    assert all("interrupt_grace_s=10.0" in one.reason for one in overdue)


def test_an_interruption_may_leave_more_time_than_an_ordinary_stop():
    timeouts = Timeouts(None, 3.0)
    timeouts.interrupt(0.0, 10.0)
    timeouts.expect_exit("a", 0.0)
    assert timeouts.next_s == 10.0


def test_another_polite_interruption_wins_no_time():
    timeouts = Timeouts(None, 30.0)
    timeouts.interrupt(0.0, 10.0)
    timeouts.expect_exit("a", 0.0)
    timeouts.interrupt(8.0, 10.0)
    assert names(timeouts.take_overdue(10.0)) == ["a"]


def test_an_urgent_interruption_leaves_no_grace_and_sends_no_sigterm():
    timeouts = Timeouts(None, 30.0)
    timeouts.interrupt(0.0, 10.0)
    timeouts.expect_exit("a", 0.0)
    timeouts.interrupt(2.0, 10.0, is_urgent=True)
    timeouts.expect_exit("b", 2.0)
    assert sorted((one.trial_id, one.term_grace_s) for one in timeouts.take_overdue(2.0)) == [
        ("a", 0.0),
        ("b", 0.0),
    ]


def test_a_leaving_worker_is_killed_at_once_when_the_interruption_becomes_urgent():
    timeouts = Timeouts(None, 3.0)
    timeouts.interrupt(0.0, 10.0)
    timeouts.expect_exit("a", 0.0)
    assert names(timeouts.take_overdue(10.0)) == ["a"]
    timeouts.interrupt(10.1, 10.0, is_urgent=True)
    assert [one.term_grace_s for one in timeouts.take_overdue(10.1)] == [0.0]


def test_a_worker_that_is_asked_to_leave_while_it_stores_a_checkpoint_gets_no_more_time():
    timeouts = Timeouts(10.0, 3.0)
    timeouts.expect_report("a", 5.0)
    timeouts.expect_exit("a", 6.0)
    timeouts.suspend("a")
    timeouts.expect_report("a", 7.0)
    assert timeouts.next_s == 9.0
    assert names(timeouts.take_overdue(9.0)) == ["a"]


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


def heard(watch, trial_id, *intervals_s):
    """Let a worker report at these intervals; return when the last report was answered."""
    now_s = 0.0
    watch.expect(trial_id, now_s)
    for interval_s in intervals_s:
        now_s += interval_s
        watch.on_report(trial_id, now_s)
        watch.expect(trial_id, now_s)
    return now_s


def first_silence(watch):
    """Look whenever the watch wants to, and return what it finds first and when."""
    for _ in range(100):
        now_s = watch.looks.next_s()
        if found := watch.take_silent(now_s):
            return now_s, found
    pytest.fail("nothing is ever found")


def test_ten_usual_intervals_are_too_long():
    watch = HangDetector()
    since_s = heard(watch, "a", 20.0, 10.0, 500.0, 10.0, 20.0)
    assert first_silence(watch) == (since_s + 200.0, [SuspectedHang("a", 200.0, 20.0)])


def test_less_than_a_minute_of_silence_is_no_suspected_hang():
    watch = HangDetector()
    since_s = heard(watch, "a", *[0.001] * 1000)
    assert first_silence(watch) == (
        since_s + 60.0,
        [SuspectedHang("a", 60.0, pytest.approx(0.001))],
    )


def test_before_the_first_report_ten_minutes_are_too_long():
    watch = HangDetector()
    watch.expect("a", 7.0)
    assert first_silence(watch) == (607.0, [SuspectedHang("a", 600.0, None)])


def test_each_is_found_once():
    watch = HangDetector()
    heard(watch, "a", 1.0)
    first_silence(watch)
    watch.on_report("a", 1000.0)
    watch.expect("a", 1000.0)
    assert watch.take_silent(9999.0) == []
    assert watch.looks.next_s() is None


def test_only_lately_usual_intervals_count():
    watch = HangDetector()
    since_s = heard(watch, "a", *[1.0] * 100, *[30.0] * 31)
    assert first_silence(watch)[0] == since_s + 300.0


def test_a_worker_that_waits_for_our_answer_is_not_silent():
    watch = HangDetector()
    now_s = heard(watch, "a", 1.0)
    watch.on_report("a", now_s + 1.0)
    assert watch.take_silent(now_s + 1000.0) == []
    watch.expect("a", now_s + 1000.0)
    assert first_silence(watch)[0] == now_s + 1060.0


def test_a_healthy_worker_is_checked_once_a_minute_however_often_it_reports():
    watch = HangDetector()
    looks = 0
    watch.expect("a", 0.0)
    for number in range(1, 601):
        watch.on_report("a", float(number))
        watch.expect("a", float(number))
        looks += watch.looks.next_s() <= number
        assert watch.take_silent(float(number)) == []
    assert looks <= 10


def test_a_worker_that_is_gone_is_forgotten():
    watch = HangDetector()
    heard(watch, "a", 1.0)
    watch.forget("a")
    assert watch.looks.next_s() is None
    assert heard(watch, "a", 1.0) == 1.0


def test_a_report_timeout_replaces_the_warning():
    timeouts = Timeouts(100.0, 3.0)
    timeouts.expect_report("a", 0.0)
    timeouts.on_report("a", 1.0)
    timeouts.expect_report("a", 1.0)
    assert timeouts.take_suspected_hangs(100.0) == []


def test_a_leaving_worker_is_no_longer_watched():
    timeouts = Timeouts(None, 3.0)
    timeouts.expect_report("a", 0.0)
    timeouts.expect_exit("a", 1.0)
    assert timeouts.next_s == 4.0


def test_a_silent_trial_is_reported_and_keeps_running():
    talk = Conversation(max_trials=2)
    talk.begin(2)
    for iteration in range(1, 4):
        talk.say(after_s=2.0)
        for trial_id in ("t00000", "t00001"):
            talk.report(trial_id, iteration)
    talk.say(after_s=50.0)
    talk.report("t00000", 4)
    assert talk.experiment.next_deadline_s() is not None
    for _ in range(3):
        assert talk.say(after_s=20.0) == []
    silent = [
        (notice.trial.trial_id, notice.usual_s)
        for notice in talk.notices
        if isinstance(notice, TrialSilent)
    ]
    assert silent == [("t00001", 2.0), ("t00000", 2.0)]
