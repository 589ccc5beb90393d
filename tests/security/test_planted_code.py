"""Files in an experiment's directory are read and never executed."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tuner as tune
from tuner import ExperimentAnalysis, Result, Tuner

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, canary):
        self.canary = str(canary)

    def __reduce__(self):
        return open, (self.canary, "w")


class Saving(tune.Trainable):
    def step(self):
        return {"loss": 1.0, "done": self.iteration == 1}

    def save_checkpoint(self, checkpoint_dir):
        return {"state": 1}

    def load_checkpoint(self, checkpoint):
        pass


def settings(storage):
    return {
        "param_space": {"x": tune.grid_search([1, 2]), "data": np.arange(5), "f": len},
        "tune_config": tune.TuneConfig(metric="loss", mode="min", seed=1),
        "run_config": tune.RunConfig(
            name="exp",
            storage_path=storage,
            verbose=0,
            executor="inline",
            durability="process",
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        ),
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder of a finished experiment."""
    storage = tmp_path_factory.mktemp("storage")
    Tuner(Saving, **settings(storage)).fit()
    return storage / "exp"


def look_at_everything(experiment):
    """Open, restore, continue and analyse; ignore refusals."""
    steps = [
        lambda: Tuner.can_restore(experiment),
        lambda: analyse(
            Tuner.restore(experiment, Saving, **settings(experiment.parent)).get_results()
        ),
        lambda: analyse(Tuner.restore(experiment, Saving, **settings(experiment.parent)).fit()),
        *(
            lambda path=path: Result.from_path(path).metrics_dataframe
            for path in experiment.glob("t0*")
        ),
    ]
    num_refused = 0
    for step in steps:
        try:
            step()
        except Exception:  # noqa: BLE001  (any refusal will do; what counts is what was not run)
            num_refused += 1
    return num_refused


def analyse(grid):
    analysis = ExperimentAnalysis(grid)
    for result in grid:
        _ = result.metrics_dataframe, result.config, result.error
        for checkpoint, _metrics in result.best_checkpoints:
            checkpoint.get_metadata()
            checkpoint.to_directory()
    _ = (
        analysis.trial_dataframes,
        analysis.results_df,
        grid.get_dataframe(),
        grid.get_best_result().best_checkpoint,
    )


def bombs(canary):
    """Yield contents that would leave the canary behind if they were trusted."""
    call = f"open({str(canary)!r}, 'w')"
    yield pickle.dumps(Bomb(canary))
    yield f"!!python/object/apply:builtins.open [{canary}, w]\n".encode()
    reduction = f'[{{"py/type": "builtins.open"}}, {{"py/tuple": ["{canary}", "w"]}}]'
    yield f'{{"py/reduce": {reduction}, "$object": "{call}"}}\n'.encode()
    yield f"{call}\n__import__('os').system('touch {canary}')\n".encode()


def test_no_content_of_a_file_in_the_directory_is_executed(
    finished, tmp_path, monkeypatch, recwarn
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names = [path.relative_to(finished) for path in finished.rglob("*") if path.is_file()]
    assert {
        "experiment.json",
        "lock",
        "params.json",
        "result.json",
        "progress.csv",
        ".manifest.json",
    } <= {name.name for name in names}
    assert {".npy", ".log", ".pkl"} <= {name.suffix for name in names}
    num_refused = 0
    # Trials have the same files; those of one stand for all.
    for name in {re.sub(r"\d+", "0", name.as_posix()): name for name in names}.values():
        for number, bomb in enumerate(bombs(tmp_path / "canary")):
            experiment = tmp_path / "copy" / "exp"
            shutil.copytree(finished, experiment)
            (experiment / name).write_bytes(bomb)
            num_refused += look_at_everything(experiment)
            assert not (tmp_path / "canary").exists(), f"bomb {number} in {name}"
            shutil.rmtree(experiment.parent)
    assert num_refused > 4 * 4  # journal and declaration at least are missed


def test_a_pickle_inside_an_array_file_of_the_right_name_is_not_run(finished, tmp_path):
    experiment = tmp_path / "exp"
    shutil.copytree(finished, experiment)
    (stored,) = (experiment / "objects").iterdir()
    np.save(stored, np.array([Bomb(tmp_path / "canary")], dtype=object), allow_pickle=True)
    assert look_at_everything(experiment) > 0
    assert not (tmp_path / "canary").exists()


PLANTED = [
    "__init__.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "settings.py", "evil.pth",
    "json.py", "pickle.py", "numpy.py", "importlib.py", "cloudpickle.py", "tuner.py",
    "schedulers.py", "searchers.py", "tuner.pkl", "searcher_state.pkl", "pyproject.toml",
    "experiment_state.json", ".env", "experiment.yaml", "mmap.py", "socket.py", "train.py.bak",
]  # fmt: skip

SCRIPT = """
import sys
import tuner as tune

def train(config):
    tune.report({"loss": config["x"]})

space = {"x": tune.grid_search([1, 2])}
run = tune.RunConfig(name="exp", storage_path=sys.argv[1], verbose=0)
config = tune.TuneConfig(num_samples=int(sys.argv[2]))
tuner = tune.Tuner(train, param_space=space, run_config=run, tune_config=config)
if sys.argv[2] != "1":
    tuner = tune.Tuner.restore(
        sys.argv[1] + "/exp", train, param_space=space, run_config=run, tune_config=config
    )
    tune.ExperimentAnalysis(tuner.get_results()).trial_dataframes
print(len(tuner.fit()), tuner.get_results().num_errors)
"""


def run_script(script, storage, num_samples, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603  (our own)
        [sys.executable, script, storage, str(num_samples)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_module_or_setting_planted_in_the_directory_is_loaded_even_from_within_it(
    tmp_path,
):
    script, storage = tmp_path / "script.py", tmp_path / "storage"
    script.write_text(SCRIPT)
    assert run_script(script, storage, 1, tmp_path) == ["2", "0"]
    folders = [storage / "exp", storage / "exp" / "t00000", storage / "exp" / "journal"]
    for folder in folders:
        for name in PLANTED:
            canary = tmp_path / f"canary-{folder.name}-{name}"
            (folder / name).write_text(f"import os; open({str(canary)!r}, 'w')\n")
        for package in ("tuner", "encodings", "tuner/execution"):
            (folder / package).mkdir()
            canary = tmp_path / f"canary-{folder.name}-{package.replace('/', '-')}"
            (folder / package / "__init__.py").write_text(f"open({str(canary)!r}, 'w')\n")
    for number, folder in enumerate(folders[:2], start=2):
        assert run_script(script, storage, number, folder) == [str(2 * number), "0"]
    assert [path.name for path in tmp_path.glob("canary-*")] == []
