"""Problems for populations: a quadratic with a known best schedule, and small noisy networks.

Those of noisy networks serve for development or confirmation as the hash of their names says, by
`benchmarks.quality.tasks.is_for_confirmation`: the settings of methods may be chosen on the former
only. The others are for development.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_friedman1
from sklearn.model_selection import train_test_split

from searchers.space import Domain, loguniform, uniform

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]
State = Sequence[Array]
"""Everything that a member has learnt; never modified, so that a checkpoint is a reference."""


class Problem(ABC):
    """Training that a population is to get through well.

    Attributes:
        num_epochs: How long members are trained.
        space: The hyperparameters.
    """

    num_epochs: int
    space: Mapping[str, Domain]

    @abstractmethod
    def start(self, rng: Generator) -> State:
        """Return an untrained state."""

    @abstractmethod
    def train(self, state: State, config: Mapping[str, float], rng: Generator) -> State:
        """Return the state after one more epoch."""

    def duration(self, config: Mapping[str, float]) -> float:
        """Return how long an epoch takes, as a multiple of the member's usual time."""
        return 1.0

    @abstractmethod
    def loss(self, state: State) -> float:
        """Return the loss that members report; it is minimised."""

    @abstractmethod
    def score(self, state: State) -> float:
        """Return what counts at the end for the member with the least loss; smaller is better."""


