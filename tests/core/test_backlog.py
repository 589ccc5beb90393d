"""Trials that are suggested before there is a slot for them."""

import dataclasses

import pytest

from schedulers.decisions import Reason, Stop
from tests.core.conversation import BOOM, Conversation, ScriptedScheduler, starts, suggest
from tuner.core.commands import AskSearcher, TrialAdded
from tuner.core.events import (
    DriverRestarted,
    Outcome,
    PauseRequested,
    ResumeRequested,
    ResumeType,
    SearchEnded,
    StopRequested,
    TrialForked,
    TrialStopRequested,
    TrialSuggested,
    WorkerStarted,
)
from tuner.core.progress import look_at
from tuner.core.stoppers import NoopStopper, TimeoutStopper
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord


def asked(commands):
    return [command.trial_id for command in commands if isinstance(command, AskSearcher)]


def waiting(talk):
    return list(talk.experiment.trial_table.backlog)


def heard(talk, fact="add"):
    return [trial_id for said, trial_id in talk.scheduler.heard if said == fact]


def look_ahead(scheduler=None, stopper=None, *, answer=suggest, **settings):
    """Return a conversation with one slot, in which one trial runs and three wait."""
    talk = Conversation(
        scheduler,
        stopper,
        **{"capacity": {"cpu": 1.0}, "max_trials": 6, "max_pending": 3, **settings},
    )
    commands = talk.say()
    assert asked(commands) == ["t00000", "t00001", "t00002", "t00003"]
    talk.say(*[answer(trial_id) for trial_id in asked(commands)])
    talk.say(WorkerStarted("t00000", 1, 1))
    return talk


def restart(talk, **treatment):
    return talk.say(DriverRestarted(talk.experiment.settings, **treatment))


def test_trials_without_a_slot_are_pending_and_shown_to_the_scheduler_when_they_get_one():
    talk = look_ahead()
    assert [trial.status for trial in talk.experiment.trials] == [
        Status.RUNNING,
        *[Status.PENDING] * 3,
    ]
    assert [notice.trial.trial_id for notice in talk.notices if isinstance(notice, TrialAdded)] == [
        "t00000",
        *waiting(talk),
    ]
    assert heard(talk) == list(talk.scheduler.experiment.trials) == ["t00000"]
    commands = talk.exit("t00000", Outcome.COMPLETED)
    assert (starts(commands), asked(commands)) == ([("t00001", 1)], ["t00004"])
    assert heard(talk) == ["t00000", "t00001"]
    assert waiting(talk) == ["t00002", "t00003"]


def test_all_trials_run_and_only_the_last_one_is_the_schedulers_last():
    talk = look_ahead()
    has_ended = [talk.scheduler.experiment.no_more_trials]
    for number in range(6):
        commands = talk.exit(f"t{number:05d}", Outcome.COMPLETED)
        talk.say(*[suggest(trial_id) for trial_id in asked(commands)])
        has_ended.append(talk.scheduler.experiment.no_more_trials)
    assert has_ended == [False] * 5 + [True] * 2
    assert talk.experiment.is_finished
    assert heard(talk) == [trial.trial_id for trial in talk.experiment.trials]


def test_without_max_pending_nothing_is_asked_for_before_there_is_a_slot():
    talk = Conversation(capacity={"cpu": 1.0}, max_trials=6)
    assert asked(talk.say()) == ["t00000"]
    assert asked(talk.say(suggest("t00000"))) == []


def test_a_search_that_ends_early_leaves_those_that_wait():
    talk = Conversation(capacity={"cpu": 1.0}, max_pending=2)
    talk.say()
    talk.say(suggest("t00000"), suggest("t00001"), SearchEnded())
    assert not talk.scheduler.experiment.no_more_trials
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.scheduler.experiment.no_more_trials
    talk.exit("t00001", Outcome.COMPLETED)
    assert talk.experiment.is_finished


