"""Requests of the user about single trials: stop, pause, resume, fork."""

import pytest

from schedulers.decisions import Pause, Reason, Resume, Stop
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    answers,
    result,
    starts,
    suggest,
)
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import ExploitApplied, TrialAdded
from tuner.core.events import (
    CheckpointLost,
    DriverRestarted,
    Outcome,
    PauseRequested,
    ResumeRequested,
    ResumeType,
    StopRequested,
    TrialForked,
    TrialStopRequested,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.manual_control import fork_tag, unknown_names, with_changes
from tuner.core.progress import look_at
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord

WHY = Reason("test")
SAVES = CheckpointPolicy(can_save_on_demand=True)


def saving(scheduler=None, num_trials=1, **settings):
    talk = Conversation(scheduler, **{"max_trials": num_trials, "checkpoints": SAVES, **settings})
    talk.begin(num_trials)
    return talk


def pause_by_hand(talk, trial_id="t00000", iteration=1):
    """Pause a running trial by hand, and let its worker exit."""
    talk.say(PauseRequested(trial_id))
    assert answers(talk.report(trial_id, iteration)) == [(trial_id, "pause", True)]
    talk.saved(trial_id, 0, iteration)
    return talk.exit(trial_id, Outcome.STOPPED)


def with_one_that_waits():
    talk = Conversation(max_trials=2)
    talk.say()
    talk.say(suggest("t00000"), suggest("t00001", cpu=2.0))
    talk.say(WorkerStarted("t00000", 1, pid=1))
    assert talk.trial("t00001").status is Status.PENDING
    return talk


def begin_again(talk, **treatment):
    return talk.say(DriverRestarted(talk.experiment.settings, **treatment))


def test_a_trial_is_stopped_at_its_next_report():
    talk = saving()
    assert talk.say(TrialStopRequested("t00000")) == []
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", False)]
    talk.exit("t00000", Outcome.STOPPED)
    trial = talk.trial("t00000")
    assert (trial.status, trial.ending, trial.reason.rule) == (
        Status.TERMINATED,
        TerminationReason.STOPPED_EARLY,
        "user.stop",
    )
    assert talk.experiment.is_finished


def test_a_trial_that_waits_for_its_start_is_stopped_at_once():
    talk = with_one_that_waits()
    talk.say(TrialStopRequested("t00001"))
    assert talk.trial("t00001").status is Status.TERMINATED


def test_a_trial_paused_by_the_user_saves_and_waits_until_it_is_resumed():
    talk = saving()
    assert starts(pause_by_hand(talk)) == []
    trial = talk.trial("t00000")
    assert (trial.status, trial.reason.rule) == (Status.PAUSED, "user.pause")
    assert talk.say(after_s=3600.0) == []
    assert not talk.experiment.is_finished
    assert starts(talk.say(ResumeRequested("t00000"))) == [("t00000", 2)]


def test_what_the_pause_has_freed_is_used_by_others():
    talk = Conversation(max_trials=2, checkpoints=SAVES, capacity={"cpu": 1.0})
    talk.begin(1)
    commands = pause_by_hand(talk)
    assert [command.trial_id for command in commands] == ["t00001"]
    assert starts(talk.say(suggest("t00001"))) == [("t00001", 1)]


def test_a_scheduler_neither_sees_nor_resumes_held_trials():
    talk = saving(ScriptedScheduler(idle=[[Resume("t00000", WHY)], [Resume("t00000", WHY)]]))
    pause_by_hand(talk)
    assert talk.scheduler.idle  # was not even asked
    assert talk.trial("t00000").status is Status.PAUSED


def test_a_resume_that_a_scheduler_decides_by_itself_waits_for_the_users():
    talk = saving(ScriptedScheduler({("t00001", 1): [Resume("t00000", WHY)]}), num_trials=2)
    pause_by_hand(talk)
    assert starts(talk.report("t00001", 1)) == []
    assert starts(talk.say(ResumeRequested("t00000"))) == [("t00000", 2)]


def test_a_resume_that_waited_for_the_users_does_not_undo_their_next_pause():
    talk = saving(ScriptedScheduler({("t00001", 1): [Resume("t00000", WHY)]}), num_trials=2)
    pause_by_hand(talk)
    talk.report("t00001", 1)
    talk.say(ResumeRequested("t00000"))
    talk.say(WorkerStarted("t00000", 2, pid=1))
    talk.say(PauseRequested("t00000"))
    talk.report("t00000", 2)
    talk.saved("t00000", 1, 2)
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == []
    assert talk.trial("t00000").status is Status.PAUSED
    talk.say(ResumeRequested("t00000"))
    assert talk.trial("t00000").attempt == 3


def test_a_users_pause_replaced_by_a_schedulers_is_ended_by_the_scheduler():
    script = {("t00001", 1): [Resume("t00000", WHY)], ("t00000", 2): [Pause("t00000", WHY)]}
    talk = saving(ScriptedScheduler(script, idle=[(), (), (), ()]), num_trials=2)
    pause_by_hand(talk)
    talk.report("t00001", 1)
    talk.say(ResumeRequested("t00000"))
    talk.say(WorkerStarted("t00000", 2, pid=1))
    talk.report("t00000", 2)
    talk.saved("t00000", 1, 2)
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == []
    assert talk.trial("t00000").status is Status.PAUSED


def test_a_trial_paused_again_while_it_resumes_continues_in_the_next_session():
    talk = saving()
    pause_by_hand(talk)
    talk.say(DriverRestarted(talk.experiment.settings), PauseRequested("t00000"))
    assert talk.trial("t00000").status is Status.PAUSED
    assert starts(begin_again(talk)) == [("t00000", 2)]


def test_a_trial_held_when_its_scheduler_resumes_it_continues_in_the_next_session():
    script = {("t00000", 1): [Pause("t00000", WHY)], ("t00001", 1): [Resume("t00000", WHY)]}
    talk = Conversation(
        ScriptedScheduler(script, idle=[(), (), (), ()]),
        max_trials=2,
        checkpoints=SAVES,
        capacity={"cpu": 1.0},
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert starts(talk.say(suggest("t00001"))) == [("t00001", 1)]
    talk.say(WorkerStarted("t00001", 1, pid=1))
    talk.report("t00001", 1)  # its resume waits for room
    talk.say(PauseRequested("t00000"))
    begin_again(talk)
    assert talk.trial("t00000") in talk.experiment.trial_table.ready


def test_a_pause_that_the_user_withdraws_in_time_has_no_effect():
    talk = saving()
    talk.say(PauseRequested("t00000"))
    talk.say(ResumeRequested("t00000"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "continue", False)]


def test_a_trial_resumed_while_it_pauses_continues_once_its_worker_has_left():
    talk = saving()
    talk.say(PauseRequested("t00000"))
    talk.report("t00000", 1)
    assert talk.say(ResumeRequested("t00000")) == []
    talk.saved("t00000", 0, 1)
    assert starts(talk.exit("t00000", Outcome.STOPPED)) == [("t00000", 2)]


def test_a_pause_by_the_scheduler_outlasts_one_by_the_user():
    talk = saving(
        ScriptedScheduler({("t00001", 1): [Pause("t00000", WHY)]}, idle=[()]), num_trials=2
    )
    talk.say(PauseRequested("t00000"))
    talk.report("t00001", 1)
    talk.say(ResumeRequested("t00000"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "pause", True)]


def test_a_stop_of_the_scheduler_ends_a_held_trial():
    talk = saving(ScriptedScheduler({("t00001", 1): [Stop("t00000", WHY)]}), num_trials=2)
    pause_by_hand(talk)
    talk.report("t00001", 1)
    assert talk.trial("t00000").status is Status.TERMINATED
    assert not talk.experiment.trial_table.held


def test_a_ready_trial_can_be_held():
    talk = with_one_that_waits()
    talk.say(PauseRequested("t00001"))
    assert starts(talk.exit("t00000", Outcome.COMPLETED)) == []
    assert not talk.experiment.is_finished
    assert talk.trial("t00001").status is Status.PENDING
    assert starts(talk.say(ResumeRequested("t00001"))) == [("t00001", 1)]


def test_a_trial_that_fails_while_it_pauses_waits_for_the_user():
    talk = saving(max_failures=5)
    talk.say(PauseRequested("t00000"))
    assert starts(talk.exit("t00000", Outcome.FAILED, BOOM)) == []
    assert talk.trial("t00000").status is Status.PENDING
    assert starts(talk.say(ResumeRequested("t00000"))) == [("t00000", 2)]


def test_a_trial_that_never_saves_continues_to_its_end():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(PauseRequested("t00000"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "continue", False)]
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.trial("t00000").status is Status.TERMINATED
    assert talk.experiment.is_finished


def test_a_function_is_paused_with_the_first_checkpoint_that_it_reports():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(PauseRequested("t00000"))
    talk.report("t00000", 1)
    assert answers(talk.report("t00000", 2, CheckpointRecord(0, 2))) == [("t00000", "pause", False)]
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").status is Status.PAUSED


def test_a_trial_paused_by_its_scheduler_can_be_held_and_resumed():
    script = ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}, idle=[(), (), (), ()])
    talk = saving(script, num_trials=2)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    talk.say(PauseRequested("t00000"))
    assert talk.trial("t00000").reason == WHY
    assert starts(talk.say(ResumeRequested("t00000"))) == [("t00000", 2)]


