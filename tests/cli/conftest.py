import importlib
import json
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import tuner as tune
from schedulers import FIFOScheduler
from searchers import BasicVariantGenerator
from tuner.cli import main
from tuner.cli.app import COMMANDS

NUM_ITERATIONS = 4


def train(config):
    """Fall towards zero and save each result; fail half-way or end with NaN if configured."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            start = json.loads(Path(directory, "state.json").read_text())
    for step in range(start + 1, NUM_ITERATIONS + 1):
        if config["kind"] == "fails" and step == 3:
            raise ValueError("half-way")
        loss = (
            float("nan")
            if config["kind"] == "nan" and step == NUM_ITERATIONS
            else config["lr"] * abs(step - 2.5) + 1 / 8
        )
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps(step))
            tune.report(
                {"loss": loss, "val": {"acc": config["lr"]}},
                checkpoint=tune.Checkpoint.from_directory(directory),
            )


def run(storage_path, name, *, num_samples=1, space=None, metric="loss", scheduler=None, **more):
    """Run an experiment in this process and return its directory."""
    space = (
        {"lr": tune.grid_search([0.5, 0.25, 2.0]), "kind": "plain", "depth": 3}
        if space is None
        else space
    )
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric=metric,
            mode=metric and "min",
            num_samples=num_samples,
            scheduler=scheduler or FIFOScheduler(),
            search_alg=BasicVariantGenerator(),
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=storage_path,
            verbose=0,
            executor="inline",
            durability="process",
            resources={"cpu": 1},
            **more,
        ),
    )
    return Path(tuner.fit().experiment_path)


@pytest.fixture(scope="session")
def ready_made(tmp_path_factory):
    """Return experiments that tests must copy before they change them."""
    storage = tmp_path_factory.mktemp("ready_made")
    odd = {"lr": 1.0, "kind": tune.grid_search(["plain", "fails", "nan"])}
    return SimpleNamespace(plain=run(storage, "plain"), odd=run(storage, "odd", space=odd))


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """The default storage path, empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tuner_results").mkdir()
    return tmp_path / "tuner_results"


@pytest.fixture
def plain(ready_made, storage):
    """Three trials that went well; the second one is the best."""
    return shutil.copytree(ready_made.plain, storage / "plain")


@pytest.fixture
def odd(ready_made, storage):
    """Three trials: one went well, one failed after its second result, one ended with NaN."""
    return shutil.copytree(ready_made.odd, storage / "odd")


@pytest.fixture(scope="session")
def modules():
    """Import all subcommands, so that no test pays for it that happens to be the first."""
    for command in COMMANDS.values():
        importlib.import_module(f"tuner.cli.{command.module}")


@pytest.fixture
def call(modules):
    """Runs the command in this process."""

    def call(*arguments, code=0):
        done = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert done.exit_code == code, (
            f"{done.exit_code}\n{done.stdout}\n{done.stderr}\n{done.exception!r}"
        )
        assert "Traceback" not in done.stderr
        return done

    return call


@pytest.fixture
def make():
    """Builder of other experiments, and the training function."""
    return SimpleNamespace(run=run, train=train)
