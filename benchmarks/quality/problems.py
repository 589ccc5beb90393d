"""Problems for the models of the tables, made of scikit-learn's bundled data sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Problem:
    """Training and validation examples with a metric.

    Attributes:
        metric: ``"error"`` (share of wrong classes), ``"balanced_error"`` (its mean over the true
            classes), ``"log_loss"`` (mean cross-entropy, nats), ``"mse"`` (mean squared error as a
            share of the targets' variance) or ``"mae"`` (mean absolute error, as a share of their
            deviation); all are minimised.
        train: Inputs and targets for training; inputs are standardised, targets are class numbers
            or standardised columns.
        valid: Inputs and targets for validation.
        num_outputs: Number of classes or of target columns.
        shape: Height and width if the inputs are the pixels of a picture, row by row.
        categories: Numbers of the input columns that hold categories, counted from 0. Inputs of
            such problems are not standardised.
    """

    metric: str
    train: tuple[Floats, NDArray[Any]]
    valid: tuple[Floats, NDArray[Any]]
    num_outputs: int
    shape: tuple[int, int] = (0, 0)
    categories: tuple[int, ...] = ()

    @property
    def is_classification(self) -> bool:
        """Whether the targets are classes."""
        return self.metric not in {"mse", "mae"}


def classification(name: str, metric: str, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the classification problem of a bundled data set, e.g. ``"digits"``."""
    inputs, targets = bundled(name)
    return split(metric, inputs, targets.astype(np.int64), (num_train, num_valid), seed)


def regression(
    name: str, num_train: int, num_valid: int, seed: int, metric: str = "mse"
) -> Problem:
    """Return the regression problem of a bundled data set."""
    inputs, targets = bundled(name)
    return split(metric, inputs, targets.astype(np.float32)[:, None], (num_train, num_valid), seed)