@pytest.mark.parametrize("stopper", [None, TimeoutStopper(5.0)])
def test_a_stop_interrupts_the_backlog_which_waits_again_in_the_next_session(
    stopper,
):
    talk = look_ahead(stopper=stopper)
    talk.say(*[] if stopper else [StopRequested("signal.SIGINT")], after_s=6.0)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.experiment.is_finished
    assert [(trial.status, trial.ending) for trial in talk.experiment.trials[1:]] == [
        (Status.PENDING, None)
    ] * 3
    assert talk.experiment.stop_reason.rule == ("stopper.stop_all" if stopper else "signal.SIGINT")
    assert [fact for fact, trial_id in talk.scheduler.heard if trial_id != "t00000"] == []
    talk.experiment.policies.stopper = NoopStopper()
    commands = restart(talk, unfinished=ResumeType.SKIP)
    # Left out is what had begun; the others are as good as not suggested.
    assert (starts(commands), waiting(talk)) == ([("t00001", 1)], ["t00002", "t00003"])
    assert [trial.config for trial in talk.experiment.trials] == [{"x": 1}] * 4
    assert talk.experiment.trial_table.num_by_ending[TerminationReason.INTERRUPTED] == (
        0 if stopper else 1
    )


def test_what_is_suggested_after_the_stop_waits_for_the_next_session():
    talk = look_ahead()
    talk.exit("t00000", Outcome.COMPLETED)
    talk.say(StopRequested("signal.SIGINT"))
    talk.say(suggest("t00004"))
    assert talk.trial("t00004").status is Status.PENDING
    talk.exit("t00001", Outcome.STOPPED)
    restart(talk)
    assert waiting(talk) == ["t00002", "t00003", "t00004"]


def test_the_backlog_keeps_its_order_when_the_driver_restarts():
    talk = look_ahead()
    commands = restart(talk)
    assert (starts(commands), waiting(talk)) == ([("t00000", 2)], ["t00001", "t00002", "t00003"])


def test_the_last_ones_of_the_backlog_are_skipped_while_fewer_trials_are_wanted():
    talk = look_ahead()
    fewer = dataclasses.replace(talk.experiment.settings, max_trials=2)
    talk.say(DriverRestarted(fewer))
    assert waiting(talk) == ["t00001"]
    assert [trial.ending for trial in talk.experiment.trials] == [
        None,
        None,
        TerminationReason.INTERRUPTED,
        TerminationReason.INTERRUPTED,
    ]
    talk.say(DriverRestarted(dataclasses.replace(fewer, max_trials=1)))
    assert waiting(talk) == []
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.experiment.is_finished
    commands = talk.say(DriverRestarted(dataclasses.replace(fewer, max_trials=6)))
    assert (starts(commands), waiting(talk), asked(commands)) == (
        [("t00001", 1)],
        ["t00002", "t00003"],
        ["t00004"],
    )


def test_where_the_next_session_asks_for_nothing_early_they_are_used_up_first():
    talk = look_ahead()
    settings = dataclasses.replace(talk.experiment.settings, max_pending=0)
    talk.say(DriverRestarted(settings))
    for number in range(3):
        assert asked(talk.exit(f"t{number:05d}", Outcome.COMPLETED)) == []
    assert asked(talk.exit("t00003", Outcome.COMPLETED)) == ["t00004"]


def test_the_user_stops_a_backlog_trial_that_the_scheduler_never_sees():
    talk = look_ahead()
    assert asked(talk.say(TrialStopRequested("t00001"))) == ["t00004"]
    assert (talk.trial("t00001").status, talk.trial("t00001").ending) == (
        Status.TERMINATED,
        TerminationReason.STOPPED_EARLY,
    )
    assert starts(talk.exit("t00000", Outcome.COMPLETED)) == [("t00002", 1)]
    assert [fact for fact, trial_id in talk.scheduler.heard if trial_id == "t00001"] == []
    restart(talk, unfinished=ResumeType.RESTART, finished=ResumeType.RESTART)
    assert {"t00001", "t00003"} <= set(waiting(talk))


def test_the_user_pauses_and_resumes_a_backlog_trial():
    talk = look_ahead()
    talk.say(PauseRequested("t00001"))
    assert (waiting(talk), talk.trial("t00001").status) == (["t00002", "t00003"], Status.PENDING)
    assert starts(talk.exit("t00000", Outcome.COMPLETED)) == [("t00002", 1)]
    talk.say(ResumeRequested("t00001"))
    assert waiting(talk) == ["t00003", "t00001"]
    talk.say(PauseRequested("t00001"))
    talk.say(StopRequested("signal.SIGINT"))
    assert talk.trial("t00001").status is Status.PENDING


