"""The state machine: events in, commands and notices out."""

from __future__ import annotations

import dataclasses

import pytest

from schedulers.decisions import Pause, Reason, Resume, Save, Stop
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    answers,
    kills,
    result,
    starts,
    suggest,
)
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.commands import (
    AnswerReport,
    AskSearcher,
    AttemptFailed,
    CheckpointRecorded,
    DeleteCheckpoint,
    Interruption,
    StartWorker,
    TrialEnded,
    TrialPaused,
)
from tuner.core.events import (
    CheckpointFailed,
    CheckpointRequested,
    DriverRestarted,
    Outcome,
    ResumeType,
    SearchEnded,
    StopRequested,
    SuggestionPostponed,
    TrialStopRequested,
    TrialSuggested,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.stoppers import MetricThresholdStopper, TimeoutStopper
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord, Failure

WHY = Reason("test")
SAVES = CheckpointPolicy(can_save_on_demand=True, at_end=True)


def test_it_asks_for_as_many_trials_as_fit():
    talk = Conversation(max_trials=10)
    assert talk.say() == [AskSearcher("t00000"), AskSearcher("t00001")]
    assert starts(talk.say(suggest("t00000"), suggest("t00001"))) == [("t00000", 1), ("t00001", 1)]


def test_max_concurrent_limits_what_is_asked_for():
    talk = Conversation(max_trials=10, max_concurrent=1)
    assert talk.say() == [AskSearcher("t00000")]


def test_it_never_asks_for_more_than_max_trials():
    talk = Conversation(max_trials=1)
    assert talk.say() == [AskSearcher("t00000")]
    talk.say(suggest("t00000"))
    talk.say(WorkerStarted("t00000", 1, 1))
    assert talk.exit("t00000", Outcome.COMPLETED) == []
    assert talk.experiment.is_finished


def test_a_trial_that_returns_is_completed():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    assert answers(talk.report("t00000", 1, loss=0.5)) == [("t00000", "continue", False)]
    talk.exit("t00000", Outcome.COMPLETED)
    trial = talk.trial("t00000")
    assert (trial.status, trial.ending, trial.last_result["loss"]) == (
        Status.TERMINATED,
        TerminationReason.COMPLETED,
        0.5,
    )
    assert talk.scheduler.heard == [("add", "t00000"), ("result", "t00000"), ("complete", "t00000")]


def test_a_result_is_the_last_one_as_soon_as_it_is_reported():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1, loss=0.5)
    outcome = talk.experiment.handle(result("t00000", 2, loss=0.25), 0.0)
    assert talk.trial("t00000").last_result["loss"] == 0.25
    assert talk.trial("t00000").last_result is outcome.notices[0].result


def test_done_in_a_result_stops_the_trial_as_completed():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    assert answers(talk.report("t00000", 1, done=True)) == [("t00000", "stop", False)]
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").ending is TerminationReason.COMPLETED


def test_the_stop_criterion_completes_a_trial():
    talk = Conversation(stopper=MetricThresholdStopper({"training_iteration": 2}), max_trials=1)
    talk.begin(1)
    assert answers(talk.report("t00000", 1)) == [("t00000", "continue", False)]
    assert answers(talk.report("t00000", 2)) == [("t00000", "stop", False)]
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").ending is TerminationReason.COMPLETED


def test_a_schedulers_stop_ends_a_trial_early_with_its_reason():
    talk = Conversation(ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY)]}), max_trials=1)
    talk.begin(1)
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", False)]
    assert talk.decisions == [Stop("t00000", WHY)]
    talk.exit("t00000", Outcome.STOPPED)
    assert (talk.trial("t00000").ending, talk.trial("t00000").reason) == (
        TerminationReason.STOPPED_EARLY,
        WHY,
    )


def test_a_stop_at_full_resource_counts_as_completed():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY, is_complete=True)]}), max_trials=1
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").ending is TerminationReason.COMPLETED


