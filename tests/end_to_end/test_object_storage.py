"""Experiments in object stores, through a directory that stands for one."""

from __future__ import annotations

import contextlib
import shutil
import textwrap

import pytest

import tuner as tune
from tests.end_to_end.interruption import Script
from tuner.errors import ExperimentExists, ExperimentLocked, StorageError
from tuner.stores.object_store import ObjectStore
from tuner.stores.remote_lock import RemoteLock

pytest.importorskip("fsspec")

MINIMISE = {"metric": "loss", "mode": "min", "seed": 3}


def train(config):
    for step in range(1, 4):
        print("step", step)
        tune.report({"loss": config["x"] / step})


@pytest.fixture
def stored(in_store):
    """Declare an experiment in the store."""

    def declare(local="local", **run):
        return in_store(train, {"x": tune.grid_search([1.0, 2.0])}, local=local, **run)

    return declare


def rows_of(grid):
    return {result.trial_id: list(result.metrics_dataframe["loss"]) for result in grid}


ROWS = {"t00000": [1.0, 0.5, 1 / 3], "t00001": [2.0, 1.0, 2 / 3]}


def test_an_experiment_continues_where_only_the_store_is_left(stored, tmp_path, url):
    stored().fit()
    shutil.rmtree(tmp_path / "local")
    again = tune.Tuner.restore(
        f"{url}/experiment", train, num_samples=2, local_dir=tmp_path / "other"
    )
    assert rows_of(again.get_results()) == ROWS
    grid = again.fit()
    assert [len(rows) for rows in rows_of(grid).values()] == [3, 3, 3, 3]
    assert rows_of(tune.ResultGrid.from_directory(f"{url}/experiment")) == rows_of(grid)


def test_a_local_directory_leads_to_the_store_that_its_experiment_is_in(stored, tmp_path, url):
    stored().fit()
    local = tmp_path / "local" / "experiment"
    run = tune.RunConfig(storage_path=url, local_dir=local, verbose=0, executor="inline")
    tune.Tuner.restore(local, train, num_samples=2, run_config=run).fit()
    assert len(tune.ResultGrid.from_directory(f"{url}/experiment")) == 4


def test_results_are_read_from_a_url_without_a_trace_on_this_machine(
    stored, tmp_path, url, monkeypatch
):
    stored().fit()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    grid = tune.ExperimentAnalysis(f"{url}/experiment")._grid
    assert (grid.experiment_path, grid[0].path) == (
        f"{url}/experiment",
        f"{url}/experiment/t00000",
    )
    assert rows_of(grid) == ROWS
    first = grid[0]
    del grid
    assert len(first.rows.of("t00000")) == 3
    del first
    assert list(temporary.iterdir()) == []


def test_a_taken_name_is_refused_numbered_or_replaced_in_the_store(stored, url):
    stored().fit()
    with pytest.raises(ExperimentExists, match="already holds an experiment; continue it with"):
        stored("other").fit()
    numbered = stored("other", if_exists="new").fit()
    assert numbered.experiment_path.endswith("other/experiment_2")
    assert len(tune.ResultGrid.from_directory(f"{url}/experiment_2")) == 2
    stored("third", if_exists="replace").fit()
    assert rows_of(tune.ResultGrid.from_directory(f"{url}/experiment")) == ROWS


def test_a_driver_that_finds_the_name_taken_under_its_lock_leaves_the_experiment_alone(
    stored, url, monkeypatch
):
    location = "tuner.stores.stored_location.StoredLocation"
    declared = stored("other")
    with monkeypatch.context() as patch:

        def run_another(*given, **options):
            patch.undo()
            stored().fit()

        patch.setattr(f"{location}.check_free", run_another)
        with pytest.raises(ExperimentExists, match="already holds an experiment"):
            declared.fit()
    assert rows_of(tune.ResultGrid.from_directory(f"{url}/experiment")) == ROWS


