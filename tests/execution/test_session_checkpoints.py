"""Checkpoints reported by training code, and what it can find out about its trial."""

from pathlib import Path

import pytest

from tests.execution.conversation import PAUSE_AND_SAVE, SAVE, converse
from tuner.errors import CheckpointError
from tuner.execution.session import checkpoint_dir, get_checkpoint, get_context, report
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.manifest import read_manifest, verify

# Checkpoints of functions.


def write(directory, text="weights"):
    Path(directory).mkdir(exist_ok=True)
    Path(directory, "file").write_text(text, encoding="utf-8")
    return Checkpoint.from_directory(directory)


def test_a_reported_checkpoint_is_copied_and_the_original_may_go(tmp_path):
    source, trial_dir = tmp_path / "source", tmp_path / "trial"
    trial_dir.mkdir()

    def train(config):
        report({"timesteps_this_iter": 5}, checkpoint=write(source))
        assert (source / "file").read_text() == "weights"

    script = converse(train, trial_dir, next_checkpoint=3, iteration=6)
    (result,) = [message for message in script.said if message["kind"] == "result"]
    assert (
        result["checkpoint"].items()
        >= {"index": 3, "iteration": 7, "counters": {"timesteps_total": 5}}.items()
    )
    assert result["checkpoint"]["time_total_s"] == result["metrics"]["time_total_s"]
    assert (result["metrics"]["checkpoint_dir_name"], result["metrics"]["should_checkpoint"]) == (
        "checkpoint_000003",
        True,
    )
    verify(trial_dir / "checkpoint_000003")
    manifest = read_manifest(trial_dir / "checkpoint_000003")
    assert (manifest.trial_id, manifest.attempt, manifest.iteration) == ("t00000", 1, 7)
    assert manifest.metrics == result["metrics"]


def test_rows_without_a_checkpoint_name_none(tmp_path):
    def train(config):
        for number in range(4):
            report({}, checkpoint=write(tmp_path / "source") if number % 2 else None)

    names = [result["checkpoint_dir_name"] for result in converse(train, tmp_path).results]
    assert names == [None, "checkpoint_000000", None, "checkpoint_000001"]


def test_a_checkpoint_dir_is_committed_by_a_rename(tmp_path):
    inodes = []

    def train(config):
        with checkpoint_dir() as directory:
            checkpoint = write(directory)
            inodes.append(Path(directory, "file").stat().st_ino)
            report({}, checkpoint=checkpoint)
            assert not Path(directory).exists()

    converse(train, tmp_path)
    assert inodes == [(tmp_path / "checkpoint_000000" / "file").stat().st_ino]


def test_a_checkpoint_dir_that_is_not_reported_is_deleted(tmp_path):
    def train(config):
        with checkpoint_dir() as directory:
            write(directory)
            raise ZeroDivisionError

    assert converse(train, tmp_path).outcome == "failed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("checkpoint", ["/a/path", {}, 3])
def test_only_a_checkpoint_can_be_reported_as_one(tmp_path, checkpoint):
    failure = converse(lambda config: report({}, checkpoint=checkpoint), tmp_path).exit["failure"]
    assert failure["kind"] == "TypeError"
    assert "Checkpoint.from_directory" in failure["message"]


def test_a_missing_checkpoint_directory_is_named_and_nothing_is_reported(tmp_path):
    def train(config):
        with pytest.raises(FileNotFoundError, match="gone"):
            report({}, checkpoint=Checkpoint(tmp_path / "gone"))
        report({}, checkpoint=write(tmp_path / "there"))

    script = converse(train, tmp_path)
    assert [
        (result["training_iteration"], result["checkpoint_dir_name"]) for result in script.results
    ] == [(1, "checkpoint_000000")]


def test_storing_a_checkpoint_is_announced_and_its_failure_reported(tmp_path):
    def train(config):
        source = write(tmp_path / "new")
        Path(tmp_path, "new", "link").symlink_to("/etc")
        with pytest.raises(CheckpointError):
            report({}, checkpoint=source)
        Path(tmp_path, "new", "link").unlink()
        report({}, checkpoint=source)

    script = converse(train, tmp_path)
    assert script.kinds == ["started", "saving", "save_failed", "saving", "result", "exited"]


def test_get_checkpoint_is_the_one_to_continue_from_then_the_latest(tmp_path):
    seen = []

    def train(config):
        seen.append(get_checkpoint())
        report({}, checkpoint=write(tmp_path / "new"))
        seen.append(get_checkpoint())

    converse(train, tmp_path, checkpoint_dir=str(tmp_path / "donor"))
    assert seen == [Checkpoint(tmp_path / "donor"), Checkpoint(tmp_path / "checkpoint_000000")]


def test_a_fresh_trial_has_no_checkpoint(tmp_path):
    seen = []
    converse(lambda config: seen.append(get_checkpoint()), tmp_path)
    assert seen == [None]


@pytest.mark.parametrize("answer", [SAVE, PAUSE_AND_SAVE])
def test_a_function_that_is_asked_to_save_reports_that_it_cannot(tmp_path, answer):
    script = converse(lambda config: report({}), tmp_path, answer)
    assert script.kinds == ["started", "result", "save_failed", "exited"]


# The context, and use outside a trial.


def test_the_context_describes_the_trial(tmp_path):
    seen = []

    def train(config):
        context = get_context()
        seen.append(
            (
                context.get_trial_id(),
                context.get_trial_name(),
                context.get_trial_dir(),
                context.get_trial_resources(),
                context.get_experiment_name(),
                context.get_seed(),
                context.get_world_size(),
                context.get_world_rank(),
                context.get_local_rank(),
                context.get_local_world_size(),
                context.get_node_rank(),
            )
        )

    converse(train, tmp_path)
    assert seen == [
        ("t00000", "train_t00000", str(tmp_path), {"cpu": 1.0}, "exp", 42, 1, 0, 0, 1, 0)
    ]


def test_outside_a_trial_report_prints(capsys):
    report({"loss": 1}, epoch=2)
    assert capsys.readouterr().out == "loss: 1  epoch: 2\n"


def test_outside_a_trial_there_is_no_checkpoint_and_no_context():
    assert get_checkpoint() is None
    with pytest.raises(RuntimeError, match="outside a trial; call it in the function"):
        get_context()


def test_outside_a_trial_a_checkpoint_directory_is_temporary():
    with checkpoint_dir() as directory:
        write(directory)
    assert not Path(directory).exists()


def test_after_its_end_the_trial_is_detached_from_the_thread(tmp_path):
    converse(lambda config: None, tmp_path)
    assert get_checkpoint() is None


def test_the_working_directory_is_not_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    converse(lambda config: seen.append(Path.cwd()), tmp_path / "elsewhere")
    assert seen == [tmp_path]
