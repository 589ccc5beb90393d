"""The API of training code that runs in several processes: arguments, and behaviour outside."""

import warnings

import pytest

from tuner import train
from tuner.execution.report_options import (
    NO_OPTIONS,
    CheckpointUploadMode,
    ReportOptions,
    ValidationTask,
)
from tuner.train import api


def validate(checkpoint, config):
    return {"score": 1}


@pytest.fixture
def checkpoint(tmp_path):
    return train.Checkpoint.from_directory(tmp_path)


@pytest.fixture
def reported(monkeypatch):
    """Return the list of options that reports are made with."""
    options = []

    class Attempt:
        def report(self, metrics, checkpoint, given=NO_OPTIONS):
            options.append(given)

    monkeypatch.setattr(api, "current_attempt", Attempt)
    return options


def test_a_report_without_a_checkpoint_has_no_options(reported):
    train.report({"loss": 1.0}, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
    assert reported == [ReportOptions()]


def test_a_report_passes_on_how_its_checkpoint_is_stored(reported, checkpoint):
    def upload(checkpoint, name):
        return checkpoint

    train.report({}, checkpoint, "epoch_1", CheckpointUploadMode.ASYNC, False, upload)
    assert reported == [ReportOptions("epoch_1", CheckpointUploadMode.ASYNC, False, upload)]


def test_a_validation_is_asked_for_in_three_forms(reported, checkpoint):
    train.report({}, checkpoint, validation=True)
    task = train.ValidationTaskConfig({"size": 3}, timeout_s=5.0)
    train.report({}, checkpoint, validation=task)
    train.report({}, checkpoint, validate_fn=validate, validate_config={"epoch": 1})
    assert [options.validation for options in reported] == [
        ValidationTask(),
        ValidationTask(kwargs={"size": 3}, timeout_s=5.0),
        ValidationTask(validate, {"epoch": 1}, takes_config=True),
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"validation": 1}, TypeError),
        ({"validation": True, "validate_fn": validate}, ValueError),
        ({"validate_config": {}}, ValueError),
        ({"validate_fn": 3}, TypeError),
        ({"validate_fn": validate, "validate_config": 3}, TypeError),
        ({"checkpoint_upload_mode": "ASYNC"}, TypeError),
        ({"delete_local_checkpoint_after_upload": 1}, TypeError),
        ({"checkpoint_upload_fn": 3}, TypeError),
        ({"checkpoint_dir_name": 3}, TypeError),
        ({"checkpoint_dir_name": "a/b"}, ValueError),
        ({"checkpoint_dir_name": ".."}, ValueError),
        ({"checkpoint_dir_name": ".hidden"}, ValueError),
        (
            {
                "checkpoint_dir_name": "a",
                "checkpoint_upload_mode": CheckpointUploadMode.NO_UPLOAD,
            },
            ValueError,
        ),
    ],
)
def test_arguments_of_a_report_are_checked(reported, checkpoint, arguments, error):
    with pytest.raises(error):
        train.report({}, checkpoint, **arguments)
    assert reported == []


def test_a_validation_without_a_checkpoint_is_ignored(reported):
    train.report({"epoch": 0}, validation=True)
    train.report({"epoch": 1}, validate_fn=validate)
    with pytest.raises(TypeError, match="validate_fn must be a function"):
        train.report({}, validate_fn="validate")
    assert [options.validation for options in reported] == [None, None]


def test_outside_a_trial_a_report_does_nothing(checkpoint):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train.report({"loss": 1.0}, checkpoint)
    assert train.get_checkpoint() is None
    assert train.get_preemption_info() is None


def test_outside_a_trial_there_is_no_context():
    for ask in (train.get_context, train.get_all_reported_checkpoints, train.get_dataset_shard):
        with pytest.raises(RuntimeError, match="outside a tr"):
            ask()


@pytest.mark.process
def test_a_plain_trial_has_the_context_of_a_single_worker(fit):
    def loop(config):
        context = train.get_context()
        storage = context.get_storage()
        train.report(
            {
                "place": [
                    context.get_world_rank(),
                    context.get_world_size(),
                    context.get_local_rank(),
                    context.get_local_world_size(),
                    context.get_node_rank(),
                ],
                "name": context.get_experiment_name(),
                "experiment": storage.experiment_fs_path,
                "checkpoint": storage.build_checkpoint_path_from_name("placeholder"),
            }
        )

    results = fit(loop)
    metrics = results[0].metrics
    assert metrics["place"] == [0, 1, 0, 1, 0]
    assert metrics["name"] == "experiment"
    assert metrics["experiment"] == results.experiment_path
    assert metrics["checkpoint"] == f"{results[0].path}/placeholder"