def test_a_decision_about_another_running_trial_waits_for_its_report():
    talk = Conversation(ScriptedScheduler({("t00000", 1): [Stop("t00001", WHY)]}), max_trials=2)
    talk.begin(2)
    assert answers(talk.report("t00000", 1)) == [("t00000", "continue", False)]
    assert answers(talk.report("t00001", 1)) == [("t00001", "stop", False)]


def test_a_decision_about_a_trial_that_reported_in_the_same_turn_answers_it():
    talk = Conversation(ScriptedScheduler({("t00000", 1): [Stop("t00001", WHY)]}), max_trials=2)
    talk.begin(2)
    assert answers(talk.say(result("t00001", 1), result("t00000", 1))) == [
        ("t00001", "stop", False),
        ("t00000", "continue", False),
    ]


def test_a_pending_trial_can_be_stopped_before_it_ever_runs():
    talk = Conversation(ScriptedScheduler({("t00000", 0): [Stop("t00000", WHY)]}), max_trials=1)
    talk.say()
    assert starts(talk.say(suggest("t00000"))) == []
    assert talk.trial("t00000").status is Status.TERMINATED
    assert talk.experiment.is_finished


def test_a_paused_trial_saves_and_waits_until_it_is_resumed():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}, idle=[[Resume("t00000", WHY)]]),
        max_trials=1,
        checkpoints=CheckpointPolicy(can_save_on_demand=True),
    )
    talk.begin(1)
    assert answers(talk.report("t00000", 1)) == [("t00000", "pause", True)]
    talk.saved("t00000", 0, 1)
    commands = talk.exit("t00000", Outcome.STOPPED)
    assert any(isinstance(notice, TrialPaused) for notice in talk.notices)
    [start] = [command for command in commands if isinstance(command, StartWorker)]
    assert (start.attempt, start.checkpoint) == (2, CheckpointRecord(0, 1))


def test_paused_trials_that_are_never_resumed_are_stopped():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}), max_trials=1, checkpoints=SAVES
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert (talk.trial("t00000").status, talk.trial("t00000").reason) == (
        Status.TERMINATED,
        Reason("idle"),
    )
    assert talk.experiment.is_finished


def test_the_first_pause_of_trials_that_never_save_ends_the_experiment_and_names_the_remedy():
    talk = Conversation(ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}), max_trials=2)
    talk.begin(2)
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", False)]
    talk.exit("t00000", Outcome.STOPPED)
    talk.report("t00001", 1)
    talk.exit("t00001", Outcome.STOPPED)
    assert [trial.ending for trial in talk.experiment.trials] == [TerminationReason.INTERRUPTED] * 2
    assert "report one" in talk.experiment.fatal_error


def test_a_pause_waits_for_the_checkpoint_that_the_training_code_reports():
    talk = Conversation(ScriptedScheduler({("t00001", 1): [Pause("t00001", WHY)]}), max_trials=2)
    talk.begin(2)
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    assert answers(talk.report("t00001", 1)) == [("t00001", "continue", False)]
    assert answers(talk.report("t00001", 2)) == [("t00001", "continue", False)]
    assert answers(talk.report("t00001", 3, CheckpointRecord(0, 3))) == [("t00001", "pause", False)]
    talk.exit("t00001", Outcome.STOPPED)
    assert talk.trial("t00001").status is Status.PAUSED


def test_a_save_for_a_pause_that_fails_is_a_failed_attempt():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}),
        max_trials=1,
        max_failures=1,
        checkpoints=SAVES,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.say(CheckpointFailed("t00000", 1, BOOM))
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == [("t00000", 2)]
    assert talk.trial("t00000").failures[-1].kind == "CannotPause"


