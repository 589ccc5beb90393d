"""Trials after an interruption and a restart of the driver."""

from __future__ import annotations

import dataclasses

import pytest

from schedulers.decisions import Pause, Reason, Stop
from searchers.objectives import outcome_constraints
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    answers,
    kills,
    result,
    starts,
)
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import DeleteCheckpoint, StartWorker
from tuner.core.events import DriverRestarted, Outcome, ResumeType, StopRequested, WorkerStarted
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord

FIRST = CheckpointRecord(0, 1)
SAVES = CheckpointPolicy(can_save_on_demand=True)


@pytest.fixture
def restart():
    """Return a function that lets another driver take over."""

    def take_over(talk, settings=None, **treatments):
        return talk.say(DriverRestarted(settings or talk.experiment.settings, **treatments))

    return take_over


@pytest.fixture
def failed():
    """Return a conversation in which a trial has failed after its first checkpoint."""
    talk = Conversation(max_trials=1, metric="loss", mode="min")
    talk.begin(1)
    talk.report("t00000", 1, FIRST, loss=0.5)
    talk.exit("t00000", Outcome.FAILED, BOOM)
    assert talk.trial("t00000").status is Status.ERROR
    return talk


def test_a_failed_trial_that_restarts_has_no_checkpoint_and_numbers_the_next_ones_onwards(
    failed, restart
):
    commands = restart(failed, errored=ResumeType.RESTART)
    [start] = [command for command in commands if isinstance(command, StartWorker)]
    assert (start.trial_id, start.attempt, start.checkpoint, start.next_checkpoint) == (
        "t00000",
        2,
        None,
        1,
    )
    assert DeleteCheckpoint("t00000", FIRST) in commands


def test_results_from_before_a_restart_of_the_trial_do_not_count(failed, restart):
    restart(failed, errored=ResumeType.RESTART)
    trial = failed.trial("t00000")
    assert (trial.checkpoints, trial.last_result, trial.summary, trial.iteration) == ([], {}, {}, 0)
    assert (trial.num_failures, trial.superseded_attempt, trial.resumed_iteration) == (0, 1, 0)
    assert failed.experiment.best.trial is None


def test_a_failed_trial_that_resumes_keeps_its_checkpoint_and_its_results(failed, restart):
    [start] = [
        command
        for command in restart(failed, errored=ResumeType.RESUME)
        if isinstance(command, StartWorker)
    ]
    trial = failed.trial("t00000")
    assert (start.checkpoint, trial.superseded_attempt, trial.last_result["loss"]) == (
        FIRST,
        0,
        0.5,
    )
    assert failed.experiment.best.trial is trial


def test_a_running_trial_that_restarts_is_started_once_without_its_checkpoint(restart):
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1, FIRST)
    [start] = [
        command
        for command in restart(talk, unfinished=ResumeType.RESTART)
        if isinstance(command, StartWorker)
    ]
    assert (start.attempt, start.checkpoint) == (2, None)
    talk.say(WorkerStarted("t00000", 2, pid=1))
    talk.report("t00000", 1)
    assert talk.trial("t00000").iteration == 1


def test_a_paused_trial_that_restarts_waits_for_no_decision(restart):
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", Reason("test"))]}),
        max_trials=2,
        max_concurrent=1,
    )
    talk.begin(1)
    talk.report("t00000", 1, FIRST)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").status is Status.PAUSED
    assert starts(restart(talk, unfinished=ResumeType.RESTART)) == [("t00000", 2)]
    assert not talk.experiment.trial_table.paused


def test_a_trial_that_has_not_been_started_yet_does_so_once(restart):
    talk = Conversation(capacity={"cpu": 1.0}, max_trials=2, default_request={"cpu": 0.5})
    talk.begin(2)
    assert talk.trial("t00001").status is Status.PENDING
    assert starts(restart(talk, unfinished=ResumeType.RESTART)) == [("t00001", 1)]
    assert starts(talk.exit("t00001", Outcome.COMPLETED)) == [("t00000", 2)]
    talk.exit("t00000", Outcome.COMPLETED)
    assert talk.experiment.is_finished


@pytest.mark.parametrize(
    ("treatment", "checkpoint"), [(ResumeType.RESUME, FIRST), (ResumeType.RESTART, None)]
)
def test_a_finished_trial_is_resumed_on_request(restart, treatment, checkpoint):
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1, FIRST)
    talk.exit("t00000", Outcome.COMPLETED)
    assert starts(restart(talk)) == []
    [start] = [
        command for command in restart(talk, finished=treatment) if isinstance(command, StartWorker)
    ]
    assert start.checkpoint == checkpoint
    assert talk.trial("t00000").ending is None


