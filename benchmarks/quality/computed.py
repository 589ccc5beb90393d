"""Problems that are computed: arithmetic, parities, spirals, a melody, text, and noisy digits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .problems import Floats, Problem, bundled, split

Kinds = NDArray[np.int64]

_CONSONANTS, _VOWELS = "bdfgklmnprst", "aeiou"


def modular(operation: str, modulus: int, num_train: int, metric: str, seed: int) -> Problem:
    """Return the problem of adding or multiplying two numbers by a modulus.

    All pairs of numbers are there, each number as one column of its own; those that are not trained
    on are for validation.

    Args:
        operation: ``"sum"`` or ``"product"``; factors are not 0.
        modulus: The modulus, a prime number.
        num_train: Number of training examples.
        metric: See `Problem`.
        seed: Seed of the choice of the training examples.
    """
    first, second = np.indices((modulus, modulus)).reshape(2, -1)
    if operation == "product":
        is_kept = (first > 0) & (second > 0)
        first, second = first[is_kept], second[is_kept]
    results = (first + second if operation == "sum" else first * second) % modulus
    columns = np.eye(modulus, dtype=np.float32)
    inputs = np.hstack([columns[first], columns[second]]) * np.float32(np.sqrt(modulus / 2))
    return _unscaled(metric, inputs, results, num_train, seed)


def bit_parity(num_bits: int, num_relevant: int, num_train: int, seed: int) -> Problem:
    """Return the problem of predicting the parity of the first of some random bits.

    The metric is the cross-entropy.
    """
    bits = np.random.default_rng(seed).integers(2, size=(num_train + 1000, num_bits))
    return _unscaled(
        "log_loss",
        (2 * bits - 1).astype(np.float32),
        bits[:, :num_relevant].sum(axis=1) % 2,
        num_train,
        seed,
    )


def spirals(num_turns: float, noise: float, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of separating two spirals; cross-entropy."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(2, size=num_train + num_valid)
    radii = np.sqrt(rng.random(len(kinds)))
    angles = 2 * np.pi * num_turns * radii + np.pi * kinds
    points = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = points + noise * rng.standard_normal(points.shape)
    return split("log_loss", points.astype(np.float32), kinds, (num_train, num_valid), seed)


def melody(num_notes: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the amplitude of a melody from the time; squared error.

    Each note is a tone with two overtones that fades away.
    """
    rng = np.random.default_rng(seed)
    times = rng.random(num_train + num_valid) * num_notes
    pitches = 2.0 * 2 ** (rng.integers(12, size=num_notes) / 12)
    notes = times.astype(np.int64)
    passed = times - notes
    amplitudes = sum(
        share * np.sin(2 * np.pi * overtone * pitches[notes] * passed)
        for overtone, share in ((1, 1.0), (2, 0.5), (3, 0.25))
    ) * np.exp(-2 * passed)
    return split(
        "mse",
        times[:, None].astype(np.float32),
        amplitudes[:, None].astype(np.float32),
        (num_train, num_valid),
        seed,
    )


def noisy_digits(deviation: float, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of removing noise from a digit; squared error.

    Args:
        deviation: Standard deviation of the noise, as a share of that of all pixels.
        num_train: Number of training examples.
        num_valid: Number of validation examples.
        seed: Seed of the noise and of the order of the examples.
    """
    pixels, _ = bundled("digits")
    noise = np.random.default_rng(seed).standard_normal(pixels.shape).astype(np.float32)
    noisy = pixels + deviation * pixels.std() * noise
    return split("mse", noisy, pixels[:, pixels.std(axis=0) > 1], (num_train, num_valid), seed)


def names(length: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the next letter of a list of names; cross-entropy.

    A name is made of two syllables, of which the first is repeated at the end.

    Args:
        length: Number of letters before the one to predict.
        num_train: Number of training examples, from the first part of the list.
        num_valid: Number of validation examples, from the rest.
        seed: Seed of the names and of the choice of the places.
    """
    rng = np.random.default_rng(seed)

    def syllable() -> str:
        return str(rng.choice(list(_CONSONANTS))) + str(rng.choice(list(_VOWELS)))

    def name() -> str:
        first, second = syllable(), syllable()
        return f"{first}{second}{first} "

    return _next_letter([name() for _ in range(2000)], length, (num_train, num_valid), rng)


def sentences(length: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of predicting the next letter of a text; cross-entropy.

    The text is made of 40 words, the more frequent the earlier they are in the list; each word
    decides between four words that may follow it. Arguments are those of `names`.
    """
    rng = np.random.default_rng(seed)
    words = [
        "".join(
            str(rng.choice(list(_CONSONANTS))) + str(rng.choice(list(_VOWELS)))
            for _ in range(rng.integers(1, 4))
        )
        for _ in range(40)
    ]
    shares = 1 / np.arange(1, 41)
    followers = [rng.choice(40, size=4, p=shares / shares.sum()) for _ in words]
    text, last = [], 0
    for _ in range(4000):
        last = int(rng.choice(followers[last]))
        text.append(f"{words[last]} ")
    return _next_letter(text, length, (num_train, num_valid), rng)


def _next_letter(
    words: list[str], length: int, sizes: tuple[int, int], rng: np.random.Generator
) -> Problem:
    letters = sorted({*_CONSONANTS, *_VOWELS, " "})
    text = np.array([letters.index(letter) for letter in "".join(words)])
    border = len(text) * 2 // 3
    parts = []
    for (low, high), size in zip(((0, border), (border, len(text))), sizes, strict=True):
        ends = low + length + rng.permutation(high - low - length)[:size]
        windows = text[ends[:, None] + np.arange(-length, 0)].astype(np.float32)
        parts.append((windows, text[ends]))
    return Problem("log_loss", parts[0], parts[1], len(letters))


def _unscaled(metric: str, inputs: Floats, kinds: Kinds, num_train: int, seed: int) -> Problem:
    """Return a classification problem with the inputs as they are."""
    order = np.random.default_rng(seed).permutation(len(inputs))
    train, valid = order[:num_train], order[num_train:]
    parts = (inputs[train], kinds[train]), (inputs[valid], kinds[valid])
    return Problem(metric, *parts, num_outputs=int(kinds.max()) + 1)
