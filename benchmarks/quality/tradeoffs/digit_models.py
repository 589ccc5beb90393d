"""Models of handwritten digits, whose error is weighed against their size and their work.

All of them are trained within milliseconds. Sizes count the bits of what a device would store;
multiplications are those of one prediction.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.quality.functions.function import Axis
from searchers.objectives import OutcomeConstraint

from .data import Split, digits, error, one_hot, quantised
from .problem import Config, Metrics, Objective, Problem, Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUM_CLASSES = 10
_NUM_PIXELS = 64
_BITS_OF_KB = 8 * 1_024


def neighbours(config: Config) -> Metrics:
    """Return error, size and work of nearest neighbours among some of the projected examples."""
    data, axes = digits(1_000, 500, 1), _components(1_000, 500, 1)
    num_kept, num_columns = config["kept"], config["components"]
    kept = _order(config["choice"])[:num_kept]
    stored = quantised(data.train[kept] @ axes[:, :num_columns], config["bits"])
    asked = data.valid @ axes[:, :num_columns]
    if config["distance"] == "cosine":
        stored = stored / (np.linalg.norm(stored, axis=1, keepdims=True) + 1e-9)
        asked = asked / (np.linalg.norm(asked, axis=1, keepdims=True) + 1e-9)
    distances = (stored**2).sum(axis=1) - 2 * asked @ stored.T + (asked**2).sum(axis=1)[:, None]
    num_near = min(config["neighbours"], num_kept)
    nearest = np.argpartition(distances, num_near - 1, axis=1)[:, :num_near]
    near = np.take_along_axis(distances, nearest, axis=1).clip(0.0)
    weights = (np.sqrt(near) + 1e-6) ** -config["power"]
    votes = (one_hot(data.classes[kept], _NUM_CLASSES)[nearest] * weights[..., None]).sum(axis=1)
    return {
        "error": error(votes.argmax(axis=1), data.truth),
        "size_kb": (num_kept * (num_columns * config["bits"] + 4) + _NUM_PIXELS * num_columns * 8)
        / _BITS_OF_KB,
        "kmults": (num_kept * num_columns + _NUM_PIXELS * num_columns) / 1_000,
    }


@functools.cache
def _components(num_train: int, num_valid: int, seed: int) -> Values:
    """Return the principal components of the training examples, a column for each."""
    axes: Values = np.linalg.svd(digits(num_train, num_valid, seed).train)[2].T
    return axes


@functools.cache
def _order(choice: str) -> NDArray[np.intp]:
    """Return an order in which examples are kept: random, class by class, or typical ones first."""
    data, rng = digits(1_000, 500, 1), np.random.default_rng(2)
    drawn = rng.permutation(len(data.train))
    if choice == "random":
        return drawn
    keys = rng.random(len(data.train))
    if choice == "typical":
        centres = np.stack([data.train[data.classes == each].mean(axis=0) for each in range(10)])
        keys = ((data.train - centres[data.classes]) ** 2).sum(axis=1)
    places = np.empty(len(keys))
    for each in range(_NUM_CLASSES):
        members = np.flatnonzero(data.classes == each)
        places[members[np.argsort(keys[members])]] = np.arange(len(members))
    return np.argsort(places, kind="stable")


def random_features(config: Config) -> Metrics:
    """Return error, size and work of ridge regression on random features of small pictures."""
    data, num_features = digits(700, 500, 3), config["features"]
    train, valid = (_shrunk(part, int(config["side"])) for part in (data.train, data.valid))
    rng = np.random.default_rng(4)
    projection = rng.standard_normal((256, _NUM_PIXELS))[:num_features, : train.shape[1]].T
    projection = projection * config["frequency"] / np.sqrt(train.shape[1])
    phases = rng.uniform(0, 2 * np.pi, 256)[:num_features]
    hidden, asked = (
        _activated(part @ projection + phases, config["activation"]) for part in (train, valid)
    )
    gram = hidden.T @ hidden + config["ridge"] * len(hidden) * np.eye(num_features)
    targets = one_hot(data.classes, _NUM_CLASSES) - 1 / _NUM_CLASSES
    weights = quantised(np.linalg.solve(gram, hidden.T @ targets), config["bits"])
    num_products = num_features * (train.shape[1] + _NUM_CLASSES)
    # Who predicts draws the projection again from its seed: only the weights are stored.
    return {
        "error": error((asked @ weights).argmax(axis=1), data.truth),
        "size_kb": num_features * _NUM_CLASSES * config["bits"] / _BITS_OF_KB,
        "kmults": num_products / 1_000,
    }


def _shrunk(pictures: Values, side: int) -> Values:
    """Return pictures with means of neighbouring pixels, `side` by `side`."""
    step = 8 // side
    squares = pictures.reshape(-1, side, step, side, step).mean(axis=(2, 4))
    flat: Values = squares.reshape(len(pictures), -1)
    return flat


def _activated(values: Values, activation: str) -> Values:
    if activation == "relu":
        return values.clip(0.0)
    activated: Values = np.cos(values) if activation == "cosine" else np.tanh(values)
    return activated


def perceptron(config: Config) -> Metrics:
    """Return error, size and work of a network that is pruned and quantised after its training."""
    data, rng = digits(400, 500, 5), np.random.default_rng(6)
    weights = _trained(config, data, rng)
    kept = [_pruned(quantised(each, config["bits"]), config["pruned"]) for each in weights]
    outputs = _forward(data.valid, kept, config["activation"])[-1]
    num_products = sum(int(np.count_nonzero(each)) for each in kept)
    # A stored weight needs its place besides its value, six bits after the one before it.
    return {
        "error": error(outputs.argmax(axis=1), data.truth),
        "size_kb": num_products
        * (config["bits"] + (6 if config["pruned"] > 0 else 0))
        / _BITS_OF_KB,
        "kmults": num_products / 1_000,
        "training_mmults": config["epochs"] * 3 * 400 * sum(each.size for each in weights) / 1e6,
    }


def _trained(config: Config, data: Split, rng: np.random.Generator) -> list[Values]:
    """Return the weights of each layer after stochastic gradient descent; biases are a last row."""
    sizes = [_NUM_PIXELS, *[config["width"]] * config["layers"], _NUM_CLASSES]
    shapes = list(itertools.pairwise(sizes))
    weights = [
        np.vstack([rng.standard_normal(shape) * np.sqrt(1.5 / shape[0]), np.zeros((1, shape[1]))])
        for shape in shapes
    ]
    moving = [np.zeros_like(each) for each in weights]
    targets, size = one_hot(data.classes, _NUM_CLASSES), config["batch"]
    for _ in range(config["epochs"]):
        order = rng.permutation(len(targets))
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            steps = _gradients(data.train[rows], targets[rows], weights, config["activation"])
            for number, step in enumerate(steps):
                # A step of limited length: a rate that is too high gives a bad network, not NaN.
                moving[number] *= config["momentum"]
                moving[number] -= config["lr"] * step / max(1.0, float(np.abs(step).max()))
                weights[number] += moving[number]
                weights[number] *= 1 - config["lr"] * config["decay"]
    return weights


def _gradients(
    inputs: Values, targets: Values, weights: list[Values], activation: str
) -> list[Values]:
    """Return the gradients of the cross-entropy for the weights of each layer."""
    layers = _forward(inputs, weights, activation)
    exponents = np.exp(layers[-1] - layers[-1].max(axis=1, keepdims=True))
    back = (exponents / exponents.sum(axis=1, keepdims=True) - targets) / len(inputs)
    steps: list[Values] = []
    for layer, weight in zip(layers[-2::-1], weights[::-1], strict=True):
        steps.append(np.vstack([layer.T @ back, back.sum(axis=0)]))
        slope = (layer > 0) if activation == "relu" else 1 - layer**2
        back = back @ weight[:-1].T * slope
    return steps[::-1]


def _forward(inputs: Values, weights: list[Values], activation: str) -> list[Values]:
    """Return the inputs and the outputs of each layer; the last ones are not activated."""
    layers = [inputs]
    for number, weight in enumerate(weights, start=1):
        values = layers[-1] @ weight[:-1] + weight[-1]
        layers.append(values if number == len(weights) else _activated(values, activation))
    return layers


def _pruned(weights: Values, share: float) -> Values:
    """Return weights, of which a share with the smallest sizes is 0."""
    sizes = np.abs(weights)
    kept: Values = np.where(sizes >= np.quantile(sizes, share), weights, 0.0)
    return kept


def stumps(config: Config) -> Metrics:
    """Return error, size and pixels read of boosted stumps that tell odd digits from even ones."""
    data, tables = digits(600, 600, 7), _thresholds(config["thresholds"])
    is_above, asked, owners = tables
    rng = np.random.default_rng(8)
    is_offered = np.isin(owners, rng.permutation(_NUM_PIXELS)[: config["pixels"]])
    signs = np.where(data.classes % 2, 1.0, -1.0)
    scores, outputs = np.zeros(len(signs)), np.zeros(len(asked))
    total = 0.0
    used: set[int] = set()
    for _ in range(config["rounds"]):
        slopes, curvatures = _derivatives(signs, scores, config["loss"])
        above, weight = slopes @ is_above, curvatures @ is_above
        below, rest = slopes.sum() - above, curvatures.sum() - weight
        penalty = config["l2"]
        gains = above**2 / (weight + penalty) + below**2 / (rest + penalty)
        # A pixel that is read already costs nothing more.
        gains[np.isin(owners, list(used))] *= config["reuse"]
        place = int(np.argmax(np.where(is_offered, gains, -np.inf)))
        up = config["lr"] * above[place] / (weight[place] + penalty)
        down = config["lr"] * below[place] / (rest[place] + penalty)
        scores += np.where(is_above[:, place] > 0, up, down)
        outputs += np.where(asked[:, place] > 0, up, down)
        used.add(int(owners[place]))
        total += 1
    return {
        "error": error(outputs > 0, data.truth % 2 == 1),
        "size_b": total * (1 + 1 + 2 * 2),
        "pixels_read": float(len(used)),
    }


def _derivatives(signs: Values, scores: Values, loss: str) -> tuple[Values, Values]:
    """Return the falling slope and the curvature of a loss at each example."""
    if loss == "squared":
        return signs - scores, np.ones_like(signs)
    margins = signs * scores
    if loss == "exponential":
        sizes = np.exp(-margins.clip(-20.0, 20.0))
        return signs * sizes, sizes
    share = 1 / (1 + np.exp(margins.clip(-30.0, 30.0)))
    return signs * share, share * (1 - share)


@functools.cache
def _thresholds(num: int) -> tuple[Values, Values, Values]:
    """Return for each pixel and threshold what is above it, and the pixel it belongs to."""
    data = digits(600, 600, 7)
    cuts = np.quantile(data.train, (np.arange(num) + 1) / (num + 1), axis=0)
    train, valid = (
        np.hstack([part > cut for cut in cuts]).astype(np.float64)
        for part in (data.train, data.valid)
    )
    return train, valid, np.tile(np.arange(_NUM_PIXELS), num)


PROBLEMS = (
    Problem(
        "digits_neighbours",
        "models",
        "nearest neighbours: error, size and multiplications",
        (
            Axis("kept", "int", 10, 1_000, log=True),
            Axis("components", "int", 2, 48),
            Axis("bits", "int", 1, 8),
            Axis("neighbours", "int", 1, 15),
            Axis("power", "float", 0.0, 4.0),
            Axis("distance", "choice", values=("cosine", "euclidean")),
            Axis("choice", "choice", values=("by class", "random", "typical")),
        ),
        (Objective("error"), Objective("size_kb"), Objective("kmults")),
        (OutcomeConstraint("error", "<=", 0.06),),
        neighbours,
    ),
    Problem(
        "digits_features",
        "models",
        "random features: error and size, few multiplications",
        (
            Axis("features", "int", 8, 256, log=True),
            Axis("frequency", "float", 0.03, 10.0, log=True),
            Axis("ridge", "float", 1e-6, 1.0, log=True),
            Axis("bits", "int", 1, 8),
            Axis("activation", "choice", values=("cosine", "relu", "tanh")),
            Axis("side", "choice", values=("2", "4", "8")),
        ),
        (Objective("error"), Objective("size_kb")),
        (OutcomeConstraint("kmults", "<=", 3.0), OutcomeConstraint("error", "<=", 0.3)),
        random_features,
    ),
    Problem(
        "digits_perceptron",
        "models",
        "pruned and quantised network: error and size, little training",
        (
            Axis("lr", "float", 1e-3, 1.0, log=True),
            Axis("width", "int", 4, 64, log=True),
            Axis("layers", "int", 1, 2),
            Axis("epochs", "int", 2, 12),
            Axis("momentum", "float", 0.0, 0.95),
            Axis("decay", "float", 1e-5, 0.1, log=True),
            Axis("batch", "int", 16, 64, log=True),
            Axis("activation", "choice", values=("relu", "tanh")),
            Axis("pruned", "float", 0.0, 0.95),
            Axis("bits", "int", 1, 8),
        ),
        (Objective("error"), Objective("size_kb")),
        (OutcomeConstraint("error", "<=", 0.2), OutcomeConstraint("training_mmults", "<=", 20.0)),
        perceptron,
    ),
    Problem(
        "parity_stumps",
        "models",
        "boosted stumps: error and size, few pixels",
        (
            Axis("rounds", "int", 2, 64, log=True),
            Axis("lr", "float", 0.02, 2.0, log=True),
            Axis("pixels", "int", 4, 64),
            Axis("thresholds", "int", 1, 7),
            Axis("reuse", "float", 1.0, 2.0),
            Axis("l2", "float", 0.01, 100.0, log=True),
            Axis("loss", "choice", values=("exponential", "logistic", "squared")),
        ),
        (Objective("error"), Objective("size_b")),
        (OutcomeConstraint("pixels_read", "<=", 8.0), OutcomeConstraint("error", "<=", 0.12)),
        stumps,
    ),
)
