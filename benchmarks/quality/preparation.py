"""Preparation of inputs, as configurations choose it: missing values, categories, scale, columns.

Everything is computed from the training examples and applied to the validation examples as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .problems import Floats, Problem, standardised

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Part = NDArray[np.float64]

_LIMIT = 10.0
NAMES = ("imputer", "encoder", "scaler", "selection", "num_selected")
"""Hyperparameters of `prepared`."""


def prepared(problem: Problem, config: Mapping[str, Any]) -> Problem:
    """Return the problem with its inputs prepared; the same object for the same preparation.

    Args:
        problem: A problem whose inputs are not standardised; see `problems.raw`.
        config: May contain `imputer` (what replaces missing values: ``"mean"``, ``"median"``,
            ``"low"`` for one below all others, or ``"flag"`` for the mean and a column that says
            so), `encoder` (of categories: ``"ordinal"``, ``"one-hot"``, ``"frequency"`` or
            ``"target"``, the mean target), `scaler` (``"standard"``, ``"minmax"``, ``"robust"``,
            ``"rank"`` or ``"none"``) and `selection` (``"all"`` columns, ``"best"`` for those that
            correlate most with the target, ``"components"`` for principal components or
            ``"random"`` for random projections) with `num_selected` columns.
    """
    return _prepared(_Key(problem), tuple(config.get(name) for name in NAMES))


class _Key:
    """A problem as a key, by identity: arrays have no hash."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __hash__(self) -> int:
        return id(self.problem)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.problem is self.problem


@functools.lru_cache(maxsize=500)
def _prepared(key: _Key, chosen: tuple[Any, ...]) -> Problem:
    imputer, encoder, scaler, selection, num_selected = chosen
    problem = key.problem
    train, valid = (part[0].astype(np.float64) for part in (problem.train, problem.valid))
    targets = _target_columns(problem)
    train, valid = _IMPUTERS[imputer or "mean"](train, valid)
    train, valid = _encoded(encoder or "one-hot", problem.categories, targets, train, valid)
    train, valid = _SCALERS[scaler or "standard"](train, valid)
    if selection not in {None, "all"}:
        train, valid = _SELECTIONS[selection](targets, int(num_selected), train, valid)
    inputs: list[Floats] = [
        np.clip(part, -_LIMIT, _LIMIT).astype(np.float32) for part in (train, valid)
    ]
    return replace(
        problem,
        train=(inputs[0], problem.train[1]),
        valid=(inputs[1], problem.valid[1]),
        categories=(),
    )


def _target_columns(problem: Problem) -> Part:
    """Return the training targets as columns: one for each class but the first, or as they are."""
    targets = problem.train[1]
    if not problem.is_classification:
        return np.asarray(targets, dtype=np.float64)
    return np.asarray(targets[:, None] == np.arange(1, problem.num_outputs), dtype=np.float64)


def _filled(train: Part, valid: Part, values: Part) -> tuple[Part, Part]:
    return np.where(np.isnan(train), values, train), np.where(np.isnan(valid), values, valid)


def _flagged(train: Part, valid: Part) -> tuple[Part, Part]:
    has_missing = np.isnan(train).any(axis=0)
    filled = _filled(train, valid, np.nanmean(train, axis=0))
    first, second = (
        np.hstack([inputs, np.isnan(part)[:, has_missing]])
        for inputs, part in zip(filled, (train, valid), strict=True)
    )
    return first, second


_IMPUTERS: Mapping[str, Callable[[Part, Part], tuple[Part, Part]]] = {
    "mean": lambda train, valid: _filled(train, valid, np.nanmean(train, axis=0)),
    "median": lambda train, valid: _filled(train, valid, np.nanmedian(train, axis=0)),
    "low": lambda train, valid: _filled(
        train, valid, np.nanmin(train, axis=0) - np.nanstd(train, axis=0)
    ),
    "flag": _flagged,
}


def _encoded(
    encoder: str, categories: tuple[int, ...], targets: Part, train: Part, valid: Part
) -> tuple[Part, Part]:
    if encoder == "ordinal" or not categories:
        return train, valid
    others = [column for column in range(train.shape[1]) if column not in categories]
    parts = [(train[:, others], valid[:, others])]
    for column in categories:
        kinds = np.unique(train[:, column])
        is_kind = [part[:, column, None] == kinds for part in (train, valid)]
        if encoder == "one-hot":
            codes = np.eye(len(kinds))
        elif encoder == "frequency":
            codes = is_kind[0].mean(axis=0)[:, None]
        else:
            # One pseudo-example with the mean target keeps rare categories near it.
            sums, counts = is_kind[0].T @ targets, is_kind[0].sum(axis=0)[:, None]
            codes = (sums + targets.mean(axis=0)) / (counts + 1)
        parts.append((is_kind[0] @ codes, is_kind[1] @ codes))
    first, second = (np.hstack(part) for part in zip(*parts, strict=True))
    return first, second


def _standard(train: Part, valid: Part) -> tuple[Part, Part]:
    first, second = standardised(train, valid)
    return first.astype(np.float64), second.astype(np.float64)


def _scaled(train: Part, valid: Part, centre: Part, width: Part) -> tuple[Part, Part]:
    width = np.where(width > 0, width, 1.0)
    return (train - centre) / width, (valid - centre) / width


def _minmax(train: Part, valid: Part) -> tuple[Part, Part]:
    low, high = train.min(axis=0), train.max(axis=0)
    return _scaled(train, valid, low, high - low)


def _robust(train: Part, valid: Part) -> tuple[Part, Part]:
    low, middle, high = np.quantile(train, [0.25, 0.5, 0.75], axis=0)
    return _scaled(train, valid, middle, high - low)


def _ranked(train: Part, valid: Part) -> tuple[Part, Part]:
    """Return the share of training examples below each value, from -1 to 1."""

    def ranks(part: Part) -> Part:
        below = [
            np.searchsorted(np.sort(train[:, column]), part[:, column])
            for column in range(train.shape[1])
        ]
        return 2 * np.stack(below, axis=1) / len(train) - 1

    return ranks(train), ranks(valid)


_SCALERS: Mapping[str, Callable[[Part, Part], tuple[Part, Part]]] = {
    "none": lambda train, valid: (train, valid),
    "standard": _standard,
    "minmax": _minmax,
    "robust": _robust,
    "rank": _ranked,
}


def _best(targets: Part, num: int, train: Part, valid: Part) -> tuple[Part, Part]:
    centred, wanted = train - train.mean(axis=0), targets - targets.mean(axis=0)
    norms = np.linalg.norm(centred, axis=0)[:, None] * np.linalg.norm(wanted, axis=0)
    scores = (np.abs(centred.T @ wanted) / np.where(norms > 0, norms, np.inf)).max(axis=1)
    columns = np.argsort(-scores, kind="stable")[:num]
    return train[:, columns], valid[:, columns]


def _components(_: Part, num: int, train: Part, valid: Part) -> tuple[Part, Part]:
    mean = train.mean(axis=0)
    _, _, directions = np.linalg.svd(train - mean, full_matrices=False)
    return (train - mean) @ directions[:num].T, (valid - mean) @ directions[:num].T


def _projections(_: Part, num: int, train: Part, valid: Part) -> tuple[Part, Part]:
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((train.shape[1], num)) / np.sqrt(train.shape[1])
    return train @ directions, valid @ directions


_SELECTIONS: Mapping[str, Callable[[Part, int, Part, Part], tuple[Part, Part]]] = {
    "best": _best,
    "components": _components,
    "random": _projections,
}