def digit_parity(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of separating odd digits from even ones."""
    inputs, targets = bundled("digits")
    return split("log_loss", inputs, targets.astype(np.int64) % 2, (num_train, num_valid), seed)


def digit_halves(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the lower half of a digit from its upper half."""
    inputs, _ = bundled("digits")
    lower = inputs[:, 32:]
    return split(
        "mse", inputs[:, :32], lower[:, lower.std(axis=0) > 1], (num_train, num_valid), seed
    )


def column_of(name: str, column: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting one column of a data set from the others and the class."""
    inputs, targets = bundled(name)
    classes = np.eye(int(targets.max()) + 1, dtype=np.float32)[targets.astype(np.int64)]
    rest = np.hstack([np.delete(inputs, column, axis=1), classes])
    return split("mse", rest, inputs[:, [column]], (num_train, num_valid), seed)


def raw(
    metric: str,
    inputs: Floats,
    targets: NDArray[Any],
    sizes: tuple[int, int],
    seed: int,
    *,
    categories: tuple[int, ...] = (),
) -> Problem:
    """Return a problem whose inputs are not standardised, so that each configuration prepares them.

    Args:
        metric: See `Problem`.
        inputs: Inputs of all examples.
        targets: Targets of all examples.
        sizes: Numbers of training and validation examples.
        seed: Seed of the random order of the examples.
        categories: Numbers of the columns that hold categories, counted from 0.
    """
    problem = split(metric, inputs, targets, sizes, seed)
    order = np.random.default_rng(seed).permutation(len(inputs))
    train, valid = inputs[order[: sizes[0]]], inputs[order[sizes[0] : sum(sizes)]]
    return replace(
        problem,
        train=(train.astype(np.float32), problem.train[1]),
        valid=(valid.astype(np.float32), problem.valid[1]),
        categories=categories,
    )


def with_missing(problem: Problem, share: float, seed: int) -> Problem:
    """Return the problem with a share of the inputs replaced by NaN."""
    rng = np.random.default_rng(seed)

    def holed(pair: tuple[Floats, NDArray[Any]]) -> tuple[Floats, NDArray[Any]]:
        is_missing = rng.random(pair[0].shape) < share
        return np.where(is_missing, np.float32(np.nan), pair[0]), pair[1]

    return replace(problem, train=holed(problem.train), valid=holed(problem.valid))


def with_label_noise(problem: Problem, share: float, seed: int) -> Problem:
    """Return the problem with a share of its training labels replaced by random ones."""
    rng = np.random.default_rng(seed)
    inputs, targets = problem.train
    is_noisy = rng.random(len(targets)) < share
    noisy = np.where(is_noisy, rng.integers(problem.num_outputs, size=len(targets)), targets)
    return replace(problem, train=(inputs, noisy))


def with_rare_class(problem: Problem, kind: int, num: int) -> Problem:
    """Return the problem with at most `num` training examples of a class."""
    inputs, targets = problem.train
    is_other = targets != kind
    is_kept = is_other | (np.cumsum(~is_other) <= num)
    return replace(problem, train=(inputs[is_kept], targets[is_kept]))


def with_distractors(problem: Problem, num_columns: int, seed: int) -> Problem:
    """Return the problem with additional columns of noise."""
    rng = np.random.default_rng(seed)

    def widened(pair: tuple[Floats, NDArray[Any]]) -> tuple[Floats, NDArray[Any]]:
        noise = rng.standard_normal((len(pair[0]), num_columns)).astype(np.float32)
        return np.hstack([pair[0], noise]), pair[1]

    return replace(problem, train=widened(problem.train), valid=widened(problem.valid))


def with_products(problem: Problem) -> Problem:
    """Return the problem with the products of all pairs of columns as additional columns."""
    first, second = np.triu_indices(problem.train[0].shape[1])

    def widened(inputs: Floats) -> Floats:
        return np.hstack([inputs, inputs[:, first] * inputs[:, second]])

    train, valid = standardised(widened(problem.train[0]), widened(problem.valid[0]))
    return replace(problem, train=(train, problem.train[1]), valid=(valid, problem.valid[1]))


def standardised(train: NDArray[Any], valid: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return both parts, scaled so that the first has mean 0 and deviation 1 in each column.

    Columns that are constant in the first become 0 there.
    """
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    # A column that hardly varies in training may be huge in validation.
    limit = 10.0
    scaled = [
        np.clip((part - mean) / deviation, -limit, limit).astype(np.float32)
        for part in (train, valid)
    ]
    return scaled[0], scaled[1]


def bundled(name: str) -> tuple[Floats, NDArray[Any]]:
    """Return inputs and targets of a bundled data set."""
    from sklearn import datasets  # noqa: PLC0415  (an extra, and heavy)

    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.asarray(inputs, dtype=np.float32), np.asarray(targets)


def split(
    metric: str, inputs: Floats, targets: NDArray[Any], sizes: tuple[int, int], seed: int | None
) -> Problem:
    """Return a problem with the examples split and all columns standardised.

    Args:
        metric: See `Problem`.
        inputs: Inputs of all examples.
        targets: Targets of all examples.
        sizes: Numbers of training and validation examples.
        seed: Seed of the random order of the examples; None keeps their order.
    """
    order = (
        np.arange(len(inputs))
        if seed is None
        else np.random.default_rng(seed).permutation(len(inputs))
    )
    first, second = order[: sizes[0]], order[sizes[0] : sum(sizes)]
    train_inputs, valid_inputs = standardised(inputs[first], inputs[second])
    train_targets, valid_targets = targets[first], targets[second]
    if metric in {"mse", "mae"}:
        train_targets, valid_targets = standardised(train_targets, valid_targets)
        return Problem(
            metric, (train_inputs, train_targets), (valid_inputs, valid_targets), targets.shape[1]
        )
    return Problem(
        metric, (train_inputs, train_targets), (valid_inputs, valid_targets), int(targets.max()) + 1
    )
