"""Reserved result names in reports: a growing training_iteration counts, others are dropped.

A dropped name is logged with a warning.
"""

import json
import os
import signal
import tempfile
from pathlib import Path

import pandas as pd

import tuner as tune
from tuner import Checkpoint


def epochs(config):
    start = 0
    if checkpoint := tune.get_checkpoint():
        start = json.loads(Path(checkpoint.path, "epoch.json").read_text())
    for epoch in range(start + 10, 60, 10):
        with tempfile.TemporaryDirectory() as temporary:
            Path(temporary, "epoch.json").write_text(str(epoch))
            saved = Checkpoint.from_directory(temporary) if epoch % 20 == 0 else None
            tune.report({"loss": 1.0 / epoch, "training_iteration": epoch}, checkpoint=saved)
        marker = Path(tune.get_context().get_trial_dir(), "died")
        if epoch == config["dies_at"] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_training_iteration_that_grows_counts_through_a_retry(fit, rows_of, tmp_path):
    results = fit(
        epochs,
        {"dies_at": tune.grid_search([None, 10, 30])},
        failure={"max_failures": 1},
        executor="process",
    )
    for result in results:
        assert result.status == "TERMINATED"
        assert [row["training_iteration"] for row in rows_of(result.path)] == [10, 20, 30, 40, 50]
        assert pd.read_csv(Path(result.path, "progress.csv"))["training_iteration"].tolist() == [
            10,
            20,
            30,
            40,
            50,
        ]
        assert result.metrics_dataframe["training_iteration"].tolist() == [10, 20, 30, 40, 50]
        assert [metrics["training_iteration"] for _, metrics in result.best_checkpoints] == [20, 40]
    assert [row["iterations_since_restore"] for row in rows_of(results[2].path)] == [
        10,
        20,
        10,
        20,
        30,
    ]
    again = tune.Tuner.restore(str(tmp_path / "experiment"), epochs).get_results()
    assert [trial.num_rows for trial in again.trials] == [5, 5, 5]


def test_stop_criteria_and_schedulers_see_it(fit):
    (result,) = fit(epochs, {"dies_at": None}, stop={"training_iteration": 25})
    assert result.metrics["training_iteration"] == 30


def test_a_class_may_count_itself_and_is_saved_by_its_count(fit, rows_of):
    class Strides(tune.Trainable):
        def setup(self, config):
            self.num_steps = 0

        def step(self):
            self.num_steps += 1
            return {"training_iteration": self.num_steps * 5, "seen": self.training_iteration}

        def save_checkpoint(self, checkpoint_dir):
            return {"steps": self.num_steps}

        def load_checkpoint(self, checkpoint):
            self.num_steps = checkpoint["steps"]

    (result,) = fit(
        Strides,
        stop={"training_iteration": 20},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=10),
    )
    assert [(row["training_iteration"], row["seen"]) for row in rows_of(result.path)] == [
        (5, 0),
        (10, 5),
        (15, 10),
        (20, 15),
    ]
    assert [metrics["training_iteration"] for _, metrics in result.best_checkpoints] == [10, 20]


def test_an_iteration_that_does_not_grow_is_numbered_by_the_engine_with_one_warning(fit, caplog):
    def train(config):
        for epoch in (0, 1, 5, 5, 2):
            tune.report({"epoch": epoch, "training_iteration": epoch})

    for result in fit(train, {"x": tune.grid_search([1, 2])}):
        assert result.metrics_dataframe["training_iteration"].tolist() == [1, 2, 5, 6, 7]
    logged = [
        record.getMessage()
        for record in caplog.records
        if "training_iteration" in record.getMessage()
    ]
    assert len(logged) == 1
    assert "is not a whole number above the one before" in logged[0]


def test_other_reserved_names_are_dropped_with_one_warning(fit, caplog):
    def train(config):
        for _ in range(3):
            tune.report(
                {
                    "loss": 1.0,
                    "pid": 1,
                    "time_total_s": 1e9,
                    "trial_id": "mine",
                    "config": {"x": 7},
                    "config/y": 1,
                }
            )

    for number, result in enumerate(fit(train, {"x": tune.grid_search([1, 2])})):
        frame = result.metrics_dataframe
        assert set(frame["trial_id"]) == {f"t0000{number}"}
        assert frame["time_total_s"].max() < 1e6
        assert set(frame["config/x"]) == {number + 1}
        assert 1 not in set(frame["pid"])
    logged = [
        record.getMessage()
        for record in caplog.records
        if "which the engine fills in" in record.getMessage()
    ]
    assert len(logged) == 1
    assert (
        "has reported 'pid', 'time_total_s', 'trial_id', 'config', 'config/y', which the "
        "engine fills in" in logged[0]
    )
