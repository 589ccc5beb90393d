"""A worker that is silent for much longer than usual is told of, once."""

import pytest

from tests.core.conversation import Conversation
from tuner.core.commands import TrialSilent
from tuner.core.hang_detection import HangDetector, SuspectedHang
from tuner.core.timeouts import Timeouts


def heard(watch, trial_id, *intervals_s):
    """Let a worker report at these intervals and go on each time; return when the last report was answered."""
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
        now_s = watch.next_s
        if found := watch.take_silent(now_s):
            return now_s, found
    pytest.fail("nothing is ever found")


def test_ten_usual_intervals_are_too_long():
    watch = HangDetector()
    since_s = heard(watch, "a", 20.0, 10.0, 500.0, 10.0, 20.0)
    assert first_silence(watch) == (since_s + 200.0, [SuspectedHang("a", 200.0, 20.0)])


def test_less_than_a_minute_is_never_too_long():
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
    assert watch.next_s is None


def test_only_lately_usual_intervals_count():
    watch = HangDetector()
    since_s = heard(watch, "a", *[1.0] * 100, *[30.0] * 31)
    assert first_silence(watch)[0] == since_s + 300.0


def test_while_it_is_our_turn_nobody_is_silent():
    watch = HangDetector()
    now_s = heard(watch, "a", 1.0)
    watch.on_report("a", now_s + 1.0)
    assert watch.take_silent(now_s + 1000.0) == []
    watch.expect("a", now_s + 1000.0)
    assert first_silence(watch)[0] == now_s + 1060.0


def test_a_healthy_worker_is_looked_at_once_a_minute_however_often_it_reports():
    watch = HangDetector()
    looks = 0
    watch.expect("a", 0.0)
    for number in range(1, 601):
        watch.on_report("a", float(number))
        watch.expect("a", float(number))
        looks += watch.next_s <= number
        assert watch.take_silent(float(number)) == []
    assert looks <= 10


def test_who_is_gone_is_forgotten():
    watch = HangDetector()
    heard(watch, "a", 1.0)
    watch.forget("a")
    assert watch.next_s is None
    assert heard(watch, "a", 1.0) == 1.0


def test_a_limit_takes_the_place_of_the_warning():
    patience = Timeouts(100.0, 3.0)
    patience.expect_report("a", 0.0)
    patience.on_report("a", 1.0)
    patience.expect_report("a", 1.0)
    assert patience.take_suspected_hangs(100.0) == []


def test_who_is_leaving_is_no_longer_watched():
    patience = Timeouts(None, 3.0)
    patience.expect_report("a", 0.0)
    patience.expect_exit("a", 1.0)
    assert patience.next_s == 4.0


def test_an_experiment_tells_of_a_trial_that_is_silent_and_lets_it_run():
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
