"""What a driver does to an experiment's directory when it takes it over, and when it could not begin after all."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import StorageError

from . import checkpoints, layout
from .recovery import read
from .segments import journal_directory

_log = logging.getLogger("tuner")


def sweep(experiment: str | os.PathLike[str], recorded: Mapping[str, Collection[str] | None]) -> list[Path]:
    """Remove what died before it was finished, or before the journal came to know of it.

    These are staging directories and temporary files, and checkpoints that were renamed but never recorded, or superseded but not yet
    deleted. What cannot be removed is told and left.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        recorded: For each trial the names of its checkpoints, None to keep whatever there is. Directories of others are not looked at.

    Returns:
        What was removed.
    """
    directory = Path(experiment)
    removed = [path for name in ("", *layout.SWEPT) for path in _swept(os.fspath(directory / name), None)]
    with os.scandir(directory) as entries:
        trials = sorted(entry.name for entry in entries if entry.name in recorded and entry.is_dir(follow_symlinks=False))
    for trial_id in trials:
        removed += _swept(layout.trial_path(directory, trial_id), recorded[trial_id])
    return removed


def _swept(folder: str, recorded: Collection[str] | None) -> list[Path]:
    try:
        return [Path(folder, name) for name in checkpoints.sweep(folder, recorded)]
    except OSError as refusal:
        _log.warning("unfinished files in %s cannot be removed: %s", folder, refusal)
        return []


@contextmanager
def nothing_left_behind(experiment: str | os.PathLike[str]) -> Iterator[None]:
    """Undo the beginnings of a new experiment, where an error comes before anything has happened in it.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
    """
    try:
        yield
    except Exception:
        with suppress(OSError, StorageError):
            if next(read(experiment), None) is None:
                _withdraw(Path(experiment))
        raise


def _withdraw(directory: Path) -> None:
    journal = journal_directory(directory)
    checkpoints.sweep(directory)
    for path in (*journal.glob("*"), directory / layout.DECLARATION):
        path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        journal.rmdir()
    (directory / layout.LOCK).unlink()  # last, since from then on another driver may begin here
