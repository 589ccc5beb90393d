"""Directories: found, made, and inspected before they are written to."""

from __future__ import annotations

import os
import stat
import warnings
from contextlib import suppress
from pathlib import Path

from tuner.errors import StorageError

from .disk import DIRECTORY_MODE

_WRITABLE_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path that a user means, with ``~`` replaced by a home directory.

    Raises:
        StorageError: If there is no such home directory, or no working directory any more for a
            relative path to begin at.
    """
    try:
        expanded = Path(path).expanduser()
    except RuntimeError as cause:
        user = Path(path).parts[0]
        remedy = (
            "set HOME or give an absolute path"
            if user == "~"
            else "give an absolute path, or ./ in front for a folder of that name"
        )
        raise StorageError(
            f"{os.fspath(path)!r} cannot be resolved: {user!r} is the home directory of no known "
            f"user; {remedy}"
        ) from cause
    if not expanded.is_absolute():
        check_working_directory()
    return expanded.absolute()


def check_working_directory() -> None:
    """Make sure that there is a working directory.

    Raises:
        StorageError: If it has been deleted.
    """
    try:
        os.getcwd()  # noqa: PTH109  (only asked whether it is there)
    except FileNotFoundError as cause:
        raise StorageError(
            "the current working directory has been deleted; change to one that exists, with cd in "
            "the shell or os.chdir in Python"
        ) from cause


def make_folder(path: str | Path) -> None:
    """Make a directory and its parents unless they exist.

    None of the new ones is writable for others, not even under an empty umask.

    Raises:
        OSError: If it cannot be made, or something else is in its place.
    """
    try:
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102  (the usual case, and fast)
    except OSError:
        for above in reversed(Path(path).parents):
            if not above.exists():
                with suppress(FileExistsError):
                    above.mkdir(DIRECTORY_MODE)
        Path(path).mkdir(DIRECTORY_MODE, exist_ok=True)


def make_own_folder(path: Path) -> None:
    """Make a folder inside the experiment unless it exists.

    Raises:
        StorageError: If a link is there: who placed it would choose where the engine writes.
        OSError: If it cannot be made.
    """
    path.mkdir(DIRECTORY_MODE, exist_ok=True)
    if path.is_symlink():
        raise _is_link(path)


def inspect_folder(experiment: Path) -> None:
    """Look at the folder of an experiment before a driver writes to it.

    Warns if it belongs to another user, or others may write to it.

    Raises:
        StorageError: If one of the folders or files in it is a link; names it and where it leads.
    """
    status = experiment.stat()
    if status.st_uid != os.geteuid():
        _warn(
            f"{str(experiment)!r} belongs to user {status.st_uid}, who can change what is read "
            "from it; copy it to continue without that user"
        )
    elif status.st_mode & _WRITABLE_FOR_OTHERS:
        _warn(
            f"{str(experiment)!r} is writable for other users, who can change what is read from "
            "it; chmod go-w it"
        )
    with os.scandir(experiment) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise _is_link(Path(entry.path))


def _is_link(path: Path) -> StorageError:
    return StorageError(
        f"{str(path)!r} is a link to {os.fspath(path.readlink())!r}; put the folder itself there"
    )


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
