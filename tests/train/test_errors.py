"""Errors of trainers."""

import pickle

import pytest

from tuner import train
from tuner.core.worker_records import Failure
from tuner.train.errors import group_error


def test_the_failures_of_workers_are_told_by_rank_the_first_one_first():
    ranks = ((1, Failure("ValueError", "no data")), (0, Failure("killed by SIGKILL", "")))
    error = group_error(Failure("ValueError", "rank 1: no data", ranks=ranks))
    assert list(error.worker_failures) == [1, 0]
    assert isinstance(error.worker_failures[1], ValueError)
    assert "SIGKILL" in str(error.worker_failures[0])
    assert isinstance(error, train.TrainingFailedError)


def test_the_failure_of_a_single_worker_is_that_of_rank_0():
    error = group_error(Failure("KeyError", "lr", "Traceback ...", ("LookupError",)))
    assert list(error.worker_failures) == [0]
    assert isinstance(error.worker_failures[0], KeyError)


@pytest.mark.parametrize(
    "error",
    [
        train.WorkerGroupError("no data", {1: ValueError("no data")}),
        train.ControllerError(OSError("disk full")),
        train.PreemptionError(train.PreemptionInfo(5, {"node": [2, 1]})),
    ],
)
def test_errors_of_training_can_be_pickled(error):
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  (its own)
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_a_preemption_lists_its_workers_once():
    info = train.PreemptionInfo(None, {"b": [2, 1], "a": [1]})
    assert info.preempted_node_ids == ["a", "b"]
    assert info.preempted_ranks == [1, 2]


def test_the_cause_of_a_failed_training_is_the_first_error():
    ranks = ((1, Failure("ValueError", "no data")), (0, Failure("killed by SIGKILL", "")))
    error = group_error(Failure("ValueError", "rank 1: no data", ranks=ranks))
    assert error.__cause__ is error.worker_failures[1]
    full = OSError("disk full")
    assert train.ControllerError(full).__cause__ is full


def test_names_that_scripts_catch_and_use_are_there():
    assert issubclass(train.NCCLHangError, train.WorkerGroupError)
    assert train.TRAIN_DATASET_KEY == "train"
