"""Checkpoints that are stored after their report, that have names, or that are placeholders."""

import pytest

from schedulers.decisions import Exploit, Pause, Reason, Resume
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    answers,
    starts,
)
from tuner.core.checkpoints import CheckpointPolicy, RetentionPolicy
from tuner.core.commands import CheckpointRecorded, DeleteCheckpoint, ListCheckpoints, StartWorker
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointLost,
    CheckpointsRequested,
    DriverRestarted,
    Outcome,
    ResultReported,
    StopRequested,
)
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import OpenUpload, Status, WorkerState
from tuner.core.worker_records import CheckpointRecord

BEST_LOSS = CheckpointPolicy(retention=RetentionPolicy(1, "loss", "min"))


def talk(num_trials=1, scheduler=None, **settings):
    conversation = Conversation(scheduler, max_trials=num_trials, **settings)
    conversation.begin(num_trials)
    return conversation


def upload(conversation, trial_id, iteration, index, **metrics):
    """Let a trial report a checkpoint that is still being stored."""
    attempt = conversation.trial(trial_id).attempt
    metrics = {"training_iteration": iteration, **metrics}
    return conversation.say(ResultReported(trial_id, attempt, metrics, upload=index))


def commit(conversation, trial_id, index, iteration, attempt=None, **fields):
    """Let a checkpoint that was reported be stored."""
    attempt = conversation.trial(trial_id).attempt if attempt is None else attempt
    record = CheckpointRecord(index, iteration, **fields)
    return conversation.say(CheckpointCommitted(trial_id, attempt, record))


def placeholder(index, iteration):
    return CheckpointRecord(index, iteration, name=f"only-{index}", is_placeholder=True)


def indices(trial):
    return [kept.index for kept in trial.checkpoints]


def listed(commands):
    return {
        c.token: [record.index for record, _, _ in c.checkpoints]
        for c in commands
        if isinstance(c, ListCheckpoints)
    }


def deleted(commands):
    return [c.checkpoint.index for c in commands if isinstance(c, DeleteCheckpoint)]


def test_a_worker_gets_its_checkpoints_once_they_are_stored():
    conversation = talk()
    upload(conversation, "t00000", 1, 0)
    at_once = CheckpointsRequested("t00000", 1, "a", waits_for_uploads=False)
    stored = CheckpointsRequested("t00000", 1, "b", waits_for_validation=False)
    assert listed(conversation.say(at_once)) == {"a": []}
    assert listed(conversation.say(stored)) == {}
    conversation.restore_from_snapshot()
    assert listed(commit(conversation, "t00000", 0, 1)) == {"b": [0]}


def test_a_checkpoint_counts_once_it_is_stored_with_the_score_of_its_own_result():
    conversation = talk(checkpoints=BEST_LOSS)
    trial = conversation.trial("t00000")
    assert answers(upload(conversation, "t00000", 1, 0, loss=0.5)) == [
        ("t00000", "continue", False)
    ]
    assert (trial.checkpoints, trial.next_checkpoint, trial.source) == ([], 1, None)
    conversation.report("t00000", 2, loss=0.1)
    conversation.restore_from_snapshot()
    trial = conversation.trial("t00000")
    assert trial.uploads == {0: OpenUpload(0.5, 1)}
    commit(conversation, "t00000", 0, 1)
    (kept,) = trial.checkpoints
    assert (kept.score, kept.num_rows, kept.iteration) == (0.5, 1, 1)
    assert (trial.source, trial.uploads) == (kept, {})
    assert sum(isinstance(notice, CheckpointRecorded) for notice in conversation.notices) == 1


def test_retention_judges_it_when_it_is_stored():
    conversation = talk(checkpoints=BEST_LOSS)
    upload(conversation, "t00000", 1, 0, loss=0.5)
    upload(conversation, "t00000", 2, 1, loss=0.7)
    assert deleted(commit(conversation, "t00000", 0, 1)) == []
    assert deleted(commit(conversation, "t00000", 1, 2)) == []  # the best, and the latest
    upload(conversation, "t00000", 3, 2, loss=0.6)
    assert deleted(commit(conversation, "t00000", 2, 3)) == [1]


def test_one_that_is_stored_after_a_later_one_takes_its_own_place():
    conversation = talk()
    upload(conversation, "t00000", 1, 0)
    conversation.report("t00000", 2, CheckpointRecord(1, 2))
    commit(conversation, "t00000", 0, 1)
    trial = conversation.trial("t00000")
    assert (indices(trial), trial.next_checkpoint, trial.source.index) == ([0, 1], 2, 1)


