"""Runs the guides' scripts the way a user does, and short experiments in place."""

import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.guides.script_runner import ScriptRunner
from tests.interpreter import run_python
from tuner import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "guides" / "scripts"
BLOCKS = SCRIPTS / "blocks"


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

    def logged(self, rank):
        """Return the lines that a worker of the only training has printed."""
        (trial,) = self.storage.glob("*/t00000")
        name = f"stdout.rank{rank}" if rank else "stdout"
        return (trial / name).read_text().splitlines()

    def must_print(self, lines):
        assert [line for line in lines if line not in self.lines] == []


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Return a directory that the processes of pytest-xdist have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def run_script(shared):
    """Return a function that runs a script once, isolated from other scripts.

    Each script gets a new interpreter, home directory and storage path.
    """

    def run(name):
        return _run_once(SCRIPTS / f"{name}.py", shared / name, "storage", is_silent=True)

    return run


@pytest.fixture(scope="session")
def run_block(shared):
    """Return a function that runs a guide's block of code once.

    Each has a new home directory, under which its experiments are unless the block says otherwise.
    """

    def run(name):
        return _run_once(BLOCKS / f"{name}.py", shared / f"block_{name}", "tuner_results")

    return run


@pytest.fixture(scope="session")
def runner(tmp_path_factory):
    """Return what runs scripts one after the other in one process, see `ScriptRunner`."""
    runner = ScriptRunner(tmp_path_factory.mktemp("runner") / "home", BLOCKS)
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def run_heavy_block(runner, shared):
    """Return a function that runs a block like `run_block`, whose libraries take long to load."""

    def run(name):
        directory = shared / f"block_{name}"

        def run_block():
            printed = runner.run(BLOCKS / f"{name}.py")
            if runner.storage.exists():
                runner.storage.rename(directory / runner.storage.name)
            return printed

        return Ran(_printed_once(directory, run_block), directory / runner.storage.name)

    return run


def _run_once(script, directory, storage, *, is_silent=False):
    """Run a script unless another process has, and return what it has printed and stored."""

    def run():
        options = ["-W", "error"] if is_silent else []
        ran = run_python(*options, str(script), str(directory / storage), cwd=directory)
        if is_silent:
            assert ran.stderr == ""
            assert [path.name for path in directory.iterdir()] == [storage]
        return ran.stdout

    return Ran(_printed_once(directory, run), directory / storage)


def _printed_once(directory, run):
    """Return the lines that `run` returns, which is called with a new directory, once."""
    printed = directory.with_suffix(".printed")
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            shutil.rmtree(directory, ignore_errors=True)  # of a run that has failed
            directory.mkdir()
            printed.write_text(run())
    return printed.read_text().splitlines()


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
