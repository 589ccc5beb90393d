"""Cross-validation of scikit-learn's estimators fold by fold, with a report after each."""

from __future__ import annotations

import json
import math
import numbers
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv, cross_validate

from tuner.execution.session import report

from .reporting import latest_file, report_saved

FOLDS: Final = "folds.json"
"""File in a checkpoint with the results of the folds so far."""

ERROR: Final = "error"
"""Name under which the latest error of a fit is reported."""

Splits = Sequence[tuple[Any, Any]]


@final
@dataclass(frozen=True, slots=True)
class Folds:
    """How each fold is evaluated.

    Attributes:
        scoring: Scorers, as for scikit-learn.
        fit_params: Passed on to ``fit``.
        return_train_score: Whether scores of the training data are computed as well.
        error_score: Score of a fold whose fit has failed; ``"raise"`` raises the error.
        checkpoint: File in the checkpoints, None for no checkpoints.
    """

    scoring: Any = None
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    return_train_score: bool = False
    error_score: Any = "raise"
    checkpoint: str | None = None

    def run(self, estimator: Any, X: Any, y: Any, splits: Splits) -> dict[str, float]:
        """Evaluate the folds that are not in the checkpoint; return the last report."""
        saved = latest_file(self.checkpoint) if self.checkpoint else None
        folds: list[dict[str, Any]] = (
            [] if saved is None else json.loads(saved.read_text(encoding="utf-8"))
        )
        # Checkpoints count the folds, so all trials and attempts must have the same splits.
        for split in splits[len(folds) :]:
            folds.append(self._evaluate(estimator, X, y, split))
            self._report(folds)
        return summary(folds)

    def _report(self, folds: Sequence[Mapping[str, Any]]) -> None:
        name = self.checkpoint
        if name is None:
            report(summary(folds))
        else:
            report_saved(
                summary(folds),
                lambda directory: (directory / name).write_text(
                    json.dumps(folds), encoding="utf-8"
                ),
            )

    def _evaluate(self, estimator: Any, X: Any, y: Any, split: tuple[Any, Any]) -> dict[str, Any]:
        def evaluate(given: Any) -> dict[str, float]:
            measured = cross_validate(
                given,
                X,
                y,
                cv=[split],
                scoring=self.scoring,
                params=dict(self.fit_params),
                return_train_score=self.return_train_score,
                # With one fold, scikit-learn raises in any case, since all fits have failed.
                error_score="raise",
            )
            return {name: float(values[0]) for name, values in measured.items()}

        if self.error_score == "raise":
            return evaluate(estimator)
        try:
            return evaluate(estimator)
        except Exception as error:  # noqa: BLE001  (then the configuration is a bad one)
            warnings.warn(
                f"a fit has failed and scores {self.error_score}: {type(error).__name__}: {error}",
                FitFailedWarning,
                stacklevel=2,
            )
            return self._failed(f"{type(error).__name__}: {error}")

    def _failed(self, error: str) -> dict[str, Any]:
        parts = ("test", "train") if self.return_train_score else ("test",)
        scores = {
            f"{part}_{name}": float(self.error_score)
            for part in parts
            for name in scorer_names(self.scoring)
        }
        return {"fit_time": 0.0, "score_time": 0.0, **scores, ERROR: error}


def summary(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and deviation of scores and times, the scores of each fold, and the last error.

    Example:
        >>> folds = summary([{"test_score": 0.5}, {"test_score": 1.0}])
        >>> folds["mean_test_score"], folds["std_test_score"], folds["split1_test_score"]
        (0.75, 0.25, 1.0)
    """
    reported: dict[str, Any] = {}
    for name in dict.fromkeys(name for fold in folds for name in fold if name != ERROR):
        values = [fold.get(name, math.nan) for fold in folds]
        reported[f"mean_{name}"], reported[f"std_{name}"] = (
            float(np.mean(values)),
            float(np.std(values)),
        )
        if not name.endswith("_time"):
            reported |= {f"split{number}_{name}": value for number, value in enumerate(values)}
    errors = [fold[ERROR] for fold in folds if ERROR in fold]
    return reported | ({ERROR: errors[-1]} if errors else {})


def splits_of(estimator: Any, X: Any, y: Any, *, cv: Any, groups: Any) -> Splits:
    """Return the indices of training and test data of each fold."""
    splitter = check_cv(cv, y, classifier=is_classifier(estimator))
    return list(splitter.split(X, y) if groups is None else splitter.split(X, y, groups))


def check_splitter(cv: Any) -> None:
    """Check that a splitter returns the same splits each time.

    Raises:
        ValueError: If it shuffles without a seed.
    """
    if (
        hasattr(cv, "split")
        and getattr(cv, "shuffle", True)
        and not isinstance(getattr(cv, "random_state", 0), numbers.Integral)
    ):
        raise ValueError(
            f"cv must split the same way in each trial, got {type(cv).__name__} with "
            f"random_state={getattr(cv, 'random_state', None)!r}; "
            "give it a number, e.g. random_state=0"
        )


def scorer_of(estimator: Any, scoring: Any) -> Any:
    """Return a function of estimator, data and targets that returns a score or several by name."""
    return check_scoring(
        estimator, sorted(scoring) if isinstance(scoring, set | frozenset) else scoring
    )


def scores_of(scored: Any) -> dict[str, float]:
    """Return a scorer's result as scores by name; a single one is named ``"score"``."""
    return (
        {name: float(value) for name, value in scored.items()}
        if isinstance(scored, Mapping)
        else {"score": float(scored)}
    )


def scorer_names(scoring: Any) -> list[str]:
    """Return the names of the scores; a single one is named ``score``.

    Example:
        >>> scorer_names(None), scorer_names("accuracy"), scorer_names(["accuracy", "f1"])
        (['score'], ['score'], ['accuracy', 'f1'])
    """
    if (
        scoring is None
        or isinstance(scoring, str)
        or callable(scoring)
        or not isinstance(scoring, Iterable)
    ):
        return ["score"]
    return list(scoring)
