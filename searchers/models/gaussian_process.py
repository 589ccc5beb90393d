"""Gaussian process on vectors of a space, and expected improvement as its acquisition function."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from threadpoolctl import ThreadpoolController

Array = np.ndarray[Any, Any]

MEAN_LOG_LENGTHSCALE = math.sqrt(2)
"""Mean of the logarithm of a lengthscale in one dimension; it grows by half of log d."""
SD_LOG_LENGTHSCALE = math.sqrt(3)
MEAN_LOG_NOISE, SD_LOG_NOISE = math.log(1e-3), 2.0
"""Prior of the noise variance, as a share of the variance of the targets."""
_BOUNDS_LOG_WEIGHT = (-14.0, 9.0)
_BOUNDS_LOG_NOISE = (math.log(1e-6), math.log(2.0))
STARTS = ((10.0, 1e-4), (1.0, 0.1))
"""Weights of columns and noise from which the hyperparameters are optimised."""
NUM_STEPS = 20
"""Most steps of the optimiser that fits the hyperparameters."""
LEAST_GAIN = 1e-5
"""Part of the log density by which it has to grow in a step, else the optimiser ends."""
NUM_DECIMALS = 6
"""Decimals of the hyperparameters' logarithms."""
MEMORY = 1.0
"""Over so many times the distance of the lowest level from the highest one, the correlation of a
configuration's values falls to 1/e."""
LASTING = 0.8
"""Part of the noise of a trial's values that is the same at all levels, up to `MEMORY`."""
MAX_ROWS_FITTED = 100
"""Most rows that the hyperparameters are fitted to; the posterior uses all of them."""