@pytest.mark.parametrize("decision", [Pause, Stop, None])
def test_training_code_whose_save_raises_has_failed_whatever_it_saved_for(decision):
    script = {("t00000", 1): [decision("t00000", WHY)] if decision else []}
    at_each = CheckpointPolicy(can_save_on_demand=True, frequency=1, at_end=True)
    talk = Conversation(
        ScriptedScheduler(script), max_trials=1, max_failures=1, checkpoints=at_each
    )
    talk.begin(1)
    talk.report("t00000", 1)
    assert starts(talk.exit("t00000", Outcome.UNSAVED, BOOM)) == [("t00000", 2)]
    talk.say(WorkerStarted("t00000", 2, 1))
    talk.report("t00000", 1)
    talk.exit("t00000", Outcome.UNSAVED, BOOM)
    assert (talk.trial("t00000").status, talk.trial("t00000").failures) == (
        Status.ERROR,
        [BOOM, BOOM],
    )


def test_a_trial_that_the_user_ends_and_that_cannot_save_itself_is_not_tried_again():
    talk = Conversation(
        max_trials=1,
        max_failures=3,
        checkpoints=CheckpointPolicy(can_save_on_demand=True, at_end=True),
    )
    talk.begin(1)
    talk.say(TrialStopRequested("t00000"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", True)]
    assert talk.exit("t00000", Outcome.UNSAVED, BOOM) == []
    assert (talk.trial("t00000").status, talk.trial("t00000").failures) == (Status.ERROR, [BOOM])


def test_a_trial_whose_save_fails_in_an_interruption_resumes_later_if_it_has_retries():
    for max_failures, status in ((1, Status.TERMINATED), (0, Status.ERROR)):
        talk = Conversation(
            max_trials=1,
            max_failures=max_failures,
            checkpoints=CheckpointPolicy(can_save_on_demand=True, at_end=True),
        )
        talk.begin(1)
        talk.say(StopRequested("signal.SIGINT"))
        assert answers(talk.report("t00000", 1)) == [("t00000", "stop", True)]
        talk.exit("t00000", Outcome.UNSAVED, BOOM)
        assert talk.trial("t00000").status is status
        assert talk.trial("t00000").ending is (
            TerminationReason.INTERRUPTED if max_failures else TerminationReason.FAILED
        )


def test_a_stop_outweighs_a_pause_but_not_the_reverse():
    script = {("t00000", 1): [Pause("t00000", WHY), Stop("t00000", WHY), Pause("t00000", WHY)]}
    talk = Conversation(ScriptedScheduler(script), max_trials=1)
    talk.begin(1)
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", False)]


def test_a_failed_trial_is_tried_again_from_its_latest_checkpoint():
    talk = Conversation(max_trials=1, max_failures=1)
    talk.begin(1)
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    talk.report("t00000", 2)
    [start] = [
        command
        for command in talk.exit("t00000", Outcome.FAILED, BOOM)
        if isinstance(command, StartWorker)
    ]
    assert (start.attempt, start.checkpoint, start.next_checkpoint) == (
        2,
        CheckpointRecord(0, 1),
        1,
    )
    assert talk.trial("t00000").resumed_iteration == 1
    talk.say(WorkerStarted("t00000", 2, 1))
    talk.exit("t00000", Outcome.FAILED, BOOM)
    trial = talk.trial("t00000")
    assert (trial.status, trial.num_failures, trial.failures) == (Status.ERROR, 2, [BOOM, BOOM])
    assert [notice.will_retry for notice in talk.notices if isinstance(notice, AttemptFailed)] == [
        True,
        False,
    ]


def test_a_lost_worker_is_not_charged_to_its_trial():
    talk = Conversation(max_trials=1, max_failures=0)
    talk.begin(1)
    assert starts(talk.exit("t00000", Outcome.LOST, Failure("lost", ""))) == [("t00000", 2)]
    assert talk.trial("t00000").num_failures == 0


def test_a_failure_leaves_the_other_trials_alone():
    talk = Conversation(max_trials=2)
    talk.begin(2)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    assert answers(talk.report("t00001", 1)) == [("t00001", "continue", False)]
    assert talk.trial("t00000").status is Status.ERROR


def test_fail_fast_stops_the_others_and_leaves_them_resumable():
    talk = Conversation(max_trials=5, fail_fast=True)
    talk.begin(2)
    talk.report("t00001", 1)
    assert kills(talk.exit("t00000", Outcome.FAILED, BOOM)) == ["t00001"]
    talk.exit("t00001", Outcome.KILLED, BOOM)
    assert talk.trial("t00001").ending is TerminationReason.INTERRUPTED
    assert talk.experiment.is_finished


def test_fail_fast_takes_nothing_that_is_reported_after_the_failure():
    talk = Conversation(max_trials=5, fail_fast=True)
    talk.begin(2)
    failed = WorkerExited("t00000", 1, Outcome.FAILED, BOOM)
    assert answers(talk.say(failed, result("t00001", 1))) == []
    assert answers(talk.say(result("t00001", 2))) == []
    assert talk.trial("t00001").last_result == {}
    talk.exit("t00001", Outcome.COMPLETED)
    assert talk.experiment.is_finished


def test_after_an_interruption_a_failure_leaves_the_others_their_time_to_save():
    talk = Conversation(max_trials=5, fail_fast=True, checkpoints=SAVES)
    talk.begin(2)
    talk.say(StopRequested("signal.SIGINT"))
    assert kills(talk.exit("t00000", Outcome.UNSAVED, BOOM)) == []
    assert answers(talk.report("t00001", 1)) == [("t00001", "stop", True)]


def test_messages_of_an_older_attempt_are_dropped():
    talk = Conversation(max_trials=1, max_failures=1)
    talk.begin(1)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    talk.say(WorkerStarted("t00000", 2, 1))
    assert (
        talk.say(result("t00000", 9, attempt=1), WorkerExited("t00000", 1, Outcome.COMPLETED)) == []
    )
    assert talk.trial("t00000").status is Status.RUNNING
    assert talk.trial("t00000").last_result == {}


def test_a_worker_that_dies_right_after_its_report_keeps_the_report():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(result("t00000", 1, loss=0.5), WorkerExited("t00000", 1, Outcome.FAILED, BOOM))
    assert talk.trial("t00000").last_result["loss"] == 0.5


def test_periodic_saves_come_at_multiples_of_the_frequency_and_at_the_end_once():
    talk = Conversation(
        stopper=MetricThresholdStopper({"training_iteration": 4}),
        max_trials=1,
        checkpoints=CheckpointPolicy(can_save_on_demand=True, frequency=2, at_end=True),
    )
    talk.begin(1)
    assert answers(talk.report("t00000", 1)) == [("t00000", "continue", False)]
    assert answers(talk.report("t00000", 2)) == [("t00000", "continue", True)]
    talk.saved("t00000", 0, 2)
    assert answers(talk.report("t00000", 3)) == [("t00000", "continue", False)]
    assert answers(talk.report("t00000", 4)) == [("t00000", "stop", True)]
    talk.saved("t00000", 1, 4)
    talk.exit("t00000", Outcome.STOPPED)
    assert [c.iteration for c in talk.trial("t00000").checkpoints] == [2, 4]


@pytest.mark.parametrize("ask", ["result", "callback", "scheduler"])
def test_a_checkpoint_of_a_class_trainable_may_be_requested(ask):
    script = {("t00000", 1): [Save("t00000", WHY)]} if ask == "scheduler" else {}
    talk = Conversation(
        ScriptedScheduler(script),
        max_trials=1,
        checkpoints=CheckpointPolicy(can_save_on_demand=True),
    )
    talk.begin(1)
    flag = {"should_checkpoint": True} if ask == "result" else {}
    request = [CheckpointRequested("t00000")] if ask == "callback" else []
    assert answers(talk.say(result("t00000", 1, **flag), *request)) == [
        ("t00000", "continue", True)
    ]
    talk.saved("t00000", 0, 1)
    assert answers(talk.report("t00000", 2)) == [("t00000", "continue", False)]


def test_a_save_that_fails_leaves_the_trial_training():
    talk = Conversation(
        max_trials=1, checkpoints=CheckpointPolicy(can_save_on_demand=True, frequency=1)
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.say(CheckpointFailed("t00000", 1, BOOM))
    assert answers(talk.report("t00000", 2)) == [("t00000", "continue", True)]


def test_retention_deletes_what_is_superseded_but_never_the_latest():
    policy = CheckpointPolicy(retention=RetentionPolicy(num_to_keep=1, score_attribute="acc"))
    talk = Conversation(max_trials=1, checkpoints=policy)
    talk.begin(1)
    talk.report("t00000", 1, CheckpointRecord(0, 1), acc=0.9)
    assert not [
        c
        for c in talk.report("t00000", 2, CheckpointRecord(1, 2), acc=0.1)
        if isinstance(c, DeleteCheckpoint)
    ]
    deleted = [
        c.checkpoint.index
        for c in talk.report("t00000", 3, CheckpointRecord(2, 3), acc=0.2)
        if isinstance(c, DeleteCheckpoint)
    ]
    assert deleted == [1]
    assert [n.checkpoint.score for n in talk.notices if isinstance(n, CheckpointRecorded)] == [
        0.9,
        0.1,
        0.2,
    ]


@pytest.mark.parametrize("reports", [True, False])
def test_the_checkpoint_a_retry_starts_from_is_kept_until_it_is_loaded(reports):
    talk = Conversation(
        max_trials=1,
        max_failures=1,
        checkpoints=CheckpointPolicy(retention=RetentionPolicy(num_to_keep=1)),
    )
    talk.begin(1)
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    talk.exit("t00000", Outcome.FAILED, BOOM)
    talk.say(WorkerStarted("t00000", 2, 1))
    assert talk.trial("t00000").leased == {0}
    if reports:
        talk.report("t00000", 2)
    else:
        talk.exit("t00000", Outcome.COMPLETED)
    assert talk.trial("t00000").leased == set()


def test_a_silent_worker_is_killed_and_its_trial_tried_again():
    talk = Conversation(max_trials=1, max_failures=1, report_timeout_s=10.0)
    talk.begin(1)
    assert talk.experiment.next_deadline_s() == 10.0
    talk.now_s = 5.0
    talk.report("t00000", 1)
    assert kills(talk.say(after_s=9.0)) == []
    assert kills(talk.say(after_s=1.0)) == ["t00000"]
    assert starts(talk.exit("t00000", Outcome.KILLED, Failure("killed", "no report"))) == [
        ("t00000", 2)
    ]


def test_a_worker_that_does_not_leave_is_killed_and_its_trial_still_ends_well():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY)]}), max_trials=1, stop_grace_s=3.0
    )
    talk.begin(1)
    talk.report("t00000", 1)
    assert kills(talk.say(after_s=3.0)) == ["t00000"]
    talk.exit("t00000", Outcome.KILLED, Failure("killed", "late"))
    assert talk.trial("t00000").ending is TerminationReason.STOPPED_EARLY


