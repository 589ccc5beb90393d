"""Experiments with Optuna's samplers: objectives, constraints, storages, restores, importances."""

import shutil
import warnings

import pytest

import tuner as tune
from schedulers import ASHAScheduler, MOASHAScheduler
from searchers import ConcurrencyLimiter, OptunaSearch
from tests.restore.others import Learner
from tuner.analysis.open_experiment import read_stored
from tuner.core.trial import TerminationReason

optuna = pytest.importorskip("optuna")

SPACE = {"x": tune.uniform(0.0, 1.0), "layers": tune.choice([1, 2, 3])}


def trade(config):
    for step in (1, 2):
        tune.report(
            {
                "accuracy": config["x"] * step,
                "latency": config["x"] ** 2 + config["layers"],
                "memory": config["x"] - 0.7,
            }
        )


def several(**arguments):
    return OptunaSearch(
        metric=["accuracy", "latency"], mode=["max", "min"], constraints=["memory"], **arguments
    )


@pytest.fixture
def declare(tmp_path):
    """Return a function that declares an experiment."""

    def declare(searcher, trainable=trade, *, space=SPACE, **more):
        given = {"num_samples": 12, "seed": 3, "max_concurrent_trials": 2, **more}
        run_config = tune.RunConfig(
            name="e", storage_path=tmp_path, executor="inline", verbose=0, resources={"cpu": 3}
        )
        return tune.Tuner(
            trainable,
            param_space=space,
            tune_config=tune.TuneConfig(search_alg=searcher, **given),
            run_config=run_config,
        )

    return declare


def test_an_experiment_needs_no_metric_where_the_searcher_has_several(declare):
    searcher = several()
    grid = declare(searcher).fit()
    front = {trial.user_attrs["trial_id"] for trial in searcher.study.best_trials}
    by_id = {result.trial_id: result for result in grid}
    assert grid.num_terminated == 12
    assert 0 < len(front) < 12
    assert all(by_id[trial_id].metrics["memory"] <= 0 for trial_id in front)
    best = max(
        (result for result in grid if result.metrics["memory"] <= 0),
        key=lambda result: result.metrics["accuracy"],
    )
    assert best.trial_id in front
    assert grid.get_best_result("latency", "min").trial_id in {
        trial.user_attrs["trial_id"] for trial in searcher.study.trials
    }


def test_the_settings_name_metrics_and_constraints_as_the_searcher_itself_does(declare, tmp_path):
    named = declare(
        OptunaSearch(),
        metric=["accuracy", "latency"],
        mode=["max", "min"],
        constraints={"memory": "<= 0"},
    ).fit()
    shutil.move(tmp_path / "e", tmp_path / "named")
    own = declare(several()).fit()
    assert [result.config for result in named] == [result.config for result in own]
    fronts = [set(grid.pareto()["trial_id"]) for grid in (named, own)]
    assert fronts[0] == fronts[1]
    feasible = {result.trial_id: result.feasible for result in own}
    assert {trial_id for trial_id in feasible if feasible[trial_id]} > fronts[1]
    assert not all(feasible.values())


def test_a_restore_may_change_the_constraints_of_the_settings(declare, tmp_path):
    declared = {"metric": ["accuracy", "latency"], "mode": ["max", "min"], "num_samples": 8}
    declare(OptunaSearch(), constraints={"memory": "<= 0"}, **declared).fit()
    restored = tune.Tuner.restore(
        tmp_path / "e", trade, constraints={"memory": "<= -0.4"}, num_samples=10
    )
    grid = restored.fit()
    assert {result.feasible for result in grid} == {True, False}
    assert all(result.feasible == (result.metrics["memory"] <= -0.4) for result in grid)


def test_several_metrics_come_back_at_a_restore_without_being_given_again(declare, tmp_path):
    declare(OptunaSearch(metric=["accuracy", "latency"], mode=["max", "min"])).fit()
    grid = tune.Tuner.restore(tmp_path / "e", trade, num_samples=16).fit()
    shutil.move(tmp_path / "e", tmp_path / "first")
    whole = declare(
        OptunaSearch(metric=["accuracy", "latency"], mode=["max", "min"]), num_samples=16
    ).fit()
    assert [result.config for result in grid] == [result.config for result in whole]


def test_the_directory_records_the_objectives_of_searcher_or_scheduler(declare, tmp_path):
    declare(
        ConcurrencyLimiter(OptunaSearch(metric=["accuracy", "latency"], mode=["max", "min"]), 2),
        num_samples=2,
    ).fit()
    assert read_stored(tmp_path / "e").experiment.settings.objectives == (
        ("accuracy", "max"),
        ("latency", "min"),
    )
    tune.Tuner.restore(tmp_path / "e", trade, num_samples=3).fit()
    assert read_stored(tmp_path / "e").experiment.settings.objectives == (
        ("accuracy", "max"),
        ("latency", "min"),
    )
    shutil.rmtree(tmp_path / "e")
    declare(
        None, num_samples=2, scheduler=MOASHAScheduler({"accuracy": "max", "memory": "min"})
    ).fit()
    assert read_stored(tmp_path / "e").experiment.settings.objectives == (
        ("accuracy", "max"),
        ("memory", "min"),
    )
    shutil.rmtree(tmp_path / "e")
    declare(OptunaSearch(), num_samples=2, metric="latency", mode="min").fit()
    assert read_stored(tmp_path / "e").experiment.settings.objectives == (("latency", "min"),)


