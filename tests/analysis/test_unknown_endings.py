"""Trials of Ray Tune of which nobody knows whether they were trained to the end."""

import json

import pytest

import tuner as tune
from schedulers import ASHAScheduler
from searchers import TreeSearch

pytest.importorskip("optuna")

from tuner import RunConfig, TuneConfig, Tuner
from tuner.analysis.optuna_storage import ExperimentStorage
from tuner.core.trial import TerminationReason

SPACE = {"lr": tune.uniform(0, 10)}


def ray_directory(path, lengths, *, stop=None, status="TERMINATED"):
    """Write an experiment of Ray Tune whose trials ended after these numbers of iterations."""
    states = []
    for number, length in enumerate(lengths):
        name = f"train_0a1b2_{number:05d}_{number}_lr={number}_2026-11-21_05-33-04"
        trial = path / name
        trial.mkdir(parents=True)
        rows = [
            {
                "loss": 1.0 / step,
                "training_iteration": step,
                "trial_id": f"0a1b2_{number:05d}",
                # Ray Tune marks what a scheduler stops like what a criterion ends.
                "done": step == length,
                "config": {"lr": float(number)},
            }
            for step in range(1, length + 1)
        ]
        (trial / "params.json").write_text(json.dumps({"lr": float(number)}))
        (trial / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        text = {"relative_logdir": name, "status": status, "experiment_tag": f"{number}_lr"}
        states.append([json.dumps(text | ({"stopping_criterion": stop} if stop else {})), "{}"])
    (path / "experiment_state-2026-11-21_05-33-04.json").write_text(
        json.dumps({"trial_data": states, "runner_data": {}})
    )
    return path


def test_a_trial_that_a_scheduler_may_have_stopped_has_no_ending(tmp_path):
    grid = tune.ResultGrid.from_directory(ray_directory(tmp_path, [1, 9]), "loss", "min")
    assert [result.ending for result in grid] == [None, None]
    assert grid.get_dataframe()["ending"].isna().all()


def test_a_trial_that_reached_its_stop_criterion_is_completed(tmp_path):
    path = ray_directory(tmp_path, [1, 9], stop={"training_iteration": 9})
    grid = tune.ResultGrid.from_directory(path, "loss", "min")
    assert [result.ending for result in grid] == [None, TerminationReason.COMPLETED]


@pytest.mark.parametrize("stop", [None, {"training_iteration": 9}])
def test_rewards_are_those_of_full_trainings(tmp_path, stop):
    path = ray_directory(tmp_path, [1, 9, 3, 9], stop=stop)
    with pytest.warns(RuntimeWarning, match="2 of 4 trials are left out, since they were not"):
        points, rewards = tune.points_from(path, "loss", "min", space=SPACE, with_rewards=True)
    assert points == [{"lr": 1.0}, {"lr": 3.0}]
    assert rewards == [1 / 9, 1 / 9]
    assert len(tune.points_from(path, "loss", "min", space=SPACE)) == 4


@pytest.mark.parametrize("status", ["RUNNING", "PAUSED"])
def test_trials_that_have_not_ended_have_no_reward(tmp_path, status):
    path = ray_directory(tmp_path, [9, 9], status=status)
    with pytest.warns(RuntimeWarning, match="2 of 2 trials are left out"):
        assert tune.points_from(path, "loss", "min", with_rewards=True) == ([], [])


@pytest.mark.process
def test_trials_that_asha_stopped_here_have_no_reward_either(tmp_path):
    def train(config):
        for step in range(9):
            tune.report({"loss": config["lr"] + 1 / (step + 1)})

    results = Tuner(
        train,
        param_space={"lr": tune.grid_search([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])},
        tune_config=TuneConfig(
            metric="loss",
            mode="min",
            max_concurrent_trials=1,
            scheduler=ASHAScheduler(max_t=9, reduction_factor=3, type="stopping"),
        ),
        run_config=RunConfig(storage_path=tmp_path, name="x", verbose=0, executor="inline"),
    ).fit()
    completed = [r.config for r in results if r.ending is TerminationReason.COMPLETED]
    assert 0 < len(completed) < 6
    with pytest.warns(RuntimeWarning, match="trials are left out"):
        points, _ = tune.points_from(results.experiment_path, with_rewards=True)
    assert points == completed


def test_trials_of_unknown_ending_are_not_added_as_full_trainings(tmp_path):
    path = ray_directory(tmp_path, [1, 9], stop={"training_iteration": 9})
    searcher = TreeSearch(space=SPACE, metric="loss", mode="min")
    searcher.set_search_properties(None, None, {}, seed=1, num_samples=4)
    added = []
    searcher.add_evaluated_point = lambda point, value, **_: added.append((point, value))
    searcher.add_evaluated_trials(tune.ResultGrid.from_directory(path, "loss", "min"), "loss")
    assert added == [({"lr": 1.0}, 1 / 9)]


def test_optunas_dashboard_shows_short_trials_of_unknown_ending_as_pruned(tmp_path):
    pytest.importorskip("optuna")

    path = ray_directory(tmp_path, [1, 9])
    states = [
        trial.state.name for trial in ExperimentStorage(path, "loss", "min").get_all_trials(0)
    ]
    assert states == ["PRUNED", "COMPLETE"]
