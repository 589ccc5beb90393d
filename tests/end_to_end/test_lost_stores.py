"""Experiments whose object store fails, or is taken over by another driver, while they run."""

import shutil

import pytest

import tuner as tune
from tuner.errors import ExperimentFenced, StorageError, StorageUnreachable
from tuner.stores.object_store import ObjectStore
from tuner.stores.remote_lock import RemoteLock

pytest.importorskip("fsspec")


@pytest.fixture
def stored(in_store):
    return lambda train, **run: in_store(train, {"x": tune.grid_search([1.0, 2.0])}, **run)


def rows_of(grid):
    return {result.trial_id: list(result.metrics_dataframe["loss"]) for result in grid}


ROWS = {"t00000": [1.0, 0.5, 1 / 3], "t00001": [2.0, 1.0, 2 / 3]}


def training(on_step=lambda config, step: None):
    def train(config):
        for step in range(1, 4):
            on_step(config, step)
            tune.report({"loss": config["x"] / step})

    return train


def test_a_driver_that_was_taken_over_from_stops_and_says_so(stored, tmp_path, url):
    def take_over(config, step):
        if (config["x"], step) == (2.0, 2):
            RemoteLock(ObjectStore(f"{url}/experiment"), steal=True).acquire()

    with pytest.raises(ExperimentFenced, match="was taken over by process") as stop:
        stored(training(take_over), durability="storage").fit()
    (note,) = stop.value.__notes__
    assert "the other driver goes on with the experiment" in note
    assert f"{url}/experiment" in note
    again = tune.Tuner.restore(
        f"{url}/experiment", training(), local_dir=tmp_path / "other", steal=True
    )
    assert rows_of(again.fit()) == ROWS


@pytest.mark.parametrize("durability", ["group", "storage"])
def test_results_that_could_not_be_stored_are_when_the_store_is_back(
    stored, tmp_path, url, monkeypatch, durability
):
    create, is_down = ObjectStore.create, False

    def create_unless_down(self, key, content):
        if is_down and key.startswith("journal/"):
            raise StorageUnreachable(f"{self.url} could not be reached")
        return create(self, key, content)

    def turn_off(config, step):
        nonlocal is_down
        is_down = is_down or (config["x"], step) == (2.0, 2)

    monkeypatch.setattr(ObjectStore, "create", create_unless_down)
    with pytest.raises(StorageError, match=r"could not be reached; given up after"):
        stored(training(turn_off), durability=durability, storage_retry_s=0.1, mirror_s=0.01).fit()
    num_local = len(
        tune.ResultGrid.from_directory(tmp_path / "local" / "experiment")[1].rows.of("t00001")
    )
    assert num_local == {"group": 3, "storage": 2}[durability]
    is_down = False
    # The lock was not given back; but its process is this one, and no wait is needed.
    again = tune.Tuner.restore(f"{url}/experiment", training(), local_dir=tmp_path / "local")
    assert rows_of(again.fit()) == ROWS
    shutil.rmtree(tmp_path / "local")
    assert rows_of(tune.ResultGrid.from_directory(f"{url}/experiment")) == ROWS
