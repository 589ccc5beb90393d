"""Declarations written as code."""

import datetime as dt
import json
from pathlib import Path

import pytest

import tuner as tune
from schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from searchers import BasicVariantGenerator, ConcurrencyLimiter, TreeSearch
from tuner.analysis.report.as_code import as_code
from tuner.callback import Callback
from tuner.spec.argument_codec import differences, note
from tuner.storage.declaration import read_declaration

pytestmark = pytest.mark.process

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


def declared(tmp_path, space, tune_config, trainable=train, **run):
    run_config = tune.RunConfig(
        name="e", storage_path=tmp_path, verbose=0, executor="inline", **run
    )
    tune.Tuner(trainable, param_space=space, tune_config=tune_config, run_config=run_config).fit()
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
            metric="loss",
            mode="min",
            num_samples=2,
            seed=7,
            scheduler=ASHAScheduler(max_t=9),
            search_alg=ConcurrencyLimiter(TreeSearch(), 2),
            time_budget_s=dt.timedelta(minutes=1),
        ),
    ],
)
def test_the_code_declares_the_same_experiment(tmp_path, monkeypatch, tune_config):
    declaration = declared(tmp_path, SPACE, tune_config, stop={"training_iteration": 3})
    code = as_code(declaration)
    again = executed(code, tmp_path, monkeypatch)
    assert again._spec.seed == 7
    assert dict(again._spec.space) == SPACE
    then = {
        name: value for name, value in declaration["tune_config"].items() if name != "time_budget_s"
    }
    now = {
        name: value
        for name, value in json.loads(json.dumps(note(again._spec.tune))).items()
        if name != "time_budget_s"
    }
    assert now == then
    assert again._spec.run.stop == {"training_iteration": 3}


TUNE = {"metric": "loss", "mode": "min"}
FALSY = [
    (tune.TuneConfig(**TUNE, seed=0, max_concurrent_trials=0), {}),
    (
        tune.TuneConfig(
            **TUNE, seed=1, scheduler=MedianStoppingRule(hard_stop=False, grace_period=0)
        ),
        {},
    ),
    (tune.TuneConfig(**TUNE, seed=1, scheduler=HyperBandScheduler(stop_last_trials=False)), {}),
    (
        tune.TuneConfig(**TUNE, seed=1, duplicates="skip", chdir_to_trial_dir=False),
        {"interrupt_grace_s": 0, "durability": "process"},
    ),
    (
        tune.TuneConfig(**TUNE, seed=1),
        {
            "failure_config": tune.FailureConfig(
                max_common_failures=None, max_identical_failures=None
            )
        },
    ),
    (
        tune.TuneConfig(**TUNE, seed=1),
        {"failure_config": tune.FailureConfig(max_failures=-1), "stop": {"loss": 0}},
    ),
    (
        tune.TuneConfig(**TUNE, seed=1),
        {"checkpoint_config": tune.CheckpointConfig(checkpoint_at_end=False, num_to_keep=1)},
    ),
    (
        tune.TuneConfig(
            **TUNE,
            seed=1,
            search_alg=BasicVariantGenerator(constant_grid_search=False, random_state=0),
        ),
        {"stop": tune.CombinedStopper(tune.MaximumIterationStopper(3), tune.TimeoutStopper(60.0))},
    ),
]


@pytest.mark.parametrize(("tune_config", "run"), FALSY)
def test_values_that_are_false_are_left_out_only_where_they_are_the_default(
    tmp_path, monkeypatch, tune_config, run
):
    declaration = declared(tmp_path, SPACE, tune_config, **run)
    again = executed(as_code(declaration), tmp_path, monkeypatch)
    assert again._spec.seed == declaration["seed"]
    for part, spec in (("tune_config", again._spec.tune), ("run_config", again._spec.run)):
        of_one_run = {"verbose"}
        then = {name: value for name, value in declaration[part].items() if name not in of_one_run}
        now = {
            name: value
            for name, value in json.loads(json.dumps(note(spec))).items()
            if name not in of_one_run
        }
        assert list(differences(then, now, part)) == []


