"""Local copies of checkpoints in an object store, deleted when they take too much space."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tuner.errors import CheckpointError
from tuner.storage.disk import temporary_sibling
from tuner.storage.manifest import read_manifest

_SHARE_OF_DISK: Final = 10

Key = tuple[str, str]
"""Trial and name in the store of a checkpoint."""


@dataclass(frozen=True, slots=True)
class _Copy:
    path: Path
    index: int
    size_bytes: int
    has_own_name: bool


@final
class CheckpointCache:
    """Deletes the local copies that were used least recently, once all together are too large.

    Only what lies in the store is added. A copy that a holder has pinned stays. Safe to use by
    several threads.

    Args:
        directory: A directory on the disk of the copies.
        limit_bytes: How large they may be together; None for a tenth of the disk.
    """

    def __init__(self, directory: Path, limit_bytes: int | None = None) -> None:
        if limit_bytes is None:
            limit_bytes = shutil.disk_usage(directory).total // _SHARE_OF_DISK
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._copies: dict[Key, _Copy] = {}  # the most recently used last
        self._pins: dict[Hashable, Key] = {}

    def add(
        self, key: Key, path: Path, index: int, size_bytes: int, *, has_own_name: bool = False
    ) -> None:
        """Add a copy, or note that it was used.

        Args:
            key: The checkpoint.
            path: The directory.
            index: Index of the checkpoint.
            size_bytes: Its size.
            has_own_name: Whether training code has named the directory, in which a later
                checkpoint may take the place of this one.
        """
        with self._lock:
            self._forget(key)
            self._copies[key] = _Copy(path, index, size_bytes, has_own_name)
            self._size_bytes += size_bytes

    def forget(self, key: Key) -> None:
        """Forget a copy that is being deleted."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        copy = self._copies.pop(key, None)
        if copy:
            self._size_bytes -= copy.size_bytes

    def pin(self, holder: Hashable, key: Key) -> None:
        """Keep a copy, present or yet to come, instead of the one that the holder kept before."""
        with self._lock:
            self._pins[holder] = key
            if copy := self._copies.pop(key, None):
                self._copies[key] = copy

    def unpin(self, holder: Hashable) -> None:
        """End what `pin` has begun."""
        with self._lock:
            self._pins.pop(holder, None)

    def trim(self) -> None:
        """Delete copies until the others are small enough together, or all of them are pinned."""
        while doomed := self._evict():
            shutil.rmtree(doomed, ignore_errors=True)

    def _evict(self) -> Path | None:
        """Rename the copy that is to be deleted, and return its new path; None for no more."""
        with self._lock:
            pinned = set(self._pins.values())
            in_use = {trial_id for trial_id, _ in pinned}
            for key, copy in list(self._copies.items()):
                if self._size_bytes <= self._limit_bytes:
                    break
                # The worker of a trial may replace a directory with a name at any time.
                if key in pinned or (copy.has_own_name and key[0] in in_use):
                    continue
                self._forget(key)
                if copy.has_own_name and not _holds(copy):
                    continue
                # In the lock, so that a reader either pins it first or finds it gone.
                doomed = temporary_sibling(copy.path)
                with suppress(OSError):
                    copy.path.rename(doomed)
                    return doomed
        return None


def _holds(copy: _Copy) -> bool:
    try:
        return read_manifest(copy.path).index == copy.index
    except CheckpointError:
        return False
