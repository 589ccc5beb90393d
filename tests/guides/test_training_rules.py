"""Rules that the guides state for trainings over several workers."""

import json
import os
import tempfile
from pathlib import Path

import pytest

import tuner as tune
from tuner import train
from tuner.train import (
    Checkpoint,
    CheckpointUploadMode,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)

pytestmark = pytest.mark.process


@pytest.fixture
def train_with(tmp_path):
    """Return a function that trains over two workers under ``tmp_path``."""

    def run(
        loop,
        config=None,
        *,
        name="run",
        workers=2,
        trainer=None,
        kind=DataParallelTrainer,
        **settings,
    ):
        run_config = RunConfig(
            name=name, storage_path=tmp_path, verbose=0, resources={"cpu": 4}, **settings
        )
        scaling = ScalingConfig(num_workers=workers)
        return kind(
            loop,
            train_loop_config=config or {},
            scaling_config=scaling,
            run_config=run_config,
            **(trainer or {}),
        ).fit()

    return run


def rank():
    return train.get_context().get_world_rank()


def report_file(name, text, metrics=None, **options):
    """Report a checkpoint with one file, and return the local directory."""
    directory = tempfile.mkdtemp()
    Path(directory, name).write_text(text)
    train.report(metrics or {}, checkpoint=Checkpoint.from_directory(directory), **options)
    return directory


def files_of(checkpoint):
    return sorted(path.name for path in Path(checkpoint.path).iterdir() if path.name[0] != ".")


# Reports.


def test_metrics_are_those_of_rank_0_and_kept_without_a_checkpoint(train_with):
    def loop(config):
        for step in range(3):
            train.report({"rank": rank(), "step": step})

    result = train_with(loop)
    assert list(result.metrics_dataframe["rank"]) == [0, 0, 0]
    assert result.metrics["step"] == 2
    assert result.checkpoint is None


def test_a_rank_that_returns_while_another_reports_is_named_at_once(train_with):
    def loop(config):
        for _ in range(3 if rank() == 0 else 2):
            train.report({})

    with pytest.raises(TrainingFailedError, match=r"rank 1 returned after 2 reports"):
        train_with(loop)


def test_the_first_rank_that_failed_is_named_with_its_error(train_with):
    def loop(config):
        train.report({})
        if rank() == 1:
            raise RuntimeError("the second worker is broken")
        train.report({})

    with pytest.raises(TrainingFailedError, match="the second worker is broken") as failure:
        train_with(loop)
    assert 1 in failure.value.worker_failures


def test_a_context_knows_ranks_sizes_names_and_paths(train_with):
    def loop(config):
        context = train.get_context()
        placeholder = context.get_storage().build_checkpoint_path_from_name("placeholder")
        train.report(
            {
                "sizes": [context.get_world_size(), context.get_local_world_size()],
                "node": context.get_node_rank(),
                "local_rank": context.get_local_rank(),
                "name": context.get_experiment_name(),
                "placeholder": placeholder,
                "variables": [os.environ["RANK"], os.environ["WORLD_SIZE"]],
            }
        )

    result = train_with(loop, name="named")
    metrics = result.metrics
    assert metrics["name"] == "named"
    assert metrics["sizes"] == [2, 2]
    assert metrics["node"] == metrics["local_rank"] == 0
    assert Path(metrics["placeholder"]).name == "placeholder"
    assert Path(metrics["placeholder"]).is_relative_to(Path(result.path).parent)
    assert metrics["variables"] == ["0", "2"]


def test_any_iterable_of_rows_is_a_dataset_of_which_each_worker_has_a_part(train_with):
    def loop(config):
        shard = train.get_dataset_shard("train")
        batches = [batch["x"].tolist() for batch in shard.iter_batches(batch_size=2)]
        Path(train.get_context().get_trial_dir(), f"rows-{rank()}").write_text(json.dumps(batches))
        train.report({})

    rows = [{"x": number} for number in range(8)]
    result = train_with(loop, trainer={"datasets": {"train": rows}})
    seen = [json.loads(Path(result.path, f"rows-{rank}").read_text()) for rank in (0, 1)]
    flat = [number for batches in seen for batch in batches for number in batch]
    assert sorted(flat) == list(range(8))
    assert [len(batches) for batches in seen] == [2, 2]


# Checkpoints of several workers.


def test_files_of_equal_names_and_contents_are_one_without_a_warning(train_with, caplog):
    result = train_with(lambda config: report_file("same.txt", "same"))
    assert files_of(result.checkpoint) == ["same.txt"]
    assert "same.txt" not in caplog.text


def test_of_files_with_equal_names_the_highest_ranks_is_kept_with_a_warning(train_with, caplog):
    result = train_with(lambda config: report_file("same.txt", f"of rank {rank()}"))
    assert Path(result.checkpoint.path, "same.txt").read_text() == "of rank 1"
    assert "same.txt" in caplog.text


def test_a_checkpoint_of_any_one_rank_is_the_groups(train_with):
    def loop(config):
        if rank() == 1:
            report_file("by_1", "")
        else:
            train.report({"loss": 0.5})

    result = train_with(loop)
    assert files_of(result.checkpoint) == ["by_1"]
    assert result.best_checkpoints[0][1]["loss"] == 0.5