def test_defaults_are_left_out(tmp_path):
    code = as_code(
        declared(
            tmp_path,
            {"x": 1},
            tune.TuneConfig(**TUNE, seed=1),
            failure_config=tune.FailureConfig(max_failures=1),
        )
    )
    assert "failure_config=tune.FailureConfig(max_failures=1)," in code
    assert "num_samples" not in code


def test_resources_are_asked_for_again(tmp_path, monkeypatch):
    trainable = tune.with_resources(train, {"cpu": 1, "licence": 1})
    declaration = declared(
        tmp_path, {"x": 1}, tune.TuneConfig(**TUNE), trainable, resources={"cpu": 1, "licence": 1}
    )
    again = executed(as_code(declaration), tmp_path, monkeypatch)
    assert again._spec.request_for({}) == {"cpu": 1.0, "licence": 1.0}


def test_a_function_that_chose_resources_has_to_be_given_again(tmp_path):
    trainable = tune.with_resources(train, lambda config: {"cpu": config["x"]})
    space = {"x": tune.grid_search([1, 2])}
    declaration = declared(
        tmp_path, space, tune.TuneConfig(**TUNE), trainable, resources={"cpu": 2}
    )
    trials = tune.ResultGrid.from_directory(tmp_path / "e").trials
    assert "# the function that chose the resources of each trial has to" in as_code(
        declaration, [trial.resources for trial in trials]
    )
    assert "resources" not in as_code(declaration).partition("tune.Tuner(")[0]


class Counting(Callback):
    """A callback that only its script knows."""


def test_callbacks_have_to_be_given_again(tmp_path, monkeypatch):
    code = as_code(declared(tmp_path, {"x": 1}, tune.TuneConfig(**TUNE), callbacks=[Counting()]))
    assert "# callback tests.analysis.report.test_as_code.Counting has to be given again\n" in code
    executed(code, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("module", "qualname", "name"),
    [
        ("__main__", "train", "train"),
        ("models", "build.<locals>.train", "train"),
        ("models", "<lambda>", "train"),
        ("my-app", "fit", "fit"),
    ],
)
def test_training_code_that_cannot_be_imported_has_to_be_given_again(module, qualname, name):
    code = as_code({"trainable": {"module": module, "qualname": qualname}, "param_space": {"x": 1}})
    assert (
        f"# {name} is the training code, {qualname!r} in {module!r}; it has to be given again"
        in code
    )
    assert f"tune.Tuner(\n    {name},\n" in code
    compile(code, "code", "exec")


def test_grids_and_population_based_training_are_written_as_they_were_declared(
    tmp_path, monkeypatch
):
    scheduler = PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"lr": tune.uniform(0.0, 1.0)}
    )
    space = {"lr": tune.grid_search([0.1, 0.2]), "nested": {"x": tune.grid_search([1, 2])}}
    declaration = declared(
        tmp_path, space, tune.TuneConfig(metric="loss", mode="max", scheduler=scheduler)
    )
    code = as_code(declaration)
    assert "'x': tune.grid_search([1, 2])" in code
    assert "hyperparam_mutations={'lr': tune.uniform(0.0, 1.0)}" in code
    again = executed(code, tmp_path, monkeypatch)
    assert dict(again._spec.space) == space


def test_objects_that_were_only_described_are_named_in_comments(tmp_path):
    declaration = declared(
        tmp_path,
        {"loss": abs, "x": tune.sample_from(lambda spec: 1)},
        tune.TuneConfig(metric="loss", mode="min"),
    )
    code = as_code(declaration)
    assert "# param_space['loss'] was builtins.abs; it has to be given again" in code
    assert "'loss': ...," in code
    compile(code, "code", "exec")


def test_code_of_every_golden_experiment_can_be_compiled():
    golden = sorted(Path(__file__).parents[2].glob("end_to_end/golden/**/experiment.json"))
    assert golden
    for path in golden:
        compile(as_code(json.loads(path.read_text())), str(path), "exec")