def test_the_time_budget_ends_an_experiment_that_waits_for_the_user():
    talk = saving(time_budget_s=60.0)
    pause_by_hand(talk)
    assert talk.experiment.next_deadline_s() == 60.0
    talk.say(after_s=60.0)
    assert talk.experiment.is_finished
    assert talk.trial("t00000").status is Status.PAUSED


def test_a_restore_resumes_trials_that_the_user_had_paused():
    talk = saving(num_trials=3, capacity={"cpu": 3.0})
    pause_by_hand(talk, "t00000")
    talk.say(PauseRequested("t00001"))
    talk.say(StopRequested("signal.SIGINT"))
    talk.exit("t00001", Outcome.LOST)
    talk.exit("t00002", Outcome.STOPPED)
    assert talk.experiment.is_finished
    assert [trial_id for trial_id, _ in starts(begin_again(talk))] == ["t00000", "t00001", "t00002"]
    assert not talk.experiment.trial_table.held


def test_a_held_trial_paused_by_its_scheduler_stays_paused_after_a_restore():
    script = ScriptedScheduler({("t00000", 1): [Pause("t00000", WHY)]}, idle=[(), (), (), (), ()])
    talk = saving(script, num_trials=2)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    talk.say(PauseRequested("t00000"))
    assert [trial_id for trial_id, _ in starts(begin_again(talk))] == ["t00001"]
    assert talk.trial("t00000").status is Status.PAUSED


