"""An experiment's directory as one of Optuna's storages."""

import math

import pytest

import tuner as tune
from schedulers import FIFOScheduler
from schedulers.decisions import Reason, Stop
from searchers import BasicVariantGenerator

pytest.importorskip("optuna")

import optuna
from optuna.trial import TrialState

from searchers.libraries.optuna.search import OptunaSearch
from tuner.analysis.optuna_storage import ExperimentStorage

pytestmark = pytest.mark.process


def train(config):
    for step in range(1, config["length"] + 1):
        if config["kind"] == "fails" and step == 3:
            raise ValueError("half-way")
        tune.report({"loss": math.nan if config["kind"] == "nan" else abs(step - 2.5)})


def run(tmp_path, space, **more):
    given = {
        "metric": "loss",
        "mode": "min",
        "scheduler": FIFOScheduler(),
        "search_alg": BasicVariantGenerator(),
    } | more
    config = tune.RunConfig(
        name="seen", storage_path=tmp_path, verbose=0, executor="inline", resources={"cpu": 1}
    )
    tune.Tuner(
        train, param_space=space, tune_config=tune.TuneConfig(**given), run_config=config
    ).fit()
    return tmp_path / "seen"


def test_trials_have_the_nearest_state_and_their_newest_value(tmp_path):
    path = run(tmp_path, {"length": 4, "kind": tune.grid_search(["plain", "fails", "nan"])})
    trials = ExperimentStorage(path).get_all_trials(0)
    assert [trial.state for trial in trials] == [
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.FAIL,
    ]
    assert [trial.value for trial in trials] == [1.5, None, None]
    assert trials[0].intermediate_values == {1: 1.5, 2: 0.5, 3: 0.5, 4: 1.5}
    assert [trial.params for trial in trials] == [
        {"kind": "'plain'"},
        {"kind": "'fails'"},
        {"kind": "'nan'"},
    ]
    assert trials[1].user_attrs["error"] == "ValueError: half-way"


def test_a_study_is_loaded_from_it_and_its_best_trial_is_ours(tmp_path):
    path = run(tmp_path, {"length": tune.grid_search([1, 2, 5]), "kind": "plain"})
    study = optuna.load_study(study_name="seen", storage=ExperimentStorage(path))
    assert (study.best_value, study.best_trial.user_attrs["trial_id"], study.metric_names) == (
        0.5,
        "t00001",
        ["loss"],
    )
    assert study.user_attrs == {"path": str(path)}


def test_later_results_are_seen_and_unchanged_journals_are_not_read_again(tmp_path):
    storage = ExperimentStorage(run(tmp_path, {"length": 3, "kind": "plain"}))
    before = storage.get_all_trials(0)
    assert storage.get_all_trials(0)[0] is before[0]
    tune.Tuner.restore(tmp_path / "seen", train, num_samples=3, verbose=0).fit()
    assert len(storage.get_all_trials(0)) == 3


def test_long_curves_are_thinned_and_keep_their_end(tmp_path):
    (trial,) = ExperimentStorage(run(tmp_path, {"length": 1_001, "kind": "plain"})).get_all_trials(
        0
    )
    assert len(trial.intermediate_values) <= 200
    assert max(trial.intermediate_values) == 1_001


def test_nothing_can_be_changed(tmp_path):
    storage = ExperimentStorage(run(tmp_path, {"length": 1, "kind": "plain"}))
    for change in (
        lambda: optuna.create_study(storage=storage),
        lambda: optuna.delete_study(study_name="seen", storage=storage),
        lambda: storage.set_trial_user_attr(0, "note", "mine"),
    ):
        with pytest.raises(NotImplementedError, match="is read-only"):
            change()


def test_without_an_objective_one_has_to_be_named(tmp_path):
    path = run(tmp_path, {"length": 2, "kind": "plain"}, metric=None, mode=None)
    with pytest.raises(ValueError, match="does not say what is optimised; name the metric"):
        ExperimentStorage(path)
    assert ExperimentStorage(path, "loss", "max").get_all_trials(0)[0].value == 0.5


class StopsAllButOne(FIFOScheduler):
    """Stops every trial but the last one after its first result."""

    def on_trial_result(self, trial, result):
        return (
            [Stop(trial.trial_id, Reason("test", {}))]
            if result["training_iteration"] == 1 and trial.config["x"] < 23
            else []
        )


