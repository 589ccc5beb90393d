"""Removal of an experiment: of one that is replaced, and of one whose start has failed."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tuner.errors import StorageError
from tuner.storage import checkpoint_directories, layout
from tuner.storage.declaration import read_declaration
from tuner.storage.layout import journal_directory

from .mark import remains_in
from .reader import read


def check_ours(directory: Path) -> None:
    """Check that a directory may be cleared.

    Raises:
        StorageError: If it is not recognisable as a tuner experiment.
    """
    try:
        read_declaration(directory)
    except StorageError as cause:
        raise StorageError(
            f"{str(directory)!r} is not removed, since it is not recognisable as a tuner "
            f"experiment ({cause}); remove it yourself, or "
            "choose another name"
        ) from cause


def clear(experiment: str | os.PathLike[str]) -> list[str]:
    """Remove an experiment whose lock the caller holds, so that another can begin in its directory.

    What the engine has made there is removed, with everything in the directories of trials, and
    nothing else.

    Args:
        experiment: Directory of the experiment.

    Returns:
        The names of what is left, since it is none of the experiment's.

    Raises:
        StorageError: If the directory holds no experiment of ours that is whole enough to be sure
            of it, or something cannot be removed.
    """
    directory = Path(experiment)
    check_ours(directory)
    entries = sorted(directory.iterdir())
    own = [
        path
        for path in entries
        if layout.is_own(path.name) and path.name not in (layout.LOCK, layout.DECLARATION)
    ]
    try:
        for path in own:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        # Last: an experiment of which only a part was removed is still recognised, and can be
        # removed again.
        (directory / layout.DECLARATION).unlink()
    except OSError as cause:
        raise StorageError(
            f"the experiment in {str(directory)!r} cannot be removed: {cause}; remove the rest "
            "yourself"
        ) from cause
    return [path.name for path in entries if not layout.is_own(path.name)]


def withdraw(experiment: str | os.PathLike[str]) -> None:
    """Remove a new experiment in which an error has come before its first event.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
    """
    directory = Path(experiment)
    # Where a journal without records has files of trials beside it, something else has deleted its
    # records, and the files may be all that is left of an experiment.
    if next(read(directory), None) is not None or remains_in(directory):
        return
    journal = journal_directory(directory)
    checkpoint_directories.remove_unfinished(directory)
    for path in (
        *journal.glob("*"),
        directory / layout.ENVIRONMENT,
        directory / layout.DECLARATION,
    ):
        path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        journal.rmdir()
    (directory / layout.LOCK).unlink()  # last, since from then on another driver may begin here
