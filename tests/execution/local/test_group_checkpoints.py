"""Checkpoints that the workers of a group report together."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tuner.background import BackgroundJobs
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointStarted,
    Outcome,
    ResultReported,
    WorkerExited,
)
from tuner.core.worker_records import ReportReply
from tuner.execution.attempt import current_attempt
from tuner.execution.report_options import CheckpointUploadMode, ReportOptions
from tuner.execution.session import checkpoint_dir, get_checkpoint, get_context
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.manifest import read_manifest, verify

pytestmark = pytest.mark.process

ASYNC = CheckpointUploadMode.ASYNC
NO_UPLOAD = CheckpointUploadMode.NO_UPLOAD


def rank():
    return get_context().get_world_rank()


def report(metrics, checkpoint=None, **options):
    current_attempt().report(metrics, checkpoint, ReportOptions(**options))


def trial_dir():
    return Path(get_context().get_trial_dir())


def written(name, text=None):
    directory = trial_dir() / f".source-{rank()}-{name}"
    directory.mkdir(parents=True)
    (directory / f"shard{rank()}").write_text(text or name)
    return Checkpoint.from_directory(directory)


def kinds(harness):
    return [type(event) for event in harness.events["t00001"]]


def checkpoints_in(harness):
    return sorted(path.name for path in harness.directory.joinpath("t00001").glob("checkpoint_*"))


def staging_in(harness):
    return sorted(path.name for path in harness.directory.joinpath("t00001").glob(".tmp-*"))


def await_no_staging(harness):
    """Wait until a thread has removed the parts of a checkpoint that was refused."""
    wait_until(lambda: not staging_in(harness), "the end of the staging directories")


def test_the_parts_of_all_ranks_are_one_checkpoint_that_all_ranks_know(start_executor):
    def train(config):
        for number in range(2):
            report({"latest": str(get_checkpoint())}, written(str(number)))
        report({"latest": str(get_checkpoint())})

    harness = start_executor(train)
    harness.run_group(next_checkpoint=4)
    records = [result.checkpoint for result in harness.results()]
    assert [record and record.index for record in records] == [4, 5, None]
    path = harness.directory / "t00001" / "checkpoint_000005"
    assert {name: entry.rank for name, entry in read_manifest(path).files.items()} == {
        "shard0": 0,
        "shard1": 1,
    }
    verify(path)
    last = harness.results()[-1]
    assert [metrics["latest"] for metrics in last.rank_metrics] == [str(Checkpoint(path))] * 2
    await_no_staging(harness)
    names = [result.metrics["checkpoint_dir_name"] for result in harness.results()]
    assert names == ["checkpoint_000004", "checkpoint_000005", None]


@pytest.mark.parametrize("only", [0, 1])
def test_one_rank_alone_may_report_the_checkpoint(start_executor, only):
    def train(config):
        report({}, written("x") if rank() == config["only"] else None)
        report({"latest": str(get_checkpoint())})

    harness = start_executor(train)
    harness.run_group(only=only)
    first, second = harness.results()
    assert first.checkpoint.index == 0
    assert (first.metrics["checkpoint_dir_name"], first.metrics["should_checkpoint"]) == (
        "checkpoint_000000",
        True,
    )
    assert len({metrics["latest"] for metrics in second.rank_metrics}) == 1
    path = harness.directory / "t00001" / "checkpoint_000000"
    assert [entry.rank for entry in read_manifest(path).files.values()] == [only]


def test_a_lent_directory_is_the_same_on_all_ranks_and_gone_if_it_is_not_reported(start_executor):
    def train(config):
        for _ in range(2):
            with checkpoint_dir() as directory:
                Path(directory, f"shard{rank()}").write_text("x")
                report({"directory": directory}, Checkpoint.from_directory(directory))
        with checkpoint_dir() as directory:
            report({"directory": directory})

    harness = start_executor(train)
    assert harness.run_group().outcome is Outcome.COMPLETED
    for result in harness.results():
        assert len({metrics["directory"] for metrics in result.rank_metrics}) == 1
    assert len({result.metrics["directory"] for result in harness.results()}) == 3
    for name in checkpoints_in(harness):
        path = harness.directory / "t00001" / name
        assert sorted(read_manifest(path).files) == ["shard0", "shard1"]
        verify(path)
    assert checkpoints_in(harness) == ["checkpoint_000000", "checkpoint_000001"]
    await_no_staging(harness)


def test_a_checkpoint_stored_in_threads_is_committed_when_all_ranks_have_stored_theirs(
    start_executor,
):
    def train(config):
        for number in range(5):
            report({"number": number}, written(str(number)), upload_mode=ASYNC)

    harness = start_executor(train)
    assert harness.run_group().outcome is Outcome.COMPLETED
    assert [result.upload for result in harness.results()] == [0, 1, 2, 3, 4]
    committed = [
        event.checkpoint
        for event in harness.events["t00001"]
        if isinstance(event, CheckpointCommitted)
    ]
    assert [(record.index, record.iteration) for record in committed] == [
        (number, number + 1) for number in range(5)
    ]
    assert kinds(harness)[-1] is WorkerExited
    for name in checkpoints_in(harness):
        verify(harness.directory / "t00001" / name)
    assert len(checkpoints_in(harness)) == 5
    await_no_staging(harness)
    assert list(harness.directory.joinpath("t00001").glob(".source-*")) == []


@pytest.mark.parametrize("end", ["raise", "stop"])
def test_what_threads_store_is_committed_before_the_attempt_ends(start_executor, end):
    def train(config):
        report({}, written("x"), upload_mode=ASYNC)
        raise KeyError("lost")

    harness = start_executor(train)
    harness.start_group("t00001")
    harness.next_event("t00001", ResultReported)
    harness.answer("t00001", ReportReply.STOP if end == "stop" else ReportReply.CONTINUE)
    ended = harness.exit_of("t00001")
    assert ended.outcome is (Outcome.STOPPED if end == "stop" else Outcome.FAILED)
    assert CheckpointCommitted in kinds(harness)
    verify(harness.directory / "t00001" / "checkpoint_000000")


def assert_others_name(culprit, failure):
    """Whichever rank hears first that one could not store its part, its message says which."""
    assert failure.ranks
    for rank, of_rank in failure.ranks:
        if rank != culprit:
            assert f"rank {culprit} could not store its part" in of_rank.message


def test_a_thread_that_cannot_store_fails_the_attempt_with_the_cause(start_executor):
    def train(config):
        checkpoint = written("x")
        if rank() == 1:
            (Path(checkpoint.path) / "link").symlink_to("/etc/hosts")
        report({}, checkpoint, upload_mode=ASYNC)
        while True:
            report({})

    harness = start_executor(train)
    ended = harness.run_group()
    assert ended.outcome is Outcome.FAILED
    assert ended.failure.kind == "CheckpointError"
    assert "leads out of the checkpoint" in ended.failure.message
    assert ".source-1-x" in ended.failure.message
    assert_others_name(1, ended.failure)


def test_a_rank_that_writes_its_directory_again_before_it_is_stored_fails_the_attempt(
    start_executor,
):
    def train(config):
        uploads = current_attempt()._uploads = BackgroundJobs("tuner-upload")
        written_again, submit = threading.Event(), uploads.submit
        uploads.submit = lambda job: submit(lambda: written_again.wait(60) and job())
        checkpoint = written("x", "1")
        report({}, checkpoint, upload_mode=ASYNC, deletes_local=False)
        if rank() == 1:
            Path(checkpoint.path, "shard1").write_text("2")
        written_again.set()
        while True:
            report({})

    harness = start_executor(train)
    ended = harness.run_group()
    assert ended.outcome is Outcome.FAILED
    assert "shard1 has changed" in ended.failure.message
    assert_others_name(1, ended.failure)
    assert checkpoints_in(harness) == []


@pytest.mark.parametrize("options", [{"upload_mode": ASYNC}, {"deletes_local": True}])
def test_ranks_may_report_the_same_directory_that_is_deleted_when_all_have_stored_it(
    start_executor, options
):
    def train(config):
        for number in range(3):
            directory = trial_dir() / f".source{number}"
            directory.mkdir(exist_ok=True)
            (directory / f"shard{rank()}").write_text(str(number))
            report({})  # so that all have written
            report({}, Checkpoint.from_directory(directory), **config["options"])

    harness = start_executor(train)
    assert harness.run_group(num_workers=3, options=options).outcome is Outcome.COMPLETED
    assert checkpoints_in(harness) == [f"checkpoint_00000{number}" for number in range(3)]
    for name in checkpoints_in(harness):
        path = harness.directory / "t00001" / name
        assert sorted(read_manifest(path).files) == ["shard0", "shard1", "shard2"]
        verify(path)
    assert list(harness.directory.joinpath("t00001").glob(".*source*")) == []
    await_no_staging(harness)


def test_a_part_of_a_checkpoint_that_was_given_up_is_not_taken_for_the_next(start_executor):
    def train(config):
        from tuner.errors import CheckpointError
        from tuner.execution import checkpoint_uploads

        real = checkpoint_uploads.stage_part

        def fail(*arguments, **options):
            raise CheckpointError("no space left on device") from OSError(28, "no space left")

        if rank() == 1:
            checkpoint_uploads.stage_part = fail
        report({}, written("lost"), **({"upload_mode": ASYNC} if rank() == 0 else {}))
        checkpoint_uploads.stage_part = real
        report({}, written("kept"), upload_mode=ASYNC)

    harness = start_executor(train)
    assert harness.run_group().outcome is Outcome.COMPLETED
    assert checkpoints_in(harness) == ["checkpoint_000000"]
    path = harness.directory / "t00001" / "checkpoint_000000"
    assert [(path / f"shard{rank}").read_text() for rank in (0, 1)] == ["kept", "kept"]
    await_no_staging(harness)


def test_spawned_ranks_store_a_checkpoint_before_one_is_killed_and_after(start_executor):
    def train(config):
        report({}, written(f"{config['name']}0"), upload_mode=ASYNC)
        report({}, written(f"{config['name']}1"))
        if config["name"] == "killed":
            if rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()

    def validate(checkpoint):
        return {"text": Path(checkpoint.path, "shard1").read_text()}

    harness = start_executor(train, start_method="spawn", validator=validate)
    ended = harness.run_group(name="killed")
    assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "killed by SIGKILL")
    assert [blamed for blamed, _ in ended.failure.ranks] == [1]
    harness.events.clear()
    harness.start_group("t00001", attempt=2, next_checkpoint=2, name="again")
    assert harness.exit_of("t00001").outcome is Outcome.COMPLETED
    texts = [
        Path(harness.directory, "t00001", name, "shard1").read_text()
        for name in checkpoints_in(harness)
    ]
    assert texts == ["killed0", "killed1", "again0", "again1"]
    assert harness.validate(3).metrics == {"text": "again1"}
    await_no_staging(harness)


def test_ranks_may_name_the_directory_alike(start_executor):
    def train(config):
        report({}, written("x"), directory_name="best")
        try:
            report({}, written("y"), directory_name=f"of-rank-{rank()}")
        except ValueError as error:
            report({"error": str(error)})

    harness = start_executor(train)
    harness.run_group()
    first, second = harness.results()
    assert (first.checkpoint.name, first.checkpoint.directory) == ("best", "best")
    verify(harness.directory / "t00001" / "best")
    assert all("'of-rank-0', 'of-rank-1'" in told["error"] for told in second.rank_metrics)
    assert second.metrics["training_iteration"] == 2  # the refused report does not count
    await_no_staging(harness)
    assert kinds(harness).count(CheckpointFailed) == 1


@pytest.mark.parametrize("exists", [True, False])
def test_what_is_not_uploaded_lies_in_one_directory_of_all_ranks(start_executor, exists):
    def train(config):
        directory = trial_dir() / "mine"
        if config["exists"]:
            directory.mkdir(exist_ok=True)
            (directory / f"shard{rank()}").write_text("x")
        report({}, Checkpoint(directory), upload_mode=NO_UPLOAD)

    harness = start_executor(train)
    harness.run_group(exists=exists)
    (result,) = harness.results()
    assert (result.checkpoint.name, result.checkpoint.is_placeholder) == ("mine", not exists)
    if exists:
        path = harness.directory / "t00001" / "mine"
        assert sorted(read_manifest(path).files) == ["shard0", "shard1"]
        verify(path)


def test_files_that_differ_between_ranks_are_named_in_a_warning(start_executor, caplog):
    def train(config):
        directory = trial_dir() / f".source-{rank()}"
        directory.mkdir()
        (directory / "weights").write_text(str(rank()))
        report({}, Checkpoint.from_directory(directory))

    harness = start_executor(train)
    harness.run_group()
    assert "file weights" in caplog.text
    assert "ranks 0 and 1" in caplog.text


def test_the_same_difference_is_named_once_and_without_temporary_names(start_executor, caplog):
    def train(config):
        for step in range(3):
            directory = trial_dir() / f".source-{rank()}-{step}"
            directory.mkdir()
            (directory / "weights").write_text(str(rank()))
            report({}, Checkpoint.from_directory(directory))

    start_executor(train).run_group()
    assert caplog.text.count("file weights of a checkpoint differs") == 1
    assert ".tmp-" not in caplog.text


def test_a_full_disk_on_one_rank_costs_the_checkpoint_and_not_the_metrics(start_executor, caplog):
    def train(config):
        from tuner.errors import CheckpointError
        from tuner.execution import checkpoint_uploads

        real = checkpoint_uploads.stage_part

        def fail(*arguments, **options):
            raise CheckpointError("no space left on device") from OSError(28, "no space left")

        if rank() == 1:
            checkpoint_uploads.stage_part = fail
        report({"number": 0}, written("0"))
        checkpoint_uploads.stage_part = real
        report({"number": 1}, written("1"))

    harness = start_executor(train)
    assert harness.run_group().outcome is Outcome.COMPLETED
    assert [result.metrics["number"] for result in harness.results()] == [0, 1]
    assert [result.checkpoint and result.checkpoint.index for result in harness.results()] == [
        None,
        0,
    ]
    assert harness.results()[0].metrics["checkpoint_dir_name"] is None
    assert "no space left" in caplog.text
    await_no_staging(harness)


def test_a_commit_that_fails_raises_in_all_ranks(start_executor):
    def train(config):
        from tuner.errors import CheckpointError

        directory = trial_dir() / f".source-{rank()}"
        (directory / "a").mkdir(parents=True)
        if rank() == 1:
            (directory / "a").rmdir()
            (directory / "a").write_text("a file, where rank 0 has a folder")
        try:
            report({}, Checkpoint.from_directory(directory))
        except CheckpointError as error:
            report({"error": str(error)})

    harness = start_executor(train)
    assert harness.run_group().outcome is Outcome.COMPLETED
    (result,) = harness.results()
    assert ["could not be written" in told["error"] for told in result.rank_metrics] == [True, True]
    assert kinds(harness).count(CheckpointStarted) == 1
    assert checkpoints_in(harness) == []


def test_an_attempt_that_is_killed_leaves_staging_only(start_executor):
    def train(config):
        if rank() == 1:
            checkpoint = written("x")
            from tuner.execution import checkpoint_uploads

            checkpoint_uploads.stage_part = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
            report({}, checkpoint)
        report({}, written("x"))

    harness = start_executor(train)
    ended = harness.run_group()
    assert ended.failure.ranks[0][0] == 1
    assert harness.results() == []
    assert checkpoints_in(harness) == []
    assert all(name.startswith(".tmp-000000-1-") for name in staging_in(harness))
