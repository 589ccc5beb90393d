"""Libraries that draw from the process's global generators of random numbers, kept from disturbing anybody."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_chance(seed: int) -> Iterator[None]:
    """Give the global generators (Python's, numpy's, torch's where it is loaded) this seed, and at the end the states that they had.

    Args:
        seed: From 0 to 2**32 - 1.

    Example:
        >>> import numpy as np
        >>> before = np.random.get_state()[1].copy()
        >>> with own_chance(3):
        ...     drawn = np.random.uniform()
        >>> bool((np.random.get_state()[1] == before).all())
        True
    """
    restores = [take(seed) for take in (_python, _numpy, _torch)]
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _python(seed: int) -> Callable[[], Any]:
    state = random.getstate()
    random.setstate(random.Random(seed).getstate())  # noqa: S311  (nothing secret is drawn)
    return lambda: random.setstate(state)


def _numpy(seed: int) -> Callable[[], Any]:
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    state = np.random.get_state()  # noqa: NPY002  (the global generator is what this is about)
    np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002  (likewise)
    return lambda: np.random.set_state(state)  # noqa: NPY002  (likewise)


def _torch(seed: int) -> Callable[[], Any]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return lambda: None
    state = torch.random.get_rng_state()
    torch.random.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    return lambda: torch.random.set_rng_state(state)
