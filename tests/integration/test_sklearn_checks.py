"""The estimator that searches passes scikit-learn's checks of estimators."""

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from tuner.integration.sklearn import TunerSearchCV


def expected_to_fail(estimator):
    reason = "Ridge gives no warning of the shape of y, and neither does a search over it"
    return {"check_supervised_y_2d": reason} if isinstance(estimator.estimator, Ridge) else {}


# Of scikit-learn, about data that a check has made.
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@parametrize_with_checks(
    [
        TunerSearchCV(
            Ridge(), {"alpha": [0.1, 1.0]}, n_iter=2, cv=2, executor="inline", error_score="raise"
        ),
        TunerSearchCV(
            LogisticRegression(),
            {"C": [0.1, 1.0]},
            n_iter=2,
            cv=2,
            executor="inline",
            error_score="raise",
        ),
    ],
    expected_failed_checks=expected_to_fail,
)
def test_it_passes_the_estimator_checks_of_scikit_learn(estimator, check):
    check(estimator)