@final
class GaussianProcess:
    """A Gaussian process with a Matern 5/2 kernel and a lengthscale for each parameter.

    The squared distance of two vectors is the weighted sum over columns of squared differences for
    numbers, and of 1 where categories differ. An inactive number lies in the middle of its range,
    at a distance of 1 from all active ones.

    Lengthscales and noise maximise the posterior density of the hyperparameters; the variance of
    the kernel is the one that maximises the likelihood given these, and the mean is constant.

    Where rows were measured at several levels of training, the kernel is multiplied by one that
    decays with the distance of the levels, and the mean is a line over levels with a prior of its
    own. Predictions are for the highest level.

    Args:
        rows: Vectors, one per row; NaN for inactive parameters.
        targets: The value of each row.
        num_categories: For each column the number of its categories, 0 for numbers.
        depths: For each row the distance of its level below the highest one, from 0 to 1; None if
            all were measured at the same level.
        trials: With `depths`, the number of each row's trial, from 0.
        logs: The `logs` of an earlier process, to be kept; None to fit them.
        num_steps: Most steps of the optimiser, from each of `STARTS`.

    Attributes:
        logs: Logarithms of the weights of the columns (lengthscale ** -2) and, last, of the noise.

    Example:
        >>> import numpy as np
        >>> rows = np.linspace(0, 1, 12)[:, None]
        >>> process = GaussianProcess(rows, np.sin(5 * rows[:, 0]), (0,))
        >>> mean, deviation = process.predict(np.array([[0.3]]))
        >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01), bool(deviation[0] < 0.1)
        (True, True)

    Reference:
        Rasmussen, Williams. Gaussian Processes for Machine Learning. MIT Press 2006, algorithm 2.1,
        equations 5.8 and 5.9 (likelihood and gradient).

        Hvarfner, Hellsten, Nardi. Vanilla Bayesian Optimization Performs Great in High Dimensions.
        ICML 2024, arXiv 2402.02229 (the prior of lengthscales).

        Swersky, Snoek, Adams. Multi-Task Bayesian Optimization. NeurIPS 2013 (the product of a
        kernel over configurations and one over tasks, here levels).

        Hutter, Osborne. A Kernel for Hierarchical Parameter Spaces. 2013, arXiv 1310.5738 (inactive
        parameters).

    Departures:
        Active and inactive parameters are distinguished by a feature of their own rather than by an
        angle. The variance of the kernel has no prior. The correlation of levels is not fitted: few
        trials reach the higher ones.
    """

    def __init__(
        self,
        rows: Array,
        targets: Array,
        num_categories: tuple[int, ...],
        *,
        depths: Array | None = None,
        trials: Array | None = None,
        logs: Sequence[float] | None = None,
        num_steps: int = NUM_STEPS,
    ) -> None:
        self._num_categories = num_categories
        self._features, self._owners = _embedded(rows, num_categories)
        self._depths = np.zeros(len(rows)) if depths is None else depths
        self._trials = np.full(len(rows), -1) if trials is None else trials
        self._line, self._lasting = (0.0, 0.0) if depths is None else (1.0, LASTING)
        self.mean = float(targets.mean())
        self._targets = targets - self.mean
        self.logs = self._fitted(num_steps) if logs is None else tuple(logs)
        self._scales = np.sqrt(5 * np.exp(self.logs[:-1]))[self._owners]
        self._lasting *= math.exp(self.logs[-1])
        self._noise = math.exp(self.logs[-1]) - self._lasting
        kernel = self._kernel(self._features, self._depths[:, None], self._trials)
        factor = _cholesky(kernel, self._noise)
        self._alpha = _solve(factor, self._targets)
        self._whitening = _inverse(factor)
        self.variance = max(float(self._targets @ self._alpha) / max(len(rows), 1), 1e-12)

    def believe(self, points: Array) -> None:
        """Add points as if each had been observed with its predicted mean, such as running trials.

        Means stay as they are, and deviations near the points become smaller.

        Reference:
            Ginsbourger, Le Riche, Carraro. Kriging Is Well-Suited to Parallelize Optimization.
            Computational Intelligence in Expensive Optimization Problems, 2010.
        """
        embedded, _ = _embedded(points, self._num_categories)
        explained = self._kernel(embedded) @ self._whitening.T
        left = self._matern(embedded, embedded) + self._line - explained @ explained.T
        below = _inverse(_cholesky(left, math.exp(self.logs[-1])))
        beside = -below @ explained @ self._whitening
        beyond = np.zeros((len(explained.T), len(points)))
        self._whitening = np.block([[self._whitening, beyond], [beside, below]])
        self._features = np.concatenate([self._features, embedded])
        self._depths = np.concatenate([self._depths, np.zeros(len(points))])
        self._trials = np.concatenate([self._trials, np.full(len(points), -1)])
        # What was predicted anyway changes no prediction.
        self._alpha = np.concatenate([self._alpha, np.zeros(len(points))])

    def means(self) -> Array:
        """Return the predicted mean of each row that the process was fitted to."""
        means: Array = self.mean + self._targets - self._noise * self._alpha[: len(self._targets)]
        return means

    def predict(self, points: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Return the mean and the standard deviation at each point, without noise.

        Args:
            points: Vectors, one per row.
            trials: The trial that each is of, whose noise is known in part; None for new points.
        """
        embedded, _ = _embedded(points, self._num_categories)
        cross = self._kernel(embedded, trials=trials)
        means = self.mean + cross @ self._alpha
        explained = cross @ self._whitening.T
        total = 1 + self._line + (0.0 if trials is None else self._lasting)
        unexplained = total - np.einsum("ij,ij->i", explained, explained)
        return means, np.sqrt(self.variance * np.maximum(unexplained, 1e-12))

    def _kernel(
        self, features: Array, depths: Array | float = 0.0, trials: Array | None = None
    ) -> Array:
        """Return the kernel of these features and of what was observed, by row of each.

        Args:
            features: The features of points or rows.
            depths: Their distances below the highest level, in a column.
            trials: Their trials; None for new points.
        """
        kernel = self._matern(features, self._features)
        if self._line:
            memory = _memory(depths, self._depths)
            if trials is not None:
                kernel += self._lasting * (trials[:, None] == self._trials)
            kernel *= memory
            kernel += self._line * (1 + depths * self._depths)
        return kernel

    def _matern(self, first: Array, second: Array) -> Array:
        """Return (1 + r + r^2 / 3) exp(-r) for the features, by row of each."""
        left, right = first * self._scales, second * self._scales
        # In one product: |a - b|^2 = (a, |a|^2, 1) . (-2b, 1, |b|^2).
        squares = np.column_stack([left, (left**2).sum(axis=1), np.ones(len(left))]) @ (
            np.column_stack([-2 * right, np.ones(len(right)), (right**2).sum(axis=1)]).T
        )
        root = np.sqrt(np.maximum(squares, 0.0, out=squares))
        kernel: Array = squares
        kernel *= 1 / 3
        kernel += root
        kernel += 1
        kernel *= np.exp(np.negative(root, out=root), out=root)
        return kernel

    def _fitted(self, num_steps: int) -> tuple[float, ...]:
        """Return the most probable logarithms of the hyperparameters, see `logs`."""
        from scipy.optimize import minimize  # noqa: PLC0415  (heavy)

        num_rows, num_columns = len(self._targets), len(self._num_categories)
        # Evenly spaced rows, since rows are ordered by time or by value.
        kept = np.linspace(0, num_rows - 1, min(num_rows, MAX_ROWS_FITTED)).astype(int)
        gaps = _gaps(self._features[kept], self._owners, num_columns)
        mean_log_weight = -2 * (MEAN_LOG_LENGTHSCALE + 0.5 * math.log(max(num_columns, 1)))
        prior_means = np.append(np.full(num_columns, mean_log_weight), MEAN_LOG_NOISE)
        prior_sds = np.append(np.full(num_columns, 2 * SD_LOG_LENGTHSCALE), SD_LOG_NOISE)
        depths, trials = self._depths[kept], self._trials[kept]
        first, second = np.tril_indices(len(kept), -1)
        objective = _negative_log_posterior(
            gaps,
            self._targets[kept],
            self._line * (1 + depths**2),
            prior_means,
            prior_sds,
            factors=_memory(depths[first], depths[second]),
            offsets=self._line * (1 + depths[first] * depths[second]),
            lasting=self._lasting * (trials[first] == trials[second]),
        )
        # A smooth function that is known exactly, or a rough one with noise: there is often an
        # optimum for each.
        starts = [[math.log(weight)] * num_columns + [math.log(noise)] for weight, noise in STARTS]
        found = [
            minimize(
                objective,
                np.array(each),
                jac=True,
                method="L-BFGS-B",
                bounds=[_BOUNDS_LOG_WEIGHT] * num_columns + [_BOUNDS_LOG_NOISE],
                options={"maxiter": num_steps, "ftol": LEAST_GAIN},
            )
            for each in starts
        ]
        best = min(found, key=lambda each: float(each.fun))
        # Rounded, so that rounding errors do not grow from one fit to the next.
        return tuple(np.round(best.x, NUM_DECIMALS).tolist())


def _memory(first: Array | float, second: Array) -> Array:
    """Return how much is known at a level from another, by their distances below the highest."""
    memory: Array = np.exp(-np.abs(first - second) / MEMORY)
    return memory


def _negative_log_posterior(
    gaps: Array,
    targets: Array,
    known: Array,
    prior_means: Array,
    prior_sds: Array,
    *,
    factors: Array | float = 1.0,
    offsets: Array | float = 0.0,
    lasting: Array | float = 0.0,
) -> Callable[[Array], tuple[float, Array]]:
    """Return a function of the hyperparameters' logarithms: minus the log density, gradient.

    Args:
        gaps: See `_gaps`.
        targets: The value of each row.
        known: What its variance is known to be besides that of the kernel.
        prior_means: Means of the logarithms.
        prior_sds: Their standard deviations.
        factors: By which the Matern kernel of each pair of rows is multiplied.
        offsets: What is added to it then.
        lasting: The part of the noise that a pair shares, before it is multiplied by its factor.
    """
    from scipy.linalg.lapack import dpotri  # noqa: PLC0415  (heavy)

    num_rows = len(targets)
    first, second = np.tril_indices(num_rows, -1)
    # Of symmetric matrices only the lower half is computed. They are in the order of columns that
    # LAPACK works in.
    below_diagonal = second * num_rows + first
    shared = lasting * factors * np.ones(len(first))

    def evaluate(logs: Array) -> tuple[float, Array]:
        weights, noise_scale = np.exp(logs[:-1]), math.exp(logs[-1])
        squares = (5 * weights) @ gaps
        root = np.sqrt(squares)
        decay = np.exp(-root) * factors
        slope = (1 + root) * decay
        kernel = np.eye(num_rows)
        kernel.ravel()[below_diagonal] = (
            slope + squares / 3 * decay + offsets + noise_scale * shared
        )
        factor = _cholesky(kernel, noise_scale + known)
        alpha = _solve(factor, targets)
        variance = max(float(targets @ alpha) / num_rows, 1e-12)
        standard = (logs - prior_means) / prior_sds
        # With the variance that is best for these logs, the likelihood's exponent is constant.
        value = (
            0.5 * num_rows * math.log(variance)
            + float(np.log(factor.diagonal()).sum())
            + 0.5 * float(standard @ standard)
        )
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
        sensitivity = inverse.T.ravel()[below_diagonal] - alpha[first] * alpha[second] / variance
        # The derivative of the kernel by the squared distance is -5/6 of the slope; each pair
        # counts twice.
        by_weight = -5 / 6 * (gaps @ (sensitivity * slope))
        by_noise = 0.5 * (float(inverse.trace()) - float(alpha @ alpha) / variance)
        by_noise += float(sensitivity @ shared)
        gradient = np.append(weights * by_weight, noise_scale * by_noise)
        return value, gradient + standard / prior_sds

    return evaluate


def _gaps(features: Array, owners: Array, num_columns: int) -> Array:
    """Return the squared distances by column, a row for each, of all pairs of rows."""
    first, second = np.tril_indices(len(features), -1)
    gaps = np.zeros((num_columns, len(first)))
    for owner, part in zip(owners, features.T, strict=True):
        gaps[owner] += (part[first] - part[second]) ** 2
    return gaps


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which numpy and scipy compute with one thread.

    Matrices of at most some hundred rows gain nothing from several threads, which lose much time
    when trials occupy all cores: thirty times as much was measured. With one thread the rounding is
    the same on every machine, too.
    """
    context: AbstractContextManager[Any] = _blas_libraries().limit(limits=1)
    return context


@functools.cache
def _blas_libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401, PLC0415  (it brings a library of its own, to be limited too)
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  (loaded with scipy)

    return ThreadpoolController().select(user_api="blas")


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return the logarithm of the expected improvement over a value; smaller values are better.

    Args:
        mean: Predicted mean of each point.
        deviation: Its standard deviation.
        best: The value to improve on.

    Reference:
        Jones, Schonlau, Welch. Efficient Global Optimization of Expensive Black-Box Functions.
        Journal of Global Optimization 13, 1998.

        Ament, Daulton, Eriksson, Balandat, Bakshy. Unexpected Improvements to Expected Improvement
        for Bayesian Optimization. NeurIPS 2023, arXiv 2310.20708 (equation 9, without underflow).
    """
    from scipy.special import erfcx, log_ndtr  # noqa: PLC0415  (heavy)

    z = (best - mean) / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    direct = np.log(np.maximum(density + z * np.exp(log_ndtr(z)), 1e-300))
    # Far below, density and the rest cancel: the ratio of the two is computed by erfcx.
    below = np.minimum(z, -1.0)
    ratio = math.sqrt(math.pi / 2) * erfcx(-below / math.sqrt(2)) * np.abs(below)
    tail = (
        -0.5 * below**2
        - 0.5 * math.log(2 * math.pi)
        + np.log(np.maximum(1 - ratio, 1 / (2 * below**2) * 1e-2))
    )
    improvement: Array = np.log(deviation) + np.where(z > -1, direct, tail)
    return improvement


def _embedded(rows: Array, num_categories: tuple[int, ...]) -> tuple[Array, Array]:
    """Return features whose squared distances are those of the columns, and their columns.

    A number is one feature, and a category one for each option. Where a column may be inactive,
    another feature tells whether it is.
    """
    counts = np.array(num_categories, dtype=int)
    numbers, categories = np.flatnonzero(counts == 0), np.flatnonzero(counts)
    owners = np.repeat(categories, counts[categories])
    options = np.concatenate([np.arange(count) for count in num_categories] or [counts])
    is_absent = np.isnan(rows)
    features = np.hstack(
        [
            np.where(is_absent, 0.5, rows)[:, numbers],
            is_absent[:, numbers],
            (rows[:, owners] == options) * math.sqrt(0.5),
            is_absent[:, categories] * math.sqrt(0.5),
        ]
    )
    return features, np.concatenate([numbers, numbers, owners, categories])


def _cholesky(kernel: Array, noise: Array | float) -> Array:
    """Return the lower factor of a kernel with noise; the kernel is overwritten.

    LAPACK is called directly, here and below: checks of the arguments take longer than the
    calculation.
    """
    from scipy.linalg.lapack import dpotrf  # noqa: PLC0415  (heavy)

    kernel.ravel()[:: len(kernel) + 1] += noise
    # The transpose of a symmetric matrix has the order of columns that LAPACK works in.
    factor: Array
    factor, fault = dpotrf(kernel.T, lower=1, overwrite_a=1)
    if fault:
        raise np.linalg.LinAlgError(f"row {fault} of the kernel follows from those before it")
    return factor


def _solve(factor: Array, targets: Array) -> Array:
    from scipy.linalg.lapack import dpotrs  # noqa: PLC0415  (heavy)

    solved: Array
    solved, _ = dpotrs(factor, targets, lower=1)
    return solved


def _inverse(factor: Array) -> Array:
    """Return the inverse of a lower factor: products with it are faster than solving."""
    from scipy.linalg.lapack import dtrtri  # noqa: PLC0415  (heavy)

    inverse: Array
    inverse, _ = dtrtri(factor, lower=1)
    return inverse