def test_a_restore_without_unfinished_trials_ends_held_ones():
    talk = saving()
    pause_by_hand(talk)
    begin_again(talk, unfinished=ResumeType.SKIP)
    assert talk.experiment.is_finished


def test_held_trials_survive_a_snapshot():
    talk = saving()
    pause_by_hand(talk)
    talk.restore_from_snapshot()
    assert talk.say(after_s=10.0) == []
    assert starts(talk.say(ResumeRequested("t00000"))) == [("t00000", 2)]


def test_progress_names_the_held_trials_that_the_experiment_waits_for():
    talk = saving()
    pause_by_hand(talk)
    assert look_at(talk.experiment, "exp", 1.0).waiting_for == "t00000 to be resumed"


def forked(trial_id="f00000", donor="t00000", changes=None, checkpoint=0):
    return TrialForked(
        trial_id, donor, {"x": 2} if changes is None else changes, {"cpu": 1.0}, checkpoint
    )


def with_a_checkpoint(**settings):
    talk = Conversation(max_trials=1, **settings)
    talk.begin(1)
    talk.report("t00000", 3, CheckpointRecord(0, 3))
    return talk


def test_a_fork_continues_from_the_checkpoint_with_another_configuration():
    talk = with_a_checkpoint()
    (start,) = talk.say(forked())
    assert (start.trial_id, start.attempt, start.config, start.source_id) == (
        "f00000",
        1,
        {"x": 2},
        "t00000",
    )
    assert start.checkpoint == CheckpointRecord(0, 3)
    assert talk.trial("t00000").config == {"x": 1}
    assert [type(notice) for notice in talk.notices if notice.trial.trial_id == "f00000"][:2] == [
        TrialAdded,
        ExploitApplied,
    ]
    talk.say(WorkerStarted("f00000", 1, pid=1), result("f00000", 4))
    assert talk.trial("f00000").num_rows == 1


def test_the_checkpoint_is_kept_until_the_fork_has_saved_one():
    talk = with_a_checkpoint()
    talk.say(forked())
    assert talk.trial("t00000").leased == {0}
    talk.say(
        WorkerStarted("f00000", 1, pid=1), result("f00000", 4, checkpoint=CheckpointRecord(0, 4))
    )
    assert not talk.trial("t00000").leased


def test_a_fork_that_fails_before_it_saves_begins_again_at_its_donors_checkpoint():
    talk = with_a_checkpoint(max_failures=1)
    talk.say(forked())
    (start,) = talk.say(WorkerExited("f00000", 1, Outcome.FAILED, BOOM))
    assert (start.trial_id, start.attempt, start.source_id) == ("f00000", 2, "t00000")


