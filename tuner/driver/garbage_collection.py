"""The garbage collector of a process that makes many objects and no cycles."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Run the garbage collector rarely, and not on objects that exist already.

    The driver makes no cycles, but many small objects: some 30,000 wait for their log files where a
    thousand reports come a second. For a process in which nothing is trained: garbage of a training
    may hold a device's memory.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