def test_a_stop_request_interrupts_everything_and_saves_what_can_be_saved():
    talk = Conversation(max_trials=9, checkpoints=SAVES, interrupt_grace_s=5.0)
    talk.begin(2)
    assert talk.say(StopRequested("signal.SIGINT")) == []
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", True)]
    assert kills(talk.say(after_s=5.0)) == ["t00000", "t00001"]
    talk.exit("t00000", Outcome.KILLED, BOOM)
    talk.exit("t00001", Outcome.KILLED, BOOM)
    assert talk.trial("t00000").ending is TerminationReason.INTERRUPTED
    assert talk.trial("t00001").status is Status.PENDING  # it has reported nothing
    assert talk.experiment.is_finished


def reason_to_leave(commands):
    """Return what the answer tells the worker of an interruption."""
    [answer] = [command for command in commands if isinstance(command, AnswerReport)]
    return answer.interruption


def test_a_worker_that_is_interrupted_or_paused_is_told_why_and_how_much_time_it_has():
    scheduler = ScriptedScheduler({("t00000", 1): [Pause("t00000", Reason("rung"))]})
    talk = Conversation(scheduler, max_trials=2, checkpoints=SAVES, interrupt_grace_s=5.0)
    talk.begin(2)
    assert reason_to_leave(talk.report("t00000", 1)) == Interruption("rung", 30.0)
    assert reason_to_leave(talk.report("t00001", 1)) is None
    talk.say(StopRequested("signal.SIGTERM"))
    talk.now_s += 2.0
    assert reason_to_leave(talk.report("t00001", 2)) == Interruption("signal.SIGTERM", 3.0)


