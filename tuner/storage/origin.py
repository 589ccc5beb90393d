"""Note of where the original of a local experiment is, if that is in an object store.

The directory in which a driver works, and every copy that was fetched to be read, has a file
``storage.json`` with the URL. It stays on its machine: it is neither uploaded nor downloaded. Only
experiments in object stores write it, but all parts that find a directory have to read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import StorageError
from tuner.wire.declared import decode, encode
from tuner.wire.record import record

from . import layout, strict_json
from .disk import SMALL_BYTES, read_file, write_text


@record
class Origin:
    """Where the original of a local experiment is.

    Attributes:
        url: Directory of the experiment in the object store.
        has_filesystem: Whether it was reached through a ``storage_filesystem``, which has to be
            given again.
        is_copy: Whether the local directory was fetched to be read; the driver, if there is one,
            works in another.
        driver: Fields of the `Owner` of the lock when the copy was fetched; None if the experiment
            was not running.
    """

    url: str
    has_filesystem: bool = False
    is_copy: bool = False
    driver: Mapping[str, Any] | None = None


def origin_of(experiment: Path) -> Origin | None:
    """Return where the original of the experiment in a directory is; None if it is the original.

    Raises:
        StorageError: If the note cannot be read.
    """
    path = experiment / layout.ORIGIN
    try:
        return decode(Origin, strict_json.loads(read_file(path, SMALL_BYTES)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as cause:
        raise StorageError(
            f"{path} cannot be read: {cause}; it names the URL of the experiment, which "
            "Tuner.restore accepts as well"
        ) from cause


def note_origin(experiment: Path, origin: Origin) -> None:
    """Write the note.

    Raises:
        StorageError: If it cannot be written.
    """
    path = experiment / layout.ORIGIN
    try:
        write_text(path, strict_json.dumps(encode(origin)) + "\n")
    except OSError as cause:
        raise StorageError(f"{path} cannot be written: {cause}") from cause


def address_of(experiment: Path) -> str:
    """Return what `Tuner.restore` and commands accept on every machine: the URL, or the path."""
    origin = origin_of(experiment)
    return origin.url if origin else str(experiment)


def is_copy(experiment: Path) -> bool:
    """Return whether a directory is a copy that was fetched to be read."""
    origin = origin_of(experiment)
    return origin is not None and origin.is_copy
