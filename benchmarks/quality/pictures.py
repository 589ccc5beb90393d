"""Problems made of pictures: the two photographs and the digits that come with scikit-learn.

scikit-learn needs Pillow to read the photographs.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .problems import Floats, Problem, bundled, split

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAMES = ("china", "flower")


def place_colours(name: str, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the colour of a photograph's pixel from its position.

    The photograph is reduced eightfold.
    """
    picture = _photograph(name, 8)
    places = np.indices(picture.shape[:2]).reshape(2, -1).T.astype(np.float32)
    return split("mse", places, picture.reshape(-1, 3), (num_train, num_valid), seed)


def photograph_of(metric: str, side: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting which of the two photographs a grey patch is from."""
    rng = np.random.default_rng(seed)
    halves = [_grey(_patches(name, side, _half(num_train + num_valid), rng)[0]) for name in NAMES]
    inputs = _flat(np.concatenate(halves))
    return replace(
        split(metric, inputs, np.repeat([0, 1], len(halves[0])), (num_train, num_valid), seed),
        shape=(side, side),
    )


def quarter_of(name: str, side: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the quarter of a photograph that a coloured patch is from.

    The metric is the share of errors.
    """
    patches, places = _patches(name, side, num_train + num_valid, np.random.default_rng(seed))
    quarters = places.round().astype(np.int64) @ np.array([2, 1])
    return split("error", _flat(patches), quarters, (num_train, num_valid), seed)


def height_of(name: str, side: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the height of a coloured patch in a photograph."""
    patches, places = _patches(name, side, num_train + num_valid, np.random.default_rng(seed))
    return split(
        "mse", _flat(patches), places[:, [0]].astype(np.float32), (num_train, num_valid), seed
    )


def channel_of(name: str, side: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting whether a patch shows the red, green or blue channel.

    The metric is the cross-entropy.
    """
    rng = np.random.default_rng(seed)
    patches, _ = _patches(name, side, num_train + num_valid, rng)
    kinds = rng.integers(3, size=len(patches))
    return split(
        "log_loss",
        _flat(patches[np.arange(len(patches)), :, :, kinds]),
        kinds,
        (num_train, num_valid),
        seed,
    )


def clean_patches(name: str, side: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of removing noise from grey patches of a photograph.

    The noise is normal; its standard deviation is half that of the pixels.
    """
    rng = np.random.default_rng(seed)
    patches = _flat(_grey(_patches(name, side, num_train + num_valid, rng)[0]))
    noisy = patches + 0.5 * patches.std() * rng.standard_normal(patches.shape)
    return split("mse", noisy, patches, (num_train, num_valid), seed)


def colours(name: str, side: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the colour of the pixel in the middle of a grey patch.

    The targets are the differences of red and blue from the grey value.
    """
    patches, _ = _patches(name, side, num_train + num_valid, np.random.default_rng(seed))
    grey = _grey(patches)
    middle = patches[:, side // 2, side // 2, [0, 2]] - grey[:, side // 2, side // 2, None]
    return split("mae", _flat(grey), middle, (num_train, num_valid), seed)


def digit_codes(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of reproducing a digit, which a narrow layer makes hard."""
    inputs, _ = bundled("digits")
    return split("mse", inputs, inputs[:, inputs.std(axis=0) > 1], (num_train, num_valid), seed)


def digit_loops(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of recognising digits with loops (0, 6, 8, 9); cross-entropy."""
    inputs, targets = bundled("digits")
    return split(
        "log_loss",
        inputs,
        np.isin(targets, (0, 6, 8, 9)).astype(np.int64),
        (num_train, num_valid),
        seed,
    )


def digit_pairs(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting whether two digits are the same; cross-entropy.

    Half of the pairs are the same digit.
    """
    inputs, targets, rng = *bundled("digits"), np.random.default_rng(seed)
    first = rng.integers(len(inputs), size=num_train + num_valid)
    others = (targets[first] + rng.integers(1, 10, size=len(first))) % 10
    wanted = np.where(rng.integers(2, size=len(first)), targets[first], others)
    second = np.array([rng.choice(np.flatnonzero(targets == kind)) for kind in wanted])
    pairs = np.hstack([inputs[first], inputs[second]])
    return split(
        "log_loss",
        pairs,
        (targets[first] == targets[second]).astype(np.int64),
        (num_train, num_valid),
        seed,
    )


def digit_turns(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the quarter turns of a turned digit; cross-entropy."""
    pictures = bundled("digits")[0].reshape(-1, 8, 8)
    quarters = np.random.default_rng(seed).integers(4, size=len(pictures))
    turned = np.stack(
        [np.rot90(picture, quarter) for picture, quarter in zip(pictures, quarters, strict=True)]
    )
    return replace(
        split("log_loss", _flat(turned), quarters, (num_train, num_valid), seed), shape=(8, 8)
    )


def digit_sums(num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the sum of two digits that stand side by side."""
    inputs, targets, rng = *bundled("digits"), np.random.default_rng(seed)
    # The digits are divided before they are paired: no validation pair has a digit to train on.
    shuffled = rng.permutation(len(inputs))
    border = round(len(inputs) * num_train / (num_train + num_valid))
    parts = np.split(shuffled, [border])
    pairs = np.concatenate(
        [
            rng.choice(part, (num, 2))
            for part, num in zip(parts, (num_train, num_valid), strict=True)
        ]
    )
    pictures = inputs[pairs].reshape(-1, 2, 8, 8).transpose(0, 2, 1, 3)
    sums = targets[pairs].sum(axis=1, keepdims=True).astype(np.float32)
    return replace(split("mse", _flat(pictures), sums, (num_train, num_valid), None), shape=(8, 16))


@functools.cache
def _photograph(name: str, reduction: int) -> Floats:
    """Return the pixels of a reduced photograph, from 0 to 1: height by width by RGB channel."""
    from sklearn import datasets  # noqa: PLC0415  (an extra, and heavy)

    picture = np.asarray(datasets.load_sample_image(f"{name}.jpg"), dtype=np.float32) / 255
    high, wide = (size // reduction for size in picture.shape[:2])
    cells = picture[: reduction * high, : reduction * wide].reshape(
        high, reduction, wide, reduction, 3
    )
    means: Floats = cells.mean(axis=(1, 3))
    return means


def _patches(
    name: str, side: int, num: int, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.float64]]:
    """Return square patches of a photograph at half its size, and their positions.

    Positions are shares of its height and width, from 0 to 1.
    """
    picture = _photograph(name, 2)
    border = np.array(picture.shape[:2]) - side
    corners = rng.integers(border, size=(num, 2))
    patches = np.stack([picture[top : top + side, left : left + side] for top, left in corners])
    return patches, corners / border


def _grey(pictures: Floats) -> Floats:
    means: Floats = pictures.mean(axis=-1)
    return means


def _flat(pictures: Floats) -> Floats:
    return pictures.reshape(len(pictures), -1)


def _half(num: int) -> int:
    return -(-num // 2)
