"""Continuous functions with a known minimum of 0, from which the functions to search are built.

Most are noiseless functions of BBOB, from N. Hansen, S. Finck, R. Ros and A. Auger, "Real-Parameter
Black-Box Optimization Benchmarking 2009: Noiseless Functions Definitions" (INRIA research report
RR-6829); the comments give their numbers there. The others are classical: Ackley, Branin, Schwefel
and Hartmann's function of six variables, as in S. Surjanovic and D. Bingham, "Virtual Library of
Simulation Experiments". All are scaled to the unit cube, which is [-5, 5] in each dimension for
those of BBOB and Ackley's. They differ from BBOB in the generator of rotations, and have no penalty
outside of the cube, where nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Landscape = Callable[[Vector], float]
"""Returns the value at a point of the unit cube."""
Centred = Callable[[Vector], float]
"""Returns the value at a distance from the minimum, in the units of BBOB."""

HALF_WIDTH = 5.0
_SCHWEFEL_OPTIMUM = 420.96874635998203
_SCHWEFEL_DEPTH = 418.98288727243374
_LUNACEK_OPTIMUM = 2.5 / 2
_BRANIN_OPTIMUM = (np.pi, 2.275)
_HARTMANN6_OPTIMUM = (0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730054)


def landscape(
    kind: str, dimension: int, rng: np.random.Generator, optimum: Vector | None = None
) -> tuple[Landscape, Vector]:
    """Return a function of a kind, and the place of its minimum.

    Args:
        kind: A key of `SHIFTED`, whose minimum may be anywhere, or of `FIXED`.
        dimension: Number of coordinates, at least 2.
        rng: Draws rotations and whatever else varies between instances.
        optimum: Where the minimum is to be, in the unit cube; None to draw it.

    Raises:
        ValueError: If there is no such kind, the dimension does not suit it, or an optimum is given
            for one of `FIXED`.
    """
    if kind in FIXED:
        if optimum is not None:
            raise ValueError(f"the minimum of {kind} cannot be moved, got {optimum}; leave it out")
        return FIXED[kind](dimension, rng)
    if kind not in SHIFTED:
        raise ValueError(f"kind must be one of {', '.join([*SHIFTED, *FIXED])}, got {kind!r}")
    if dimension < 2:  # noqa: PLR2004  (as said in the message)
        raise ValueError(f"dimension must be at least 2, got {dimension}")
    place = rng.uniform(0.1, 0.9, dimension) if optimum is None else optimum
    centred = SHIFTED[kind](place, rng)
    return lambda unit: max(0.0, centred(2 * HALF_WIDTH * (unit - place))), place


def _sphere(optimum: Vector, rng: np.random.Generator) -> Centred:  # noqa: ARG001  (f1; nothing is drawn)
    return lambda x: float(x @ x)


def _ellipsoid(optimum: Vector, rng: np.random.Generator) -> Centred:  # f10
    turn = _rotation(len(optimum), rng)
    weights = 10.0 ** (6 * _steps(len(optimum)))
    return lambda x: float(weights @ _oscillated(turn @ x) ** 2)


def _attractive_sector(optimum: Vector, rng: np.random.Generator) -> Centred:  # f6
    linear = _conditioned(len(optimum), 10, rng)
    side = optimum - 0.5

    def value(x: Vector) -> float:
        z = linear @ x
        z = np.where(z * side > 0, 100 * z, z)
        return float(_oscillated(np.array([z @ z]))[0] ** 0.9)

    return value


def _step_ellipsoid(optimum: Vector, rng: np.random.Generator) -> Centred:  # f7
    dimension = len(optimum)
    turn, outer = _rotation(dimension, rng), _rotation(dimension, rng)
    stretch, weights = 10.0 ** (0.5 * _steps(dimension)), 10.0 ** (2 * _steps(dimension))

    def value(x: Vector) -> float:
        fine = stretch * (turn @ x)
        steps = np.where(np.abs(fine) > 0.5, np.floor(0.5 + fine), np.floor(0.5 + 10 * fine) / 10)  # noqa: PLR2004  (as in the definition)
        z = outer @ steps
        return float(0.1 * max(abs(fine[0]) / 1e4, weights @ z**2))

    return value


def _rosenbrock(optimum: Vector, rng: np.random.Generator) -> Centred:  # f9
    linear = max(1.0, len(optimum) ** 0.5 / 8) * _rotation(len(optimum), rng)

    def value(x: Vector) -> float:
        z = linear @ x + 1
        return float(np.sum(100 * (z[:-1] ** 2 - z[1:]) ** 2 + (z[:-1] - 1) ** 2))

    return value


def _rastrigin(optimum: Vector, rng: np.random.Generator) -> Centred:  # f15
    dimension = len(optimum)
    turn, linear = _rotation(dimension, rng), _conditioned(dimension, 10, rng)

    def value(x: Vector) -> float:
        z = linear @ _asymmetric(_oscillated(turn @ x), 0.2)
        return float(10 * np.sum(1 - np.cos(2 * np.pi * z)) + z @ z)

    return value


def _different_powers(optimum: Vector, rng: np.random.Generator) -> Centred:  # f14
    turn, powers = _rotation(len(optimum), rng), 2 + 4 * _steps(len(optimum))
    return lambda x: float(np.sqrt(np.sum(np.abs(turn @ x) ** powers)))


def _sharp_ridge(optimum: Vector, rng: np.random.Generator) -> Centred:  # f13
    linear = _conditioned(len(optimum), 10, rng)

    def value(x: Vector) -> float:
        z = linear @ x
        return float(z[0] ** 2 + 100 * np.sqrt(z[1:] @ z[1:]))

    return value


def _weierstrass(optimum: Vector, rng: np.random.Generator) -> Centred:  # f16
    dimension = len(optimum)
    turn, linear = _rotation(dimension, rng), _conditioned(dimension, 0.01, rng)
    amplitudes, frequencies = 0.5 ** np.arange(12), 3.0 ** np.arange(12)
    least = float(amplitudes @ np.cos(np.pi * frequencies))

    def value(x: Vector) -> float:
        z = linear @ _oscillated(turn @ x)
        waves = np.cos(2 * np.pi * frequencies[:, None] * (z + 0.5))
        return float(10 * max(0.0, np.mean(amplitudes @ waves) - least) ** 3)

    return value


def _schaffer(optimum: Vector, rng: np.random.Generator) -> Centred:  # f17
    dimension = len(optimum)
    turn, outer = _rotation(dimension, rng), _rotation(dimension, rng)
    stretch = 10.0 ** (0.5 * _steps(dimension))

    def value(x: Vector) -> float:
        z = stretch * (outer @ _asymmetric(turn @ x, 0.5))
        s = np.hypot(z[:-1], z[1:])
        return float(np.mean(np.sqrt(s) * (1 + np.sin(50 * s**0.2) ** 2)) ** 2)

    return value


def _griewank_rosenbrock(optimum: Vector, rng: np.random.Generator) -> Centred:  # f19
    linear = max(1.0, len(optimum) ** 0.5 / 8) * _rotation(len(optimum), rng)

    def value(x: Vector) -> float:
        z = linear @ x + 1
        s = 100 * (z[:-1] ** 2 - z[1:]) ** 2 + (z[:-1] - 1) ** 2
        return float(10 * np.mean(s / 4000 - np.cos(s)) + 10)

    return value


def _gallagher(optimum: Vector, rng: np.random.Generator) -> Centred:  # f21
    dimension, num_peaks = len(optimum), 101
    turn = _rotation(dimension, rng)
    # The peaks are given by their distance from the highest one, which is the minimum.
    places = 2 * HALF_WIDTH * (rng.uniform(size=(num_peaks, dimension)) - optimum)
    places[0] = 0
    heights = np.concatenate([[10.0], np.linspace(1.1, 9.1, num_peaks - 1)])
    conditions = np.concatenate(
        [[1000.0], rng.permutation(1000.0 ** (2 * np.linspace(0, 1, num_peaks - 1)))]
    )
    weights = np.stack(
        [
            rng.permutation(condition ** (0.5 * _steps(dimension))) / condition**0.25
            for condition in conditions
        ]
    )

    def value(x: Vector) -> float:
        turned = (x - places) @ turn.T
        peaks = heights * np.exp(-np.sum(weights * turned**2, axis=1) / (2 * dimension))
        return float(_oscillated(10 - np.array([peaks.max()]))[0] ** 2)

    return value


def _ackley(optimum: Vector, rng: np.random.Generator) -> Centred:
    turn = _rotation(len(optimum), rng)

    def value(x: Vector) -> float:
        z = turn @ x
        valley = -20 * np.exp(-0.2 * np.sqrt(np.mean(z**2)))
        return float(valley - np.exp(np.mean(np.cos(2 * np.pi * z))) + 20 + np.e)

    return value


def _schwefel(dimension: int, rng: np.random.Generator) -> tuple[Landscape, Vector]:
    # Without the penalty of f20, beside which its waves would be invisible in most of the cube.
    signs = rng.choice([-1.0, 1.0], dimension)

    def value(unit: Vector) -> float:
        x = 500 * signs * (2 * unit - 1)
        return max(0.0, float(np.sum(_SCHWEFEL_DEPTH - x * np.sin(np.sqrt(np.abs(x))))))

    return value, (signs * _SCHWEFEL_OPTIMUM / 500 + 1) / 2


def _lunacek(dimension: int, rng: np.random.Generator) -> tuple[Landscape, Vector]:  # f24
    signs = rng.choice([-1.0, 1.0], dimension)
    linear = _conditioned(dimension, 100, rng)
    first = 2 * _LUNACEK_OPTIMUM
    width = 1 - 1 / (2 * (dimension + 20) ** 0.5 - 8.2)
    second = -(((first**2 - 1) / width) ** 0.5)

    def value(unit: Vector) -> float:
        x = 2 * signs * HALF_WIDTH * (2 * unit - 1)
        z = linear @ (x - first)
        bowls = min(np.sum((x - first) ** 2), dimension + width * np.sum((x - second) ** 2))
        return float(bowls + 10 * np.sum(1 - np.cos(2 * np.pi * z)))

    return value, _unit(signs * _LUNACEK_OPTIMUM)


def _branin(dimension: int, rng: np.random.Generator) -> tuple[Landscape, Vector]:  # noqa: ARG001  (nothing is drawn)
    _require("branin", 2, dimension)

    def raw(x: float, y: float) -> float:
        bend = y - 5.1 * x**2 / (4 * np.pi**2) + 5 * x / np.pi - 6
        return float(bend**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10)

    least = raw(*_BRANIN_OPTIMUM)
    return (
        lambda unit: max(0.0, raw(15 * unit[0] - 5, 15 * unit[1]) - least),
        np.array([(_BRANIN_OPTIMUM[0] + 5) / 15, _BRANIN_OPTIMUM[1] / 15]),
    )


def _hartmann6(dimension: int, rng: np.random.Generator) -> tuple[Landscape, Vector]:  # noqa: ARG001  (nothing is drawn)
    _require("hartmann6", 6, dimension)
    heights = np.array([1.0, 1.2, 3.0, 3.2])
    widths = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    places = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )

    def raw(unit: Vector) -> float:
        return -float(heights @ np.exp(-np.sum(widths * (unit - places) ** 2, axis=1)))

    optimum = np.array(_HARTMANN6_OPTIMUM)
    least = raw(optimum)
    return lambda unit: max(0.0, raw(unit) - least), optimum


SHIFTED: Mapping[str, Callable[[Vector, np.random.Generator], Centred]] = {
    "sphere": _sphere,
    "ellipsoid": _ellipsoid,
    "attractive_sector": _attractive_sector,
    "step_ellipsoid": _step_ellipsoid,
    "rosenbrock": _rosenbrock,
    "rastrigin": _rastrigin,
    "different_powers": _different_powers,
    "sharp_ridge": _sharp_ridge,
    "weierstrass": _weierstrass,
    "schaffer": _schaffer,
    "griewank_rosenbrock": _griewank_rosenbrock,
    "gallagher": _gallagher,
    "ackley": _ackley,
}
"""Functions whose minimum may be anywhere in the cube."""

FIXED: Mapping[str, Callable[[int, np.random.Generator], tuple[Landscape, Vector]]] = {
    "schwefel": _schwefel,
    "lunacek": _lunacek,
    "branin": _branin,
    "hartmann6": _hartmann6,
}
"""Functions with their minimum at a fixed place, up to the signs of its coordinates."""


def _rotation(dimension: int, rng: np.random.Generator) -> Vector:
    """Return a random orthogonal matrix (F. Mezzadri, arXiv math-ph/0609050)."""
    q, r = np.linalg.qr(rng.normal(size=(dimension, dimension)))
    return np.asarray(q * np.sign(np.diag(r)), dtype=np.float64)


def _conditioned(dimension: int, condition: float, rng: np.random.Generator) -> Vector:
    """Return a rotation, a scaling with the square root of a condition number, and a rotation."""
    stretch = condition ** (0.5 * _steps(dimension))
    return _rotation(dimension, rng) @ (stretch[:, None] * _rotation(dimension, rng))


def _steps(dimension: int) -> Vector:
    return np.linspace(0.0, 1.0, dimension)


def _oscillated(x: Vector) -> Vector:
    """Return the transformation T_osz of BBOB, smooth but irregular."""
    size = np.log(np.where(x == 0, 1.0, np.abs(x)))
    c1, c2 = np.where(x > 0, 10.0, 5.5), np.where(x > 0, 7.9, 3.1)
    oscillated: Vector = np.sign(x) * np.exp(size + 0.049 * (np.sin(c1 * size) + np.sin(c2 * size)))
    return oscillated


def _asymmetric(x: Vector, beta: float) -> Vector:
    """Return the transformation T_asy of BBOB, which stretches positive coordinates."""
    positive = np.maximum(x, 0)
    stretched: Vector = np.where(
        x > 0, positive ** (1 + beta * _steps(len(x)) * np.sqrt(positive)), x
    )
    return stretched


def _unit(x: Vector) -> Vector:
    return (x / HALF_WIDTH + 1) / 2


def _require(kind: str, dimension: int, given: int) -> None:
    if given != dimension:
        raise ValueError(f"{kind} has {dimension} dimensions, got {given}")
