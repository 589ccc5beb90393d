"""Conversations in which an interruption meets what would have happened anyway."""

import pytest

from schedulers.decisions import Pause, Reason, Stop
from tests.core.conversation import BOOM, Conversation, ScriptedScheduler, answers, kills, result
from tuner.core.events import DriverRestarted, Outcome, StopRequested
from tuner.core.settings import CheckpointPolicy
from tuner.core.trial import CheckpointRecord, Status, TerminationReason

WHY = Reason("test")
SAVES = CheckpointPolicy(can_save_on_demand=True)


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


def test_a_trial_that_was_only_interrupted_goes_on():
    talk = Conversation(max_trials=1, checkpoints=SAVES)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", True)]
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").ending is TerminationReason.INTERRUPTED
    assert restarted(talk).status is Status.RUNNING


def test_who_reports_when_nobody_is_waited_for_is_killed_in_the_same_turn():
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
        checkpoints=SAVES,
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
        checkpoints=SAVES,
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
