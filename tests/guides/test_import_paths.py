"""Names are importable from Ray Tune's module paths, once the package's name is changed."""

import importlib

import pytest

import tuner as tune
from schedulers import ASHAScheduler
from searchers import BasicVariantGenerator

pytestmark = pytest.mark.unit

PATHS = {
    "tuner.error": ["TuneError"],
    "tuner.experiment": ["Experiment", "Trial"],
    "tuner.callback": ["Callback"],
    "tuner.logger": [
        "CSVLoggerCallback",
        "JsonLoggerCallback",
        "LoggerCallback",
        "TBXLoggerCallback",
        "pretty_print",
    ],
    "tuner.stopper": [
        "CombinedStopper",
        "ExperimentPlateauStopper",
        "FunctionStopper",
        "MaximumIterationStopper",
        "NoopStopper",
        "Stopper",
        "TimeoutStopper",
        "TrialPlateauStopper",
    ],
}


@pytest.mark.parametrize(("path", "names"), PATHS.items())
def test_a_module_of_the_face_offers_the_names_of_the_package(path, names):
    module = importlib.import_module(path)
    assert sorted(module.__all__) == names
    of_the_package = [name for name in names if name != "pretty_print"]
    assert all(getattr(module, name) is getattr(tune, name) for name in of_the_package)


def test_the_keys_of_a_result_are_texts_that_results_have():
    module = importlib.import_module("tuner.result")
    keys = {getattr(module, name) for name in module.__all__}
    assert keys - {"_metric"} == tune.core.result.AUTO_FILLED


def test_the_modules_are_there_without_an_import_of_their_own():
    assert tune.result.SHOULD_CHECKPOINT == "should_checkpoint"
    assert tune.result.TRAINING_ITERATION == "training_iteration"
    assert tune.stopper.Stopper is tune.Stopper
    assert tune.schedulers.ASHAScheduler is ASHAScheduler
    assert tune.search.BasicVariantGenerator is BasicVariantGenerator


@pytest.mark.parametrize(("name", "hint"), [("register_env", "in the training code")])
def test_what_is_not_there_is_answered_with_what_to_do(name, hint):
    with pytest.raises(AttributeError, match=f"module 'tuner' has no attribute '{name}'; .*{hint}"):
        getattr(tune, name)


def test_errors_can_be_caught_under_ray_tunes_name():
    assert issubclass(tune.TuneError, Exception)
    assert tune.error.TuneError is tune.TuneError is tune.TunerError
