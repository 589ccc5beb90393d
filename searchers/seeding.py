"""Random number generators, one per suggestion, derived from a seed and the suggestion's number.

A searcher that draws suggestion `n` from generator `n` keeps no generator state: it can continue
from any number, and what one suggestion draws does not change the next.
"""

from __future__ import annotations

from typing import Any

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
    """Return the searcher's own seed, else the given one, else a fresh one.

    Raises:
        TypeError: See `seed_of`, as `ValueError`.
    """
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
