"""Training scikit-learn's estimators by steps, and cross-validating them by folds."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import KFold, ShuffleSplit, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import tuner as tune
from tuner.integration.sklearn import cross_validate_and_report, fit_and_report

pytestmark = pytest.mark.process  # imports scikit-learn
X, Y = load_iris(return_X_y=True)


@pytest.fixture
def run(tmp_path):
    """Return a function that runs one trial in this process and returns its result."""

    def run(train, failures=0, space=None):
        failure = tune.FailureConfig(max_failures=failures)
        run_config = tune.RunConfig(
            storage_path=tmp_path, verbose=0, executor="inline", failure_config=failure
        )
        result = tune.Tuner(train, param_space=space, run_config=run_config).fit()[0]
        assert result.error is None
        return result

    return run


def size(estimator):
    """Return how much an estimator has been trained."""
    if isinstance(estimator, RandomForestClassifier):
        return len(estimator.estimators_)
    return (
        int(np.max(estimator.n_iter_))
        if hasattr(estimator, "n_iter_")
        else int(estimator.class_count_.sum())
    )


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda: RandomForestClassifier(random_state=0, n_jobs=1), [2, 4, 6]),
        (HistGradientBoostingClassifier, [2, 4, 6]),
        (lambda: SGDClassifier(random_state=0), [1, 1, 1]),
        (GaussianNB, [150, 300, 450]),
        (LogisticRegression, [2, 2, 2]),
    ],
)
def test_estimators_are_trained_by_steps(make, sizes, run, column):
    seen = []

    def train(config):
        estimator = make()
        scorer = lambda fitted, x, y: seen.append(size(fitted)) or fitted.score(x, y)  # noqa: E731
        assert (
            fit_and_report(
                estimator, X, Y, validation=(X, Y), num_steps=3, step_size=2, scoring=scorer
            )
            is estimator
        )

    result = run(train)
    assert seen == sizes
    assert column(result, "training_iteration") == [1, 2, 3]
    assert column(result, "score")[-1] > 0.5


def test_a_training_continues_from_its_checkpoint_with_current_parameters(run, column):
    begun = []

    def train(config):
        begun.append(tune.get_checkpoint() is not None)
        forest = RandomForestClassifier(
            max_depth=1 if len(begun) == 1 else 2, random_state=0, n_jobs=1
        )

        def scorer(fitted, x, y):
            depths = [tree.get_depth() for tree in fitted.estimators_]
            if len(begun) == 1 and len(depths) == 3:
                raise RuntimeError("in the midst of training")
            return {"shallow": depths.count(1), "deep": depths.count(2)}

        fit_and_report(forest, X, Y, validation=(X, Y), num_steps=4, scoring=scorer)

    result = run(train, failures=1)
    assert begun == [False, True]
    assert column(result, "shallow") == [1, 2, 2, 2]
    assert column(result, "deep") == [0, 0, 1, 2]


def test_an_estimator_without_steps_is_refused():
    with pytest.raises(
        TypeError, match=r"SVC cannot be trained by steps.*use cross_validate_and_report"
    ):
        fit_and_report(SVC(), X, Y, validation=(X, Y), num_steps=1)
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        fit_and_report(GaussianNB(), X, Y, validation=(X, Y), num_steps=0)


def test_folds_are_reported_as_scikit_learn_computes_them(run, column):
    expected = cross_validate(KNeighborsClassifier(), X, Y, cv=3, scoring=["accuracy", "f1_macro"])

    def train(config):
        cross_validate_and_report(
            KNeighborsClassifier(), X, Y, cv=3, scoring=["accuracy", "f1_macro"]
        )

    result = run(train)
    assert [result.metrics[f"split{fold}_test_f1_macro"] for fold in range(3)] == list(
        expected["test_f1_macro"]
    )
    scores = expected["test_accuracy"]
    assert column(result, "mean_test_accuracy") == pytest.approx(
        [scores[:fold].mean() for fold in (1, 2, 3)]
    )
    assert result.metrics["std_test_accuracy"] == pytest.approx(scores.std())
    assert len(json.loads(Path(result.checkpoint.path, "folds.json").read_text())) == 3


def test_a_retry_continues_with_the_next_fold(run, column):
    fits = []

    class Fragile(KNeighborsClassifier):
        def fit(self, x, y):
            fits.append(len(x))
            if len(fits) == 2:
                raise RuntimeError("in the midst of the second fold")
            return super().fit(x, y)

    def train(config):
        cross_validate_and_report(Fragile(), X, Y, cv=3)

    result = run(train, failures=1)
    assert len(fits) == 4
    assert column(result, "training_iteration") == [1, 2, 3]


@pytest.mark.parametrize(
    "cv",
    [
        KFold(3, shuffle=True),
        ShuffleSplit(3),
        ShuffleSplit(3, random_state=np.random.RandomState(0)),
    ],
)
def test_folds_that_differ_from_trial_to_trial_are_refused(cv):
    with pytest.raises(
        ValueError, match=r"cv must split the same way in each trial.*random_state=0"
    ):
        cross_validate_and_report(GaussianNB(), X, Y, cv=cv)