def train_two(config):
    for step in (1, 2):
        tune.report({"loss": config["x"] + step, "size": -config["x"], "other": 0})


def stopped_early(tmp_path, **more):
    space = {"x": tune.grid_search(range(24)), "fixed": 1}
    given = {"scheduler": StopsAllButOne(), "metric": "loss", "mode": "min"} | more
    config = tune.RunConfig(
        name="cut", storage_path=tmp_path, verbose=0, executor="inline", resources={"cpu": 1}
    )
    tuned = tune.TuneConfig(**({"search_alg": BasicVariantGenerator()} | given))
    return tune.Tuner(train_two, param_space=space, tune_config=tuned, run_config=config).fit()


def test_the_best_trial_is_that_of_the_results_although_it_was_stopped_early(tmp_path):
    grid = stopped_early(tmp_path)
    study = optuna.load_study(study_name="cut", storage=ExperimentStorage(tmp_path / "cut"))
    assert [trial.state for trial in study.trials].count(TrialState.COMPLETE) == 1
    best = grid.get_best_result()
    assert (study.best_trial.user_attrs["trial_id"], study.best_value) == (
        best.trial_id,
        best.metrics["loss"],
    )


def test_importances_count_trials_that_were_stopped_early(tmp_path):
    grid = stopped_early(tmp_path)
    (found,) = ExperimentStorage(tmp_path / "cut").param_importances()
    assert (found.num_trials, found.iteration) == (24, 1)
    assert dict(found.shares) == dict(grid.get_param_importances())


def test_several_objectives_are_several_directions_with_the_newest_values(tmp_path):
    searcher = OptunaSearch(metric=["loss", "size"], mode=["min", "max"], seed=1)
    config = tune.RunConfig(
        name="two", storage_path=tmp_path, verbose=0, executor="inline", resources={"cpu": 1}
    )
    tuned = tune.TuneConfig(search_alg=searcher, scheduler=StopsAllButOne(), num_samples=4)
    grid = tune.Tuner(
        train_two, param_space={"x": tune.uniform(0, 30)}, tune_config=tuned, run_config=config
    ).fit()
    storage = ExperimentStorage(tmp_path / "two")
    study = optuna.load_study(study_name="two", storage=storage)
    assert ([direction.name for direction in study.directions], study.metric_names) == (
        ["MINIMIZE", "MAXIMIZE"],
        ["loss", "size"],
    )
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert [trial.values for trial in study.trials] == [
        [result.metrics["loss"], result.metrics["size"]] for result in grid
    ]
    assert {trial.user_attrs["trial_id"] for trial in study.best_trials} == {
        result.trial_id for result in grid.get_best_results()
    }
    with pytest.raises(RuntimeError, match="best trial"):
        storage.get_best_trial(0)
    with pytest.raises(
        ValueError,
        match="mode 'min' needs a metric, as the experiment has 2 objectives: loss, size",
    ):
        ExperimentStorage(tmp_path / "two", mode="min")
    single = ExperimentStorage(tmp_path / "two", "size")
    assert single.get_study_directions(0) == [optuna.study.StudyDirection.MAXIMIZE]


def test_constraints_are_where_the_dashboard_looks_for_them(tmp_path):
    def sized(config):
        tune.report({"loss": 1 / config["width"], "size_mb": config["width"]})
        if config["width"] == 9:
            tune.report({"loss": 0.0, "size_mb": math.nan})

    tune.Tuner(
        sized,
        param_space={"width": tune.grid_search([8, 9, 4, 2])},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", constraints={"size_mb": "<= 4"}, search_alg="random"
        ),
        run_config=tune.RunConfig(
            name="limited", storage_path=tmp_path, verbose=0, executor="inline"
        ),
    ).fit()
    storage = ExperimentStorage(tmp_path / "limited")
    missed = [trial.system_attrs["constraints"] for trial in storage.get_all_trials(0)]
    assert missed[0] == [4]
    assert math.isfinite(missed[1][0])
    assert missed[1][0] > 4
    assert missed[2:] == [[0], [0]]
    study = optuna.load_study(study_name="limited", storage=storage)
    assert study.best_trial.number == 2
