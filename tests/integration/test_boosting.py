"""XGBoost and LightGBM: rounds are reported, models saved, and training resumed."""

import pytest

import tuner as tune

pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")

import lightgbm
import numpy as np
import xgboost

from tuner.integration import lightgbm as for_lightgbm
from tuner.integration import xgboost as for_xgboost

X = np.random.default_rng(0).random((64, 4))
Y = (X.sum(1) > 2).astype(int)
QUIET = {
    "lightgbm": {"objective": "binary", "num_threads": 1, "verbosity": -1},
    "xgboost": {"objective": "binary:logistic", "nthread": 1},
}
MODULES = {"lightgbm": for_lightgbm, "xgboost": for_xgboost}


def boost(library, callback, rounds, **options):
    """Train with a library, and return the model."""
    if library == "xgboost":
        data = xgboost.DMatrix(X, Y)
        return xgboost.train(
            QUIET[library],
            data,
            evals=[(data, "train")],
            callbacks=[callback],
            verbose_eval=False,
            **rounds,
            **options,
        )
    data = lightgbm.Dataset(X, Y)
    return lightgbm.train(
        QUIET[library],
        data,
        valid_sets=[data],
        valid_names=["train"],
        callbacks=[callback],
        **rounds,
        **options,
    )


def num_rounds(model):
    return (
        model.num_boosted_rounds()
        if isinstance(model, xgboost.Booster)
        else model.current_iteration()
    )


@pytest.fixture
def run(tmp_path):
    """Return a function that runs one trial in this process and returns its result."""

    def run(train):
        def trial(config):
            train(config)

        run_config = tune.RunConfig(storage_path=tmp_path, verbose=0, executor="inline")
        result = tune.Tuner(trial, run_config=run_config).fit()[0]
        assert result.error is None
        return result

    return run


@pytest.fixture(scope="module")
def boosted(run_training):
    return run_training(
        "boosting_training",
        decisions=("go", "pause", "stop"),
        key="library",
        library=tune.grid_search(list(MODULES)),
    )


@pytest.mark.parametrize("library", MODULES)
def test_a_paused_trial_continues_with_the_remaining_rounds(library, boosted, column):
    go, pause, stop = (boosted[library, decision] for decision in ("go", "pause", "stop"))
    assert column(go, "training_iteration") == column(pause, "training_iteration") == [1, 2, 3, 4]
    assert column(go, "loss") == pytest.approx(column(pause, "loss"), rel=1e-6)
    assert column(stop, "training_iteration") == [1, 2]
    get_model = MODULES[library].TuneReportCheckpointCallback.get_model
    assert [num_rounds(get_model(result.checkpoint)) for result in (go, pause, stop)] == [4, 4, 2]


@pytest.mark.parametrize("library", MODULES)
def test_models_are_saved_every_so_many_rounds_and_at_the_end(library, run, column):
    callback = MODULES[library].TuneReportCheckpointCallback
    result = run(
        lambda config: boost(
            library, callback(frequency=2, filename="m.json"), {"num_boost_round": 3}
        )
    )
    saved = [isinstance(name, str) for name in column(result, "checkpoint_dir_name")]
    # XGBoost says that training is over when the last round has been reported.
    assert saved == ([False, True, False, True] if library == "xgboost" else [False, True, True])
    assert num_rounds(callback.get_model(result.checkpoint, "m.json")) == 3


@pytest.mark.parametrize("library", MODULES)
def test_the_report_callbacks_save_nothing(library, run, column):
    callback = MODULES[library].TuneReportCallback
    result = run(
        lambda config: boost(
            library,
            callback(results_postprocessing_fn=lambda found: {"n": len(found)}),
            {"num_boost_round": 3},
        )
    )
    assert column(result, "n") == [1, 1, 1]
    assert result.checkpoint is None


@pytest.mark.parametrize("library", MODULES)
def test_cross_validations_are_reported(library, run, column):
    def train(config):
        callback = MODULES[library].TuneReportCheckpointCallback()
        if library == "xgboost":
            xgboost.cv(QUIET[library], xgboost.DMatrix(X, Y), 2, nfold=2, callbacks=[callback])
        else:
            lightgbm.cv(QUIET[library], lightgbm.Dataset(X, Y), 2, nfold=2, callbacks=[callback])

    result = run(train)
    means = {"xgboost": "test-logloss-mean", "lightgbm": "valid-binary_logloss-mean"}
    assert len(column(result, means[library])) == 2
    if library == "lightgbm":
        model = for_lightgbm.TuneReportCheckpointCallback.get_model(result.checkpoint)
        assert len(model.boosters) == 2


@pytest.mark.parametrize("library", MODULES)
def test_a_complete_training_is_not_continued(library, run):
    module, silent = (
        MODULES[library],
        {"xgboost": xgboost.callback.TrainingCallback(), "lightgbm": lambda env: None},
    )
    model = boost(library, silent[library], {"num_boost_round": 3})

    def train(config):
        with tune.checkpoint_dir() as directory:
            model.save_model(f"{directory}/{module.MODEL}")
            tune.report({}, checkpoint=tune.Checkpoint.from_directory(directory))
        again = boost(library, module.TuneReportCheckpointCallback(), module.resume(3))
        tune.report({"rounds": num_rounds(again)})

    result = run(train)
    assert result.metrics["rounds"] == 3
    assert result.metrics["training_iteration"] == 2


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_bad_arguments_are_refused(module):
    with pytest.raises(ValueError, match="frequency must be at least 0"):
        module.TuneReportCheckpointCallback(frequency=-1)
    with pytest.raises(ValueError, match="filename must name a file"):
        module.TuneReportCheckpointCallback(filename="../model")
    with pytest.raises(ValueError, match="num_boost_round must be at least 1"):
        module.resume(0)
    with pytest.raises(TypeError, match="metrics must be names"):
        module.TuneReportCheckpointCallback(metrics=5)


@pytest.mark.parametrize("library", MODULES)
def test_a_missing_metric_is_named_with_the_available_ones(library):
    with pytest.raises(ValueError, match=r"no metric 'auc' here, only 'train-\w+'"):
        boost(library, MODULES[library].TuneReportCheckpointCallback("auc"), {"num_boost_round": 1})
