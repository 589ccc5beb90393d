"""Results read from a directory equal those of `fit`, without training code or search space."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import tuner as tune
from schedulers import ASHAScheduler, PopulationBasedTraining
from tuner.core.trial import Status
from tuner.storage.layout import JOURNAL, SNAPSHOT


def curve(config):
    for step in range(1, 10):
        tune.report({"loss": config["x"] / step, "deep": {"acc": step / 10}})


class Walker(tune.Trainable):
    """Saves on demand, so that it can be paused and cloned."""

    def setup(self, config):
        self.x = 0.0

    def step(self):
        self.x += self.config["x"]
        return {"loss": -self.x}

    def save_checkpoint(self, directory):
        (directory / "x").write_text(str(self.x))

    def load_checkpoint(self, directory):
        self.x = float((directory / "x").read_text())


def run(path, trainable=curve, *, callbacks=None, stop=None, space=None, **settings):
    return tune.Tuner(
        trainable,
        param_space=space or {"x": tune.uniform(0, 1), "pair": (1, 2)},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", seed=3, **{"num_samples": 6, **settings}
        ),
        run_config=tune.RunConfig(
            name="exp",
            storage_path=path,
            verbose=0,
            executor="inline",
            callbacks=callbacks,
            stop=stop,
        ),
    ).fit()


def assert_same(found, expected):
    assert (len(found), found.experiment_path) == (len(expected), expected.experiment_path)
    pd.testing.assert_frame_equal(found.get_dataframe(), expected.get_dataframe())
    for one, other in zip(found, expected, strict=True):
        assert (one.status, one.ending, one.config, one.path) == (
            other.status,
            other.ending,
            other.config,
            other.path,
        )
        assert (str(one.checkpoint), one.kept_checkpoints) == (
            str(other.checkpoint),
            other.kept_checkpoints,
        )
        assert str(one.error) == str(other.error)
        pd.testing.assert_frame_equal(one.metrics_dataframe, other.metrics_dataframe)
    assert found.get_best_result() == expected.get_best_result()


@pytest.mark.process
@pytest.mark.parametrize(
    ("trainable", "settings"),
    [
        (curve, {}),
        (curve, {"scheduler": ASHAScheduler(max_t=9, type="stopping")}),
        (Walker, {"scheduler": ASHAScheduler(max_t=9, type="promotion")}),
        (
            Walker,
            {
                "scheduler": PopulationBasedTraining(
                    perturbation_interval=2,
                    hyperparam_mutations={"x": tune.uniform(0, 1)},
                    quantile_fraction=0.4,
                )
            },
        ),
    ],
    ids=["plain", "stopped early", "promoted", "cloned"],
)
def test_results_are_read_as_they_were_returned(tmp_path, trainable, settings):
    expected = run(tmp_path, trainable, stop={"training_iteration": 9}, **settings)
    found = tune.ResultGrid.from_directory(expected.experiment_path)
    assert_same(found, expected)
    shutil.rmtree(tmp_path / "exp" / SNAPSHOT, ignore_errors=True)
    assert_same(tune.ResultGrid.from_directory(expected.experiment_path), expected)


@pytest.mark.process
def test_a_snapshot_of_another_release_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
    expected = run(tmp_path)
    assert list((tmp_path / "exp" / SNAPSHOT).iterdir())
    monkeypatch.setattr(
        "tuner.restore.snapshot_state.trial_from", lambda fields, decode: fields["not there"]
    )
    assert_same(tune.ResultGrid.from_directory(expected.experiment_path), expected)


@pytest.mark.process
def test_a_trial_read_from_its_directory_is_explained(tmp_path, capsys):
    run(tmp_path, scheduler=ASHAScheduler(max_t=9, type="stopping"))
    tune.ResultGrid.from_directory(tmp_path / "exp").explain("t00001")
    assert "asha" in capsys.readouterr().out


@pytest.mark.process
def test_failures_are_told_with_their_tracebacks(tmp_path):
    def fails(config):
        raise ValueError("no such luck")

    expected = run(tmp_path, fails, num_samples=1)
    (error,) = tune.ResultGrid.from_directory(tmp_path / "exp").errors
    assert str(error) == str(expected.errors[0])
    assert "no such luck" in error.__notes__[0]


@pytest.mark.process
def test_objects_are_told_by_their_descriptions_and_arrays_are_themselves(tmp_path):
    space = {
        "x": 1.0,
        "act": tune.choice([np.tanh]),
        "fn": {"inner": curve},
        "data": np.arange(500.0),
    }
    run(tmp_path, space=space, num_samples=1)
    config = tune.ResultGrid.from_directory(tmp_path / "exp")[0].config
    assert config["fn"]["inner"].startswith("<function curve")
    assert "tanh" in config["act"]
    np.testing.assert_array_equal(config["data"], np.arange(500.0))


@pytest.mark.process
def test_a_lost_array_is_replaced_by_its_description(tmp_path):
    run(tmp_path, space={"x": 1.0, "data": np.arange(500.0)}, num_samples=1)
    shutil.rmtree(tmp_path / "exp" / "objects")
    assert tune.ResultGrid.from_directory(tmp_path / "exp")[0].config["data"].startswith("ndarray(")


@pytest.mark.process
def test_a_running_experiment_is_read_as_far_as_it_is_written(tmp_path):
    seen = []

    class Reader(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if trial.trial_id == "t00002" and result["training_iteration"] == 5:
                grid = tune.ResultGrid.from_directory(tmp_path / "exp")
                seen.append((grid, grid[2].metrics_dataframe["training_iteration"].tolist()))

    run(tmp_path, callbacks=[Reader()], max_concurrent_trials=1)
    ((grid, iterations),) = seen
    assert [str(result.status) for result in grid] == ["TERMINATED", "TERMINATED", "RUNNING"]
    assert grid[2].metrics["done"] is False
    assert iterations == [1, 2, 3, 4, 5]


@pytest.mark.process
def test_a_torn_end_is_passed_over(tmp_path):
    run(tmp_path, num_samples=2)
    shutil.rmtree(tmp_path / "exp" / SNAPSHOT, ignore_errors=True)
    segment = max((tmp_path / "exp" / JOURNAL).iterdir())
    segment.write_bytes(segment.read_bytes()[:-30])
    assert len(tune.ResultGrid.from_directory(tmp_path / "exp")) == 2


@pytest.mark.process
def test_results_of_a_moved_directory_have_its_new_paths(tmp_path):
    run(tmp_path, num_samples=1)
    moved = (tmp_path / "exp").rename(tmp_path / "elsewhere")
    assert tune.ResultGrid.from_directory(moved)[0].path == str(moved / "t00000")


@pytest.mark.process
def test_a_damaged_journal_leaves_the_files_of_the_trials(tmp_path):
    expected = run(tmp_path, num_samples=3)
    segment = min((tmp_path / "exp" / JOURNAL).iterdir())
    data = segment.read_bytes()
    shutil.rmtree(tmp_path / "exp" / SNAPSHOT, ignore_errors=True)
    segment.write_bytes(data[:200] + b"#" + data[201:])
    with pytest.warns(
        RuntimeWarning, match="damaged at byte .* the files of its trials are read instead"
    ):
        found = tune.ResultGrid.from_directory(tmp_path / "exp", "loss", "min")
    assert found.get_best_result() == expected.get_best_result()
    assert [result.metrics["loss"] for result in found] == [
        result.metrics["loss"] for result in expected
    ]


def test_a_damaged_journal_without_trials_is_an_error(tmp_path):
    (tmp_path / JOURNAL).mkdir()
    (tmp_path / JOURNAL / f"{1:020d}.log").touch()
    with pytest.raises(tune.errors.StorageError, match=r"experiment\.json cannot be read"):
        tune.ResultGrid.from_directory(tmp_path)


def test_where_nothing_is_nothing_is_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="path must be the directory of an experiment"):
        tune.ResultGrid.from_directory(tmp_path)
    with pytest.raises(FileNotFoundError, match="path must be the directory of an experiment"):
        tune.ResultGrid.from_directory(tmp_path / "never")


def test_an_unknown_mode_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="mode must be"):
        tune.ResultGrid.from_directory(tmp_path, mode="lowest")


class RayDirectory:
    """Writes what Ray Tune 2.60 leaves behind, in its own formats."""

    def __init__(self, path):
        self.path = path
        self.told = []

    def add(self, number, status, rows, *, told=True, error=None, checkpoints=()):
        trial_id, tag = f"64f80_{number:05d}", f"{number}_x={number}.0000"
        name = f"train_{trial_id}_{tag}_2026-11-21_21-20-36"
        directory = self.path / name
        directory.mkdir(parents=True)
        (directory / "params.json").write_text(json.dumps({"x": float(number)}))
        (directory / "params.pkl").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
        lines = [
            json.dumps({**row, "trial_id": trial_id, "config": {"x": float(number)}}) + "\n"
            for row in rows
        ]
        (directory / "result.json").write_text("".join(lines))
        if error:
            (directory / "error.txt").write_text(error)
        for checkpoint in checkpoints:
            (directory / checkpoint).mkdir()
        if told:
            static = {
                "trial_id": trial_id,
                "status": status,
                "experiment_tag": tag,
                "relative_logdir": name,
                "storage": {"_type": "X"},
            }
            self.told.append([json.dumps(static), json.dumps({"num_failures": 0})])
        return directory

    def close(self):
        state = {"trial_data": self.told[::-1], "runner_data": {"_metric": "loss"}, "stats": {}}
        (self.path / "experiment_state-2026-11-21_21-20-36.json").write_text(json.dumps(state))
        return self.path


def ray_rows(*losses, checkpoint=None):
    rows = [
        {"loss": loss, "training_iteration": number, "done": False}
        for number, loss in enumerate(losses, start=1)
    ]
    rows[-1]["checkpoint_dir_name"] = checkpoint
    return rows


@pytest.fixture
def ray(tmp_path):
    directory = RayDirectory(tmp_path / "ray")
    directory.add(
        0,
        "TERMINATED",
        ray_rows(3.0, 1.0, checkpoint="checkpoint_000001"),
        checkpoints=["checkpoint_000001", "checkpoint_000002"],
    )
    directory.add(
        10,
        "ERROR",
        ray_rows(2.0),
        error="Failure # 1 (occurred at 2026-11-21)\n\x1b[36mTraceback\x1b[0m\nValueError: bad x\n",
    )
    directory.add(
        2,
        "TERMINATED",
        ray_rows(0.5),
        error="Failure # 1 (occurred at 2026-11-21)\nOSError: gone\n",
    )
    return directory


def test_the_directory_of_ray_tune_is_read_without_unpickling(ray):
    grid = tune.ResultGrid.from_directory(ray.close(), mode="min")
    assert [result.trial_id for result in grid] == ["64f80_00000", "64f80_00002", "64f80_00010"]
    assert [str(result.status) for result in grid] == ["TERMINATED", "TERMINATED", "ERROR"]
    assert grid.get_best_result().config == {"x": 2.0}
    assert grid.get_dataframe()["loss"].tolist() == [1.0, 0.5, 2.0]
    assert grid[0].metrics_dataframe["loss"].tolist() == [3.0, 1.0]


def test_only_checkpoints_that_were_reported_count_in_a_directory_of_ray_tune(ray):
    grid = tune.ResultGrid.from_directory(ray.close(), mode="min")
    ((checkpoint, metrics),) = grid[0].best_checkpoints
    assert checkpoint.path.endswith("checkpoint_000001")
    assert metrics["loss"] == 1.0


def test_a_trial_of_ray_tune_that_recovered_has_no_error(ray):
    grid = tune.ResultGrid.from_directory(ray.close())
    assert grid[1].error is None
    assert [str(error) for error in grid.errors] == ["trial 64f80_00010 failed: ValueError: bad x"]


def test_trials_are_read_without_any_state(ray):
    ray.add(3, "", [{**ray_rows(0.1)[0], "done": True}], told=False)
    grid = tune.ResultGrid.from_directory(ray.path, "loss", "min")
    assert {result.trial_id: result.status for result in grid} == {
        "64f80_00000": Status.TERMINATED,
        "64f80_00002": Status.ERROR,
        "64f80_00003": Status.TERMINATED,
        "64f80_00010": Status.ERROR,
    }
    assert grid.get_best_result().ending is None  # it may have been stopped early


def test_an_unreadable_state_is_left_out_with_a_warning(ray):
    (ray.path / "experiment_state-2026-11-22_00-00-00.json").write_text("{")
    with pytest.warns(
        RuntimeWarning, match="experiment_state-2026-11-22_00-00-00.json cannot be read"
    ):
        grid = tune.ResultGrid.from_directory(ray.close())
    assert [str(result.status) for result in grid] == ["TERMINATED", "TERMINATED", "ERROR"]
