"""The estimator that searches, compared with scikit-learn's searches."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import tuner as tune
from schedulers import Reason, Scheduler, Stop
from tuner.integration.sklearn import TunerSearchCV

pytestmark = pytest.mark.process  # imports scikit-learn
X, Y = load_iris(return_X_y=True)
SPACE = {"C": [0.01, 0.1, 1.0], "kernel": ["linear", "rbf"]}


def search(estimator=None, space=None, **options):
    return TunerSearchCV(
        estimator or SVC(),
        space or SPACE,
        **{"executor": "inline", "random_state": 0, "cv": 3, **options},
    )


def test_it_has_the_results_of_a_grid_search_in_the_same_format():
    scoring, options = (
        ["accuracy", "f1_macro"],
        {"refit": "accuracy", "cv": KFold(3, shuffle=True, random_state=0)},
    )
    grid = GridSearchCV(SVC(), SPACE, scoring=scoring, return_train_score=True, **options).fit(X, Y)
    found = search(n_iter=6, scoring=scoring, return_train_score=True, **options).fit(X, Y)
    assert found.best_params_ == grid.best_params_
    assert found.best_score_ == pytest.approx(grid.best_score_)
    assert set(grid.cv_results_) == set(found.cv_results_) - {"num_splits", "trial_id"}
    order = [grid.cv_results_["params"].index(params) for params in found.cv_results_["params"]]
    assert sorted(order) == list(range(6))
    for name in (name for name in grid.cv_results_ if "time" not in name and name != "params"):
        assert [found.cv_results_[name][place] for place in range(6)] == [
            grid.cv_results_[name][number] for number in order
        ], name
    assert (found.predict(X) == grid.predict(X)).all()
    assert found.score(X, Y) == grid.score(X, Y)
    assert len(pd.DataFrame(found.cv_results_)) == 6


def test_trials_run_in_processes_and_a_pipeline_is_searched(tmp_path):
    pipeline = make_pipeline(StandardScaler(), SVC())
    space = {
        "svc__C": tune.loguniform(1e-2, 1e2),
        "standardscaler": [StandardScaler(), "passthrough"],
    }
    found = search(pipeline, space, n_iter=4, executor="process", storage_path=tmp_path, n_jobs=2)
    scores = found.fit(X, Y).cv_results_["mean_test_score"]
    assert found.best_score_ == scores.max() > 0.9
    assert not hasattr(pipeline, "classes_")
    copied = pickle.loads(pickle.dumps(found))  # noqa: S301  (our own)
    assert copied.predict(X[:1]) == found.predict(X[:1])

    again = clone(found).fit(X, Y)
    assert again.experiment_path_ == found.experiment_path_
    assert list(again.cv_results_["mean_fit_time"]) == list(found.cv_results_["mean_fit_time"])
    assert clone(found).fit(X[::2], Y[::2]).experiment_path_ != found.experiment_path_


class StopsPoorFirstFolds(Scheduler):
    def on_trial_result(self, trial, result):
        return [Stop(trial.trial_id, Reason("test"))] if result["mean_test_score"] < 0.8 else []


def test_a_scheduler_saves_folds_and_stopped_trials_rank_last():
    found = search(
        space={"C": [1e-6, 1.0], "kernel": ["sigmoid", "linear"]},
        n_iter=4,
        scheduler=StopsPoorFirstFolds(),
    ).fit(X, Y)
    table = pd.DataFrame(found.cv_results_).set_index("rank_test_score").sort_index()
    assert sorted(table["num_splits"]) == [1, 1, 1, 3]
    assert table["num_splits"].iloc[0] == 3
    assert found.best_params_ == {"C": 1.0, "kernel": "linear"}
    assert np.isnan(table["split1_test_score"].iloc[-1])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_a_configuration_that_cannot_be_fitted_is_the_worst():
    found = search(space={"C": [-1.0, 1.0]}, n_iter=2).fit(X, Y)
    assert found.best_params_ == {"C": 1.0}
    assert np.isnan(found.cv_results_["mean_test_score"]).sum() == 1
    with pytest.raises(
        ValueError,
        match="all fits have failed, the first with InvalidParameterError: The 'C' parameter",
    ):
        search(space={"C": [-1.0, -2.0]}, n_iter=2).fit(X, Y)


def test_a_scorer_may_be_a_function_that_cannot_be_pickled():
    found = search(space={"C": [0.1, 1.0]}, n_iter=2, scoring=lambda fitted, x, y: -fitted.C).fit(
        X, Y
    )
    assert found.best_params_ == {"C": 0.1}
    assert found.score(X, Y) == -0.1


def test_it_can_be_cross_validated_itself():
    scores = cross_val_score(search(space={"C": [0.1, 1.0]}, n_iter=2, cv=2), X, Y, cv=2)
    assert scores.min() > 0.9


def test_without_refit_there_is_no_best_estimator():
    found = search(space={"C": [0.1, 1.0]}, n_iter=2, refit=False).fit(X, Y)
    assert found.best_params_["C"] in (0.1, 1.0)
    assert not hasattr(found, "predict")
    assert not hasattr(found, "best_estimator_")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"space": {"C": 1.0}},
            TypeError,
            "'C' must be a domain or a list of values, got 1.0",
        ),
        ({"space": [{"C": [1.0]}]}, TypeError, "param_distributions must be a dictionary"),
        (
            {"scoring": ["accuracy"], "refit": True},
            ValueError,
            "refit must name the scorer that decides, one of 'accuracy', got True",
        ),
    ],
)
def test_bad_arguments_are_refused_before_any_trial(given, error, message):
    with pytest.raises(error, match=message):
        search(**given).fit(X, Y)


def test_distributions_of_scipy_are_refused():
    scipy_stats = pytest.importorskip("scipy.stats")
    with pytest.raises(TypeError, match=r"words such as tune\.loguniform"):
        search(space={"C": scipy_stats.uniform(0, 1)}).fit(X, Y)