def test_a_worker_whose_trial_is_over_is_told_of_no_interruption():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(TrialStopRequested("t00000"))
    assert reason_to_leave(talk.report("t00000", 1)) is None


def test_an_urgent_stop_request_kills_at_once():
    talk = Conversation(max_trials=9)
    talk.begin(2)
    talk.say(StopRequested("signal.SIGINT"))
    assert kills(talk.say(StopRequested("signal.SIGINT", is_urgent=True))) == ["t00000", "t00001"]


def test_the_time_budget_stops_everything():
    talk = Conversation(max_trials=9, time_budget_s=60.0)
    talk.begin(2)
    assert talk.experiment.next_deadline_s() == 60.0
    talk.now_s = 60.0
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", False)]
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").reason.rule == "time_budget"
    assert talk.trial("t00000").ending is TerminationReason.INTERRUPTED


def test_a_timeout_stopper_is_asked_when_its_time_comes():
    talk = Conversation(stopper=TimeoutStopper(7.0), max_trials=9)
    talk.begin(1)
    assert talk.experiment.next_deadline_s() == 7.0
    talk.now_s = 7.0
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", False)]


def test_a_postponed_suggestion_is_asked_for_again_after_a_result():
    talk = Conversation(max_trials=5)
    talk.say()
    talk.say(suggest("t00000"), SuggestionPostponed("t00001"))
    talk.say(WorkerStarted("t00000", 1, 1))
    assert talk.say() == []
    assert AskSearcher("t00001") in talk.report("t00000", 1)


