"""Attempts that fail since the disk is full or failing: tried again, and not counted."""

import pytest

from tests.core.conversation import BOOM, Conversation, starts
from tuner.core.commands import AttemptFailed
from tuner.core.events import Outcome, TrialStopRequested, WorkerStarted
from tuner.core.failure_causes import storage_fault
from tuner.core.trial import Status
from tuner.core.worker_records import STORAGE_FAILED, STORAGE_FULL, CheckpointRecord, Failure

T = "t00000"


def failed(fault):
    return Failure("OSError", "no space left on device", "Traceback ...", ("Exception", fault))


@pytest.fixture
def talk():
    conversation = Conversation(max_trials=1)
    conversation.begin(1)
    return conversation


def fail(talk, failure, outcome=Outcome.FAILED):
    """Let the attempt fail, wait as long as it takes; return whether another one was started."""
    commands = talk.exit(T, outcome, failure)
    for _ in range(3):
        commands += talk.say(after_s=61.0)
    started = starts(commands)
    if started:
        talk.say(WorkerStarted(T, talk.trial(T).attempt, pid=1))
    return bool(started)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNSAVED])
def test_a_full_disk_is_waited_for_and_uses_up_no_retry(talk, outcome):
    assert all(fail(talk, failed(STORAGE_FULL), outcome) for _ in range(20))
    trial = talk.trial(T)
    assert (trial.num_failures, len(trial.failures)) == (0, 20)
    assert all(each.will_retry for each in talk.notices if isinstance(each, AttemptFailed))
    assert not fail(talk, BOOM)
    assert (trial.status, trial.num_failures) == (Status.ERROR, 1)


def test_the_first_retries_are_immediate_and_later_ones_are_delayed(talk):
    delays = []
    for _ in range(6):
        commands, waited_s = talk.exit(T, Outcome.FAILED, failed(STORAGE_FULL)), 0
        while not starts(commands):
            commands, waited_s = talk.say(after_s=1.0), waited_s + 1
        delays.append(waited_s)
        talk.say(WorkerStarted(T, talk.trial(T).attempt, pid=1))
    assert delays == [0, 0, 0, 1, 2, 4]


def test_a_disk_that_fails_otherwise_is_given_up_after_eight_attempts_without_progress(talk):
    assert all(fail(talk, failed(STORAGE_FAILED)) for _ in range(6))
    talk.report(T, 1, CheckpointRecord(0, 1))
    assert all(fail(talk, failed(STORAGE_FAILED)) for _ in range(8))
    assert not fail(talk, failed(STORAGE_FAILED))
    assert talk.trial(T).status is Status.ERROR


def test_a_trial_that_the_user_has_stopped_is_not_started_again(talk):
    talk.say(TrialStopRequested(T))
    assert not fail(talk, failed(STORAGE_FULL))
    assert talk.trial(T).is_finished


def test_one_rank_of_a_group_is_enough():
    lost = Failure("RuntimeError", "connection closed by peer")
    full = failed(STORAGE_FULL)
    assert storage_fault(Failure("RuntimeError", "", ranks=((1, lost), (0, full)))) == STORAGE_FULL
    assert storage_fault(Failure("RuntimeError", "", ranks=((1, lost),))) == ""


def test_the_fault_survives_a_snapshot(talk):
    fail(talk, failed(STORAGE_FULL))
    talk.restore_from_snapshot()
    assert storage_fault(talk.trial(T).failures[-1]) == STORAGE_FULL
