"""Rules that the guides state for the validation of checkpoints beside the training."""

import os
import tempfile
import threading
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tuner import train
from tuner.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    DataParallelTrainer,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    ValidationConfig,
    ValidationTaskConfig,
)

pytestmark = pytest.mark.process


@pytest.fixture
def train_with(tmp_path):
    """Return a function that trains with validations under ``tmp_path``."""

    def run(loop, validation=None, config=None, *, name="run", scaling=None, **settings):
        given = {"name": name, "storage_path": tmp_path, "verbose": 0, "resources": {"cpu": 4}}
        return DataParallelTrainer(
            loop,
            train_loop_config=config or {},
            scaling_config=scaling or ScalingConfig(num_workers=1),
            validation_config=validation,
            run_config=RunConfig(**(given | settings)),
        ).fit()

    return run


def report_number(number, metrics=None, **options):
    directory = tempfile.mkdtemp()
    Path(directory, "number").write_text(str(number))
    train.report(
        {"number": number, **(metrics or {})},
        checkpoint=Checkpoint.from_directory(directory),
        **options,
    )


def number_in(checkpoint):
    with checkpoint.as_directory() as directory:
        return int(Path(directory, "number").read_text())


def double(checkpoint):
    return {"doubled": 2 * number_in(checkpoint)}


def counts(num_reports, **options):
    def loop(config):
        for number in range(num_reports):
            report_number(number, **({"validation": True} | options))

    return loop


def merged(result, *names):
    return [tuple(metrics.get(name) for name in names) for _, metrics in result.best_checkpoints]


# When.


@pytest.mark.parametrize("workers", [1, 2])
def test_training_goes_on_while_a_validation_runs(train_with, tmp_path, workers):
    def validate(checkpoint):
        wait_until((tmp_path / "trained").exists)
        return double(checkpoint)

    def loop(config):
        for number in range(4):
            if train.get_context().get_world_rank() == 0:
                report_number(number, validation=True)
            else:
                train.report({})
        (tmp_path / "trained").touch()

    result = train_with(
        loop, ValidationConfig(validate), scaling=ScalingConfig(num_workers=workers)
    )
    assert merged(result, "number", "doubled") == [(0, 0), (1, 2), (2, 4), (3, 6)]


def test_a_validation_waits_for_its_checkpoint_to_be_stored(train_with):
    options = {"checkpoint_upload_mode": CheckpointUploadMode.ASYNC}
    result = train_with(counts(3, **options), ValidationConfig(double))
    assert merged(result, "number", "doubled") == [(0, 0), (1, 2), (2, 4)]


def test_one_validation_of_a_trial_runs_at_a_time_in_the_order_of_reports(train_with, tmp_path):
    def validate(checkpoint):
        with (tmp_path / "order").open("a") as file:
            file.write(f"begin {number_in(checkpoint)}\n")
        with (tmp_path / "order").open("a") as file:
            file.write(f"end {number_in(checkpoint)}\n")
        return {}

    train_with(counts(3), ValidationConfig(validate))
    lines = (tmp_path / "order").read_text().splitlines()
    assert lines == [f"{what} {number}" for number in range(3) for what in ("begin", "end")]


# What is stored.


def test_the_value_of_the_validation_overwrites_that_of_the_report(train_with):
    result = train_with(
        lambda config: report_number(1, {"loss": 1.0}, validation=True),
        ValidationConfig(lambda checkpoint: {"loss": -1.0, "accuracy": 0.5}),
    )
    assert merged(result, "loss", "accuracy", "number") == [(-1.0, 0.5, 1)]
    assert result.metrics["loss"] == -1.0