@pytest.mark.parametrize("ending", [Outcome.COMPLETED, Outcome.STOPPED])
def test_it_counts_until_the_worker_has_left(ending):
    conversation = talk()
    upload(conversation, "t00000", 1, 0)
    conversation.say(StopRequested("signal.SIGINT"))
    trial = conversation.trial("t00000")
    upload(conversation, "t00000", 2, 1)
    assert trial.worker is WorkerState.STOPPING
    commit(conversation, "t00000", 0, 1)
    commit(conversation, "t00000", 1, 2)
    conversation.exit("t00000", ending)
    assert (indices(trial), trial.uploads) == ([0, 1], {})


def test_the_result_names_the_directory_once_it_is_stored():
    conversation = talk()
    trial = conversation.trial("t00000")
    upload(conversation, "t00000", 1, 0)
    assert "checkpoint_dir_name" not in trial.last_result
    commit(conversation, "t00000", 0, 1, name="epoch_1")
    assert trial.last_result["checkpoint_dir_name"] == "epoch_1"
    upload(conversation, "t00000", 2, 1)
    conversation.report("t00000", 3)
    commit(conversation, "t00000", 1, 2)
    assert "checkpoint_dir_name" not in trial.last_result


def test_what_was_being_stored_is_forgotten_with_the_attempt():
    conversation = talk(max_failures=1)
    upload(conversation, "t00000", 1, 0)
    commit(conversation, "t00000", 0, 1)
    upload(conversation, "t00000", 2, 1)
    commands = conversation.exit("t00000", Outcome.FAILED, BOOM)
    (start,) = [command for command in commands if isinstance(command, StartWorker)]
    # Its index is not given out again, since a directory may have the name.
    assert (start.checkpoint.index, start.next_checkpoint) == (0, 2)
    commit(conversation, "t00000", 1, 2, attempt=1)
    commit(conversation, "t00000", 1, 2)
    assert indices(conversation.trial("t00000")) == [0]


def test_what_was_never_announced_is_dropped():
    conversation = talk()
    conversation.report("t00000", 1)
    commit(conversation, "t00000", 0, 1)
    assert conversation.trial("t00000").checkpoints == []


def test_one_that_could_not_be_stored_is_no_longer_waited_for():
    conversation = talk(2)
    upload(conversation, "t00000", 1, 0)
    conversation.say(CheckpointsRequested("t00000", 1, "a", waits_for_validation=False))
    lost = CheckpointLost("t00000", 0, "the store could not be reached")
    assert listed(conversation.say(lost)) == {"a": []}
    conversation.restore_from_snapshot()
    trial = conversation.trial("t00000")
    assert (trial.uploads, trial.checkpoints, trial.status) == ({}, [], Status.RUNNING)
    upload(conversation, "t00000", 2, 1)
    commit(conversation, "t00000", 1, 2)
    assert indices(trial) == [1]


def test_a_driver_that_restarts_forgets_what_was_being_stored():
    conversation = talk()
    upload(conversation, "t00000", 1, 0)
    conversation.say(DriverRestarted(ExperimentSettings({"cpu": 1.0})))
    trial = conversation.trial("t00000")
    assert (trial.uploads, trial.checkpoints, trial.next_checkpoint) == ({}, [], 1)


def paused_with(*decisions):
    script = {("t00000", 1): [Pause("t00000", Reason("test"))], **dict(decisions)}
    return talk(scheduler=ScriptedScheduler(script, idle=[[]] * 9), max_failures=1)


def test_a_pause_is_obeyed_while_a_checkpoint_is_being_stored():
    conversation = paused_with()
    assert answers(upload(conversation, "t00000", 1, 0)) == [("t00000", "pause", False)]
    commit(conversation, "t00000", 0, 1)
    conversation.scheduler.idle.append([Resume("t00000", Reason("test"))])
    conversation.scheduler.idle.reverse()
    assert starts(conversation.exit("t00000", Outcome.STOPPED)) == [("t00000", 2)]
    assert conversation.trial("t00000").source.index == 0


def test_a_pause_without_the_checkpoint_that_was_to_come_is_a_failure():
    conversation = paused_with()
    upload(conversation, "t00000", 1, 0)
    assert starts(conversation.exit("t00000", Outcome.STOPPED)) == [("t00000", 2)]
    assert conversation.trial("t00000").failures[-1].kind == "CannotPause"


def exploiting(checkpoint=None):
    exploit = Exploit("t00001", "t00000", {"x": 2}, Reason("test"), checkpoint)
    scheduler = ScriptedScheduler({("t00001", 1): [exploit, Resume("t00001", Reason("test"))]})
    return talk(2, scheduler)


def test_an_exploit_waits_for_a_checkpoint_that_is_being_stored():
    conversation = exploiting()
    upload(conversation, "t00000", 1, 0)
    assert answers(conversation.report("t00001", 1)) == [("t00001", "exploit", False)]
    assert starts(conversation.exit("t00001", Outcome.STOPPED)) == []
    commands = commit(conversation, "t00000", 0, 1)
    (start,) = [command for command in commands if isinstance(command, StartWorker)]
    assert (start.trial_id, start.source_id, start.checkpoint.index) == ("t00001", "t00000", 0)


