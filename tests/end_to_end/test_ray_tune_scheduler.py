"""A scheduler that was written for Ray Tune hosts a whole experiment, a restore included."""

import json
from pathlib import Path

import pytest

import tuner as tune
from schedulers import TrialScheduler
from tuner import Tuner


class Survivor(TrialScheduler):
    """Pauses all at their second result; the best goes on and the others are stopped."""

    def __init__(self):
        self.scores = {}

    def on_trial_result(self, tune_controller, trial, result):
        self.scores[trial] = result["score"]
        return (
            TrialScheduler.PAUSE if result["training_iteration"] == 2 else TrialScheduler.CONTINUE
        )

    def choose_trial_to_run(self, tune_controller):
        if any(trial.status == "RUNNING" for trial in tune_controller.get_trials()):
            return None
        paused = [trial for trial in tune_controller.get_trials() if trial.status == "PAUSED"]
        best = max(paused, key=self.scores.get)
        for trial in paused:
            if trial is not best:
                tune_controller.stop_trial(trial)
        return best

    def debug_string(self):
        return f"{len(self.scores)} scores"


def train(config):
    score, start = 0.0, 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            score, start = json.loads(Path(directory, "state").read_text())
    for step in range(start, 5):
        score += config["rate"]
        with tune.checkpoint_dir() as directory:
            Path(directory, "state").write_text(json.dumps([score, step + 1]))
            tune.report({"score": score}, checkpoint=tune.Checkpoint.from_directory(directory))


@pytest.fixture
def run(build):
    def run(**options):
        settings = {"metric": "score", "mode": "max", "scheduler": Survivor()}
        return build(
            train,
            {"rate": tune.grid_search([1.0, 3.0, 2.0])},
            tune=settings,
            executor="inline",
            **options,
        ).fit()

    return run


def iterations(grid):
    return [result.metrics["training_iteration"] for result in grid]


def test_its_return_values_decide_which_trials_continue(run, capsys):
    grid = run()
    assert iterations(grid) == [2, 5, 2]
    grid.explain("t00000")
    printed_lines = capsys.readouterr().out
    assert "is paused: Survivor.pause (training_iteration=2)" in printed_lines
    assert "is stopped: Survivor.stop" in printed_lines


def test_it_has_to_be_given_again_and_gets_the_recorded_results(run, tmp_path):
    run(stop=lambda trial_id, result: trial_id == "t00001" and result["training_iteration"] >= 3)
    path = tmp_path / "experiment"
    with pytest.raises(ValueError, match=r"tune_config\.scheduler \([\w.]*Survivor\)"):
        Tuner.restore(path, train)
    scheduler = Survivor()
    config = tune.ResumeConfig(finished="resume")
    grid = Tuner.restore(path, train, scheduler=scheduler, stop={}, resume_config=config).fit()
    assert max(iterations(grid)) == 5
    assert {trial.trial_id for trial in scheduler.scores} == {"t00000", "t00001", "t00002"}
