"""NumPy arrays as files of their own: numbers behind a short header, so that reading one executes nothing.

Workers load this module with a configuration, so it imports little.
"""

from __future__ import annotations

import hashlib
import io
import sys
from pathlib import Path
from typing import Any, final

from tuner.errors import StorageError

from .reading import LARGE_BYTES, read_file


@final
class ArrayFile:
    """Stands for an array in a pickle: what comes out is the array, with its file for memory until it is written to."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self._path,)


def is_storable(value: Any) -> bool:
    """Return whether the value is a NumPy array without Python objects in it, which can be stored without a pickle."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject


def encoded(array: Any) -> bytes:
    """Return the content of the array's file."""
    import numpy  # noqa: PLC0415, ICN001  (whoever has an array has imported it)

    file = io.BytesIO()
    numpy.save(file, array, allow_pickle=False)
    return file.getvalue()


def decoded(path: str) -> Any:
    """Return the array in a file that is named by its SHA-256.

    Raises:
        StorageError: If the file is not there, or not what it was.
    """
    import numpy  # noqa: PLC0415, ICN001  (only where there is an array)

    try:
        data = read_file(path, LARGE_BYTES)
    except OSError as cause:
        raise StorageError(
            f"an array of a configuration cannot be read: {cause}; put the file back"
        ) from cause
    if hashlib.sha256(data).hexdigest() != Path(path).stem:
        raise StorageError(f"{path} is damaged: its SHA-256 is not its name; put the original back")
    return numpy.load(io.BytesIO(data), allow_pickle=False)


def _mapped(path: str) -> Any:
    import numpy  # noqa: PLC0415, ICN001  (only where there is an array)

    # The file was written or verified by the driver that sends us here, so that it need not be read as a whole again.
    return numpy.load(path, mmap_mode="c", allow_pickle=False).view(numpy.ndarray)
