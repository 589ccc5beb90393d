"""A value is always shown with the configuration with which it was reached."""

import importlib
import json
import shutil
import tempfile
from pathlib import Path

import pytest

import tuner as tune
from tests.exploits import TwoExploits
from tuner.analysis.charts.parameters import trial_points
from tuner.analysis.charts.summary import summarize
from tuner.analysis.importances import evaluated_trials
from tuner.analysis.open_experiment import read_directory
from tuner.analysis.ranking import config_at
from tuner.analysis.report.sections import trial_table

NUM_ITERATIONS = 4


def train(config):
    """Report the learning rate that is in force, with each result a checkpoint."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            start = json.loads(Path(directory, "step.json").read_text())
    for step in range(start + 1, NUM_ITERATIONS + 1):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step.json").write_text(json.dumps(step))
            metrics = {"lr_now": config["lr"], "loss": config["lr"] + abs(step - 2)}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    storage = tmp_path_factory.mktemp("storage")
    grid = tune.Tuner(
        train,
        param_space={"lr": tune.grid_search([0.5, 0.25, 2.0])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=TwoExploits(), seed=1),
        run_config=tune.RunConfig(
            name="exploited",
            storage_path=storage,
            verbose=0,
            executor="inline",
            resources={"cpu": 1},
        ),
    ).fit()
    return Path(grid.experiment_path)


@pytest.fixture(params=["journal", "files"])
def grid(request, path, tmp_path):
    """The experiment as read from its journal, and as read from the trials' files alone."""
    if request.param == "journal":
        return tune.ResultGrid.from_directory(path)
    for trial in path.glob("t0000*"):
        shutil.copytree(trial, tmp_path / "copied" / trial.name)
    return tune.ResultGrid.from_directory(tmp_path / "copied", "loss", "min")


def test_tables_tell_the_configuration_of_the_row_that_they_show(grid):
    last = grid.get_dataframe()
    assert last["config/lr"].tolist() == last["lr_now"].tolist() == [0.5, 0.25, 12.0]
    best = grid.get_dataframe("loss", "min")
    assert best["config/lr"].tolist() == best["lr_now"].tolist() == [0.5, 0.25, 2.0]
    worst = grid.get_dataframe("loss", "max")
    assert worst["config/lr"].tolist() == worst["lr_now"].tolist() == [0.5, 0.25, 12.0]


def test_a_result_has_the_current_and_the_last_configuration(grid):
    assert [result.config["lr"] for result in grid][::2] == [0.5, 12.0]  # the present ones
    for result in grid:
        assert result.metrics["config"]["lr"] == result.metrics["lr_now"]
        assert (
            result.best_metrics["config"]["lr"]
            == result.best_metrics["lr_now"]
            == result.best_config["lr"]
        )
        assert all(
            metrics["config"]["lr"] == metrics["lr_now"] for _, metrics in result.best_checkpoints
        )
        assert result.best_checkpoints


def test_the_present_configuration_is_that_of_the_last_exploit(path):
    assert [result.config["lr"] for result in tune.ResultGrid.from_directory(path)] == [
        0.5,
        13.0,
        12.0,
    ]


def test_charts_and_importances_pair_values_with_their_configurations(grid):
    source = grid._source()
    assert [(one.value, one.config["lr"]) for one in trial_points(source)] == [
        (2.5, 0.5),
        (1.25, 0.25),
        (14.0, 12.0),
    ]
    assert grid.plot.data.slice()["setting"].tolist() == [0.5, 0.25, 12.0]
    for iteration, pairs in (
        ("last", [(2.5, 0.5), (1.25, 0.25), (14.0, 12.0)]),
        (2, [(0.5, 0.5), (0.25, 0.25), (2.0, 2.0)]),
    ):
        trials, _ = evaluated_trials(grid.trials, source.rows, "loss", iteration)
        assert [(one.value, one.config["lr"]) for one in trials] == pairs


def test_the_best_configuration_of_the_report_is_that_of_the_result(grid):
    grid = tune.ResultGrid(grid.trials[2:], grid.experiment_path, grid._rows, "loss", "min")
    told = summarize(grid._source())
    assert told.best_step.value == 2.0
    assert told.best_config["lr"] == grid.get_best_result().best_config["lr"] == 2.0


def test_a_row_is_counted_from_one_on(grid):
    trial = grid.trials[2]
    assert [config_at(trial, grid._rows, row)["lr"] for row in (1, 2, 3)] == [2.0, 2.0, 12.0]
    assert config_at(trial, grid._rows)["lr"] == 12.0


def test_points_for_another_search_are_the_configurations_of_the_values(path):
    points, values = tune.points_from(path, metric="loss", mode="min", with_rewards=True)
    assert [(point["lr"], value) for point, value in zip(points, values, strict=True)] == [
        (0.25, 1.25),
        (0.5, 2.5),
        (12.0, 14.0),
    ]


def test_optuna_gets_the_configurations_of_the_values(grid):
    pytest.importorskip("optuna")
    storage = importlib.import_module("tuner.analysis.optuna_storage")
    trials = storage._translated(read_directory(Path(grid.experiment_path)), (("loss", "min"),))
    assert [(trial.value, trial.params["lr"]) for trial in trials] == [
        (2.5, 0.5),
        (1.25, 0.25),
        (14.0, 12.0),
    ]


def test_the_page_and_the_printed_table_show_the_same(grid):
    assert [line.split()[-1] for line in repr(grid).splitlines()[2:]] == ["0.5", "0.25", "12"]
    told = trial_table(grid._source())
    # Best first.
    assert [row[told["columns"].index("lr")] for row in told["rows"]] == [
        0.25,
        0.5,
        12,
    ]
