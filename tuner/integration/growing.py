"""Training of scikit-learn's estimators step by step, with checkpoints between the steps."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from sklearn.base import is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

Step = Callable[[Any, Any, int, Mapping[str, Any]], object]
"""Trains for one more step; takes data, targets, the step's number, and further arguments."""


# Checkpoints contain it pickled, so that module and name must not change.
@final
@dataclass(frozen=True, slots=True)
class State:
    """An estimator between two steps.

    Attributes:
        estimator: The estimator.
        num_done: For how many steps it has been trained.
    """

    estimator: Any
    num_done: int

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the state that a file holds."""
        state: Self = pickle.loads(path.read_bytes())  # noqa: S301  (the user's checkpoint)
        return state

    @classmethod
    def load(cls, path: Path | None, estimator: Any) -> int:
        """Copy into an estimator what the saved one has learned, but not its parameters.

        Returns:
            For how many steps the saved one has been trained; 0 without a file.
        """
        if path is None:
            return 0
        saved = cls.read(path)
        # Attributes that are no parameters are what `fit` has learned; parameters may be mutated.
        parameters = estimator.get_params(deep=False)
        vars(estimator).update(
            {name: value for name, value in vars(saved.estimator).items() if name not in parameters}
        )
        return saved.num_done


def grower(estimator: Any, *, step_size: int, grows: str | None, classes: Any) -> Step:
    """Return a function that trains an estimator for one more step.

    Args:
        estimator: The estimator.
        step_size: How many trees or iterations a step has, if there is no ``partial_fit``.
        grows: Name of the parameter that counts all of them so far; None to detect it.
        classes: All classes of the targets, for classifiers with ``partial_fit``.

    Raises:
        TypeError: If it cannot be trained by steps.

    Example:
        >>> from sklearn.ensemble import RandomForestClassifier
        >>> forest = RandomForestClassifier(random_state=0)
        >>> step = grower(forest, step_size=5, grows=None, classes=None)
        >>> for num_steps in 1, 2:
        ...     _ = step([[0], [1]], [0, 1], num_steps, {})
        >>> forest.n_estimators, len(forest.estimators_)
        (10, 10)
    """
    if grows is None and hasattr(estimator, "partial_fit"):
        known = {"classes": classes} if is_classifier(estimator) else {}
        return lambda X, y, done, given: estimator.partial_fit(
            X, y, **(known if done == 1 else {}), **given
        )
    parameters = estimator.get_params(deep=False)
    counted = grows or ("n_estimators" if "n_estimators" in parameters else "max_iter")
    if "warm_start" not in parameters or counted not in parameters:
        raise TypeError(
            f"{type(estimator).__name__} cannot be trained by steps: it has neither "
            f"partial_fit, nor warm_start and {counted}; "
            "use cross_validate_and_report, which reports each fold"
        )
    counts_all = grows is not None or counted == "n_estimators" or _counts_all_iterations(estimator)

    def step(X: Any, y: Any, done: int, given: Mapping[str, Any]) -> object:
        estimator.set_params(warm_start=True, **{counted: step_size * (done if counts_all else 1)})
        return estimator.fit(X, y, **given)

    return step


def _counts_all_iterations(estimator: Any) -> bool:
    # For these, ``max_iter`` is the total number of trees; for all other estimators with a warm
    # start it is the number of iterations that each ``fit`` adds.
    return isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor)
