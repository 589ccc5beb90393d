"""Conversations in which an interruption meets what would have happened anyway."""

import pytest

from schedulers.decisions import Pause, Reason, Stop
from tests.core.conversation import Conversation, ScriptedScheduler, answers, kills, result
from tuner.core.events import DriverRestarted, Outcome, StopRequested
from tuner.core.settings import CheckpointPolicy
from tuner.core.trial import Ending, Status

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
    assert (trial.status, trial.ending, trial.reason) == (Status.TERMINATED, Ending.STOPPED_EARLY, WHY)


def test_a_trial_that_returns_while_it_is_interrupted_is_complete():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.report("t00000", 1)
    talk.say(StopRequested("signal.SIGINT"))
    talk.exit("t00000", Outcome.COMPLETED)
    trial = restarted(talk)
    assert (trial.status, trial.ending, trial.reason) == (Status.TERMINATED, Ending.COMPLETED, None)


@pytest.mark.parametrize("decisions", [[], [Pause("t00000", WHY)]])
def test_a_trial_that_was_only_interrupted_goes_on(decisions):
    talk = Conversation(ScriptedScheduler({("t00000", 1): decisions}), max_trials=1, checkpoints=SAVES)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    assert answers(talk.report("t00000", 1)) == [("t00000", "stop", True)]
    talk.saved("t00000", 0, 1)
    talk.exit("t00000", Outcome.STOPPED)
    assert talk.trial("t00000").ending is Ending.INTERRUPTED
    assert restarted(talk).status is Status.RUNNING


def test_who_reports_when_nobody_is_waited_for_is_killed_in_the_same_turn():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    talk.say(StopRequested("signal.SIGINT"))
    commands = talk.say(StopRequested("signal.SIGINT", is_urgent=True), result("t00000", 1))
    assert kills(commands) == ["t00000"]
    assert talk.experiment.next_deadline_s() is None
