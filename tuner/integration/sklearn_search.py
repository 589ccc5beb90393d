"""A scikit-learn estimator that searches for parameters, in place of `RandomizedSearchCV`."""

from __future__ import annotations

import builtins
import contextlib
import copy
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, final

import joblib
import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from schedulers.scheduler import Scheduler
from searchers.searcher import Searcher
from searchers.space import choice
from searchers.space.domains import Domain
from tuner.analysis import Result, ResultGrid
from tuner.execution.trainable import with_parameters
from tuner.spec.config import FailureConfig, RunConfig, TuneConfig
from tuner.tuner import Tuner

from .cv_results import ERROR, cv_results
from .folds import FOLDS, Folds, Splits, scorer_of, splits_of

MOST_VERBOSE = 3
"""Highest level of `RunConfig.verbose`; users of scikit-learn may set higher ones."""


def _has(name: str) -> Callable[[Any], bool]:
    """Return a check for `available_if`: whether the estimator has this attribute."""

    def check(search: TunerSearchCV) -> bool:
        if not search.refit:
            raise AttributeError(
                f"{name} needs the best estimator, which refit=False leaves out; set "
                "refit=True, or fit one with best_params_"
            )
        # Raises an AttributeError that names the estimator. Before `fit`, the given one is asked.
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return check


def _delegated(name: str, summary: str) -> Any:
    """Return a method that calls the best estimator, and exists if the estimator has it."""

    def method(self: TunerSearchCV, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X)

    method.__name__, method.__doc__ = name, summary
    return available_if(_has(name))(method)


