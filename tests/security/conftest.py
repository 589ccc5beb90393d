"""Fixtures that run short experiments."""

import pytest

from tuner import FailureConfig, RunConfig, TuneConfig, Tuner


@pytest.fixture
def build(tmp_path):
    """Return a function that declares an experiment under ``tmp_path``."""

    def declare(trainable, space=None, *, tune=None, failure=None, **run):
        given = {
            "name": "experiment",
            "storage_path": tmp_path,
            "verbose": 0,
            "failure_config": FailureConfig(**(failure or {})),
        }
        return Tuner(
            trainable,
            param_space=space,
            tune_config=TuneConfig(**(tune or {})),
            run_config=RunConfig(**(given | run)),
        )

    return declare


@pytest.fixture
def fit(build):
    """Return a function that runs an experiment and returns its results."""
    return lambda *arguments, **options: build(*arguments, **options).fit()