def test_metrics_are_added_to_the_checkpoint_that_was_validated_not_to_the_latest(
    train_with, tmp_path
):
    def validate(checkpoint):
        wait_until((tmp_path / "third").exists)
        return double(checkpoint)

    def loop(config):
        report_number(7, validation=True)
        report_number(8)
        report_number(9)
        (tmp_path / "third").touch()

    result = train_with(loop, ValidationConfig(validate))
    assert merged(result, "number", "doubled") == [(7, 14), (8, None), (9, None)]
    table = result.metrics_dataframe
    assert list(table["number"]) == [7, 8, 9]
    assert table["doubled"].iloc[0] == 14
    assert list(table["doubled"].isna()) == [False, True, True]


def test_both_forms_of_asking_give_the_same(train_with):
    def older(checkpoint, config):
        return {"sum": number_in(checkpoint) + config["add"]}

    def newer(checkpoint, add):
        return older(checkpoint, {"add": add})

    asked_newer = {"validation": ValidationTaskConfig(fn_kwargs={"add": 5})}
    asked_older = {"validate_fn": older, "validate_config": {"add": 5}}
    one = train_with(counts(2, **asked_newer), ValidationConfig(newer), name="newer")
    two = train_with(counts(2, validation=False, **asked_older), name="older")
    assert merged(one, "number", "sum") == merged(two, "number", "sum") == [(0, 5), (1, 6)]


def test_a_configuration_is_optional_in_the_older_form(train_with):
    result = train_with(
        lambda config: report_number(1, validate_fn=lambda checkpoint, config: {"got": str(config)})
    )
    assert result.metrics["got"] == "{}"


def test_arguments_of_a_report_come_before_the_declared_ones(train_with):
    def validate(checkpoint, first, second):
        return {"first": first, "second": second}

    def loop(config):
        report_number(0, validation=True)
        report_number(1, validation=ValidationTaskConfig(fn_kwargs={"second": "given"}))

    declared = ValidationTaskConfig(fn_kwargs={"first": "declared", "second": "declared"})
    result = train_with(loop, ValidationConfig(validate, declared))
    assert merged(result, "first", "second") == [("declared", "declared"), ("declared", "given")]


# What is refused.


def test_a_validation_without_a_function_is_refused(train_with):
    with pytest.raises(TrainingFailedError, match="ValueError"):
        train_with(lambda config: report_number(1, validation=True), None)


def test_a_validation_without_a_checkpoint_is_ignored(train_with):
    def loop(config):
        train.report({"step": 1}, validation=True)

    assert train_with(loop, ValidationConfig(double)).metrics["step"] == 1


def test_ranks_that_ask_for_different_validations_are_refused(train_with):
    def loop(config):
        add = train.get_context().get_world_rank()
        report_number(1, validation=ValidationTaskConfig(fn_kwargs={"add": add}))

    def validate(checkpoint, add):
        return {}

    with pytest.raises(TrainingFailedError, match="ValueError"):
        train_with(loop, ValidationConfig(validate), scaling=ScalingConfig(num_workers=2))


def test_a_function_that_captures_much_is_warned_of_with_its_size(train_with, caplog):
    def loop(config):
        large = b"x" * (11 << 20)
        report_number(1, validate_fn=lambda checkpoint, config: {"size": len(large)})

    result = train_with(loop)
    assert result.metrics["size"] == 11 << 20
    (warning,) = [record for record in caplog.messages if "11 MiB when pickled" in record]
    assert "checkpoint" in warning


# What goes wrong.


def dies(checkpoint):
    os.kill(os.getpid(), 9)


def raises(checkpoint):
    raise RuntimeError("the data have gone")


def returns_no_dictionary(checkpoint):
    return 0.5


def takes_long(checkpoint):
    threading.Event().wait()


