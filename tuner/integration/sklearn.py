"""scikit-learn: training by steps, cross-validation by folds, and an estimator that searches."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tuner.execution.session import report
from tuner.storage.checkpoints import Checkpoint

from .reporting import explain_missing, latest_file, report_saved, saved_file

try:
    from sklearn.exceptions import ConvergenceWarning
except ModuleNotFoundError as error:
    explain_missing(error, "sklearn", "scikit-learn")
    raise

from .folds import FOLDS, Folds, check_splitter, scorer_of, scores_of, splits_of
from .growing import State, grower
from .sklearn_search import TunerSearchCV

__all__ = ["TunerSearchCV", "cross_validate_and_report", "fit_and_report", "get_model"]

ESTIMATOR = "estimator.pkl"


def fit_and_report(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    validation: tuple[Any, Any],
    num_steps: int,
    scoring: Any = None,
    step_size: int = 1,
    classes: Any = None,
    grows: str | None = None,
    checkpoint_frequency: int = 1,
    **fit_params: Any,
) -> Any:
    """Train an estimator step by step; after each step report its scores, and save it.

    A step is a call of ``partial_fit`` with all data, or for estimators without it a call of
    ``fit`` with ``warm_start`` for `step_size` more trees or iterations. A trial that was paused or
    failed continues from its checkpoint, but with the parameters of `estimator`, so that population
    based training can change them.

    Args:
        estimator: The estimator, which is trained in place. It must have ``partial_fit``, or
            ``warm_start`` and ``n_estimators`` or ``max_iter``.
        X: The training data.
        y: Its targets; None if there are none.
        validation: Data and targets with which the scores are computed.
        num_steps: The total number of steps.
        scoring: A scorer, or its name; several as a list or dictionary; None for the estimator's
            own. A larger score is better.
        step_size: By how much each step increases ``n_estimators`` or ``max_iter``.
        classes: All classes, if `y` may lack some; by default those of `y`.
        grows: Name of the parameter that counts all trees or iterations so far; None, the default,
            to detect it.
        checkpoint_frequency: After how many steps the estimator is saved; 0 for never.
        **fit_params: Passed on to ``partial_fit`` or ``fit``, e.g. ``sample_weight``.

    Returns:
        The estimator. The reports contain ``"score"``, or the scores by name.

    Raises:
        TypeError: If the estimator cannot be trained by steps.
        ValueError: If a number is out of range.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import SGDClassifier
        >>> import tuner as tune
        >>> X, y = load_iris(return_X_y=True)
        >>> def train(config):
        ...     estimator = SGDClassifier(alpha=config["alpha"], random_state=0)
        ...     fit_and_report(estimator, X, y, validation=(X, y), num_steps=4)
        >>> run_config = tune.RunConfig(executor="inline", verbose=0)
        >>> result = tune.Tuner(train, param_space={"alpha": 0.01}, run_config=run_config).fit()[0]
        >>> result.metrics["training_iteration"], result.metrics["score"] > 0.6
        (4, True)
    """
    _check_counts(
        num_steps=(num_steps, 1),
        step_size=(step_size, 1),
        checkpoint_frequency=(checkpoint_frequency, 0),
    )
    step = grower(
        estimator,
        step_size=step_size,
        grows=grows,
        classes=np.unique(y) if classes is None and y is not None else classes,
    )
    for done in range(State.load(latest_file(ESTIMATOR), estimator) + 1, num_steps + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a step is not meant to converge
            step(X, y, done, fit_params)
        scores = scores_of(scorer_of(estimator, scoring)(estimator, *validation))
        _report(
            scores,
            State(estimator, done)
            if checkpoint_frequency and done % checkpoint_frequency == 0
            else None,
        )
    return estimator


def get_model(checkpoint: Checkpoint) -> Any:
    """Return the estimator that `fit_and_report` has saved in a checkpoint.

    It is unpickled, which can run any code: open only checkpoints whose origin you trust.

    Args:
        checkpoint: The checkpoint.

    Raises:
        TypeError: If there is no checkpoint.
        FileNotFoundError: If it was not written by `fit_and_report`; `cross_validate_and_report`
            saves scores, and no estimator.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import SGDClassifier
        >>> import tuner as tune
        >>> X, y = load_iris(return_X_y=True)
        >>> def train(config):
        ...     fit_and_report(SGDClassifier(random_state=0), X, y, validation=(X, y), num_steps=3)
        >>> tune_config = tune.TuneConfig(metric="score", mode="max")
        >>> run_config = tune.RunConfig(executor="inline", verbose=0)
        >>> best = tune.Tuner(train, tune_config=tune_config, run_config=run_config).fit()[0]
        >>> get_model(best.best_checkpoint).predict(X).shape
        (150,)
    """
    with saved_file(checkpoint, ESTIMATOR) as path:
        return State.read(path).estimator


def _check_counts(**counts: tuple[int, int]) -> None:
    for name, (value, least) in counts.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")


def _report(scores: dict[str, float], state: State | None) -> None:
    if state:
        report_saved(scores, lambda directory: state.save(directory / ESTIMATOR))
    else:
        report(scores)


def cross_validate_and_report(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    cv: Any = None,
    scoring: Any = None,
    groups: Any = None,
    fit_params: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Cross-validate an estimator, with a report after each fold, at which a scheduler may stop it.

    Each fold counts as one ``training_iteration``. The results of the folds are saved with each
    report: a trial that was paused or failed continues with the next fold.

    Args:
        estimator: The estimator; a clone of it is fitted for each fold.
        X: The data.
        y: Its targets; None if there are none.
        cv: As for scikit-learn's ``cross_validate``: a number of folds, a splitter or splits. None
            for five folds.
        scoring: A scorer, or its name; several as a list or dictionary; None for the estimator's
            own. A larger score is better.
        groups: Passed on to the splitter.
        fit_params: Passed on to ``fit``; arrays with a value for each sample are split like the
            data.

    Returns:
        The last report: ``"mean_test_score"`` and ``"std_test_score"`` over the folds so far,
        ``"split0_test_score"`` and so on, and the mean times in seconds, ``"mean_fit_time"`` and
        ``"mean_score_time"``. With several scorers, their names replace ``score``.

    Raises:
        ValueError: If the splits are random without a seed: trials would be compared on different
            folds.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> import tuner as tune
        >>> X, y = load_iris(return_X_y=True)
        >>> def train(config):
        ...     cross_validate_and_report(KNeighborsClassifier(config["k"]), X, y, cv=3)
        >>> run_config = tune.RunConfig(executor="inline", verbose=0)
        >>> result = tune.Tuner(train, param_space={"k": 5}, run_config=run_config).fit()[0]
        >>> result.metrics["training_iteration"], result.metrics["mean_test_score"] > 0.9
        (3, True)
    """
    check_splitter(cv)
    splits = splits_of(estimator, X, y, cv=cv, groups=groups)
    return Folds(scoring=scoring, fit_params=fit_params or {}, checkpoint=FOLDS).run(
        estimator, X, y, splits
    )
