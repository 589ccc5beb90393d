"""Who drives an experiment, as somebody sees it who does not want to."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from . import layout
from .lock import Owner, read_owner
from .reading import open_regular


def driver_of(experiment: str | os.PathLike[str]) -> Owner | None:
    """Return who drives the experiment now, None for nobody.

    What a driver has written down about itself is not enough: it may have died with its machine, or the directory may be a copy. Where
    it is not surely gone the lock is tried, which a driver that holds it does not notice.

    Args:
        experiment: Its directory, which is not changed.

    Example:
        >>> import tempfile
        >>> from tuner.storage.lock import ExperimentLock
        >>> directory = tempfile.mkdtemp()
        >>> with ExperimentLock(directory):
        ...     driver_of(directory).is_gone
        False
    """
    owner = read_owner(experiment)
    return (
        owner
        if owner is not None and not owner.is_gone and _is_locked(Path(experiment) / layout.LOCK)
        else None
    )


def _is_locked(path: Path) -> bool:
    try:
        descriptor = open_regular(path)
    except OSError:
        return True  # who cannot tell had better believe what is written there
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
