"""How long the engine waits for a worker."""

from tuner.core.patience import Patience


def test_a_silent_worker_runs_out_of_time_and_the_reason_names_the_setting():
    patience = Patience(10.0, 3.0)
    patience.expect_report("a", 5.0)
    assert patience.next_s == 15.0
    assert patience.exhausted(14.9) == []
    [(trial_id, reason)] = patience.exhausted(15.0)
    assert trial_id == "a"
    assert "report_timeout_s=10.0" in reason
    assert patience.exhausted(99.0) == []


def test_without_a_timeout_a_worker_may_be_silent_for_ever():
    patience = Patience(None, 3.0)
    patience.expect_report("a", 5.0)
    assert patience.next_s is None


def test_while_it_is_our_turn_no_time_runs():
    patience = Patience(10.0, 3.0)
    patience.expect_report("a", 0.0)
    patience.take_sign_of_life("a")
    assert patience.exhausted(99.0) == []


def test_a_worker_that_was_told_to_leave_gets_the_grace_period_and_signs_of_life_do_not_lengthen_it():
    patience = Patience(10.0, 3.0)
    patience.expect_exit("a", 0.0)
    patience.expect_report("a", 2.0)
    [(_, reason)] = patience.exhausted(3.0)
    assert "stop_grace_s=3.0" in reason


def test_urgency_leaves_no_time_at_all():
    patience = Patience(None, 3.0)
    patience.expect_exit("a", 1.0)
    patience.expect_exit("a", 2.0, is_urgent=True)
    assert [trial_id for trial_id, _ in patience.exhausted(2.0)] == ["a"]


def test_the_next_attempt_of_a_trial_is_not_expected_to_leave():
    patience = Patience(10.0, 3.0)
    patience.expect_exit("a", 0.0)
    patience.forget("a")
    assert patience.next_s is None
    patience.expect_report("a", 1.0)
    assert patience.next_s == 11.0