def test_a_fork_whose_checkpoint_is_lost_restarts_with_its_own_configuration():
    talk = with_a_checkpoint(max_failures=1)
    talk.say(forked())
    (start, *_) = talk.say(
        CheckpointLost("t00000", 0, "gone"), WorkerExited("f00000", 1, Outcome.LOST)
    )
    assert (start.trial_id, start.config, start.checkpoint) == ("f00000", {"x": 2}, None)


def test_a_trial_that_is_over_can_be_forked():
    talk = with_a_checkpoint()
    talk.say(WorkerExited("t00000", 1, Outcome.FAILED, BOOM), forked())
    assert talk.trial("f00000").status is Status.RUNNING


def test_a_fork_does_not_count_as_a_sample():
    talk = with_a_checkpoint()
    talk.say(forked())
    talk.exit("t00000", Outcome.COMPLETED)
    assert look_at(talk.experiment, "exp", 1.0).num_total == 2
    assert not talk.experiment.is_finished
    talk.exit("f00000", Outcome.COMPLETED)
    assert talk.experiment.is_finished


def test_a_fork_that_is_restarted_begins_with_its_own_configuration():
    talk = with_a_checkpoint()
    talk.say(forked())
    talk.exit("f00000", Outcome.FAILED, BOOM)
    start = next(
        start
        for start in begin_again(talk, errored=ResumeType.RESTART)
        if start.trial_id == "f00000"
    )
    assert (start.config, start.checkpoint) == ({"x": 2}, None)


def test_the_number_of_forks_outlasts_a_snapshot():
    talk = with_a_checkpoint()
    talk.say(forked())
    talk.restore_from_snapshot()
    assert talk.experiment.trial_table.num_forked == 1


def test_a_fork_that_fits_nowhere_fails():
    talk = with_a_checkpoint()
    talk.say(TrialForked("f00000", "t00000", {}, {"cpu": 64.0}, 0))
    assert talk.trial("f00000").failures[0].kind == "ResourcesUnavailable"


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (TrialStopRequested("t9"), "there is no trial 't9'; there are 2, t00000 to t00001"),
        (PauseRequested("t00001"), "trial t00001 is TERMINATED already; fork it"),
        (ResumeRequested("t00000"), "trial t00000 is RUNNING and not paused"),
        (forked(donor="t00001"), "trial t00001 has no checkpoint to go on from"),
        (forked(checkpoint=7), "trial t00000 has no checkpoint 7; it has 0"),
        (forked(changes={"y": 1}), "trial t00000 has no hyperparameter 'y'; it has x"),
    ],
)
def test_what_cannot_be_granted_is_answered_with_what_can(wish, why):
    talk = Conversation(max_trials=2)
    talk.begin(2)
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    talk.exit("t00001", Outcome.COMPLETED)
    assert why in talk.experiment.why_rejected(wish)
    assert talk.say(wish) == []


def test_a_second_pause_and_a_request_at_the_end_are_rejected():
    talk = saving()
    talk.say(PauseRequested("t00000"))
    assert "paused by hand already" in talk.experiment.why_rejected(PauseRequested("t00000"))
    talk.say(StopRequested("signal.SIGINT"))
    assert "the experiment is ending" in talk.experiment.why_rejected(ResumeRequested("t00000"))


def test_changes_reach_nested_hyperparameters_and_whole_branches():
    config = {"lr": 0.1, "net": {"depth": 3, "act": {"kind": "relu"}}, 5: 6}
    assert with_changes(config, {"net/act/kind": "tanh", "5": 7}) == {
        "lr": 0.1,
        "net": {"depth": 3, "act": {"kind": "tanh"}},
        5: 7,
    }
    assert with_changes(config, {"net": 1}) == {"lr": 0.1, "net": 1, 5: 6}
    assert unknown_names(config, {"net/act": 1, "net/deep": 2, "lr": 3, "act": 4}) == [
        "net/deep",
        "act",
    ]
    assert config["net"]["act"] == {"kind": "relu"}


def test_a_fork_is_named_after_its_donor_and_what_is_different():
    talk = with_a_checkpoint()
    talk.trial("t00000").experiment_tag = "0_x=1@perturbed[x=2]"
    assert fork_tag(talk.trial("t00000"), {"net/lr": 0.25, "n": 3}) == "0_x=1@forked[lr=0.2500,n=3]"