@final
class NoisyQuadratic(Problem):
    """Stochastic gradient descent with noise on a quadratic function of unequal curvatures.

    Each dimension has a curvature of ``h = 1 / i`` and gradients with a variance of `h`. A large
    learning rate makes progress in flat dimensions, a small one lowers the noise in steep ones.
    Since less noise lowers the loss at once, and slow progress shows late, those who look at the
    next epochs reduce the learning rate too early.

    The score tells how good the *schedule* of the member's weights is, not how lucky they were: the
    expected loss of the schedule, as a part of the way from the best schedule (0) to the best
    constant learning rate (1).

    Args:
        num_dimensions: Number of dimensions.
        num_epochs: How long members are trained, in epochs of ten updates.

    Reference:
        Wu, Ren, Liao, Grosse. Understanding Short-Horizon Bias in Stochastic Meta-Optimization.
        ICLR 2018, arXiv 1803.02021: equations 4 and 5, the mean and variance of each dimension. The
        spectrum: Zhang and others. Which Algorithmic Choices Matter at Which Batch Sizes? NeurIPS
        2019, arXiv 1907.04164, section 3.
    """

    space: Mapping[str, Domain] = {"lr": loguniform(1e-3, 1.0)}

    def __init__(self, num_dimensions: int = 100, num_epochs: int = 100) -> None:
        self.num_epochs = num_epochs
        self._curvatures: Array = 1 / np.arange(1, num_dimensions + 1)

    def start(self, rng: Generator) -> State:
        """Return the starting point, and the second moments of its entries."""
        return np.ones(len(self._curvatures)), np.ones(len(self._curvatures))

    def train(self, state: State, config: Mapping[str, float], rng: Generator) -> State:
        """Return point and expected second moments after ten updates."""
        point, moments = state
        rate = config["lr"]
        noise = np.sqrt(self._curvatures) * rng.standard_normal((_UPDATES, len(point)))
        for row in noise:
            point = point - rate * (self._curvatures * point + row)
        return point, self._expected(moments, rate)

    def loss(self, state: State) -> float:
        """Return the loss at the point."""
        return float(0.5 * (self._curvatures * state[0] ** 2).sum())

    def score(self, state: State) -> float:
        """Return the expected loss of the schedule, on the scale from 0 to 1."""
        best, constant = self._scale
        return (self._expected_loss(state[1]) - best) / (constant - best)

    def expected_score(self, rates: Sequence[float]) -> float:
        """Return the score of a schedule: the learning rates of all epochs."""
        return self.score((np.zeros(0), self._moments(rates)))

    def _expected(self, moments: Array, rate: float) -> Array:
        # E[x^2] <- (1 - rate h)^2 E[x^2] + rate^2 h, ten times.
        shrink = (1 - rate * self._curvatures) ** 2
        for _ in range(_UPDATES):
            moments = shrink * moments + rate**2 * self._curvatures
        return moments

    def _moments(self, rates: Sequence[float]) -> Array:
        moments: Array = np.ones(len(self._curvatures))
        for rate in rates:
            moments = self._expected(moments, rate)
        return moments

    def _expected_loss(self, moments: Array) -> float:
        return float(0.5 * (self._curvatures * moments).sum())

    @functools.cached_property
    def _scale(self) -> tuple[float, float]:
        """The expected losses of the best schedule and of the best constant."""
        low, high = np.log(1e-3), np.log(1.0)

        def loss(logs: Array) -> float:
            rates = np.exp(np.repeat(logs, self.num_epochs // len(logs)))
            return float(np.log(self._expected_loss(self._moments(rates.tolist()))))

        constants = np.linspace(low, high, 100)
        losses = [loss(constants[[place]]) for place in range(len(constants))]
        start = np.linspace(high, constants[int(np.argmin(losses))] - 2, _NUM_STEPS)
        found = minimize(loss, start, method="L-BFGS-B", bounds=[(low, high)] * _NUM_STEPS)
        return float(np.exp(found.fun)), float(np.exp(min(losses)))


_UPDATES = 10
"""Updates in an epoch of the quadratic."""
_NUM_STEPS = 20
"""Steps of its best schedule; more of them improve it by less than 1 %."""


@final
class Digits(Problem):
    """A network with one hidden layer on the digits of scikit-learn, trained by SGD with momentum.

    Half of the images are for training, a quarter for the loss that members report, and a quarter
    for the score: the cross-entropy of images that no decision has seen.
    """

    num_epochs = 40
    space: Mapping[str, Domain] = {
        "lr": loguniform(1e-3, 1.0),
        "weight_decay": loguniform(1e-6, 1e-2),
    }

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        train, rest = _halves(images / 16, labels)
        self._train, (self._validation, self._test) = train, _halves(*rest)

    def start(self, rng: Generator) -> State:
        """Return random weights, and no momentum."""
        weights = [
            rng.standard_normal((64, _HIDDEN)) * np.sqrt(2 / 64),
            np.zeros(_HIDDEN),
            rng.standard_normal((_HIDDEN, 10)) * np.sqrt(2 / _HIDDEN),
            np.zeros(10),
        ]
        return [*weights, *map(np.zeros_like, weights)]

    def train(self, state: State, config: Mapping[str, float], rng: Generator) -> State:
        """Return weights and momentum after an epoch in batches of 32."""
        images, labels = self._train
        weights, velocity = list(state[:4]), list(state[4:])
        for batch in np.array_split(rng.permutation(len(images)), len(images) // _BATCH):
            for place, slope in enumerate(_slopes(weights, images[batch], labels[batch])):
                decayed = slope + config["weight_decay"] * weights[place]
                velocity[place] = 0.9 * velocity[place] - config["lr"] * decayed
                weights[place] = weights[place] + velocity[place]
        return [*weights, *velocity]

    def loss(self, state: State) -> float:
        """Return the cross-entropy of the images for validation."""
        return _cross_entropy(state, *self._validation)

    def score(self, state: State) -> float:
        """Return the cross-entropy of the images for the test."""
        return _cross_entropy(state, *self._test)


_HIDDEN, _BATCH = 64, 32


def _halves(images: Array, labels: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    parts = train_test_split(images, labels, test_size=0.5, stratify=labels, random_state=0)
    return (parts[0], parts[2]), (parts[1], parts[3])


def _logits(weights: State, images: Array) -> tuple[Array, Array]:
    hidden: Array = np.maximum(images @ weights[0] + weights[1], 0)
    return hidden, hidden @ weights[2] + weights[3]


def _probabilities(logits: Array) -> Array:
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Array = grown / grown.sum(axis=1, keepdims=True)
    return shares


def _slopes(weights: State, images: Array, labels: Array) -> tuple[Array, ...]:
    hidden, logits = _logits(weights, images)
    error = (_probabilities(logits) - np.eye(10)[labels]) / len(images)
    back = error @ weights[2].T * (hidden > 0)
    return images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)


def _cross_entropy(weights: State, images: Array, labels: Array) -> float:
    shares = _probabilities(_logits(weights, images)[1])[np.arange(len(labels)), labels]
    # A network that has diverged has NaN.
    return float(-np.log(np.maximum(shares, 1e-12)).mean())


@final
class NoisyNetwork(Problem):
    """A network on few examples with noise, which several hyperparameters together keep out.

    What learns fastest soon learns the noise as well, unless weight decay, dropout or noise in the
    inputs hinder it, and these slow it down early: ranks after the first epoch tell next to nothing
    about the last. A quarter of the examples is for training, a quarter for the loss that members
    report, and half for the score.

    Args:
        inputs: A row for each example, of about unit variance.
        targets: A row for each example: numbers, or shares of the classes.
        space: ``"lr"``, ``"weight_decay"``, and some of ``"dropout"``, ``"batch_size"`` and
            ``"input_noise"``, which are 0, 16 and 0 otherwise.
        is_classification: Whether outputs are classes, and the loss the cross-entropy; else it is
            the mean squared error.
        share_mislabelled: Which part of the training targets is shuffled.
    """

    num_epochs = 40

    def __init__(
        self,
        inputs: Array,
        targets: Array,
        space: Mapping[str, Domain],
        *,
        is_classification: bool,
        share_mislabelled: float = 0.0,
    ) -> None:
        self.space = space
        self._is_classification = is_classification
        rng = np.random.default_rng(0)
        order = rng.permutation(len(inputs))
        first, second = len(inputs) // 4, len(inputs) // 2
        train, validation, test = order[:first], order[first:second], order[second:]
        self._inputs, self._targets = inputs[train], targets[train].copy()
        wrong = rng.permutation(len(train))[: round(share_mislabelled * len(train))]
        self._targets[wrong] = self._targets[rng.permutation(wrong)]
        self._validation = inputs[validation], targets[validation]
        self._test = inputs[test], targets[test]

    def start(self, rng: Generator) -> State:
        """Return random weights, and no momentum."""
        num_inputs, num_outputs = self._inputs.shape[1], self._targets.shape[1]
        weights = [
            rng.standard_normal((num_inputs, _HIDDEN)) * np.sqrt(2 / num_inputs),
            np.zeros(_HIDDEN),
            rng.standard_normal((_HIDDEN, num_outputs)) * np.sqrt(1 / _HIDDEN),
            np.zeros(num_outputs),
        ]
        return [*weights, *map(np.zeros_like, weights)]

    def train(self, state: State, config: Mapping[str, float], rng: Generator) -> State:
        """Return weights and momentum after an epoch."""
        weights, velocity = list(state[:4]), list(state[4:])
        dropout, noise = config.get("dropout", 0.0), config.get("input_noise", 0.0)
        num_batches = max(1, round(len(self._inputs) / config.get("batch_size", 16)))
        for batch in np.array_split(rng.permutation(len(self._inputs)), num_batches):
            inputs, targets = self._inputs[batch], self._targets[batch]
            if noise:
                inputs = inputs + noise * rng.standard_normal(inputs.shape)
            kept = (rng.random((len(batch), _HIDDEN)) >= dropout) / (1 - dropout)
            hidden = np.maximum(inputs @ weights[0] + weights[1], 0) * kept
            error = (self._outputs(hidden @ weights[2] + weights[3]) - targets) / len(batch)
            back = error @ weights[2].T * (hidden > 0) * kept
            slopes = (inputs.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))
            for place, slope in enumerate(slopes):
                decayed = slope + config["weight_decay"] * weights[place]
                velocity[place] = 0.9 * velocity[place] - config["lr"] * decayed
                weights[place] = weights[place] + velocity[place]
        return [*weights, *velocity]

    def duration(self, config: Mapping[str, float]) -> float:
        """Return how long an epoch takes, which is mostly due to the number of its batches."""
        return 0.5 + 8 / config.get("batch_size", 16)

    def loss(self, state: State) -> float:
        """Return the loss on the examples for validation."""
        return self._loss(state, *self._validation)

    def score(self, state: State) -> float:
        """Return the loss on the examples for the test."""
        return self._loss(state, *self._test)

    def _outputs(self, logits: Array) -> Array:
        return _probabilities(logits) if self._is_classification else logits

    def _loss(self, weights: State, inputs: Array, targets: Array) -> float:
        outputs = self._outputs(_logits(weights, inputs)[1])
        if self._is_classification:
            # A network that has diverged has NaN.
            return -float((targets * np.log(np.maximum(outputs, 1e-12))).sum(axis=1).mean())
        return float(((outputs - targets) ** 2).mean())


def mislabelled_digits() -> NoisyNetwork:
    """Return a problem of learning rate, weight decay and dropout: digits with wrong labels."""
    images, labels = load_digits(return_X_y=True)
    return NoisyNetwork(
        images[:800] / 8 - 1,
        np.eye(10)[labels[:800]],
        {**_BOTH, "dropout": uniform(0.0, 0.8)},
        is_classification=True,
        share_mislabelled=0.3,
    )


def friedman_batches() -> NoisyNetwork:
    """Return a problem of learning rate, weight decay and batch size, which makes epochs long."""
    inputs, values = make_friedman1(n_samples=600, noise=2.0, random_state=0)
    return NoisyNetwork(
        _scaled(inputs),
        _scaled(values[:, None]),
        {**_BOTH, "batch_size": loguniform(4.0, 64.0)},
        is_classification=False,
    )


def diabetes_input_noise() -> NoisyNetwork:
    """Return a problem of learning rate, weight decay and noise in the inputs."""
    inputs, values = load_diabetes(return_X_y=True)
    return NoisyNetwork(
        _scaled(inputs),
        _scaled(values[:, None]),
        {**_BOTH, "input_noise": loguniform(0.01, 3.0)},
        is_classification=False,
    )


def cancer_batches() -> NoisyNetwork:
    """Return a problem of four hyperparameters: tumours with wrong labels, in batches."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    return NoisyNetwork(
        _scaled(inputs),
        np.eye(2)[labels],
        {**_BOTH, "dropout": uniform(0.0, 0.8), "batch_size": loguniform(4.0, 64.0)},
        is_classification=True,
        share_mislabelled=0.3,
    )


_BOTH: Mapping[str, Domain] = {
    "lr": loguniform(1e-3, 0.3),
    "weight_decay": loguniform(1e-5, 0.3),
}


def _scaled(values: Array) -> Array:
    scaled: Array = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled
