"""Code written for Ray Tune finds its names where it looks for them, once the package's name is changed."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from schedulers import ASHAScheduler
from searchers import BasicVariantGenerator

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}

PATHS = {
    "tuner.experiment": ["Trial"],
    "tuner.callback": ["Callback"],
    "tuner.logger": ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"],
    "tuner.stopper": [
        "CombinedStopper", "ExperimentPlateauStopper", "FunctionStopper", "MaximumIterationStopper", "NoopStopper", "Stopper",
        "TimeoutStopper", "TrialPlateauStopper",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("path", "names"), PATHS.items())
def test_a_module_of_the_face_offers_the_names_of_the_package(path, names):
    module = importlib.import_module(path)
    assert sorted(module.__all__) == names
    assert all(getattr(module, name) is getattr(tune, name) for name in names)


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


@pytest.mark.parametrize(
    ("name", "hint"),
    [("TuneError", "TunerError"), ("run_experiments", r"Tuner\(.*\)\.fit\(\)"), ("Experiment", "Tuner"), ("SyncConfig", "leave it out")],
)
def test_what_has_another_name_here_is_answered_with_it(name, hint):
    with pytest.raises(AttributeError, match=f"module 'tuner' has no attribute '{name}'; .*{hint}"):
        getattr(tune, name)


def test_the_older_entry_point_is_answered_with_the_newer_one(tmp_path):
    """In a script of its own: here, somebody may have imported the engine's module of that name."""
    script = "import tuner as tune; tune.run(print, config={'lr': tune.uniform(0, 1)})"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert "AttributeError: module 'tuner' has no attribute 'run'; Tuner(" in done.stderr