def test_an_experiment_with_only_a_held_backlog_trial_waits_for_the_user():
    talk = look_ahead(max_trials=4)
    talk.say(PauseRequested("t00003"))
    for trial_id in ("t00000", "t00001", "t00002"):
        talk.exit(trial_id, Outcome.COMPLETED)
    assert not talk.experiment.is_finished
    assert look_at(talk.experiment, "demo", 0.0).waiting_for == "t00003 to be resumed"
    assert starts(talk.say(ResumeRequested("t00003"))) == [("t00003", 1)]


def refused(trial_id):
    """Suggest a trial whose resources could not be found out; only the first one can be started."""
    return (
        suggest(trial_id)
        if trial_id == "t00000"
        else TrialSuggested(trial_id, {}, {}, failure=BOOM)
    )


def test_a_backlog_trial_that_cannot_start_fails_at_admission_and_the_next_is_admitted():
    talk = look_ahead(answer=refused, max_trials=4)
    assert talk.experiment.trial_table.num_by_status[Status.ERROR] == 0
    assert talk.experiment.next_deadline_s() > talk.now_s
    talk.exit("t00000", Outcome.COMPLETED)
    assert heard(talk, "error") == ["t00001"]
    assert talk.experiment.next_deadline_s() == talk.now_s
    talk.say()
    talk.say()
    assert heard(talk, "error") == ["t00001", "t00002", "t00003"]
    assert talk.experiment.is_finished
    assert talk.experiment.next_deadline_s() is None


def test_what_has_failed_for_one_cause_too_often_leaves_the_others_untried():
    talk = Conversation(capacity={"cpu": 1.0}, max_trials=9, max_pending=8, max_common_failures=3)
    talk.say(*[TrialSuggested(trial_id, {}, {}, failure=BOOM) for trial_id in asked(talk.say())])
    while talk.experiment.next_deadline_s() is not None:
        talk.say()
    assert talk.experiment.is_finished
    assert talk.experiment.stop_reason.rule == "common_failure"
    assert len(heard(talk, "error")) == 3
    assert [trial.status for trial in talk.experiment.trials[3:]] == [Status.PENDING] * 6


def test_where_the_first_failure_ends_everything_nothing_else_is_admitted():
    talk = look_ahead(
        answer=lambda trial_id: suggest(trial_id, cpu=1.0 if trial_id == "t00000" else 9.0),
        fail_fast=True,
    )
    assert starts(talk.exit("t00000", Outcome.COMPLETED)) == []
    assert [trial.status for trial in talk.experiment.trials] == [
        Status.TERMINATED,
        Status.ERROR,
        Status.PENDING,
        Status.PENDING,
    ]
    assert talk.experiment.is_finished


def test_a_trial_that_the_scheduler_stops_on_sight_leaves_its_slot_to_the_next():
    why = Reason("test")
    talk = look_ahead(ScriptedScheduler({("t00001", 0): [Stop("t00001", why)]}))
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.trial("t00001").reason == why
    assert talk.experiment.next_deadline_s() == talk.now_s
    assert starts(talk.say()) == [("t00002", 1)]


def test_a_snapshot_keeps_the_backlog_and_the_order_of_admission():
    talk = look_ahead()
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    talk.say(TrialForked("f00000", "t00000", {"x": 2}, {"cpu": 1.0}, 0))
    talk.exit("t00000", Outcome.COMPLETED)
    talk.exit("f00000", Outcome.COMPLETED)
    talk.restore_from_snapshot()
    assert list(talk.scheduler.experiment.trials) == ["t00000", "f00000", "t00001"]
    assert waiting(talk) == ["t00002", "t00003"]


def test_progress_counts_the_backlog_and_does_not_count_interrupted_trials_as_finished():
    talk = look_ahead()
    progress = look_at(talk.experiment, "demo", 0.0)
    assert progress.num_trials_by_status[Status.PENDING] == 3
    assert (
        progress.num_total,
        progress.num_finished,
        progress.num_not_started,
        progress.waiting_for,
    ) == (6, 0, 0, "")
    talk.say(TrialStopRequested("t00003"))
    talk.say(StopRequested("signal.SIGINT"))
    talk.exit("t00000", Outcome.STOPPED)
    progress = look_at(talk.experiment, "demo", 0.0)
    assert (
        progress.num_finished,
        progress.num_trials_by_status[Status.PENDING],
        progress.num_interrupted,
        progress.num_stopped_early,
    ) == (1, 3, 0, 1)