def test_a_searcher_that_postpones_while_nothing_runs_ends_the_experiment_with_a_reason():
    talk = Conversation(max_trials=5)
    talk.say()
    talk.say(SuggestionPostponed("t00000"), SuggestionPostponed("t00001"))
    assert talk.experiment.is_finished
    assert "postponed" in talk.experiment.stall_reason


def test_no_more_is_asked_for_once_the_search_has_ended():
    talk = Conversation()
    talk.say()
    assert talk.say(SearchEnded(), SearchEnded()) == []
    assert talk.experiment.is_finished


def test_a_request_that_can_never_fit_fails_its_trial_only():
    talk = Conversation(max_trials=2)
    talk.say()
    talk.say(suggest("t00000", cpu=64.0), suggest("t00001"))
    assert talk.trial("t00000").status is Status.ERROR
    assert "64.0" in talk.trial("t00000").failures[0].message
    assert talk.trial("t00001").status is Status.RUNNING


def test_a_trial_whose_request_raised_fails_alone():
    talk = Conversation(max_trials=1)
    talk.say()
    talk.say(TrialSuggested("t00000", {}, {}, failure=BOOM))
    assert talk.trial("t00000").failures == [BOOM]
    assert talk.experiment.is_finished


def test_after_a_restart_of_the_driver_running_trials_continue_from_their_checkpoints():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    talk.report("t00000", 2)
    [start] = [
        command
        for command in talk.say(DriverRestarted(talk.experiment.settings))
        if isinstance(command, StartWorker)
    ]
    assert (start.attempt, start.checkpoint) == (2, CheckpointRecord(0, 1))
    assert talk.trial("t00000").num_failures == 0