@final
class TunerSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Searches for the parameters with which an estimator does best in cross-validation.

    Each configuration is a trial, which evaluates one fold after the other and reports after each:
    a scheduler may stop it in between, so that poor configurations cost only one or two folds.
    Trials run in parallel in their own processes.

    Args:
        estimator: The estimator; it is cloned.
        param_distributions: The search space by parameter: domains such as
            ``tune.loguniform(1e-4, 1)``, or lists of values. Parameters of nested estimators are
            named ``"step__parameter"``.
        n_iter: How many configurations are tried, none of them twice.
        scoring: A scorer, or its name; several as a list or dictionary; None for the estimator's
            own. A larger score is better.
        n_jobs: How many trials run at once; None or -1 for the number of CPUs.
        refit: Whether the best estimator is fitted again with all data; with several scorers, the
            name of the one that decides.
        cv: As for scikit-learn: a number of folds, a splitter or splits. None for five folds.
        verbose: 0, the default, prints nothing; 1 shows progress.
        random_state: Seed of the search, a number or a generator of NumPy; None draws one.
        error_score: Score of a fold whose fit has failed, NaN by default, which is worse than any
            other; ``"raise"`` ends the search.
        return_train_score: Whether scores of the training data are computed as well.
        scheduler: Stops trials between folds; see `schedulers`. Its time is counted in folds:
            ``ASHAScheduler(max_t=5, grace_period=1)``.
        search_alg: Proposes configurations; see `searchers`. None for `searchers.AutoSearch`, or
            for random search if a scheduler is given.
        time_budget_s: The search stops after this many seconds; None for no limit.
        storage_path: Where the experiment's directory is created and kept. If `fit` is called again
            for the same estimator and data, an interrupted search is continued, and a complete one
            is not run again. None, the default, for a temporary directory.
        executor: ``"process"``, or ``"inline"`` for trials in this process, one at a time.

    Attributes:
        cv_results_: A dictionary of arrays, as in `RandomizedSearchCV`, for a data frame; also
            ``num_splits``, how many folds each trial has evaluated, and ``trial_id``. Trials that
            were stopped early rank behind complete ones.
        best_index_: Index of the best trial in `cv_results_`.
        best_params_: Its parameters.
        best_score_: Its mean score; larger is better.
        best_estimator_: The estimator with these parameters, fitted with all data.
        refit_time_: How many seconds that took.
        scorer_: The scorer, or several by name.
        n_splits_: How many folds there are.
        multimetric_: Whether there are several scorers.
        experiment_path_: Directory of the experiment; None if it was temporary.

    Raises:
        ValueError: In `fit`, if an argument is out of range, or every fit has failed.
        TypeError: In `fit`, if a parameter's distribution is neither a domain nor a list.
        Exception: In `fit`, the error of a fit if `error_score` is ``"raise"``; a `TrialFailed` if
            its type is not one of Python's.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.svm import SVC
        >>> from searchers.space import loguniform
        >>> space = {"C": loguniform(1e-2, 1e2), "kernel": ["rbf", "linear"]}
        >>> search = TunerSearchCV(SVC(), space, cv=3, random_state=0, executor="inline")
        >>> search.fit(*load_iris(return_X_y=True)).best_score_ > 0.95
        True
        >>> len(search.cv_results_["params"]), sorted(search.best_params_)
        (10, ['C', 'kernel'])

    Departures:
        `RandomizedSearchCV` accepts distributions of SciPy and lists of dictionaries; here domains
        and conditional spaces replace them. It routes metadata to scorers and splitters; here
        `groups` goes to the splitter and other arguments of `fit` to the estimator. There,
        ``n_jobs=None`` means one.
    """

    # Only assignments, as scikit-learn requires: `clone` compares the attributes by identity.
    def __init__(
        self,
        estimator: Any,
        param_distributions: Mapping[str, Any],
        *,
        n_iter: int = 10,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool | str = True,
        cv: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        error_score: float | Literal["raise"] = np.nan,
        return_train_score: bool = False,
        scheduler: Scheduler | None = None,
        search_alg: Searcher | None = None,
        time_budget_s: float | None = None,
        storage_path: str | Path | None = None,
        executor: Literal["process", "inline"] = "process",
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.refit = refit
        self.cv = cv
        self.verbose = verbose
        self.random_state = random_state
        self.error_score = error_score
        self.return_train_score = return_train_score
        self.scheduler = scheduler
        self.search_alg = search_alg
        self.time_budget_s = time_budget_s
        self.storage_path = storage_path
        self.executor = executor

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, **fit_params: Any) -> TunerSearchCV:
        """Search, and fit the best estimator.

        Args:
            X: The data.
            y: Its targets; None if there are none.
            groups: Passed on to the splitter.
            **fit_params: Passed on to the estimator's ``fit``; arrays with a value for each sample
                are split like the data.
        """
        X, y, groups = indexable(X, y, groups)
        scorer = scorer_of(self.estimator, self.scoring)
        self.multimetric_ = isinstance(self.scoring, list | tuple | set | frozenset | Mapping)
        ranked = self._ranked_score()
        splits = splits_of(self.estimator, X, y, cv=self.cv, groups=groups)
        data = (self.estimator, X, y, splits, self._folds(fit_params))
        with self._experiment(data, ranked) as grid:
            _refuse_failure(grid, self.error_score)
            self.cv_results_ = cv_results(grid, len(splits), self.return_train_score)
            self.experiment_path_ = grid.experiment_path if self.storage_path is not None else None
        self.scorer_ = scorer
        self.n_splits_ = len(splits)
        self.best_index_ = int(self.cv_results_[f"rank_test_{ranked}"].argmin())
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.best_score_ = float(self.cv_results_[f"mean_test_{ranked}"][self.best_index_])
        if self.refit:
            self._fit_best(X, y, fit_params)
        return self

    def _fit_best(self, X: Any, y: Any, fit_params: Mapping[str, Any]) -> None:
        began_s = time.monotonic()
        self.best_estimator_ = _with(self.estimator, self.best_params_).fit(
            *((X,) if y is None else (X, y)), **fit_params
        )
        self.refit_time_ = time.monotonic() - began_s

    def _ranked_score(self) -> str:
        """Return the name of the score that decides."""
        if not self.multimetric_:
            return "score"
        if self.refit not in self.scoring:
            raise ValueError(
                "refit must name the scorer that decides, one of "
                f"{', '.join(map(repr, self.scoring))}, got {self.refit!r}"
            )
        return str(self.refit)

    def _folds(self, fit_params: Mapping[str, Any]) -> Folds:
        scoring = (
            sorted(self.scoring) if isinstance(self.scoring, set | frozenset) else self.scoring
        )
        return Folds(scoring, fit_params, self.return_train_score, self.error_score, FOLDS)

    @contextlib.contextmanager
    def _experiment(
        self, data: tuple[Any, Any, Any, Splits, Folds], ranked: str
    ) -> Iterator[ResultGrid]:
        with (
            tempfile.TemporaryDirectory()
            if self.storage_path is None
            else contextlib.nullcontext(self.storage_path) as directory
        ):
            yield Tuner(
                with_parameters(_evaluate, data=data),
                param_space=_space(self.param_distributions),
                tune_config=TuneConfig(
                    metric=f"mean_test_{ranked}",
                    mode="max",
                    num_samples=self.n_iter,
                    # Both keep a state, and `fit` must not change the estimator's parameters.
                    search_alg=copy.deepcopy(self.search_alg),
                    scheduler=copy.deepcopy(self.scheduler),
                    max_concurrent_trials=None if self.n_jobs in (None, -1) else self.n_jobs,
                    time_budget_s=self.time_budget_s,
                    duplicates="skip",
                    seed=None
                    if self.random_state is None
                    else int(check_random_state(self.random_state).randint(2**31)),
                ),
                run_config=RunConfig(
                    name=self._experiment_name(data),
                    storage_path=directory,
                    # Each configuration that cannot be fitted scores `error_score`, however many
                    # there are.
                    failure_config=FailureConfig(
                        fail_fast=self.error_score == "raise",
                        max_common_failures=None,
                        fail_script=False,  # `fit` raises, or the user has given an error_score
                    ),
                    verbose=min(self.verbose, MOST_VERBOSE),
                    # A temporary directory does not survive a power failure anyway.
                    durability="process" if self.storage_path is None else "group",
                    executor=self.executor,
                ),
                resume="auto",
            ).fit()

    def _experiment_name(self, data: tuple[Any, Any, Any, Splits, Folds]) -> str:
        """Return a name that is the same for the same search, and different for others."""
        if self.storage_path is None:
            return type(self.estimator).__name__
        *searched, folds = data
        # Not by repr, which for a function contains its address in memory.
        scoring = getattr(folds.scoring, "__qualname__", repr(folds.scoring))
        digest = joblib.hash((searched, dict(folds.fit_params), scoring, folds.return_train_score))
        return f"{type(self.estimator).__name__}-{digest[:12]}"

    # Methods of the best estimator.

    def score(self, X: Any, y: Any = None) -> float:
        """Return the score of the best estimator with these data, by the scorer that decides."""
        _has("fit")(self)
        check_is_fitted(self)
        scored = self.scorer_(self.best_estimator_, X, *(() if y is None else (y,)))
        return float(scored[self.refit] if self.multimetric_ else scored)

    predict = _delegated("predict", "Return the predictions of the best estimator.")
    predict_proba = _delegated(
        "predict_proba", "Return the probabilities that the best estimator predicts."
    )
    predict_log_proba = _delegated(
        "predict_log_proba",
        "Return the logarithms of the probabilities that the best estimator predicts.",
    )
    decision_function = _delegated(
        "decision_function", "Return the best estimator's decision function."
    )
    score_samples = _delegated("score_samples", "Return the best estimator's score of each sample.")
    transform = _delegated("transform", "Return the data, transformed by the best estimator.")
    inverse_transform = _delegated(
        "inverse_transform", "Return the data before a transformation by the best estimator."
    )

    @property
    def classes_(self) -> Any:
        """The classes of a classifier."""
        _has("classes_")(self)
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        """How many features the data have."""
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                f"{type(self).__name__} has no n_features_in_ before it is fitted; call fit first"
            )
        return int(self.best_estimator_.n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_" if self.refit else "cv_results_")

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "transformer_tags"):
            setattr(tags, name, copy.deepcopy(getattr(inner, name)))
        tags.input_tags.pairwise, tags.input_tags.sparse = (
            inner.input_tags.pairwise,
            inner.input_tags.sparse,
        )
        return tags


def _evaluate(config: dict[str, Any], data: tuple[Any, Any, Any, Splits, Folds]) -> None:
    """Evaluate one configuration; the training function of the trials."""
    estimator, X, y, splits, folds = data
    folds.run(_with(estimator, config), X, y, splits)


def _with(estimator: Any, parameters: Mapping[str, Any]) -> Any:
    # Parameters may be estimators themselves; cloned, because several trials share the originals.
    return clone(estimator).set_params(
        **{name: clone(value, safe=False) for name, value in parameters.items()}
    )


def _space(distributions: Any) -> dict[str, Any]:
    if not isinstance(distributions, Mapping) or not distributions:
        raise TypeError(
            "param_distributions must be a dictionary of parameters, got "
            f"{distributions!r:.200}; for several use conditional spaces"
        )
    return {name: _domain(name, distribution) for name, distribution in distributions.items()}


def _domain(name: str, distribution: Any) -> Any:
    if isinstance(distribution, list | tuple | np.ndarray):
        return choice(
            [value.item() if isinstance(value, np.generic) else value for value in distribution]
        )
    if hasattr(distribution, "rvs"):
        raise TypeError(
            f"{name!r} has a distribution of SciPy's, which no searcher can learn from; use "
            "words such as tune.loguniform instead"
        )
    if (
        not isinstance(distribution, Domain | Mapping)
        and type(distribution).__module__.partition(".")[0] != "searchers"
    ):
        raise TypeError(
            f"{name!r} must be a domain or a list of values, got "
            f"{distribution!r:.200}; put a single value into a list"
        )
    return distribution


def _refuse_failure(grid: ResultGrid, error_score: Any) -> None:
    """Raise the error of a fit if `error_score` says so, or an error if no fit has succeeded.

    Raises:
        Exception: The error of the first failed fit: of the same type if it is one of Python's,
            otherwise a `TrialFailed`.
        ValueError: If no fit has succeeded.
    """
    for result, trial in zip(grid, grid.trials, strict=True):
        if result.error and error_score == "raise" and trial.failures:
            kind = getattr(builtins, trial.failures[-1].kind, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                raise kind(trial.failures[-1].message) from result.error
            raise result.error
    first = next((result for result in grid), None)
    if first is None:
        raise ValueError(
            "no configuration was tried; give the search more time, or a larger n_iter"
        )
    if all(result.error or ERROR in result.metrics for result in grid) and not any(
        map(_has_score, grid)
    ):
        raise ValueError(
            f"all fits have failed, the first with {first.metrics.get(ERROR, first.error)}; "
            "error_score='raise' ends at the first"
        )


def _has_score(result: Result) -> bool:
    return any(
        math.isfinite(value)
        for name, value in result.metrics.items()
        if name.startswith("mean_test_")
    )
