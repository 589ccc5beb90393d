"""Other users can neither write to our files nor redirect our writes with links."""

import os
import stat
from pathlib import Path

import pytest

import tuner as tune
from tuner.errors import StorageError
from tuner.storage.directories import inspect_folder

pytestmark = pytest.mark.process


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def save(config):
    for step in range(2):
        with tune.checkpoint_dir() as directory:
            is_private = not stat.S_IMODE(Path(directory).stat().st_mode) & 0o077
            Path(directory, "inner").mkdir()
            Path(directory, "inner", "weights").write_text(str(step))
            tune.report(
                {"is_private": is_private}, checkpoint=tune.Checkpoint.from_directory(directory)
            )


class Saving(tune.Trainable):
    def step(self):
        return {"is_private": True, "done": self.iteration == 1}

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "weights").write_text("1")


def run(tmp_path, trainable, *, executor="process", **options):
    checkpoints = (
        tune.CheckpointConfig(checkpoint_frequency=1) if isinstance(trainable, type) else None
    )
    run_config = tune.RunConfig(
        name="exp",
        storage_path=tmp_path / "deep" / "storage",
        verbose=0,
        executor=executor,
        checkpoint_config=checkpoints,
    )
    return tune.Tuner(trainable, run_config=run_config, **options).fit()


@pytest.mark.parametrize("executor", ["process", "inline"])
@pytest.mark.parametrize("trainable", [save, Saving])
def test_without_a_umask_nothing_of_ours_can_be_written_by_others(
    tmp_path, no_umask, trainable, executor
):
    array = __import__("numpy").zeros(9)
    (result,) = run(tmp_path, trainable, executor=executor, param_space={"a": array})
    assert result.metrics["is_private"]
    paths = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert {"objects", "journal", "checkpoint_000001", "weights", "progress.csv", "lock"} <= {
        path.name for path in paths
    }
    assert [path for path in paths if path.lstat().st_mode & 0o022] == []


def test_a_committed_checkpoint_is_readable_like_the_directory_that_contains_it(tmp_path):
    (result,) = run(tmp_path, save)
    checkpoint = Path(result.checkpoint.path)
    assert stat.S_IMODE(checkpoint.stat().st_mode) == stat.S_IMODE(checkpoint.parent.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_warned_of(tmp_path):
    run(tmp_path, save, executor="inline")
    experiment = tmp_path / "deep" / "storage" / "exp"
    os.chown(experiment, 12345, -1)
    with pytest.warns(
        RuntimeWarning, match="belongs to user 12345, who can change what is read from it"
    ):
        tune.Tuner.restore(experiment, save).fit()


def test_a_folder_that_others_can_write_to_is_warned_of(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="is writable for other users"):
        inspect_folder(tmp_path)


# Links.


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def elsewhere(tmp_path):
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    (directory / "precious").write_text("mine")
    return directory


@pytest.mark.parametrize(
    "name", ["journal", "snapshot", "objects", "t00000", "lock", "experiment.json"]
)
def test_a_link_where_we_are_about_to_write_is_refused_by_name(tmp_path, elsewhere, name):
    experiment = tmp_path / "deep" / "storage" / "exp"
    experiment.mkdir(parents=True)
    (experiment / name).symlink_to(elsewhere)
    with pytest.raises(
        StorageError, match=rf"exp/{name}' is a link to '.*elsewhere'|already holds"
    ):
        run(tmp_path, save, executor="inline")
    assert contents(elsewhere) == {elsewhere / "precious": b"mine"}


def test_a_link_in_the_place_of_the_experiment_is_refused_by_name(tmp_path, elsewhere):
    storage = tmp_path / "deep" / "storage"
    storage.mkdir(parents=True)
    (storage / "exp").symlink_to(elsewhere)
    with pytest.raises(StorageError, match=r"storage/exp' is a link to '.*elsewhere'"):
        run(tmp_path, save, executor="inline")
    assert contents(elsewhere) == {elsewhere / "precious": b"mine"}


@pytest.mark.parametrize(
    "name", ["stdout", "stderr", "result.json", "progress.csv", "params.json", "error.txt"]
)
def test_a_link_in_the_place_of_a_trials_file_is_not_written_through(
    tmp_path, elsewhere, name, caplog
):
    """A worker that cannot write its output fails and names the file.

    A log file is reported as incomplete, or replaces the link.
    """
    trial_dir = tmp_path / "deep" / "storage" / "exp" / "t00000"
    trial_dir.mkdir(parents=True)
    (trial_dir / name).symlink_to(elsewhere / "precious")
    is_output = name in {"stdout", "stderr"}
    (result,) = run(tmp_path, save, executor="process" if is_output else "inline")
    assert contents(elsewhere) == {elsewhere / "precious": b"mine"}
    if is_output:
        assert f"t00000/{name}" in str(result.error)


def test_a_link_out_of_a_checkpoint_is_refused_by_name(tmp_path, elsewhere):
    secret = str(elsewhere / "precious")

    def train(config):
        with tune.checkpoint_dir() as directory:
            Path(directory, "innocent").symlink_to(secret)
            tune.report({"loss": 1}, checkpoint=tune.Checkpoint.from_directory(directory))

    (result,) = run(tmp_path, train)
    assert "innocent leads out of the checkpoint" in str(result.error)
    assert [
        path
        for path in (tmp_path / "deep").rglob("*")
        if path.is_file() and b"mine" in path.read_bytes()
    ] == []


def test_a_checkpoint_that_was_replaced_by_a_link_is_not_gone_on_from(tmp_path, elsewhere):
    def train(config):
        (start := tune.get_checkpoint()) and tune.report({"from": start.path})
        save(config)
        raise RuntimeError

    run(tmp_path, train)
    trial_dir = tmp_path / "deep" / "storage" / "exp" / "t00000"
    (trial_dir / "checkpoint_000001").rename(elsewhere / "checkpoint")
    (trial_dir / "checkpoint_000001").symlink_to(elsewhere / "checkpoint")
    (result,) = tune.Tuner.restore(
        trial_dir.parent, train, resume_errored=True, run_config=tune.RunConfig(verbose=0)
    ).fit()
    frame = result.metrics_dataframe
    assert [Path(path).name for path in frame["from"].dropna()] == ["checkpoint_000000"]
