"""A resettable class trainable keeps its process when it starts from another's checkpoint."""

import os
from pathlib import Path

import pytest

import tuner as tune
from schedulers import Exploit, Reason, Resume, Save, Scheduler

WHY = Reason("test")


class Hops(Scheduler):
    """Lets the second trial take over from the first again and again."""

    def on_trial_result(self, trial, result):
        if trial.trial_id == "t00000":
            return [Save(trial.trial_id, WHY)]
        donor = self.experiment.trials["t00000"]
        if result["training_iteration"] % 2:
            return ()
        if not donor.has_checkpoint:  # it will wait for one, and its process not for it
            return [
                Exploit(trial.trial_id, donor.trial_id, dict(trial.config), WHY),
                Resume(trial.trial_id, WHY),
            ]
        config = {"lr": trial.config["lr"] + 1.0}
        return [
            Exploit(trial.trial_id, donor.trial_id, config, WHY, donor.checkpoint_index),
            Resume(trial.trial_id, WHY),
        ]


class Learner(tune.Trainable):
    can_be_reset = True

    def setup(self, config):
        self.weight = 0.0
        self.num_resets = 0

    def step(self):
        self.weight += self.config["lr"]
        return {"weight": self.weight, "process": os.getpid(), "num_resets": self.num_resets}

    def save_checkpoint(self, directory):
        Path(directory, "weight").write_text(str(self.weight))

    def load_checkpoint(self, directory):
        self.weight = float(Path(directory, "weight").read_text())

    def reset_config(self, new_config):
        self.num_resets += 1
        return self.can_be_reset


class Stubborn(Learner):
    can_be_reset = False


class Breaks(Learner):
    def reset_config(self, new_config):
        raise RuntimeError("it cannot be reset at all")


@pytest.fixture
def run(tmp_path):
    def run(trainable, **failure):
        return tune.Tuner(
            trainable,
            param_space={"lr": tune.grid_search([5.0, 1.0])},
            tune_config=tune.TuneConfig(metric="weight", mode="max", scheduler=Hops()),
            run_config=tune.RunConfig(
                name="e",
                storage_path=tmp_path,
                verbose=0,
                stop={"training_iteration": 40},
                resources={"cpu": 2},
                failure_config=tune.FailureConfig(**failure),
            ),
        ).fit()

    return run


def test_the_process_stays_and_everything_else_is_new(run):
    grid = run(Learner)
    assert not grid.errors
    frame, grafts = grid[1].metrics_dataframe, grid.trials[1].grafts
    assert len(grafts) > 2
    assert len(set(frame["process"])) <= 2
    assert frame["num_resets"].iloc[-1] >= len(grafts) - 1
    last = frame.iloc[grafts[-1].num_rows]
    assert last["training_iteration"] == grafts[-1].checkpoint.iteration + 1
    assert last["weight"] == 5.0 * grafts[-1].checkpoint.iteration + grid[1].config["lr"]
    assert grid.trials[1].attempt == len(grafts) + 1


def test_what_cannot_be_reset_gets_a_new_process(run):
    grid = run(Stubborn)
    assert not grid.errors
    assert len(set(grid[1].metrics_dataframe["process"])) == len(grid.trials[1].grafts) + 1


def test_a_reset_that_raises_is_a_failed_attempt(run):
    grid = run(Breaks, max_failures=0)
    assert [result.error is not None for result in grid] == [False, True]
    assert "RuntimeError: it cannot be reset at all" in str(grid[1].error)
