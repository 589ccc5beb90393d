"""Directory of a node's host, for the trials of an experiment in an object store."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final, final

_PREFIX: Final = "tuner-node-"
_NEW_PREFIX: Final = "tuner-new-"
_LOCK: Final = "host.lock"


@final
class Scratch:
    """A directory that only its owner can enter, removed at the end.

    Those of hosts that were killed are removed when the next one is made.

    Args:
        parent: The directory in which it is, made if need be; None for that of temporary files.

    Attributes:
        path: The directory.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(parent)
        new = Path(tempfile.mkdtemp(prefix=_NEW_PREFIX, dir=parent))
        # Held by this process alone; the kernel releases it however the process ends. Locked
        # before the directory has the name that others look for.
        self._lock = os.open(new / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = parent / new.name.replace(_NEW_PREFIX, _PREFIX, 1)
        new.rename(self.path)

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_stale(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # its host is alive
        finally:
            os.close(lock)