# Storing.


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("mode", "is_left"), [("SYNC", True), ("ASYNC", False)])
def test_a_local_directory_is_deleted_only_after_storing_it_asynchronously(
    train_with, workers, mode, is_left
):
    def loop(config):
        options = {"checkpoint_upload_mode": CheckpointUploadMode[mode]}
        directories = [report_file(f"{rank()}", "", {"step": step}, **options) for step in range(4)]
        Path(train.get_context().get_trial_dir(), f"local-{rank()}").write_text(
            "\n".join(directories)
        )

    result = train_with(loop, workers=workers)
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1, 2, 3]
    assert files_of(result.checkpoint) == [str(rank) for rank in range(workers)]
    for file in Path(result.path).glob("local-*"):
        assert {Path(line).is_dir() for line in file.read_text().splitlines()} == {is_left}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_checkpoint_is_not_lost_if_the_function_raises_after_an_asynchronous_report(
    train_with, workers
):
    def loop(config):
        if train.get_checkpoint():
            return
        report_file(f"{rank()}", "", {"step": 0}, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        raise RuntimeError("right after the report")

    result = train_with(loop, workers=workers, failure_config=FailureConfig(max_failures=1))
    assert len(result.best_checkpoints) == 1
    assert len(result.metrics_dataframe) == 1
    assert [path.name for path in Path(result.path).glob(".staging*")] == []


def test_a_checkpoint_that_is_not_stored_must_lie_in_the_runs_directory(train_with, tmp_path):
    def loop(config):
        train.report(
            {},
            checkpoint=Checkpoint(config["path"]),
            checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
        )

    with pytest.raises(TrainingFailedError, match="ValueError"):
        train_with(loop, {"path": str(tmp_path / "elsewhere")})


def test_a_placeholder_keeps_its_metrics_and_is_no_checkpoint_to_continue_from(train_with):
    def loop(config):
        path = train.get_context().get_storage().build_checkpoint_path_from_name("placeholder")
        train.report(
            {"score": 0.5, "has_checkpoint": train.get_checkpoint() is not None},
            checkpoint=Checkpoint(path),
            checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
        )
        train.report({"score": 0.25, "has_checkpoint": train.get_checkpoint() is not None})

    result = train_with(loop)
    assert list(result.metrics_dataframe["score"]) == [0.5, 0.25]
    assert list(result.metrics_dataframe["has_checkpoint"]) == [False, False]


def test_a_checkpoint_may_have_a_name_of_its_own(train_with):
    def loop(config):
        for step in range(2):
            report_file("state", "", {"step": step}, checkpoint_dir_name=f"step-{step}")

    result = train_with(loop)
    names = [Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints]
    assert names == ["step-0", "step-1"]


def test_a_function_may_store_the_checkpoint_in_place_of_the_engine(train_with):
    def store(checkpoint, name):
        target = Path(train.get_context().get_storage().build_checkpoint_path_from_name(name))
        checkpoint.to_directory(str(target))
        (target / f"stored_by_{rank()}").touch()
        return Checkpoint(str(target))

    def loop(config):
        report_file("state", "", checkpoint_upload_fn=store)

    result = train_with(loop, workers=1)
    assert files_of(result.checkpoint) == ["state", "stored_by_0"]


# Runs.


def test_the_same_name_continues_the_run_and_another_one_begins_anew(train_with):
    def loop(config):
        start = 0
        if checkpoint := train.get_checkpoint():
            start = int(Path(checkpoint.path, "step").read_text()) + 1
        for step in range(start, config["num_steps"]):
            with tune.checkpoint_dir() as directory:
                Path(directory, "step").write_text(str(step))
                train.report({"step": step}, checkpoint=Checkpoint.from_directory(directory))

    assert list(train_with(loop, {"num_steps": 2}).metrics_dataframe["step"]) == [0, 1]
    assert list(train_with(loop, {"num_steps": 4}).metrics_dataframe["step"]) == [0, 1, 2, 3]
    other = train_with(loop, {"num_steps": 1}, name="other")
    assert list(other.metrics_dataframe["step"]) == [0]


def test_a_new_run_may_begin_with_another_ones_checkpoint_which_is_left_alone(train_with):
    def loop(config):
        checkpoint = train.get_checkpoint()
        came_from = checkpoint and Path(checkpoint.path, "name").read_text()
        report_file("name", config["name"], {"came_from": came_from})

    first = train_with(loop, {"name": "first"}, name="first")
    before = {path.name: path.read_bytes() for path in Path(first.checkpoint.path).iterdir()}
    second = train_with(
        loop,
        {"name": "second"},
        name="second",
        trainer={"resume_from_checkpoint": first.checkpoint},
    )
    assert first.metrics["came_from"] is None
    assert second.metrics["came_from"] == "first"
    assert before == {
        path.name: path.read_bytes() for path in Path(first.checkpoint.path).iterdir()
    }


def test_a_failure_counts_once_for_the_whole_group(train_with):
    def loop(config):
        start = 0
        if checkpoint := train.get_checkpoint():
            start = int(Path(checkpoint.path, "step").read_text()) + 1
        for step in range(start, 3):
            report_file("step", str(step), {"step": step})
            raise RuntimeError("both workers fail")

    result = train_with(loop, failure_config=FailureConfig(max_failures=3))
    assert list(result.metrics_dataframe["step"]) == [0, 1, 2]
    with pytest.raises(TrainingFailedError):
        train_with(loop, name="fewer", failure_config=FailureConfig(max_failures=1))


def test_saving_by_the_clock_is_decided_alike_on_all_workers(train_with):
    from tuner.train.torch import TorchTrainer

    def loop(config):
        every = train.CheckpointEvery(minutes=60)
        for step in range(3):
            is_due = every.is_due()
            Path(train.get_context().get_trial_dir(), f"due-{rank()}-{step}-{is_due}").touch()
            train.report({"step": step})

    result = train_with(loop, kind=TorchTrainer)
    names = sorted(path.name for path in Path(result.path).glob("due-*"))
    assert names == [f"due-{rank}-{step}-False" for rank in (0, 1) for step in range(3)]
