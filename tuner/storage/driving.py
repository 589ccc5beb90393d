"""Who drives an experiment, as somebody sees it who does not want to."""

from __future__ import annotations

import os
from pathlib import Path

from . import layout
from .lock import Lock, Owner, read_owner


def driver_of(experiment: str | os.PathLike[str]) -> Owner | None:
    """Return who drives the experiment now, None for nobody.

    What a driver has written down about itself tells nearly always. Only where it is of another machine, or of this one before it was
    started again, the lock is tried, for a moment.

    Args:
        experiment: Its directory, which is not changed.
    """
    owner = read_owner(experiment)
    if owner is None or owner.is_gone:
        return None
    return owner if owner.is_here or _is_locked(Path(experiment)) else None


def _is_locked(experiment: Path) -> bool:
    lock = Lock(experiment / layout.LOCK)
    try:
        return not lock.acquire(is_shared=True, is_blocking=False)
    except OSError:
        return True  # who cannot tell had better believe what is written there
    finally:
        lock.release()
