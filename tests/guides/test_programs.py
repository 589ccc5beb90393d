"""Complete programs for Ray Tune, run with only the imports changed.

Each of them has been run on Ray Tune 2.60 as well.
"""

import re
from pathlib import Path

import pytest

from tests.interpreter import run_python

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = [
    (r"^from ray import tune$", "import tuner as tune"),
    (r"^from ray\.tune\.schedulers import", "from schedulers import"),
    (r"^from ray\.tune(\.\w+)? import", r"from tuner\1 import"),
]
BEGIN = "import json\nimport os\nimport sys\nimport tempfile\n\nROOT = sys.argv[1]\n"
TRAIN = """def train(config):
    x, start = 0.0, 0
    ck = tune.get_checkpoint()
    if ck:
        with ck.as_directory() as d:
            x, start = json.load(open(os.path.join(d, "s.json")))
    for step in range(start, 8):
        x += config["lr"]
        with tempfile.TemporaryDirectory() as d:
            json.dump([x, step + 1], open(os.path.join(d, "s.json"), "w"))
            tune.report({"score": x}, checkpoint=Checkpoint.from_directory(d))
"""
PROGRAMS = {
    "a class": """
from ray import tune
from ray.tune import RunConfig, CheckpointConfig


class T(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += self.config["by"]
        return {"n": self.n, "it": self._iteration, "done": self.n >= 6}

    def save_checkpoint(self, d):
        open(os.path.join(d, "n"), "w").write(str(self.n))

    def load_checkpoint(self, d):
        self.n = int(open(os.path.join(d, "n")).read())


r = tune.Tuner(
    T,
    param_space={"by": tune.grid_search([1, 3])},
    run_config=RunConfig(
        name="c",
        storage_path=ROOT,
        checkpoint_config=CheckpointConfig(checkpoint_frequency=2, num_to_keep=1),
    ),
).fit()
assert [x.metrics["n"] for x in r] == [6, 6], r
assert r[0].checkpoint is not None
""",
    "PBT that alone names what is searched": """
from ray import tune
from ray.tune import Checkpoint, TuneConfig, RunConfig
from ray.tune.schedulers import PopulationBasedTraining


"""
    + TRAIN
    + """

p = PopulationBasedTraining(
    time_attr="training_iteration",
    perturbation_interval=2,
    hyperparam_mutations={"lr": tune.uniform(0.1, 1)},
)
r = tune.Tuner(
    train,
    tune_config=TuneConfig(metric="score", mode="max", num_samples=4, scheduler=p),
    run_config=RunConfig(name="p", storage_path=ROOT),
).fit()
assert not r.errors, r.errors
""",
    "HyperBand": """
from ray import tune
from ray.tune import Checkpoint, TuneConfig, RunConfig
from ray.tune.schedulers import HyperBandScheduler


"""
    + TRAIN
    + """

r = tune.Tuner(
    train,
    param_space={"lr": tune.uniform(0, 1)},
    tune_config=TuneConfig(
        metric="score", mode="max", num_samples=4, scheduler=HyperBandScheduler(max_t=8)
    ),
    run_config=RunConfig(name="h", storage_path=ROOT),
).fit()
assert not r.errors
""",
    "callbacks": """
from ray import tune
from ray.tune import Callback, TuneConfig, RunConfig
from ray.tune.logger import LoggerCallback


def train(config):
    for step in range(1, 9):
        tune.report({"loss": (config["x"] - 0.5) ** 2 + 1 / step, "step": step})


seen = []


class Mine(Callback):
    def on_trial_start(self, iteration, trials, trial, **info):
        seen.append("start")

    def on_trial_result(self, iteration, trials, trial, result, **info):
        seen.append(result["training_iteration"])

    def on_trial_complete(self, iteration, trials, trial, **info):
        seen.append("done")

    def on_experiment_end(self, trials, **info):
        seen.append(len(trials))


class L(LoggerCallback):
    def log_trial_result(self, iteration, trial, result):
        seen.append(trial.config["x"])


tune.Tuner(
    train,
    param_space={"x": 0.2},
    run_config=RunConfig(name="c", storage_path=ROOT, callbacks=[Mine(), L()]),
).fit()
assert seen[0] == "start" and seen[-1] == 1 and 0.2 in seen and "done" in seen, seen
""",
    "stoppers": """
from ray import tune
from ray.tune import TuneConfig, RunConfig
from ray.tune.stopper import CombinedStopper, MaximumIterationStopper, TrialPlateauStopper, Stopper


def train(config):
    for step in range(1, 9):
        tune.report({"loss": (config["x"] - 0.5) ** 2 + 1 / step, "step": step})


class Mine(Stopper):
    def __call__(self, trial_id, result):
        return result["step"] >= 5

    def stop_all(self):
        return False


r = tune.Tuner(
    train,
    param_space={"x": 0.2},
    run_config=RunConfig(
        name="s",
        storage_path=ROOT,
        stop=CombinedStopper(MaximumIterationStopper(6), TrialPlateauStopper("loss"), Mine()),
    ),
).fit()
assert r[0].metrics["step"] == 5
""",
    "a restore of what has failed": """
from ray import tune
from ray.tune import Checkpoint, RunConfig


def train(config):
    for step in range(4):
        tune.report({"step": step})
        if step == 1 and not os.path.exists(ROOT + "/ok"):
            raise RuntimeError("once")


tune.Tuner(
    train,
    param_space={"x": tune.grid_search([1, 2])},
    run_config=RunConfig(name="r", storage_path=ROOT),
).fit()
open(ROOT + "/ok", "w").close()
assert tune.Tuner.can_restore(ROOT + "/r")
r = tune.Tuner.restore(ROOT + "/r", trainable=train, resume_errored=True).fit()
assert not r.errors and [x.metrics["step"] for x in r] == [3, 3]
""",
    "tune.run with the arguments of long ago": """
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler


class T(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"mean_loss": 1 / self.n + self.config["x"]}

    def save_checkpoint(self, d):
        json.dump(self.n, open(d + "/n", "w"))

    def load_checkpoint(self, d):
        self.n = json.load(open(d + "/n"))


a = tune.run(
    T,
    name="old",
    metric="mean_loss",
    mode="min",
    scheduler=AsyncHyperBandScheduler(max_t=6, grace_period=2),
    stop={"training_iteration": 6},
    num_samples=3,
    config={"x": tune.sample_from(lambda _: 0.5)},
    checkpoint_freq=2,
    keep_checkpoints_num=2,
    checkpoint_at_end=True,
    storage_path=ROOT,
)
assert a.best_config["x"] == 0.5 and a.best_checkpoint is not None
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_with_other_imports(name, tmp_path):
    program = PROGRAMS[name]
    for theirs, ours in IMPORTS:
        program = re.sub(theirs, ours, program, flags=re.MULTILINE)
    assert "ray" not in program
    (tmp_path / "program.py").write_text(BEGIN + program)
    (tmp_path / "runs").mkdir()
    run_python("program.py", str(tmp_path / "runs"), cwd=tmp_path, timeout_s=90)