def test_the_best_result_is_known_at_any_time_and_nan_is_never_it():
    talk = Conversation(max_trials=2, metric="loss", mode="min")
    talk.begin(2)
    talk.report("t00000", 1, loss=float("nan"))
    assert talk.experiment.best.trial is None
    talk.report("t00001", 1, loss=0.5)
    assert (talk.experiment.best.trial, talk.experiment.best.value) == (talk.trial("t00001"), 0.5)
    talk.report("t00000", 2, loss=0.5)
    assert talk.experiment.best.leaders == (talk.trial("t00000"), talk.trial("t00001"))


def test_gpus_are_assigned_in_fractions_and_given_back():
    talk = Conversation(
        capacity={"cpu": 8.0, "gpu": 1.0}, max_trials=3, default_request={"gpu": 0.5}
    )
    commands = talk.say()
    assert len(commands) == 2
    started = [
        c
        for c in talk.say(suggest("t00000", gpu=0.5), suggest("t00001", gpu=0.5))
        if isinstance(c, StartWorker)
    ]
    assert [command.gpu_ids for command in started] == [(0,), (0,)]
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.trial("t00000").gpu_ids == ()


def test_observers_are_notified_exactly_once_when_a_trial_ends():
    talk = Conversation(max_trials=2)
    talk.begin(2)
    talk.exit("t00000", Outcome.COMPLETED)
    talk.exit("t00001", Outcome.STOPPED)
    assert [notice.trial.trial_id for notice in talk.notices if isinstance(notice, TrialEnded)] == [
        "t00000",
        "t00001",
    ]


def test_a_restarted_driver_resumes_interrupted_trials_with_the_settings_of_its_machine():
    talk = Conversation(max_trials=2, max_concurrent=1)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    talk.report("t00000", 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.experiment.is_finished
    commands = talk.say(
        DriverRestarted(dataclasses.replace(talk.experiment.settings, capacity={"cpu": 1.0}))
    )
    assert starts(commands) == [("t00000", 2)]
    assert talk.experiment.trial_table.nodes.capacity == {"cpu": 1.0}
    assert talk.experiment.stop_reason is None


def test_a_restart_may_leave_unfinished_trials_alone_and_try_failed_ones_again():
    talk = Conversation(max_trials=2)
    talk.begin(2)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    commands = talk.say(
        DriverRestarted(
            talk.experiment.settings, unfinished=ResumeType.SKIP, errored=ResumeType.RESUME
        )
    )
    assert starts(commands) == [("t00000", 2)]
    assert (talk.trial("t00001").status, talk.trial("t00001").ending) == (
        Status.TERMINATED,
        TerminationReason.INTERRUPTED,
    )
    assert talk.trial("t00000").num_failures == 0


def test_a_stopped_trial_does_not_start_again_when_the_driver_dies():
    talk = Conversation(stopper=MetricThresholdStopper({"training_iteration": 1}), max_trials=1)
    talk.begin(1)
    assert answers(talk.report("t00000", 1, loss=0.5)) == [("t00000", "stop", False)]
    assert starts(talk.say(DriverRestarted(talk.experiment.settings))) == []
    trial = talk.trial("t00000")
    assert (trial.status, trial.ending, trial.last_result["loss"]) == (
        Status.TERMINATED,
        TerminationReason.COMPLETED,
        0.5,
    )


@pytest.mark.parametrize("outcome", [Outcome.KILLED, Outcome.FAILED, Outcome.STOPPED])
def test_a_trial_interrupted_before_its_first_result_is_pending_and_starts_in_the_next_session(
    outcome,
):
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    talk.exit("t00000", outcome, BOOM)
    trial = talk.trial("t00000")
    assert (trial.status, trial.ending, talk.experiment.is_finished) == (Status.PENDING, None, True)
    talk.restore_from_snapshot()
    assert talk.trial("t00000").status is Status.PENDING
    assert starts(talk.say(DriverRestarted(talk.experiment.settings))) == [("t00000", 2)]
