"""Names of other libraries, of other classes, or misspelt: the message says what to write."""

import json

import pytest

import tuner as tune
from searchers import OptunaSearch
from tuner import FailureConfig, RunConfig, TuneConfig, Tuner
from tuner.errors import StorageError
from tuner.spec.training_config import ScalingConfig


def train(config):
    tune.report({"loss": 1.0})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ASHAScheduler", "write from schedulers import ASHAScheduler"),
        ("OptunaSearch", "write from searchers import OptunaSearch"),
        ("suggest_float", r"write tune.uniform\(low, high\)"),
        ("suggest_int", r"write tune.randint\(low, high \+ 1\)"),
        ("create_study", r"write tune.Tuner\(train"),
        ("TorchTrainer", "write from tuner.train.torch import TorchTrainer"),
        ("logunifrom", "did you mean 'loguniform'?"),
        ("ASHASheduler", "did you mean 'ASHAScheduler', from schedulers import ASHAScheduler?"),
    ],
)
def test_a_name_that_tuner_lacks(name, hint):
    with pytest.raises(AttributeError, match=f"module 'tuner' has no attribute '{name}'; {hint}"):
        getattr(tune, name)


def test_a_name_that_resembles_none_gets_no_hint():
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        tune.xyzzy  # noqa: B018
    assert not hasattr(tune, "_ipython_display_")


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (TuneConfig, {"n_trials": 3}, r"TuneConfig .* 'n_trials'; write TuneConfig\(num_samples="),
        (TuneConfig, {"num_sample": 3}, "did you mean 'num_samples'?"),
        (TuneConfig, {"storage_path": "x"}, r"it is an argument of RunConfig: RunConfig\(storage"),
        (RunConfig, {"metric": "loss"}, r"it is an argument of TuneConfig: TuneConfig\(metric="),
        (FailureConfig, {"max_failure": 3}, "did you mean 'max_failures'?"),
        (ScalingConfig, {"num_worker": 3}, "did you mean 'num_workers'?"),
    ],
)
def test_an_argument_that_a_class_lacks(make, arguments, message):
    with pytest.raises(TypeError, match=message):
        make(**arguments)


@pytest.mark.parametrize("call", [Tuner, tune.run])
def test_an_argument_that_a_function_lacks(call):
    with pytest.raises(TypeError, match=r"no argument 'n_trials'; write TuneConfig\(num_samples="):
        call(train, n_trials=3)


@pytest.mark.parametrize(
    "use",
    [
        lambda given: tune.with_resources(train, given),
        lambda given: tune.PlacementGroupFactory([given]),
        lambda given: RunConfig(resources=given),
        lambda given: ScalingConfig(resources_per_worker=given),
    ],
)
@pytest.mark.parametrize(
    ("given", "meant"), [("cpus", "cpu"), ("GPUs", "gpu"), ("num_cpus", "cpu")]
)
def test_other_words_for_cpus_and_gpus(use, given, meant):
    with pytest.raises(ValueError, match=f"got '{given}'; did you mean '{meant}'?"):
        use({given: 1})
    use({"licence": 1})


@pytest.mark.parametrize("function", [tune.randint, tune.uniform])
def test_a_range_with_one_end(function):
    name = function.__name__
    with pytest.raises(TypeError, match=rf"got 10 alone; write {name}\(0, 10\)"):
        function(10)


def test_an_experiment_of_ray_tune_cannot_be_restored(tmp_path):
    (tmp_path / "experiment_state-2026-11-21_05-33-04.json").write_text(json.dumps({}))
    with pytest.raises(StorageError, match=r"is an experiment of Ray Tune.*=tune.points_from"):
        Tuner.restore(tmp_path, train)


@pytest.mark.process  # It starts a database.
def test_a_stored_study_with_several_objectives_is_named_as_such(tmp_path):
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(storage=storage, study_name="s", directions=["minimize", "maximize"])
    searcher = OptunaSearch(storage=storage, study_name="s")
    searcher.set_search_properties("loss", "min", {"a": tune.uniform(0, 1)}, seed=1)
    with pytest.raises(ValueError, match=r"study 's' has objectives, 2, got 1; write Optuna"):
        searcher.suggest("t0")
