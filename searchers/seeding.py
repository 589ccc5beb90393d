"""Random number generators from a seed: one per suggestion, and the global ones temporarily.

A searcher that draws suggestion `n` from generator `n` keeps no generator state: it can continue
from any number, and what one suggestion draws does not change the next.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence


def generator(seed: int, number: int) -> Generator:
    """Return the generator for the suggestion with that number.

    Args:
        seed: The searcher's seed, 0 or more.
        number: Which suggestion, 0 or more.
    """
    return Generator(PCG64(SeedSequence(seed, spawn_key=(number,))))


def fresh_seed() -> int:
    """Return a seed from the operating system, for experiments that were given none."""
    return int(SeedSequence().generate_state(1)[0])


def chosen_seed(own: int | None, given: Any) -> int:
    """Return the searcher's own seed, else the given one, else a fresh one; see `seed_of`."""
    seed = given if own is None else own
    return fresh_seed() if seed is None else seed_of(seed)


def seed_of(random_state: Any) -> int:
    """Return a seed from an integer, or one drawn from a numpy generator.

    Raises:
        ValueError: If it is a negative integer.
        TypeError: If it is neither.
    """
    if hasattr(random_state, "integers"):
        return int(random_state.integers(2**32))
    if hasattr(random_state, "randint"):
        return int(random_state.randint(2**31))
    if not isinstance(random_state, int):
        raise TypeError(
            f"random_state must be an integer or a numpy generator, got {random_state!r}; give a "
            "seed such as 0"
        )
    if random_state < 0:
        raise ValueError(
            f"random_state must be 0 or more, got {random_state}; any such integer serves as a seed"
        )
    return random_state


@contextmanager
def seeded_global_rngs(seed: int) -> Iterator[None]:
    """Seed the global generators for the duration, and restore their states afterwards.

    For libraries that draw from them, also where they are given one. That of torch is only
    seeded if torch has been imported.

    Args:
        seed: From 0 to 2**32 - 1.

    Example:
        >>> before = np.random.get_state()[1].copy()
        >>> with seeded_global_rngs(3):
        ...     drawn = np.random.uniform()
        >>> bool((np.random.get_state()[1] == before).all())
        True
    """
    restores = [seed_one(seed) for seed_one in (_seed_python, _seed_numpy, _seed_torch)]
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _seed_python(seed: int) -> Callable[[], Any]:
    state = random.getstate()
    random.setstate(random.Random(seed).getstate())  # noqa: S311
    return lambda: random.setstate(state)


def _seed_numpy(seed: int) -> Callable[[], Any]:
    state = np.random.get_state()  # noqa: NPY002
    np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002
    return lambda: np.random.set_state(state)  # noqa: NPY002


def _seed_torch(seed: int) -> Callable[[], Any]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return lambda: None
    state = torch.random.get_rng_state()
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    return lambda: torch.random.set_rng_state(state)
