"""Errors of training code that are due to a full or failing disk, not to the code."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, final

from tuner.core.worker_records import STORAGE_FAILED, STORAGE_FULL, Failure

from .failures import describe

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FAILING: Final = (errno.EIO, errno.EROFS, errno.ESTALE)
_FULL_BELOW_BYTES: Final = 2**20
"""Below this free space, any error of a library that writes a file counts as a full disk."""
_TOLD_IN_WORDS: Final = re.compile(
    r"No space left on device|Disk quota exceeded|PytorchStreamWriter failed writing"
    r"|inline_container\.cc.*(unexpected pos|file write failed)"
    r"|\d+ requested and \d+ written"  # NumPy's
    r"|database or disk is full"  # SQLite's, which then takes back what it has written
)
"""What libraries say that write files without Python, and so without an error number."""


def is_storage_error(error: BaseException) -> bool:
    """Return whether an exception, or one that led to it, is due to a full or failing disk."""
    return any(
        isinstance(link, OSError) and link.errno in (*_FULL, *_FAILING) for link in _chain(error)
    )


def has_room(directory: str | os.PathLike[str]) -> bool:
    """Return whether the disk is not full."""
    try:
        return shutil.disk_usage(directory).free >= _FULL_BELOW_BYTES
    except OSError:  # the directory is gone; that is another failure
        return True


@final
class StorageFailures:
    """Tells which errors of an attempt's training code are its disk's.

    Args:
        trial_dir: The trial's directory.
    """

    def __init__(self, trial_dir: str | os.PathLike[str]) -> None:
        self._trial_dir = os.fspath(trial_dir)
        self._seen: list[tuple[BaseException, str]] = []

    def note(self, error: BaseException) -> bool:
        """Take note of an error that passes through a block in which a checkpoint is written.

        To be called before what was written there is deleted, while a full disk is still full.

        Returns:
            Whether it is the disk's.
        """
        if fault := self._fault_in_block(error):
            self._seen = [*self._seen[-1:], (error, fault)]
        return bool(fault)

    def describe(self, error: BaseException) -> Failure:
        """Return a description of what ended an attempt; `storage_fault` tells if it is the disk's.

        Never raises.
        """
        failure, fault = describe(error), self._fault(error)
        if not fault:
            return failure
        bases = (*failure.bases, fault)
        if is_storage_error(error) or _TOLD_IN_WORDS.search(failure.message):
            return replace(failure, bases=bases)
        message = f"{failure.message}; the disk of {self._trial_dir} is full"
        return replace(failure, message=message, bases=bases)

    def _fault_in_block(self, error: BaseException) -> str:
        if not isinstance(error, Exception):
            return ""
        if _is_full(error) or not has_room(self._trial_dir):
            return STORAGE_FULL
        return STORAGE_FAILED if is_storage_error(error) else ""

    def _fault(self, error: BaseException) -> str:
        links = list(_chain(error))
        for seen, fault in self._seen:
            if any(link is seen for link in links):
                return fault
        if not isinstance(error, Exception):
            return ""
        own = [link for link in links if isinstance(link, OSError) and self._is_here(link)]
        if any(link.errno in _FULL for link in own):
            return STORAGE_FULL
        if any(link.errno in _FAILING for link in own):
            return STORAGE_FAILED
        # It may have been another disk, or what had filled this one is deleted meanwhile, as a
        # `TemporaryDirectory` does.
        if _is_full(error):
            return STORAGE_FAILED if has_room(self._trial_dir) else STORAGE_FULL
        return ""

    def _is_here(self, error: OSError) -> bool:
        """Return whether an error names a file of the experiment."""
        names = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
        experiment = Path(os.path.realpath(self._trial_dir)).parent
        return any(Path(os.path.realpath(name)).is_relative_to(experiment) for name in names)


def _is_full(error: BaseException) -> bool:
    """Return whether an error says that a disk is full, by its number or in words."""
    return any(
        (isinstance(link, OSError) and link.errno in _FULL) or _TOLD_IN_WORDS.search(_text_of(link))
        for link in _chain(error)
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (str of a user's exception may raise anything)
        return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        yield link
        seen.add(id(link))  # a chain of causes may be circular
        link = link.__cause__ or link.__context__
