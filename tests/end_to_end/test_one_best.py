"""All views name the same best trial and label its last and its best value correctly."""

import json

import pytest
from click.testing import CliRunner

import tuner as tune
from schedulers import FIFOScheduler
from tuner.cli import main

LOSSES = {
    "falls and rises": [0.5, 0.1, 0.1, 0.9],
    "falls": [0.8, 0.6, 0.4, 0.3],
    "equal": [0.2, 0.4, 0.5, 0.3],
}


def train(config):
    for loss in LOSSES[config["curve"]]:
        tune.report({"val": {"loss": loss}})


@pytest.fixture
def experiment(tmp_path, capsys):
    """Run three trials: the first has the best value; the others tie for the best last value."""
    tuner = tune.Tuner(
        train,
        param_space={"curve": tune.grid_search(list(LOSSES))},
        tune_config=tune.TuneConfig(
            metric="val/loss", mode="min", scheduler=FIFOScheduler(), max_concurrent_trials=1
        ),
        run_config=tune.RunConfig(
            name="curves", storage_path=str(tmp_path), executor="inline", verbose=1
        ),
    )
    return tuner.fit(), capsys.readouterr().out


def called(*arguments):
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_results_console_command_line_report_and_analysis_agree(experiment, tmp_path):
    results, printed = experiment
    best = results.get_best_result()
    assert best.config["curve"] == "falls"
    assert (best.metrics["val"]["loss"], best.best_metrics["val"]["loss"]) == (0.3, 0.3)
    assert "best trial t00001 (min val/loss)  last 0.3 (iter 4)  best 0.3 (iter 4)" in printed
    [listed] = json.loads(called("ls", tmp_path, "-f", "json"))
    assert (listed["best_trial"], listed["last"], listed["best"], listed["best_iteration"]) == (
        "t00001",
        0.3,
        0.3,
        4,
    )
    shown = json.loads(called("best", results.experiment_path, "-f", "json"))
    assert (shown["trial_id"], shown["val/loss"], shown["best/val/loss"]) == ("t00001", 0.3, 0.3)
    assert (
        json.loads(called("compare", results.experiment_path, "-f", "json"))[0]["best_trial"]
        == "t00001"
    )
    assert tune.ResultGrid.from_directory(results.experiment_path).get_best_result() == best
    assert tune.ExperimentAnalysis(results).best_trial.trial_id == "t00001"
    page = results.report(tmp_path / "report.html").read_text()
    assert 'last value of <a href="#best">t00001</a>; its best was 0.3 at iteration 4' in page


def test_the_scope_all_gives_the_trial_and_the_step_of_the_best_value(experiment):
    results, _ = experiment
    best = results.get_best_result(scope="all")
    assert (best.trial_id, best.metrics["val"]["loss"]) == ("t00000", 0.9)
    assert (best.best_metrics["val"]["loss"], best.best_metrics["training_iteration"]) == (0.1, 3)
    ranked = [(result.trial_id, value) for result, value in results.ranked(scope="all")]
    assert ranked == [("t00000", 0.1), ("t00002", 0.2), ("t00001", 0.3)]
    shown = json.loads(called("best", results.experiment_path, "--scope", "all", "-f", "json"))
    assert (
        shown["trial_id"],
        shown["val/loss"],
        shown["best/val/loss"],
        shown["best/training_iteration"],
    ) == ("t00000", 0.9, 0.1, 3)