@pytest.mark.parametrize(
    ("validate", "status"),
    [
        (dies, "VALIDATION_FAILED"),
        (raises, "VALIDATION_FAILED"),
        (returns_no_dictionary, "VALIDATION_FAILED"),
        (takes_long, "VALIDATION_TIMEOUT"),
        (double, "VALIDATED"),
    ],
)
def test_a_validation_that_goes_wrong_leaves_what_was_reported(train_with, validate, status):
    def loop(config):
        timeout_s = 0.1 if validate is takes_long else None
        report_number(3, validation=ValidationTaskConfig(timeout_s=timeout_s))
        report_number(4)
        known = train.get_all_reported_checkpoints(CheckpointConsistencyMode.VALIDATED)
        train.report(
            {
                "statuses": [reported.status.name for reported in known],
                "numbers": [reported.metrics["number"] for reported in known],
            }
        )

    result = train_with(loop, ValidationConfig(validate))
    assert result.metrics["statuses"] == [status, "COMMITTED"]
    assert result.metrics["numbers"] == [3, 4]
    assert result.best_checkpoints[0][1]["number"] == 3
    assert result.error is None


def test_a_validation_that_is_open_is_pending(train_with, tmp_path):
    def validate(checkpoint):
        wait_until((tmp_path / "seen").exists)
        return {}

    def loop(config):
        report_number(1, validation=True)
        modes = CheckpointConsistencyMode
        committed = train.get_all_reported_checkpoints(modes.COMMITTED)
        late = train.get_all_reported_checkpoints(modes.VALIDATED, timeout_s=0.05)
        (tmp_path / "seen").touch()
        train.report({"statuses": [one.status.name for one in [*committed, *late]]})

    result = train_with(loop, ValidationConfig(validate))
    assert result.metrics["statuses"] == ["PENDING_VALIDATION"] * 2


# What is kept.


def test_no_checkpoint_is_deleted_before_its_validation_is_over(train_with, tmp_path):
    def validate(checkpoint):
        wait_until((tmp_path / "trained").exists)
        return {"score": -abs(number_in(checkpoint) - 1)}

    def loop(config):
        for number in range(5):
            report_number(number, validation=True)
        path = Path(train.get_context().get_trial_dir())
        kept = len(list(path.glob("checkpoint_*")))
        (tmp_path / "trained").touch()
        train.report({"kept": kept})

    keep = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    result = train_with(loop, ValidationConfig(validate), checkpoint_config=keep)
    assert result.metrics["kept"] == 5
    assert merged(result, "number") == [(1,)]
    assert result.checkpoint.path.endswith("checkpoint_000004")  # the latest is kept as well


def test_a_checkpoint_whose_validation_failed_ranks_last_by_a_metric_of_validations(train_with):
    def validate(checkpoint):
        if number_in(checkpoint) == 2:
            raise RuntimeError("fails for the second")
        return {"score": number_in(checkpoint)}

    def loop(config):
        for number in (3, 2, 1):
            report_number(number, validation=True)

    keep = CheckpointConfig(checkpoint_score_attribute="score")
    result = train_with(loop, ValidationConfig(validate), checkpoint_config=keep)
    assert merged(result, "number", "score") == [(2, None), (1, 1), (3, 3)]


# Where.


def test_a_validation_has_no_gpu_unless_it_asks_for_one_and_then_another_one(train_with):
    def validate(checkpoint):
        return {"validator": os.environ.get("CUDA_VISIBLE_DEVICES")}

    def loop(config):
        report_number(1, {"trainer": os.environ["CUDA_VISIBLE_DEVICES"]}, validation=True)

    found = {}
    for asked in (0, 1):
        result = train_with(
            loop,
            ValidationConfig(validate, ray_remote_kwargs={"num_gpus": asked}),
            name=f"gpus_{asked}",
            scaling=ScalingConfig(num_workers=1, use_gpu=True),
            resources={"cpu": 4, "gpu": 2},
        )
        found[asked] = (result.metrics["trainer"], result.metrics["validator"])
    assert found[0] == ("0", "")
    assert found[1][1] != found[1][0]
    assert found[1][1] in {"0", "1"}


def test_a_validation_runs_in_a_process_of_its_own(train_with):
    def validate(checkpoint):
        return {"validator": os.getpid()}

    result = train_with(
        lambda config: report_number(1, {"worker": os.getpid()}, validation=True),
        ValidationConfig(validate),
    )
    assert len({result.metrics["worker"], result.metrics["validator"], os.getpid()}) == 3
