"""Axes that several tasks share."""

from __future__ import annotations

from typing import Any

from .grid import Axis, log_axis

SGD_RATES = log_axis("lr", 1e-3, 1.0, 12)
LOW_RATES = log_axis("lr", 1e-4, 0.1, 12)
WIDE_RATES = log_axis("lr", 1e-4, 1.0, 13)
DECAYS = log_axis("weight_decay", 1e-5, 1e-1, 5)
ACTIVATIONS = Axis("activation", "choice", ("relu", "tanh"))
OPTIMIZERS = Axis("optimizer", "choice", ("adam", "sgd"))
ALL_OPTIMIZERS = Axis("optimizer", "choice", ("adagrad", "adam", "sgd"))
SCHEDULES = Axis("schedule", "choice", ("constant", "cosine"))
MARGINS = Axis("loss", "choice", ("hinge", "log"))
DISTANCES = Axis("loss", "choice", ("mae", "mse"))
POOLS = Axis("pool", "choice", ("max", "mean"))
KINDS = Axis("kind", "choice", ("extra trees", "random forest"))


def choice(name: str, *values: Any) -> Axis:
    """Return an axis of values without order."""
    return Axis(name, "choice", values)


def batches(*sizes: int) -> Axis:
    """Return an axis of batch sizes."""
    return Axis("batch_size", "log_int", sizes)


def widths(*units: int) -> Axis:
    """Return an axis of the widths of all hidden layers."""
    return Axis("width", "log_int", units)


def depths(*layers: int) -> Axis:
    """Return an axis of numbers of hidden layers."""
    return Axis("depth", "int", layers)


def dropouts(*shares: float) -> Axis:
    """Return an axis of dropout rates of the hidden layers."""
    return Axis("dropout", "linear", shares)


def input_noises(*deviations: float) -> Axis:
    """Return an axis of standard deviations of the noise added to the inputs in training."""
    return Axis("input_noise", "linear", deviations)


def momenta(*shares: float) -> Axis:
    """Return an axis of momenta of SGD."""
    return Axis("momentum", "linear", shares)


def decays(low: float, high: float, num: int) -> Axis:
    """Return an axis of strengths of weight decay."""
    return log_axis("weight_decay", low, high, num)


def lr_decays(*factors: float) -> Axis:
    """Return an axis of factors that multiply the learning rate after each epoch."""
    return Axis("lr_decay", "linear", factors)


def frequencies(low: float, high: float, num: int) -> Axis:
    """Return an axis of scales of the random frequencies of Fourier features."""
    return log_axis("frequency", low, high, num)


def features(*nums: int) -> Axis:
    """Return an axis of numbers of random features."""
    return Axis("num_features", "log_int", nums)


def channels(*nums: int) -> Axis:
    """Return an axis of numbers of channels of a convolution."""
    return Axis("channels", "log_int", nums)


def columns(*shares: float) -> Axis:
    """Return an axis of shares of the columns that each split of a tree considers."""
    return Axis("max_features", "linear", shares)


def samples(*shares: float) -> Axis:
    """Return an axis of sizes of each tree's sample, as shares of all examples."""
    return Axis("sample", "linear", shares)


def leaf_counts(*nums: int) -> Axis:
    """Return an axis of maximum numbers of leaves of a tree."""
    return Axis("max_leaf_nodes", "log_int", nums)


def leaf_sizes(*nums: int) -> Axis:
    """Return an axis of minimum numbers of examples in a leaf."""
    return Axis("min_samples_leaf", "log_int", nums)


def levels(*nums: int) -> Axis:
    """Return an axis of maximum depths of a tree."""
    return Axis("max_depth", "int", nums)


TREES = (
    log_axis("learning_rate", 0.02, 1.0, 10),
    levels(1, 2, 3, 4, 5),
    Axis("subsample", "linear", (0.3, 0.5, 0.7, 0.9)),
    columns(0.2, 0.5, 0.8),
    leaf_sizes(1, 4, 16),
)
