"""Tables and results of experiments with changed configurations, sparse metrics or classes."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tuner as tune
from schedulers import FIFOScheduler, PopulationBasedTraining
from tuner.cli import main


class Member(tune.Trainable):
    """Improves with the learning rate 1 until its fourth step, then gets worse."""

    def setup(self, config):
        self.steps = 0

    def step(self):
        self.steps += 1
        return {"loss": abs(self.config["lr"] - 1) + max(0, self.steps - 4) / 10}

    def save_checkpoint(self, directory):
        Path(directory, "steps").write_text(str(self.steps))

    def load_checkpoint(self, directory):
        self.steps = int(Path(directory, "steps").read_text())

    def reset_config(self, config):
        return True


def fit(train, path, *, scheduler=None, stop=None, **space):
    return tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=scheduler or FIFOScheduler(), seed=1
        ),
        run_config=tune.RunConfig(
            name="frames", storage_path=str(path), executor="inline", verbose=0, stop=stop
        ),
    ).fit()


def test_every_row_has_the_configuration_in_force_and_the_best_step_has_its_own(tmp_path):
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": tune.uniform(2, 3)},
        quantile_fraction=0.5,
    )
    results = fit(
        Member,
        tmp_path,
        scheduler=scheduler,
        stop={"training_iteration": 12},
        lr=tune.grid_search([1.0, 5.0]),
    )
    changed = next(trial for trial in results.trials if trial.grafts)
    for grid in (results, tune.ResultGrid.from_directory(results.experiment_path)):
        result = next(result for result in grid if result.trial_id == changed.trial_id)
        frame = result.metrics_dataframe
        assert frame["config/lr"].nunique() == len(
            {graft.config["lr"] for graft in changed.grafts} | {changed.config["lr"]}
        )
        expected_rates = [
            json.loads(line)["config"]["lr"]
            for line in Path(result.path, "result.json").read_text().splitlines()
        ]
        assert frame["config/lr"].tolist() == expected_rates
        best = result.best_metrics
        assert best["loss"] == frame["loss"].min()
        [place] = frame.index[frame["training_iteration"] == best["training_iteration"]][-1:]
        assert result.best_config == best["config"]
        assert (
            frame["config/lr"][frame["loss"] == best["loss"]].iloc[-1] == result.best_config["lr"]
        )
        assert place in frame.index


def test_checkpoints_of_classes_are_named_in_their_results(tmp_path):
    tuner = tune.Tuner(
        Member,
        param_space={"lr": 1.0},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=FIFOScheduler()),
        run_config=tune.RunConfig(
            name="classes",
            storage_path=str(tmp_path),
            executor="inline",
            verbose=0,
            stop={"training_iteration": 3},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
        ),
    )
    results = tuner.fit()
    for grid in (results, tune.ResultGrid.from_directory(results.experiment_path)):
        assert grid.get_dataframe()["checkpoint_dir_name"].tolist() == ["checkpoint_000001"]
        names = grid[0].metrics_dataframe["checkpoint_dir_name"].tolist()
        assert [name for name in names if isinstance(name, str)] == [
            "checkpoint_000000",
            "checkpoint_000001",
        ]


def sparse(config):
    for step in range(1, 6):
        tune.report({"loss": 1 / step, "step": step} if step % 2 == 0 else {"step": step})


def test_the_newest_value_of_a_sparse_metric_is_exported(tmp_path):
    results = fit(sparse, tmp_path, x=1)
    assert results.get_best_result().metrics["loss"] == 0.25
    exported = CliRunner().invoke(main, ["export", results.experiment_path, "--to", "json"])
    [record] = json.loads(exported.stdout)
    assert (record["loss"], record["metric_iteration"], record["training_iteration"]) == (
        0.25,
        4,
        5,
    )
    assert (record["status"], record["ending"], record["error"]) == (
        "TERMINATED",
        "completed",
        None,
    )


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_missing_values_are_exported_as_such(tmp_path, kind):
    def half(config):
        if config["x"]:
            raise ValueError("boom")
        tune.report({"loss": 1, "n": 3})

    results = fit(half, tmp_path, x=tune.grid_search([0, 1]))
    assert str(results.get_dataframe()["n"].dtype) == "Int64"
    exported = CliRunner().invoke(main, ["export", results.experiment_path, "--to", kind])
    assert exported.exit_code == 0
    records = (
        json.loads(exported.stdout)
        if kind == "json"
        else list(csv.DictReader(io.StringIO(exported.stdout)))
    )
    missing = None if kind == "json" else ""
    assert [record["error"] for record in records] == [missing, "ValueError: boom"]
    assert [record["ending"] for record in records] == ["completed", "failed"]
    assert [str(record["n"]) for record in records] == ["3", str(missing)]


def test_nan_that_a_trial_reported_is_exported(tmp_path):
    def train(config):
        tune.report(
            {
                "loss": float("nan") if config["x"] else 1.0,
                "note": float("nan") if config["x"] else "fine",
            }
        )

    results = fit(train, tmp_path, x=tune.grid_search([0, 1]))
    exported = CliRunner().invoke(main, ["export", results.experiment_path, "--to", "json"])
    records = json.loads(exported.stdout)
    assert [(record["loss"], record["note"]) for record in records] == [
        (1.0, "fine"),
        ("NaN", "NaN"),
    ]


def test_a_metric_may_be_named_error(tmp_path):
    def train(config):
        tune.report({"loss": 1.0, "error": 0.25})

    frame = fit(train, tmp_path, x=1).get_dataframe()
    assert (frame["error"].tolist(), frame["ending"].tolist()) == ([0.25], ["completed"])
