"""Data that the models of the problems learn from, and what they share: scikit-learn's sets."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .problem import Values

Classes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Split:
    """Examples for training and validation, with columns of mean 0 and deviation 1.

    Attributes:
        train: Inputs for training.
        classes: Their classes.
        valid: Inputs for validation.
        truth: Their classes.
    """

    train: Values
    classes: Classes
    valid: Values
    truth: Classes


@functools.cache
def digits(num_train: int, num_valid: int, seed: int) -> Split:
    """Return handwritten digits of 8 by 8 pixels; columns are scaled together, not each alone."""
    inputs, classes = loaded("digits")
    return _split(
        (inputs - inputs.mean(axis=0)) / inputs.std(), classes, num_train, num_valid, seed
    )


@functools.cache
def cancer(num_train: int, num_valid: int, seed: int) -> Split:
    """Return measurements of tumours; class 1 is malignant."""
    inputs, classes = loaded("breast_cancer")
    return _split(_standardised(inputs), 1 - classes, num_train, num_valid, seed)


@functools.cache
def diabetes(num_train: int, num_valid: int, seed: int) -> Split:
    """Return patients with diabetes; class 1 got worse than the median. Column 1 is the sex."""
    inputs, progress = loaded("diabetes")
    classes = (progress > np.median(progress)).astype(np.int64)
    return _split(_standardised(inputs), classes, num_train, num_valid, seed)


def loaded(name: str) -> tuple[Values, NDArray[Any]]:
    """Return inputs and targets of a data set that comes with scikit-learn."""
    from sklearn import datasets  # noqa: PLC0415  (an extra, and heavy)

    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.asarray(inputs, dtype=np.float64), np.asarray(targets)


def quantised(weights: Values, num_bits: int) -> Values:
    """Return weights rounded to as many equal steps as a number of bits can tell apart."""
    largest = float(np.abs(weights).max()) or 1.0
    steps = 2 ** (num_bits - 1) - 0.5
    # Half steps: without a zero among the values, one bit is a sign.
    rounded: Values = (np.floor(weights / largest * steps) + 0.5).clip(-steps, steps)
    scaled: Values = rounded / steps * largest
    return scaled


def error(predicted: NDArray[Any], truth: Classes) -> float:
    """Return the share of wrong classes."""
    return float(np.mean(predicted != truth))


def one_hot(classes: Classes, num_classes: int) -> Values:
    """Return a row for each class with 1 at its number."""
    rows: Values = (classes[..., None] == np.arange(num_classes)).astype(np.float64)
    return rows


def sigmoid(logits: Values) -> Values:
    """Return the logistic function, for any size of its argument."""
    values: Values = 0.5 * (1 + np.tanh(logits / 2))
    return values


def _standardised(inputs: Values) -> Values:
    scaled: Values = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    return scaled


def _split(
    inputs: Values, classes: NDArray[Any], num_train: int, num_valid: int, seed: int
) -> Split:
    order = np.random.default_rng(seed).permutation(len(inputs))
    first, second = order[:num_train], order[num_train : num_train + num_valid]
    kinds = classes.astype(np.int64)
    return Split(inputs[first], kinds[first], inputs[second], kinds[second])
