"""Fixtures that run short experiments."""

import json
from pathlib import Path

import pytest

from tuner import FailureConfig, RunConfig, TuneConfig, Tuner


@pytest.fixture
def executor():
    """Return the executor; modules about processes override it.

    An experiment with processes takes ten times as long as one without.
    """
    return "inline"


@pytest.fixture
def build(tmp_path, executor):
    """Return a function that declares an experiment under ``tmp_path``."""

    def declare(trainable, space=None, *, tune=None, failure=None, **run):
        given = {
            "name": "experiment",
            "storage_path": tmp_path,
            "verbose": 0,
            "executor": executor,
            "failure_config": FailureConfig(**(failure or {})),
        }
        run_config = RunConfig(**(given | run))
        return Tuner(
            trainable,
            param_space=space,
            tune_config=TuneConfig(**(tune or {})),
            run_config=run_config,
        )

    return declare


@pytest.fixture
def fit(build):
    """Return a function that runs an experiment and returns its results."""
    return lambda *arguments, **options: build(*arguments, **options).fit()


@pytest.fixture
def rows_of():
    """Return a function that reads a trial's ``result.json``."""
    return lambda trial: [
        json.loads(line) for line in Path(trial, "result.json").read_text().splitlines()
    ]