def test_an_interrupted_trial_counts_as_unfinished(restart):
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    talk.report("t00000", 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert starts(restart(talk, unfinished=ResumeType.SKIP, finished=ResumeType.RESTART)) == []
    assert starts(restart(talk)) == [("t00000", 2)]


def test_trials_ended_by_the_time_budget_resume_when_it_is_larger(restart):
    talk = Conversation(max_trials=1, time_budget_s=60.0)
    talk.begin(1)
    talk.report("t00000", 1, FIRST)
    talk.say(after_s=61.0)
    talk.report("t00000", 2)
    talk.exit("t00000", Outcome.STOPPED)
    assert (talk.trial("t00000").ending, talk.experiment.is_finished) == (
        TerminationReason.INTERRUPTED,
        True,
    )
    assert starts(restart(talk)) == []
    assert talk.experiment.is_finished
    more = dataclasses.replace(talk.experiment.settings, time_budget_s=120.0)
    assert starts(restart(talk, more)) == [("t00000", 2)]


def test_a_trial_that_had_saved_for_a_pause_is_paused_although_the_driver_died():
    talk = Conversation(
        ScriptedScheduler({("t00000", 2): [Pause("t00000", Reason("test"))]}),
        max_trials=1,
        checkpoints=SAVES,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.report("t00000", 2)
    talk.saved("t00000", 0, 2)
    talk.say(DriverRestarted(talk.experiment.settings))
    assert talk.trial("t00000").reason == Reason("idle"), (
        "it was paused, and as nobody resumed it, it was stopped"
    )
    assert talk.trial("t00000").attempt == 1


WHY = Reason("test")
SAVES_ON_DEMAND = CheckpointPolicy(can_save_on_demand=True)


def restarted(talk):
    """Let another driver take over; return the trial."""
    talk.say(DriverRestarted(talk.experiment.settings))
    return talk.trial("t00000")


def test_a_stop_that_is_decided_after_an_interruption_is_for_good():
    talk = Conversation(ScriptedScheduler({("t00000", 1): [Stop("t00000", WHY)]}), max_trials=1)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", False)]
    talk.exit("t00000", Outcome.STOPPED)
    trial = restarted(talk)
    assert (trial.status, trial.ending, trial.reason) == (
        Status.TERMINATED,
        TerminationReason.STOPPED_EARLY,
        WHY,
    )


def test_a_trial_that_returns_while_it_is_interrupted_is_complete():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1)
    talk.say(StopRequested("signal.SIGINT"))
    talk.exit("t00000", Outcome.COMPLETED)
    trial = restarted(talk)
    assert (trial.status, trial.ending, trial.reason) == (
        Status.TERMINATED,
        TerminationReason.COMPLETED,
        None,
    )


def test_a_trial_that_was_only_interrupted_continues():
    talk = Conversation(max_trials=1, checkpoints=SAVES_ON_DEMAND)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", True)]
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").ending is TerminationReason.INTERRUPTED
    assert restarted(talk).status is Status.RUNNING


def test_a_report_after_an_urgent_interruption_is_killed_in_the_same_turn():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    commands = talk.say(StopRequested("signal.SIGINT", is_urgent=True), result("t00000", 1))
    assert kills(commands) == ["t00000"]
    assert talk.experiment.next_deadline_s() is None


@pytest.mark.parametrize("is_first", [True, False])
def test_a_trial_that_is_interrupted_on_its_way_into_a_pause_is_paused(is_first):
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", Reason("test"))]}),
        max_trials=1,
        checkpoints=SAVES_ON_DEMAND,
    )
    talk.begin(1)
    events = [result("t00000", 1), StopRequested("signal.SIGINT")]
    talk.say(*(events if is_first else reversed(events)))
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").status is Status.PAUSED
    assert talk.experiment.is_finished


def test_a_trial_that_is_killed_on_its_way_into_a_pause_is_not_blamed_for_that():
    talk = Conversation(
        ScriptedScheduler({("t00000", 1): [Pause("t00000", Reason("test"))]}),
        max_trials=1,
        checkpoints=SAVES_ON_DEMAND,
    )
    talk.begin(1)
    talk.report("t00000", 1)
    talk.saved("t00000", 0, 1)
    talk.say(StopRequested("signal.SIGINT", is_urgent=True))
    talk.exit("t00000", Outcome.KILLED, BOOM)
    assert (talk.trial("t00000").status, talk.trial("t00000").num_failures) == (Status.PAUSED, 0)


def test_a_trial_that_cannot_be_paused_is_interrupted():
    script = {("t00001", 1): [Pause("t00001", Reason("test"))]}
    talk = Conversation(ScriptedScheduler(script), max_trials=2)
    talk.begin(2)
    talk.report("t00000", 1, CheckpointRecord(0, 1))
    talk.say(result("t00001", 1), StopRequested("signal.SIGINT"))
    talk.exit("t00001", Outcome.STOPPED)
    assert talk.trial("t00001").ending is TerminationReason.INTERRUPTED


def test_other_constraints_after_a_restart_hold_for_all_trials_so_far(restart):
    talk = Conversation(capacity={"cpu": 2.0}, metric="loss", mode="min")
    talk.begin(2)
    talk.report("t00000", 1, loss=0.1, size=5)
    talk.report("t00001", 1, loss=0.2, size=3)
    assert talk.experiment.best.trial.trial_id == "t00000"
    limits = outcome_constraints({"size": "<= 4"})
    restart(talk, dataclasses.replace(talk.experiment.settings, constraints=limits))
    assert [trial.trial_id for trial in talk.experiment.best.leaders] == ["t00001"]
    restart(talk, dataclasses.replace(talk.experiment.settings, constraints=()))
    assert talk.experiment.best.trial.trial_id == "t00000"