def test_a_metric_beside_several_is_refused_before_anything_is_written(declare, tmp_path):
    with pytest.raises(
        ValueError,
        match=r"metric and mode must be the same everywhere, got metric='accuracy'.* in "
        r"TuneConfig and metric=\['accuracy', 'latency'\].* in OptunaSearch; give all of them",
    ):
        declare(several(), metric="accuracy", mode="max").fit()
    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_may_name_one_metric_beside_several_objectives(declare):
    searcher = several()
    scheduler = ASHAScheduler(
        metric="accuracy", mode="max", max_t=2, grace_period=1, reduction_factor=2, type="stopping"
    )
    grid = declare(searcher, scheduler=scheduler).fit()
    endings = [trial.ending for trial in grid.trials]
    states = [trial.state.name for trial in searcher.study.trials]
    assert TerminationReason.STOPPED_EARLY in endings
    assert [ending is TerminationReason.STOPPED_EARLY for ending in endings] == [
        state == "PRUNED" for state in states
    ]


@pytest.mark.parametrize("is_snapshot_lost", [False, True])
@pytest.mark.parametrize("sampler", [None, "CmaEsSampler"])
def test_a_restored_experiment_goes_on_in_its_stored_study(
    declare, tmp_path, is_snapshot_lost, sampler
):
    if sampler:
        pytest.importorskip("cmaes")

    def searcher():
        made = getattr(optuna.samplers, sampler)(seed=1, n_startup_trials=3) if sampler else None
        return OptunaSearch(
            storage=f"sqlite:///{tmp_path / 'study.db'}", study_name="mine", sampler=made
        )

    def settings(num_samples):
        scheduler = ASHAScheduler(max_t=6, reduction_factor=2, type="promotion")
        return {"metric": "loss", "mode": "min", "num_samples": num_samples, "scheduler": scheduler}

    declare(searcher(), Learner, **settings(5)).fit()
    if is_snapshot_lost:
        shutil.rmtree(tmp_path / "e" / "snapshot", ignore_errors=True)  # with CMA-ES there is none
    grid = tune.Tuner.restore(tmp_path / "e", Learner, search_alg=searcher(), num_samples=8).fit()
    trials = optuna.load_study(
        study_name="mine", storage=f"sqlite:///{tmp_path / 'study.db'}"
    ).trials
    assert [trial.user_attrs["trial_id"] for trial in trials] == [
        result.trial_id for result in grid
    ]
    assert [trial.params["x"] for trial in trials] == [result.config["x"] for result in grid]
    assert all(trial.state.is_finished() for trial in trials)
    shutil.move(tmp_path / "e", tmp_path / "first")
    (tmp_path / "study.db").unlink()
    whole = declare(searcher(), Learner, **settings(5)).fit()
    assert [result.config for result in whole] == [result.config for result in grid][:5]


def test_a_paused_trial_stays_running_in_the_users_storage_and_is_pruned_for_the_sampler(
    declare, tmp_path
):
    seen = []

    class Look(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            stored = {one.user_attrs["trial_id"]: one.state.name for one in study().trials}
            shown = {one.user_attrs["trial_id"]: one.state.name for one in searcher.study.trials}
            seen.extend(
                (stored[one.trial_id], shown[one.trial_id])
                for one in trials
                if one.status == "PAUSED"
            )

    storage = optuna.storages.InMemoryStorage()
    searcher = OptunaSearch(storage=storage, study_name="mine")

    def study():
        return optuna.load_study(study_name="mine", storage=storage)

    scheduler = ASHAScheduler(max_t=6, reduction_factor=2, type="promotion")
    tuner = tune.Tuner(
        Learner,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=8,
            seed=3,
            scheduler=scheduler,
            search_alg=searcher,
        ),
        run_config=tune.RunConfig(
            name="e", storage_path=tmp_path, executor="inline", verbose=0, callbacks=[Look()]
        ),
    )
    tuner.fit()
    assert set(seen) == {("RUNNING", "PRUNED")}
    assert len(seen) > 5


def test_a_grid_that_is_exhausted_ends_the_experiment(declare):
    sampler = optuna.samplers.GridSampler({"x": [0.25, 0.5], "layers": [1, 3]})
    grid = declare(
        OptunaSearch(metric="latency", mode="min", sampler=sampler), num_samples=-1
    ).fit()
    assert sorted((result.config["x"], result.config["layers"]) for result in grid) == [
        (0.25, 1),
        (0.25, 3),
        (0.5, 1),
        (0.5, 3),
    ]


def test_brute_force_through_a_conditional_space_ends_the_experiment(declare):
    def define(trial):
        if trial.suggest_categorical("kind", ["deep", "flat"]) == "deep":
            trial.suggest_int("deep/layers", 1, 3)
        return {"x": 0.5, "layers": 1}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.BruteForceSampler(seed=1)
    grid = declare(
        OptunaSearch(define, "latency", "min", sampler=sampler), space=None, num_samples=50
    ).fit()
    assert sorted(result.config.get("deep", {}).get("layers", 0) for result in grid) == [0, 1, 2, 3]


def test_importances_are_computed_from_the_results_of_any_searcher(declare):
    grid = declare(None, num_samples=40, metric="latency", mode="min").fit()
    assert grid.get_param_importances(evaluator="mdi").index[0] == "layers"
    assert grid.get_param_importances("accuracy", "max").index[0] == "x"
