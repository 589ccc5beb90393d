"""Time-varying Gaussian process over hyperparameters, and the choice of what to try next.

Rows are ``[time, score, *hyperparameters]``: when an interval began, counted in intervals; the
score at that time; and the hyperparameters it was trained with, each scaled to 0 to 1. Needs
scikit-learn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    Hyperparameter,
    Kernel,
    StationaryKernelMixin,
    WhiteKernel,
)
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from numpy.random import Generator

Array = NDArray[np.float64]
Allows = Callable[[Sequence[float]], bool]

_NUM_CANDIDATES = 1000
_REFINEMENTS = (0.1, 0.03, 0.01)
"""Standard deviations of the points that are drawn around the best candidate, in turn."""
_MAX_GAIN = 2.0
"""Standardised gains are clipped here: one jump of the score must not dominate the model."""


@final
class FadingKernel(StationaryKernelMixin, Kernel):  # type: ignore[misc]  # it has no types
    """Similarity of rows: a Gaussian of their distance that fades with the time between them.

    ``k(x, y) = exp(-|x - y|^2 / (2 length_scale^2)) * (1 - fading)^(|t - t'| / 2)``, where `t` is
    the first column and `x` all others.

    Args:
        length_scale: Distance at which the similarity has fallen to ``exp(-1/2)``.
        fading: How much is forgotten from one interval to the next, between 0 and 0.5.
        length_scale_bounds: Between which values the length scale is fitted.
        fading_bounds: Between which values the fading is fitted.

    Reference:
        Parker-Holder, Nguyen, Roberts. Provably Efficient Online Hyperparameter Optimization with
        Population-Based Bandits. NeurIPS 2020, arXiv 2002.02518. The time-varying part: Bogunovic,
        Scarlett, Cevher. Time-Varying Gaussian Process Bandit Optimization. 2016.
    """

    def __init__(
        self,
        length_scale: float = 0.5,
        fading: float = 0.1,
        length_scale_bounds: tuple[float, float] = (0.05, 10.0),
        fading_bounds: tuple[float, float] = (1e-4, 0.5),
    ) -> None:
        self.length_scale = length_scale
        self.fading = fading
        self.length_scale_bounds = length_scale_bounds
        self.fading_bounds = fading_bounds

    @property
    def hyperparameter_length_scale(self) -> Any:
        """What scikit-learn fits as the length scale."""
        return Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    @property
    def hyperparameter_fading(self) -> Any:
        """What scikit-learn fits as the fading."""
        return Hyperparameter("fading", "numeric", self.fading_bounds)

    # The names of the arguments are scikit-learn's, which passes them by keyword.
    def __call__(
        self,
        X: Array,  # noqa: N803
        Y: Array | None = None,  # noqa: N803
        eval_gradient: bool = False,
    ) -> Any:
        """Return the similarity of rows of `X` and `Y`, and its gradient."""
        rows = np.asarray(X, dtype=float)
        others = rows if Y is None else np.asarray(Y, dtype=float)
        gaps = np.abs(rows[:, :1] - others[:, 0])
        distances = _squared_distances(rows[:, 1:], others[:, 1:]) / self.length_scale**2
        similarity = np.exp(-distances / 2) * (1 - self.fading) ** (gaps / 2)
        if not eval_gradient:
            return similarity
        by_fading = -similarity * gaps / 2 * self.fading / (1 - self.fading)
        # By the logarithms of the hyperparameters, in the alphabetical order of their names:
        # scikit-learn optimises log(theta), and lists hyperparameters in that order.
        return similarity, np.dstack((by_fading, similarity * distances))

    def diag(self, X: Array) -> Array:  # noqa: N803
        """Return the similarity of each row to itself, which is 1."""
        return np.ones(len(X))


def _squared_distances(points: Array, others: Array) -> Array:
    # By the binomial formula: one product of matrices instead of a third dimension; rounding may
    # leave a little less than 0.
    products = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * points @ others.T
    distances: Array = np.maximum(products, 0.0)
    return distances


def propose(
    rows: Sequence[Sequence[float]],
    gains: Sequence[float],
    now: Sequence[float],
    busy: Sequence[Sequence[float]],
    rng: Generator,
    *,
    allows: Allows | None = None,
) -> list[float]:
    """Return the hyperparameters for which the upper confidence bound of the gain is largest.

    Args:
        rows: What has been tried.
        gains: By how much the score got better for it; larger is better.
        now: ``[time, score]`` from which the next interval begins.
        busy: Rows that are being tried at the moment: their gain is unknown, but they reduce the
            uncertainty around them.
        rng: Random number generator.
        allows: Returns whether hyperparameters satisfy the relation of the space; None for any.

    Returns:
        Each hyperparameter, between 0 and 1; some that are not allowed if none were found.
    """
    # One thread: sums come out the same however many cores there are, and small matrices are
    # faster.
    with threadpool_limits(1):
        return _proposed(
            np.asarray(rows, dtype=float),
            np.asarray(gains, dtype=float),
            now,
            np.asarray(busy, dtype=float),
            rng,
            allows,
        )


def _proposed(  # noqa: PLR0917  (as `propose`)
    tried: Array,
    gains: Array,
    now: Sequence[float],
    busy: Array,
    rng: Generator,
    allows: Allows | None,
) -> list[float]:
    scale = _score_scale(tried[:, 1])
    inputs, target = _scaled(tried, scale), _standardised(gains)
    mean = _fitted(FadingKernel() + WhiteKernel(0.1, (1e-3, 1.0)), inputs, target)
    # The predicted deviation does not depend on observed values, so zeros can replace unknown ones.
    all_inputs = np.vstack([inputs, _scaled(busy, scale)]) if len(busy) else inputs
    spread = _fitted(
        mean.kernel_, all_inputs, np.concatenate([target, np.zeros(len(busy))]), is_final=True
    )
    start = _scaled(np.asarray([[*now]], dtype=float), scale)[0]
    # Square root of the exploration factor beta_t, which grows with the logarithm of the time.
    weight = math.sqrt(max(0.0, 0.2 * math.log(0.4 * len(tried))))

    def bound(candidates: Array) -> Array:
        points = np.hstack([np.tile(start, (len(candidates), 1)), candidates])
        worth: Array = mean.predict(points) + weight * spread.predict(points, return_std=True)[1]
        if allows is None:
            return worth
        return np.where([allows(each) for each in candidates.tolist()], worth, -np.inf)

    return _largest(bound, tried.shape[1] - 2, rng)


def _largest(bound: Any, num_dimensions: int, rng: Generator) -> list[float]:
    candidates = rng.random((_NUM_CANDIDATES, num_dimensions))
    best = candidates[int(np.argmax(bound(candidates)))]
    for sd in _REFINEMENTS:
        around = np.clip(
            best + sd * rng.standard_normal((_NUM_CANDIDATES // 10, num_dimensions)), 0.0, 1.0
        )
        around[0] = best
        best = around[int(np.argmax(bound(around)))]
    return [float(unit) for unit in best]


def _fitted(kernel: Any, inputs: Array, target: Array, *, is_final: bool = False) -> Any:
    process = GaussianProcessRegressor(
        kernel, alpha=1e-6, optimizer=None if is_final else "fmin_l_bfgs_b", copy_X_train=False
    )
    with warnings.catch_warnings():
        # A fitted hyperparameter at the end of its range is fine.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(inputs, target)
    return process


def _score_scale(scores: Array) -> tuple[float, float]:
    low, high = float(scores.min()), float(scores.max())
    return low, (high - low) or 1.0


def _scaled(rows: Array, scale: tuple[float, float]) -> Array:
    low, width = scale
    scaled = rows.copy()
    scaled[:, 1] = (scaled[:, 1] - low) / width
    return scaled


def _standardised(gains: Array) -> Array:
    spread = float(gains.std())
    standardised: Array = np.clip((gains - gains.mean()) / (spread or 1.0), -_MAX_GAIN, _MAX_GAIN)
    return standardised
