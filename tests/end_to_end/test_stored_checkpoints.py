"""Checkpoints of experiments in object stores, through a directory that stands for one."""

import re
import shutil
import signal
from pathlib import Path

import pytest

import tuner as tune
from tests.end_to_end.interruption import ROOT, Script
from tests.waiting import wait_until
from tuner.storage.layout import MANIFEST
from tuner.storage.manifest import verify
from tuner.stores.object_store import ObjectStore

SCRIPT = ROOT / "tests" / "end_to_end" / "scripts" / "stored_checkpoints.py"


def train(config):
    begin = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            begin = int(Path(directory, "step").read_text())
    for step in range(begin + 1, config["until"] + 1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            checkpoint = tune.Checkpoint.from_directory(directory)
            tune.report({"loss": 1 / step, "begin": begin}, checkpoint=checkpoint)


@pytest.fixture
def stored(in_store):
    """Return a function that declares an experiment in the store."""

    def declare(until=4, **checkpoint_config):
        config = tune.CheckpointConfig(**checkpoint_config)
        return in_store(train, {"until": until}, checkpoint_config=config)

    return declare


def checkpoints_in(url, name="experiment"):
    """Return trial and name of each checkpoint in the store, and of what is none."""
    keys = [key.split("/") for key in ObjectStore(f"{url}/{name}").list()]
    found = {(key[0], key[1]) for key in keys if key[1:] and key[1].startswith("checkpoint_")}
    complete = {(key[0], key[1]) for key in keys if key[-1] == MANIFEST}
    return sorted(complete), sorted(found - complete)


@pytest.mark.parametrize("upload", ["sync", "async"])
def test_what_retention_keeps_is_in_the_store_and_nothing_else(upload, stored, url):
    (result,) = stored(num_to_keep=2, upload=upload).fit()
    names = [f"checkpoint_{index:06d}.e1a1" for index in (2, 3)]
    assert checkpoints_in(url) == ([("t00000", name) for name in names], [])
    assert [checkpoint.path for checkpoint, _ in result.best_checkpoints] == [
        f"{result.path}/checkpoint_{index:06d}" for index in (2, 3)
    ]


def train_and_look_back(config):
    train(config)
    for number, reported in enumerate(tune.train.get_all_reported_checkpoints(), start=1):
        with reported.checkpoint.as_directory() as directory:
            assert Path(directory, "step").read_text() == str(number)


def test_checkpoints_whose_local_copies_are_deleted_are_read_from_the_store(build, url, tmp_path):
    pytest.importorskip("fsspec")
    (result,) = build(
        train_and_look_back,
        {"until": 4},
        storage_path=url,
        local_dir=tmp_path / "local",
        cache_bytes=0,
    ).fit()
    assert result.error is None
    assert list((tmp_path / "local").glob("**/step")) == []
    for number, (checkpoint, _) in enumerate(result.best_checkpoints, start=1):
        with checkpoint.as_directory() as directory:
            assert Path(directory, "step").read_text() == str(number)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_trial_goes_on_elsewhere_from_the_latest_checkpoint_that_is_intact(
    is_damaged, stored, url, tmp_path, caplog
):
    stored().fit()
    shutil.rmtree(tmp_path / "local")
    if is_damaged:
        (tmp_path / "store/experiment/t00000/checkpoint_000003.e1a1/step").write_text("9")
    again = tune.Tuner.restore(
        f"{url}/experiment",
        train,
        param_space={"until": 4},
        local_dir=tmp_path / "elsewhere",
        resume_config=tune.ResumeConfig(finished=tune.ResumeConfig.ResumeType.RESUME),
    )
    (result,) = again.fit()
    assert result.error is None
    assert result.metrics["training_iteration"] == 4
    assert result.metrics["begin"] == (3 if is_damaged else 0)
    assert ("another SHA-256" in caplog.text) is is_damaged
    assert ("file://" in caplog.text) is is_damaged


def test_a_trial_goes_on_without_checkpoints_that_the_store_does_not_take(
    stored, caplog, monkeypatch
):
    def refuse(*_):
        raise PermissionError(13, "access denied")

    monkeypatch.setattr("tuner.stores.object_backends.LocalObjects.upload", refuse)
    (result,) = stored().fit()
    assert (result.error, result.checkpoint) == (None, None)
    assert list(result.metrics_dataframe["training_iteration"]) == [1, 2, 3, 4]
    assert caplog.text.count("continues without a checkpoint") == 4


def told_in(store):
    """Return the trials of whose fifth checkpoint the stored journal tells."""
    told = "".join(piece.read_text() for piece in store.glob("journal/*/*.log"))
    return set(re.findall(r'"k":"result","id":"(t\d+)".*"checkpoint_000004\.e1a1"', told))


def test_a_driver_that_is_killed_and_whose_machine_is_lost_goes_on_from_the_store(url, tmp_path):
    store = tmp_path / "store" / "killed"
    killed = Script(SCRIPT, "fit", url, tmp_path / "local", directory=tmp_path)
    # What is told of a checkpoint is in the store up to `mirror_s` later than the checkpoint, and
    # without it a trial begins anew.
    wait_until(lambda: told_in(store) == {"t00000", "t00001"}, "a checkpoint of each trial")
    killed.signal(signal.SIGKILL)
    killed.end()
    shutil.rmtree(tmp_path / "local")
    again = Script(SCRIPT, "restore", url, tmp_path / "elsewhere", directory=tmp_path)
    assert again.end() == 0, again.errors
    for trial_id in ("t00000", "t00001"):
        steps, begin = re.search(rf"{trial_id} (\S+) (\d+)", again.printed).groups()
        assert steps == ",".join(str(step) for step in range(1, 11))
        assert int(begin) >= 1
    complete, rest = checkpoints_in(url, "killed")
    assert (len(complete), rest) == (4, [])
    for trial_id, name in complete:
        verify(store / trial_id / name)
