"""Trials whose workers are lost again and again."""

from __future__ import annotations

import pytest

from schedulers.decisions import Exploit, Reason, Resume
from tests.core.conversation import BOOM, Conversation, ScriptedScheduler, starts
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import AttemptFailed
from tuner.core.events import (
    CheckpointLost,
    DriverRestarted,
    Outcome,
    PauseRequested,
    ResumeType,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.failure_causes import WORKER_LOST, RetryPolicy
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Status
from tuner.core.worker_records import CheckpointRecord, Failure

T = "t00000"


@pytest.fixture
def talk():
    conversation = Conversation(max_trials=1, max_losses=3, max_failures=-1)
    conversation.begin(1)
    return conversation


def lose(talk, number=1, why="the machine is gone", trial_id=T):
    """Lose the worker of a trial so often; return how often it was started again."""
    num_started = 0
    for _ in range(number):
        trial = talk.trial(trial_id)
        commands = talk.exit(trial_id, Outcome.LOST, Failure("lost", why))
        num_started += len(starts(commands))
        if trial.status is Status.RUNNING:
            talk.say(WorkerStarted(trial_id, trial.attempt, pid=1))
    return num_started


def test_a_trial_that_is_lost_too_often_in_a_row_fails_and_names_the_losses(talk):
    assert lose(talk, 2) == 2
    assert lose(talk, why="killed by the kernel") == 0
    [failure] = talk.trial(T).failures
    assert talk.trial(T).status is Status.ERROR
    assert failure.kind == WORKER_LOST
    assert "lost 3 times in a row without a new result, in attempts 1, 2 and 3" in failure.message
    assert "the machine is gone; killed by the kernel" in failure.message
    [notice] = [each for each in talk.notices if isinstance(each, AttemptFailed)]
    assert (notice.failure, notice.will_retry) == (failure, False)
    assert talk.experiment.is_finished


def test_a_trial_that_was_given_up_as_lost_is_not_explained_by_its_retries(talk):
    lose(talk, 3)
    assert not RetryPolicy().why_given_up(talk.trial(T))


def test_without_a_limit_a_lost_trial_is_started_again_for_ever():
    talk = Conversation(max_trials=1)
    talk.begin(1)
    assert lose(talk, 20) == 20
    assert talk.trial(T).losses == ()


def test_a_new_result_begins_the_count_again_and_a_repeated_one_does_not(talk):
    lose(talk, 2)
    talk.report(T, 1)
    assert lose(talk, 2) == 2
    talk.report(T, 1)
    assert lose(talk) == 0


def test_a_trial_that_is_lost_too_often_is_given_up_although_it_was_to_pause():
    talk = Conversation(max_trials=1, max_losses=3)
    talk.begin(1)
    talk.report(T, 1, CheckpointRecord(0, 1))
    lose(talk, 2)
    talk.say(PauseRequested(T))
    talk.exit(T, Outcome.LOST)
    assert talk.trial(T).status is Status.ERROR


def test_failures_and_losses_are_counted_apart(talk):
    lose(talk, 2)
    talk.exit(T, Outcome.FAILED, BOOM)
    assert talk.trial(T).status is Status.RUNNING
    assert lose(talk) == 0


def test_attempts_that_find_their_checkpoint_damaged_do_not_count(talk):
    for index in range(4):
        talk.report(T, index + 1, CheckpointRecord(index, index + 1))
    lose(talk)
    for index in (3, 2, 1, 0):
        attempt = talk.trial(T).attempt
        commands = talk.say(
            CheckpointLost(T, index, "torn"),
            WorkerExited(T, attempt, Outcome.LOST, Failure("CheckpointLost", "torn")),
        )
        assert starts(commands) == [(T, attempt + 1)]
    assert lose(talk) == 1
    assert lose(talk) == 0


def test_a_loss_in_another_drivers_session_does_not_count(talk):
    lose(talk, 2)
    talk.say(DriverRestarted(talk.experiment.settings))
    assert lose(talk, 2) == 2


def test_a_trial_that_is_tried_again_after_a_restore_has_all_losses_left(talk):
    lose(talk, 3)
    commands = talk.say(DriverRestarted(talk.experiment.settings, errored=ResumeType.RESUME))
    assert starts(commands) == [(T, 4)]
    assert lose(talk, 2) == 2


def test_losses_outlast_a_snapshot(talk):
    lose(talk, 2)
    talk.restore_from_snapshot()
    assert lose(talk) == 0


def test_a_trial_that_takes_over_anothers_training_begins_to_count_again():
    exploit = Exploit("t00001", T, {"x": 2}, Reason("pbt"), 0)
    resume = Resume("t00001", Reason("pbt"))
    scheduler = ScriptedScheduler({(T, 2): [exploit]}, idle=[[resume]])
    saves = CheckpointPolicy(can_save_on_demand=True)
    talk = Conversation(scheduler, max_trials=2, max_losses=3, checkpoints=saves)
    talk.begin(2)
    talk.report(T, 1, CheckpointRecord(0, 1))
    talk.report("t00001", 1)
    lose(talk, 2, trial_id="t00001")
    talk.report(T, 2)
    talk.report("t00001", 1)
    assert len(talk.trial("t00001").losses) == 2
    talk.exit("t00001", Outcome.STOPPED)
    assert talk.trial("t00001").grafts
    assert lose(talk, 2, trial_id="t00001") == 2


def test_settings_that_were_recorded_without_a_limit_have_none():
    fields = ExperimentSettings({"cpu": 1.0}).as_fields()
    assert "max_losses" not in fields
    assert ExperimentSettings.from_fields(fields).max_losses is None
    limited = ExperimentSettings({"cpu": 1.0}, max_losses=5)
    assert ExperimentSettings.from_fields(limited.as_fields()) == limited
