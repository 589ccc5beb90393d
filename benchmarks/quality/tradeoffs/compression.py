"""Compression of a photograph, whose error is weighed against its size."""

from __future__ import annotations

import functools

import numpy as np

from benchmarks.quality.functions.function import Axis
from searchers.objectives import OutcomeConstraint

from .problem import Config, Metrics, Objective, Problem, Values

_SIDE = 96
_TO_LUMA = np.array(
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]]
)
"""Brightness and two differences of colour, as in JPEG."""


def compressed(config: Config) -> Metrics:
    """Return error, size and visible blocks of a photograph after a block transform.

    The size is the entropy of the rounded coefficients, of each frequency alone.
    """
    block, size_bits, restored = int(config["block"]), 0.0, []
    for number, plane in enumerate(_planes()):
        factor = config["chroma_step"] if number else 1.0
        is_thinned = number > 0 and config["chroma"] == "halved"
        small = (
            plane.reshape(_SIDE // 2, 2, _SIDE // 2, 2).mean(axis=(1, 3)) if is_thinned else plane
        )
        back, bits = _coded(small, block, config["step"] * factor, config)
        size_bits += bits
        restored.append(back.repeat(2, axis=0).repeat(2, axis=1) if is_thinned else back)
    differences = np.stack(restored) - _planes()
    colours = np.tensordot(np.linalg.inv(_TO_LUMA), differences, axes=1)
    return {
        "rmse": float(np.sqrt((colours**2).mean())),
        "size_kb": size_bits / 8 / 1_024,
        "blockiness": _blockiness(differences[0], block),
        "kmults": 2 * block * _SIDE**2 / 1_000,
    }


def _halved(plane: Values) -> Values:
    """Return the means of two by two pixels."""
    means: Values = plane.reshape(_SIDE // 2, 2, _SIDE // 2, 2).mean(axis=(1, 3))
    return means


def _coded(plane: Values, block: int, step: float, config: Config) -> tuple[Values, float]:
    """Return a plane after its coefficients have been rounded, and their entropy in bits."""
    transform, num = _transform(block), len(plane) // block
    blocks = plane.reshape(num, block, num, block).transpose(0, 2, 1, 3).reshape(-1, block, block)
    coefficients = transform @ blocks @ transform.T
    frequency = np.add.outer(np.arange(block), np.arange(block)) / (2 * block - 2)
    steps = step * (1 + config["slope"] * frequency)
    # Rounding towards zero saves bits.
    levels = np.sign(coefficients) * np.floor(np.abs(coefficients) / steps + config["rounding"])
    back = transform.T @ (levels * steps) @ transform
    whole = back.reshape(num, num, block, block).transpose(0, 2, 1, 3).reshape(plane.shape)
    return whole, _entropy(levels.reshape(len(levels), -1))


def _entropy(levels: Values) -> float:
    """Return the entropy of the columns of a matrix of integers, in bits."""
    num_rows, num_columns = levels.shape
    symbols = np.clip(levels, -127, 127).astype(np.int64) + 127
    flat = symbols + 255 * np.arange(num_columns)
    counts = np.bincount(flat.ravel(), minlength=255 * num_columns)
    shares = counts[counts > 0] / num_rows
    return float(-num_rows * (shares * np.log2(shares)).sum())


def _blockiness(difference: Values, block: int) -> float:
    """Return how much larger jumps of the error are at the edges of blocks than inside."""
    jumps = np.abs(np.diff(difference, axis=1)).mean(axis=0)
    is_edge = np.arange(1, _SIDE) % block == 0
    return float(jumps[is_edge].mean() - jumps[~is_edge].mean())


@functools.cache
def _planes() -> Values:
    """Return brightness and differences of colour of a part of a photograph."""
    from sklearn.datasets import load_sample_image  # noqa: PLC0415  (an extra, and heavy)

    picture = load_sample_image("flower.jpg")[100 : 100 + 2 * _SIDE, 200 : 200 + 2 * _SIDE]
    small = picture.reshape(_SIDE, 2, _SIDE, 2, 3).mean(axis=(1, 3))
    planes: Values = np.tensordot(_TO_LUMA, small, axes=(1, 2))
    return planes


@functools.cache
def _transform(block: int) -> Values:
    """Return the matrix of the orthonormal cosine transform."""
    places = np.arange(block)
    matrix: Values = np.cos(np.pi / block * np.outer(places, places + 0.5)) * np.sqrt(2 / block)
    matrix[0] /= np.sqrt(2)
    return matrix


PROBLEMS = (
    Problem(
        "photo_compression",
        "models",
        "compressed photograph: error and size, without visible blocks",
        (
            Axis("block", "choice", values=("4", "8", "16")),
            Axis("chroma", "choice", values=("full", "halved")),
            Axis("step", "float", 2.0, 200.0, log=True),
            Axis("chroma_step", "float", 0.3, 10.0, log=True),
            Axis("slope", "float", 0.0, 4.0),
            Axis("rounding", "float", 0.05, 0.6),
        ),
        (Objective("rmse"), Objective("size_kb")),
        (OutcomeConstraint("blockiness", "<=", 0.3), OutcomeConstraint("rmse", "<=", 8.0)),
        compressed,
    ),
)
