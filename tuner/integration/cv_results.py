"""The table ``cv_results_`` of a search, in scikit-learn's format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.analysis import Result, ResultGrid

from .folds import ERROR

__all__ = ["ERROR", "cv_results"]

_TIMES: Final = ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time")


def cv_results(grid: ResultGrid, num_splits: int, with_train_scores: bool) -> dict[str, Any]:
    """Return the results of all trials that evaluated a fold, in the order of their creation.

    Args:
        grid: The results.
        num_splits: How many folds there are.
        with_train_scores: Whether there are scores of the training data.

    Returns:
        A dictionary of arrays with one value for each trial, NaN for folds not evaluated.
    """
    results = [result for result in grid if _num_splits(result)]
    table: dict[str, Any] = {name: _column(results, name) for name in _TIMES}
    parameters = list(dict.fromkeys(name for result in results for name in result.config))
    for name in parameters:
        table[f"param_{name}"] = _masked(results, name)
    table["params"] = [dict(result.config) for result in results]
    table["num_splits"] = np.array([_num_splits(result) for result in results])
    table["trial_id"] = np.array([result.trial_id for result in results])
    for part in ("test", "train") if with_train_scores else ("test",):
        for score in _scores(results, part):
            table |= {
                f"split{number}_{score}": _column(results, f"split{number}_{score}")
                for number in range(num_splits)
            }
            table |= {
                f"{kind}_{score}": _column(results, f"{kind}_{score}") for kind in ("mean", "std")
            }
            if part == "test":
                table[f"rank_{score}"] = _ranks(table["num_splits"], table[f"mean_{score}"])
    return table


def _num_splits(result: Result) -> int:
    return int(result.metrics.get("training_iteration", 0))


def _column(results: Sequence[Result], name: str) -> npt.NDArray[np.float64]:
    return np.array([float(result.metrics.get(name, math.nan)) for result in results])


def _masked(results: Sequence[Result], name: str) -> np.ma.MaskedArray[Any, Any]:
    column = np.empty(len(results), dtype=object)
    # Not np.array(...), which would turn lists of equal length into a table.
    column[:] = [result.config.get(name) for result in results]
    return np.ma.MaskedArray(column, mask=[name not in result.config for result in results])


def _scores(results: Sequence[Result], part: str) -> list[str]:
    prefix = f"mean_{part}_"
    return list(
        dict.fromkeys(
            name.removeprefix("mean_")
            for result in results
            for name in result.metrics
            if name.startswith(prefix)
        )
    )


def _ranks(num_splits: npt.NDArray[Any], means: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Return ranks, 1 for the best: first by the number of folds, then by the mean score.

    Example:
        >>> _ranks(np.array([3, 1, 3, 3]), np.array([0.5, 0.9, 0.7, 0.5])).tolist()
        [2, 4, 1, 2]
    """
    keys = [
        (-folds, math.inf if math.isnan(mean) else -mean)
        for folds, mean in zip(num_splits, means, strict=True)
    ]
    best_first = sorted(keys)
    # Reversed, so that equals get the rank of the first of them.
    first = {key: rank for rank, key in reversed(list(enumerate(best_first, 1)))}
    return np.array([first[key] for key in keys], dtype=np.int32)
