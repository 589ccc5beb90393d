"""Runs the guides' scripts the way a user does, and short experiments in place."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tuner import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 90
"""Long enough for a machine under load; a script that needs it has failed."""


@dataclass(frozen=True)
class Ran:
    """A script that has run.

    Attributes:
        lines: What it printed, line by line.
        storage: Its storage path.
    """

    lines: list[str]
    storage: Path

    def trial(self, experiment, number=0):
        return self.storage / experiment / f"t{number:05d}"


@pytest.fixture(scope="session")
def run_script(tmp_path_factory):
    """Return a function that runs a script once per session, isolated from other scripts.

    Each script gets a new interpreter, home directory and storage path.
    """
    done = {}

    def run(name):
        if name not in done:
            done[name] = _run(
                ROOT / "tests" / "guides" / "scripts" / f"{name}.py", tmp_path_factory.mktemp(name)
            )
        return done[name]

    return run


def _run(script, directory):
    storage = directory / "storage"
    ran = _interpret(["-W", "error", str(script), str(storage)], directory)
    assert ran.stderr == ""
    assert sorted(path.name for path in directory.iterdir()) == ["storage"]
    return Ran(ran.stdout.splitlines(), storage)


@pytest.fixture(scope="session")
def run_block(tmp_path_factory):
    """Return a function that runs a guide's block of code once per session.

    Each has a new home directory, under which its experiments are unless the block says otherwise.
    """
    done = {}

    def run(name):
        if name not in done:
            script = ROOT / "tests" / "guides" / "scripts" / "blocks" / f"{name}.py"
            directory = tmp_path_factory.mktemp(name)
            ran = _interpret([str(script), str(directory / "tuner_results")], directory)
            done[name] = Ran(ran.stdout.splitlines(), directory / "tuner_results")
        return done[name]

    return run


def _interpret(arguments, directory):
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=os.environ | {"HOME": str(directory), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


@pytest.fixture
def fit(tmp_path):
    """Return a function that runs an experiment under ``tmp_path`` and returns its results."""

    def run(
        trainable,
        space=None,
        *,
        name="experiment",
        checkpoint=None,
        max_failures=0,
        tune=None,
        executor="inline",
        **options,
    ):
        run_config = RunConfig(
            name=name,
            storage_path=tmp_path,
            verbose=0,
            executor=executor,
            checkpoint_config=CheckpointConfig(**(checkpoint or {})),
            failure_config=FailureConfig(max_failures=max_failures),
            **options,
        )
        return Tuner(
            trainable,
            param_space=space,
            tune_config=TuneConfig(**(tune or {})),
            run_config=run_config,
        ).fit()

    return run


@pytest.fixture
def rows_of():
    """Return a function that reads a trial's ``result.json``."""
    return lambda trial: [
        json.loads(line) for line in Path(trial, "result.json").read_text().splitlines()
    ]


@pytest.fixture
def checkpoints_in():
    """Return a function that lists a trial's checkpoint directories."""
    return lambda trial: sorted(path.name for path in Path(trial).glob("checkpoint_*"))
