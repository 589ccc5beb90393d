"""The state of a trial."""

import pytest

from tuner.core.trial import Status, Trial
from tuner.core.worker_records import CheckpointRecord, Failure, checkpoint_directory_name


def test_numbers_are_summarised_and_everything_else_is_not():
    trial = Trial("t", {}, {})
    trial.summarise(
        {"loss": 0.5, "steps": 3, "flag": True, "name": "x", "nothing": None, "many": [1.0]}
    )
    assert {name: summary.last for name, summary in trial.summary.items()} == {
        "loss": 0.5,
        "steps": 3,
    }


def test_only_counts_and_times_of_the_filled_in_fields_are_summarised():
    trial = Trial("t", {}, {})
    trial.summarise(
        {
            "training_iteration": 3,
            "time_total_s": 1.5,
            "time_this_iter_s": 0.5,
            "timesteps_total": 9,
            "pid": 7,
            "timestamp": 8,
        }
    )
    assert set(trial.summary) == {
        "training_iteration",
        "time_total_s",
        "time_this_iter_s",
        "timesteps_total",
    }


@pytest.mark.parametrize("status", Status)
def test_a_trial_is_finished_when_it_has_ended_or_failed(status):
    trial = Trial("t", {}, {})
    trial.move_to(status)
    assert trial.is_finished == (status in {Status.TERMINATED, Status.ERROR})


def test_the_latest_checkpoint_is_the_one_to_continue_from():
    trial = Trial("t", {}, {})
    assert (trial.has_checkpoint, trial.latest_checkpoint) == (False, None)
    trial.checkpoints += [CheckpointRecord(0, 5), CheckpointRecord(1, 3)]
    assert (trial.has_checkpoint, trial.latest_checkpoint) == (True, CheckpointRecord(1, 3))


def test_checkpoint_directories_sort_by_their_index():
    assert CheckpointRecord(3, 9).directory == checkpoint_directory_name(3) == "checkpoint_000003"
    assert checkpoint_directory_name(1_234_567) == "checkpoint_1234567"


def test_a_trial_describes_itself_and_hashes_by_identity():
    trial = Trial("t00001", {"a": {"b": 1}}, {})
    assert repr(trial) == "Trial(t00001, PENDING, worker=ABSENT, attempt=0, iteration=0)"
    assert trial.evaluated_params == {"a/b": 1}
    assert len({trial, trial, Trial("t00001", {}, {})}) == 2


def test_a_failure_reads_as_kind_and_message():
    assert str(Failure("ValueError", "boom", "Traceback")) == "ValueError: boom"
    assert str(Failure("killed by SIGKILL", "")) == "killed by SIGKILL"


def test_the_status_cannot_be_assigned():
    trial = Trial("t00000", {}, {})
    with pytest.raises(
        AttributeError,
        match="the status of trial t00000 cannot be assigned, got 'TERMINATED'; to end a trial, "
        "give RunConfig",
    ):
        trial.status = "TERMINATED"
    assert trial.status is Status.PENDING