def test_resume_auto_finds_the_experiment_in_the_store(stored, tmp_path, url):
    for local in ("first", "second"):
        tune.Tuner(
            train,
            param_space={"x": 1.0},
            tune_config=tune.TuneConfig(**MINIMISE),
            run_config=tune.RunConfig(
                name="experiment",
                storage_path=url,
                local_dir=tmp_path / local,
                verbose=0,
                executor="inline",
            ),
            resume="auto",
        ).fit()
    assert len(tune.ResultGrid.from_directory(f"{url}/experiment")) == 1


def test_a_local_directory_of_another_experiment_is_not_touched(stored, build, tmp_path):
    build(train, {"x": 1.0}, storage_path=tmp_path / "local").fit()
    with pytest.raises(ExperimentExists, match="one that is not in an object store; give another"):
        stored().fit()


def test_an_experiment_that_another_machine_drives_is_refused(stored, tmp_path, url, monkeypatch):
    stored().fit()
    RemoteLock(ObjectStore(f"{url}/experiment")).acquire()
    owner = "tuner.storage.lock.Owner.is_gone"
    monkeypatch.setattr(owner, property(lambda self: False))
    monkeypatch.setattr("tuner.stores.remote_lock.RemoteLock._await_end", refuse)
    with pytest.raises(ExperimentLocked):
        tune.Tuner.restore(f"{url}/experiment", train, local_dir=tmp_path / "other").fit()


def refuse(self, epoch):
    raise ExperimentLocked(f"epoch {epoch} is driven")


def test_can_restore_tells_an_experiment_from_an_empty_prefix(stored, url):
    stored().fit()
    assert tune.Tuner.can_restore(f"{url}/experiment")
    assert not tune.Tuner.can_restore(f"{url}/nothing")
    with pytest.raises(StorageError, match="holds no experiment; give the URL of an experiment"):
        tune.Tuner.restore(f"{url}/nothing", train)


def test_a_trial_is_trained_again_beside_its_experiment_in_the_store(stored, url, tmp_path):
    stored().fit()
    again = tune.rerun(f"{url}/experiment", 1, train, verbose=0, local_dir=tmp_path / "other")
    assert again.metrics["loss"] == 2 / 3
    assert tune.Tuner.can_restore(f"{url}/experiment_t00001_rerun")


def test_durability_storage_stores_every_result_before_it_counts(stored, url):
    counts = []

    class Count(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            grid = tune.ResultGrid.from_directory(f"{url}/experiment")
            counts.append(sum(len(each.rows.of(each.trial_id)) for each in grid))

    stored(durability="storage", mirror_s=60.0, callbacks=[Count()]).fit()
    assert counts == [1, 2, 3, 4, 5, 6]


def test_a_script_that_ends_while_its_experiment_runs_waits_for_the_uploads(tmp_path, url):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import pathlib, tempfile, threading
            import tuner as tune
            from tests.waiting import wait_until

            over = pathlib.Path({str(tmp_path / "over")!r})

            def train(config):
                # The script ends meanwhile, and Python closes thread pools.
                wait_until(over.exists, "the end of the script")
                for step in range(3):
                    with tempfile.TemporaryDirectory() as directory:
                        checkpoint = tune.Checkpoint.from_directory(directory)
                        tune.report({{"loss": step}}, checkpoint=checkpoint)

            tune.Tuner(
                train,
                run_config=tune.RunConfig(
                    name="run", storage_path={url!r}, local_dir={str(tmp_path / "work")!r}
                ),
            ).start()
            threading._register_atexit(over.touch)  # is called before thread pools are closed
            """
        ),
        encoding="utf-8",
    )
    with contextlib.closing(Script(script, directory=tmp_path)) as running:
        assert running.end() == 0, running.errors
    (result,) = tune.ResultGrid.from_directory(f"{url}/run")
    assert list(result.metrics_dataframe["loss"]) == [0, 1, 2]
    assert result.checkpoint
