"""What an experiment shows and keeps of its declaration, defaults included."""

import logging

import tuner as tune
from schedulers import (
    ASHAScheduler,
    FIFOScheduler,
)
from searchers import (
    AutoSearch,
    BasicVariantGenerator,
)
from tuner import CheckpointConfig, RunConfig, TuneConfig, Tuner
from tuner.spec.record import read_record

SPACE = {"x": tune.uniform(0, 1), "epochs": 5}


GOAL = {"metric": "loss", "mode": "min"}


def train(config):
    for step in range(1, 10):
        tune.report({"loss": config["x"] + 1.0 / step})


def kinds(made):
    return type(made.scheduler), type(made.searcher)


def test_the_choice_is_said_and_written_down_and_kept(fit, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tuner")
    fit(
        train,
        SPACE,
        tune={**GOAL, "num_samples": 6, "seed": 1},
        stop={"training_iteration": 9},
        executor="inline",
    )
    assert (
        "Searcher: AutoSearch (default). Scheduler: ASHAScheduler (default); weaker "
        "trials are stopped early." in caplog.text
    )
    recorded = read_record(tmp_path / "experiment").parts["tune_config"]
    assert (recorded["scheduler"]["@"], recorded["search_alg"]["@"]) == (
        "ASHAScheduler",
        "AutoSearch",
    )
    caplog.clear()
    restored = tune.Tuner.restore(
        tmp_path / "experiment", train, tune_config=TuneConfig(num_samples=8, **GOAL)
    )
    assert kinds(restored._spec) == (ASHAScheduler, AutoSearch)
    assert len(restored.fit()) == 8
    assert "Searcher:" not in caplog.text
    assert "tune_config.scheduler" not in caplog.text
    assert "tune_config.search_alg" not in caplog.text


def test_a_tuner_shows_what_it_declares_and_where_it_has_run(build, tmp_path):
    declared = build(train, SPACE, tune={**GOAL, "num_samples": 2}, executor="inline")
    assert repr(declared).splitlines() == [
        "Tuner of train, which has not been run",
        "  searches: x",
        "  samples: 2",
        "  metric: loss (min)",
        "  Searcher: AutoSearch (default). Scheduler: none; every trial trains to the end.",
    ]
    path = declared.fit().experiment_path
    assert repr(declared).startswith(f"Tuner of train, which has run in {path}\n")
    assert repr(tune.Tuner.restore(path, train)).startswith(
        f"Tuner of train, which continues {path}\n"
    )


def test_an_experiment_begun_at_random_goes_on_at_random(fit, tmp_path):
    fit(train, SPACE, tune={**GOAL, "num_samples": 1, "seed": 1}, executor="inline")
    restored = tune.Tuner.restore(tmp_path / "experiment", train, num_samples=4)
    assert kinds(restored._spec) == (FIFOScheduler, BasicVariantGenerator)


def test_an_experiment_keeps_what_was_set_when_it_was_declared(tmp_path):
    checkpoints = CheckpointConfig(num_to_keep=3)
    run_config = RunConfig(
        name="first",
        storage_path=tmp_path,
        verbose=0,
        executor="inline",
        checkpoint_config=checkpoints,
    )
    tune_config = TuneConfig(num_samples=2)
    tuner = Tuner(
        lambda config: tune.report({"loss": 1.0}), tune_config=tune_config, run_config=run_config
    )
    run_config.name, tune_config.num_samples, checkpoints.num_to_keep = "second", 5, 1
    grid = tuner.fit()
    assert (len(grid), grid.experiment_path) == (2, str(tmp_path / "first"))
