"""Problems made by scikit-learn's generators of data."""

from __future__ import annotations

import numpy as np

from .problems import Problem, raw, split


def friedman(number: int, noise: float, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the regression problem ``make_friedman1``, 2 or 3; squared error.

    Args:
        number: Number of the generator.
        noise: Standard deviation of the noise, as a share of that of the targets.
        num_train: Number of training examples.
        num_valid: Number of validation examples.
        seed: Seed of the generator and of the order of the examples.
    """
    from sklearn import datasets  # noqa: PLC0415  (an extra, and heavy)

    generate = getattr(datasets, f"make_friedman{number}")
    inputs, targets = generate(n_samples=num_train + num_valid, random_state=seed)
    rng = np.random.default_rng(seed)
    targets = targets + noise * targets.std() * rng.standard_normal(len(targets))
    return split("mse", inputs, targets[:, None], (num_train, num_valid), seed)


def hastie(metric: str, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of separating points near the origin, in ten dimensions, from others."""
    from sklearn import datasets  # noqa: PLC0415  (an extra, and heavy)

    inputs, signs = datasets.make_hastie_10_2(num_train + num_valid, random_state=seed)
    return split(metric, inputs, (signs > 0).astype(np.int64), (num_train, num_valid), seed)


def moons(metric: str, noise: float, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of separating two half moons, whose points have a normal deviation."""
    from sklearn import datasets  # noqa: PLC0415  (an extra, and heavy)

    inputs, kinds = datasets.make_moons(num_train + num_valid, noise=noise, random_state=seed)
    return split(metric, inputs, kinds, (num_train, num_valid), seed)


def classes(metric: str, num_classes: int, num_train: int, num_valid: int, seed: int) -> Problem:
    """Return the problem of separating classes of two clusters each, in 20 columns.

    Six columns are informative, four are combinations of them, and ten are noise.
    """
    from sklearn import datasets  # noqa: PLC0415  (an extra, and heavy)

    inputs, kinds = datasets.make_classification(
        num_train + num_valid,
        n_features=20,
        n_informative=6,
        n_redundant=4,
        n_classes=num_classes,
        class_sep=1.2,
        random_state=seed,
    )
    return raw(metric, inputs, kinds, (num_train, num_valid), seed)
