"""Whether a directory tree has changed since it was reported as a checkpoint."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from tuner.errors import CheckpointError

from .layout import METADATA

_Entry = tuple[int, int, int, int]
"""Kind, size, time of the last change in ns, and inode."""
TreeState = Mapping[str, _Entry]
"""What identifies the content of each file and link of a tree, by path."""

_CLOCK_REALTIME_COARSE: Final = 5
"""Of linux/time.h; Python has no name for it."""
_MAX_WAIT_S: Final = 0.02
_POLL_S: Final = 0.001


def state_of(root: str) -> TreeState:
    """Return the present state of a tree; any later write to one of its files changes it.

    Raises:
        OSError: If the tree cannot be read.
    """
    state = dict(_entries(root))
    _await_next_tick(max((entry[2] for entry in state.values()), default=0))
    return state


def check_unchanged(root: str, before: TreeState | None) -> None:
    """Check that nothing has been written to a tree.

    Args:
        root: The tree.
        before: The state that it must have; None for any.

    Raises:
        CheckpointError: If it has another, with the remedy for training code.
    """
    if before is None:
        return
    try:
        now = dict(_entries(root))
    except OSError as cause:
        raise _changed(root, str(cause)) from cause
    differing = [
        name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)
    ]
    if differing:
        raise _changed(root, f"{differing[0]} has changed")


def _changed(root: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {root} was written to after it was reported, and before it was stored "
        f"({what}), so it would mix two states; write each checkpoint into a new directory, as "
        "with checkpoint_dir() or tempfile.mkdtemp(), or report with the upload mode SYNC"
    )


def _entries(root: str) -> Iterator[tuple[str, _Entry]]:
    folders = [root]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    continue
                if entry.name == METADATA and folder == root:
                    continue  # users may store notes with a checkpoint at any time
                status = entry.stat(follow_symlinks=False)
                kind = stat.S_IFMT(status.st_mode)
                yield entry.path, (kind, status.st_size, status.st_mtime_ns, status.st_ino)


def _await_next_tick(newest_ns: int) -> None:
    """Wait until a write would give a file a later time than any that the tree has.

    File systems take times from a clock that stands still for some milliseconds. A file that is
    written again within them, with the same size, would look unchanged.
    """
    if sys.platform != "linux":
        return  # elsewhere they are as fine as the clock
    # Not for longer: the clock of a file server may be ahead.
    until_s = time.monotonic() + _MAX_WAIT_S
    with suppress(OSError):
        while (
            time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) <= newest_ns
            and time.monotonic() < until_s
        ):
            time.sleep(_POLL_S)
