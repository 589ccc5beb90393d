"""Run training code of frameworks as trials that are paused, stopped and cloned.

This process imports none of the frameworks.
"""

import json
from pathlib import Path

import pytest

import tuner as tune
from schedulers import Exploit, Pause, Reason, Resume, Scheduler, Stop

TRAININGS = Path(__file__).parent / "trainings"
REASON = Reason("test")


class ScriptedScheduler(Scheduler):
    """Decides about each trial what its configuration says.

    ``"pause"`` is paused at each result, ``"stop"`` is stopped at its second, and ``"follow"``, at
    its third, continues from the first checkpoint of ``"go"`` with ten times its learning rate.
    """

    def __init__(self):
        self.ids = {}

    def on_trial_add(self, trial):
        self.ids[trial.config["decision"]] = trial.trial_id
        return []

    def on_trial_result(self, trial, result):
        match trial.config["decision"], result["training_iteration"]:
            case "pause", _:
                return [Pause(trial.trial_id, REASON)]
            case "stop", 2:
                return [Stop(trial.trial_id, REASON)]
            case "follow", 3 if trial.config["lr"] == 0.001:
                faster = {**trial.config, "lr": 0.01}
                return [
                    Exploit(trial.trial_id, self.ids["go"], faster, REASON, 0),
                    Resume(trial.trial_id, REASON),
                ]
        return []

    def on_idle(self, trials, num_free_slots):
        return [Resume(trial.trial_id, REASON) for trial in trials if trial.status == "PAUSED"]


class Elsewhere:
    """The function ``train`` of a file, which is loaded only in the processes of trials."""

    def __init__(self, file):
        self.file = file
        self.__name__ = Path(file).stem

    def __call__(self, config):
        raise AssertionError("called in the driver")

    def __reduce__(self):
        return eval, (
            f"__import__('runpy').run_path({self.file!r}, run_name='trainings')['train']",
        )


@pytest.fixture(scope="module")
def run_training(tmp_path_factory):
    """Return a function that trains under each decision; it returns results by decision."""

    def run(name, decisions=("go", "follow", "pause", "stop"), key=None, **constants):
        results = tune.Tuner(
            Elsewhere(str(TRAININGS / f"{name}.py")),
            param_space={"lr": 0.001, "decision": tune.grid_search(list(decisions)), **constants},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                scheduler=ScriptedScheduler(),
                max_concurrent_trials=2,
                seed=0,
            ),
            run_config=tune.RunConfig(
                storage_path=tmp_path_factory.mktemp("storage"), verbose=0, resources={"cpu": 2}
            ),
        ).fit()
        assert [result.error for result in results] == [None] * len(results)
        return {
            (result.config[key], result.config["decision"])
            if key
            else result.config["decision"]: result
            for result in results
        }

    return run


@pytest.fixture
def column():
    """Return a function that reads a column of a trial's results."""
    return lambda result, name: result.metrics_dataframe[name].tolist()


@pytest.fixture
def closed():
    """Return a function that reads what a trial's training noted when it was closed."""
    return lambda result: json.loads(Path(result.path, "closed.json").read_text())