def test_an_exploit_gives_up_a_checkpoint_that_could_not_be_stored():
    conversation = exploiting()
    upload(conversation, "t00000", 1, 0)
    conversation.report("t00001", 1)
    assert starts(conversation.exit("t00001", Outcome.STOPPED)) == []
    lost = CheckpointLost("t00000", 0, "the store could not be reached")
    (start,) = [each for each in conversation.say(lost) if isinstance(each, StartWorker)]
    assert (start.trial_id, start.checkpoint) == ("t00001", None)


# ------------------------------------------------------------------- placeholders


def test_a_placeholder_is_kept_and_ranked_and_never_a_source():
    conversation = talk(checkpoints=BEST_LOSS, max_failures=1)
    conversation.report("t00000", 1, CheckpointRecord(0, 1), loss=0.9)
    conversation.report("t00000", 2, placeholder(1, 2), loss=0.1)
    trial = conversation.trial("t00000")
    # The best one is the placeholder; what the trial continues from stays as well.
    assert (indices(trial), trial.source.index, trial.checkpoint_index) == ([0, 1], 0, 0)
    commands = conversation.exit("t00000", Outcome.FAILED, BOOM)
    (start,) = [command for command in commands if isinstance(command, StartWorker)]
    assert start.checkpoint.index == 0


def test_a_placeholder_that_is_superseded_has_nothing_to_delete():
    conversation = talk(checkpoints=BEST_LOSS)
    conversation.report("t00000", 1, placeholder(0, 1), loss=0.9)
    assert deleted(conversation.report("t00000", 2, CheckpointRecord(1, 2), loss=0.1)) == []
    assert indices(conversation.trial("t00000")) == [1]


def test_a_trial_with_placeholders_alone_starts_from_the_beginning():
    conversation = talk(max_failures=1)
    conversation.report("t00000", 1, placeholder(0, 1))
    trial = conversation.trial("t00000")
    assert (trial.has_checkpoint, trial.source) == (False, None)
    conversation.exit("t00000", Outcome.FAILED, BOOM)
    assert trial.resumed_iteration == 0


def test_a_placeholder_supplies_no_exploit_even_if_it_is_named():
    conversation = exploiting(checkpoint=1)
    conversation.report("t00000", 1, CheckpointRecord(0, 1))
    conversation.report("t00000", 2, placeholder(1, 2))
    conversation.report("t00001", 1)
    (start,) = [
        command
        for command in conversation.exit("t00001", Outcome.STOPPED)
        if isinstance(command, StartWorker)
    ]
    assert (start.source_id, start.checkpoint.index) == ("t00000", 0)


def test_an_exploit_of_a_lost_checkpoint_takes_no_placeholder():
    conversation = exploiting()
    conversation.report("t00000", 1, placeholder(0, 1))
    conversation.report("t00000", 2, CheckpointRecord(1, 2))
    conversation.report("t00001", 1)
    conversation.exit("t00001", Outcome.STOPPED)
    assert conversation.trial("t00001").source_id == "t00000"
    conversation.say(CheckpointLost("t00000", 1, "gone"))
    assert conversation.trial("t00001").source is None


# ------------------------------------------------------------------- names


def test_a_name_that_is_used_again_replaces_the_earlier_checkpoint():
    conversation = talk()
    conversation.report("t00000", 1, CheckpointRecord(0, 1, name="latest"))
    commands = conversation.report("t00000", 2, CheckpointRecord(1, 2, name="latest"))
    trial = conversation.trial("t00000")
    # The directory holds the new one, and must not be deleted for the sake of the old one.
    assert (deleted(commands), indices(trial), trial.source.directory) == ([], [1], "latest")


def test_a_replaced_checkpoint_is_deleted_where_an_object_store_still_has_it():
    conversation = talk()
    for index, remote in enumerate(["", "checkpoint_000001.e1a1", "checkpoint_000002.e1a1"]):
        upload(conversation, "t00000", index + 1, index)
        fields = {"name": "best", "remote": remote}
        commands = commit(conversation, "t00000", index, index + 1, **fields)
        assert deleted(commands) == ([1] if index == 2 else [])


def test_an_exploit_of_a_replaced_checkpoint_takes_the_one_that_replaced_it():
    conversation = exploiting()
    conversation.report("t00000", 1, CheckpointRecord(0, 1, name="latest"))
    conversation.report("t00001", 1)
    conversation.report("t00000", 2, CheckpointRecord(1, 2, name="latest"))
    conversation.exit("t00001", Outcome.STOPPED)
    trial = conversation.trial("t00001")
    assert (trial.status, trial.source.index) == (Status.RUNNING, 1)
