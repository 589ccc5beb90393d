"""Declarations written as code."""

import datetime as dt
import json
from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler, PopulationBasedTraining
from searchers import ConcurrencyLimiter, TreeSearch
from tuner.analysis.as_code import as_code
from tuner.declarations import note
from tuner.storage.declaration import read_declaration

SPACE = {
    "lr": tune.loguniform(1e-5, 1.0),
    "units": tune.qrandint(64, 512, 64),
    "depth": tune.randint(1, 5),
    "width": tune.lograndint(1, 100),
    "noise": tune.quniform(0.0, 1.0, 0.25),
    "start": tune.randn(1.0, 2.0),
    "rounded": tune.qrandn(1.0, 2.0, 0.5),
    "act": tune.choice(["relu", "tanh"], ordered=True),
    "likely": tune.uniform(0.0, 1.0, prior=0.5, prior_confidence="high"),
    "opt": tune.choice([{"name": "sgd", "momentum": tune.uniform(0.0, 0.9)}, {"name": "adam"}]),
    "momentum": tune.only_if({"act": "relu"}, tune.uniform(0.0, 1.0)),
    "shape": (3, 3),
    "model": {"layers": [8, 4], "name": "mlp"},
    "limit": float("inf"),
}


def train(config):
    tune.report({"loss": 1.0})


def declared(tmp_path, space, tune_config, **run):
    run_config = tune.RunConfig(name="e", storage_path=tmp_path, verbose=0, executor="inline", **run)
    tune.Tuner(train, param_space=space, tune_config=tune_config, run_config=run_config).fit()
    return read_declaration(tmp_path / "e")


def executed(code, tmp_path, monkeypatch):
    """Run the code in another place, and return what its experiment declares."""
    monkeypatch.chdir(tmp_path)
    captured = {}

    class Tuner(tune.Tuner):
        def fit(self):
            captured["tuner"] = self

    monkeypatch.setattr(tune, "Tuner", Tuner)
    exec(code, {"train": train})  # noqa: S102  (what it is for)
    return captured["tuner"]


@pytest.mark.parametrize(
    "tune_config",
    [
        tune.TuneConfig(metric="loss", mode="min", num_samples=2, seed=7),
        tune.TuneConfig(
            metric="loss", mode="min", num_samples=2, seed=7, scheduler=ASHAScheduler(max_t=9),
            search_alg=ConcurrencyLimiter(TreeSearch(), 2), time_budget_s=dt.timedelta(minutes=1),
        ),
    ],
)  # fmt: skip
def test_the_code_declares_the_same_experiment(tmp_path, monkeypatch, tune_config):
    declaration = declared(tmp_path, SPACE, tune_config, stop={"training_iteration": 3})
    code = as_code(declaration)
    again = executed(code, tmp_path, monkeypatch)
    assert again._plan.seed == 7
    assert dict(again._plan.space) == SPACE
    then = {name: value for name, value in declaration["tune_config"].items() if name != "time_budget_s"}
    now = {name: value for name, value in json.loads(json.dumps(note(again._plan.tune))).items() if name != "time_budget_s"}
    assert now == then
    assert again._plan.run.stop == {"training_iteration": 3}


def test_grids_and_population_based_training_are_written_as_they_were_declared(tmp_path, monkeypatch):
    scheduler = PopulationBasedTraining(perturbation_interval=2, hyperparam_mutations={"lr": tune.uniform(0.0, 1.0)})
    space = {"lr": tune.grid_search([0.1, 0.2]), "nested": {"x": tune.grid_search([1, 2])}}
    declaration = declared(tmp_path, space, tune.TuneConfig(metric="loss", mode="max", scheduler=scheduler))
    code = as_code(declaration)
    assert "'x': tune.grid_search([1, 2])" in code
    assert "hyperparam_mutations={'lr': tune.uniform(0.0, 1.0)}" in code
    again = executed(code, tmp_path, monkeypatch)
    assert dict(again._plan.space) == space


def test_what_was_only_described_is_named_and_left_open(tmp_path):
    declaration = declared(tmp_path, {"loss": abs, "x": tune.sample_from(lambda spec: 1)}, tune.TuneConfig(metric="loss", mode="min"))
    code = as_code(declaration)
    assert "# param_space['loss'] was builtins.abs; it has to be given again" in code
    assert "'loss': ...," in code
    compile(code, "code", "exec")


def test_code_of_every_golden_experiment_can_be_compiled():
    golden = sorted(Path(__file__).parents[1].glob("end_to_end/golden/**/experiment.json"))
    assert golden
    for path in golden:
        compile(as_code(json.loads(path.read_text())), str(path), "exec")
