"""Large constants of configurations, each stored once under the SHA-256 of its file.

Only plain NumPy arrays are stored: their files are numbers behind a short header, and reading one
executes nothing. A read returns what was written or fails.

Workers import this module when they unpickle a configuration, so it imports little.
"""

from __future__ import annotations

import hashlib
import io
import re
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from tuner.errors import StorageError

from .directories import make_own_folder
from .disk import LARGE_BYTES, read_file, write_bytes
from .layout import OBJECTS

_LARGE_BYTES: Final = 1 << 20
"""From this size on a worker maps an array's file: faster than a pickle, and the memory is shared.
"""
_CONTENT: Final = re.compile(r"[0-9a-f]{64}")


@final
class ArrayStore:
    """The arrays of an experiment's configurations.

    A large array that is put again is not hashed again, and one that is read again is the same
    object.

    Args:
        experiment: The experiment's directory.
        sync: Whether `put` returns only when the file is on disk.
    """

    def __init__(self, experiment: Path, *, sync: bool = True) -> None:
        self._directory = experiment / OBJECTS
        self._sync = sync
        # Large arrays, which take long to hash, and their SHA-256. There are few of them, so they
        # are searched by identity: arrays can be no keys of a dictionary. A weak reference lets the
        # memory go with the configuration.
        self._known: list[tuple[weakref.ref[Any], str]] = []
        self._loaded: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def put(self, array: np.ndarray[Any, Any]) -> str:
        """Store an array unless it is stored already; return its SHA-256.

        Raises:
            OSError: If it cannot be written.
        """
        if content := self._content_of(array):
            return content
        data = encoded(array)
        content = hashlib.sha256(data).hexdigest()
        path = self._path(content)
        if not _holds(path, data):
            make_own_folder(self._directory)
            write_bytes(path, data, sync=self._sync)
        self._remember(array, content)
        return content

    def get(self, content: str) -> Any:
        """Return the array with this SHA-256.

        Raises:
            StorageError: If it is not there, or not what it was.
        """
        array = self._loaded.get(content)
        if array is None:
            array = decoded(str(self._path(content)))
            self._loaded[content] = array
            self._remember(array, content)
        return array

    def lighten(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration as it is pickled for a worker, with paths of large arrays.

        Unpickled, it has the arrays again. They may be written to: each worker has its own, as far
        as it differs from the file.
        """
        from searchers.space.tree import assign, leaves  # noqa: PLC0415  (only the driver needs it)

        files = {
            path: ArrayFile(str(self._path(content)))
            for path, leaf in leaves(config)
            if (content := self._content_of(leaf))
        }
        light: Mapping[str, Any] = assign(config, files) if files else config
        return light

    def _content_of(self, leaf: Any) -> str:
        if getattr(leaf, "nbytes", 0) < _LARGE_BYTES:
            return ""
        return next((content for array, content in self._known if array() is leaf), "")

    def _remember(self, array: Any, content: str) -> None:
        if array.nbytes >= _LARGE_BYTES:
            alive = [known for known in self._known if known[0]() is not None]
            self._known = [*alive, (weakref.ref(array), content)]

    def _path(self, content: str) -> Path:
        if not _CONTENT.fullmatch(content):
            raise StorageError(
                f"an object must be named by 64 hexadecimal digits, got {content!r}; the journal "
                "is damaged"
            )
        return self._directory / f"{content}.npy"


def _holds(path: Path, data: bytes) -> bool:
    """Return whether the file is there, not a link, and of the right size."""
    # The size is enough: files are written atomically, and a wrong content is detected when it is
    # read.
    return path.is_file() and not path.is_symlink() and path.stat().st_size == len(data)


@final
class ArrayFile:
    """Stands for an array in a pickle, and is unpickled as the array mapped from its file."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self._path,)


def is_storable(value: Any) -> bool:
    """Return whether the value is a NumPy array without Python objects in it."""
    return type(value) is np.ndarray and not value.dtype.hasobject


def encoded(array: Any) -> bytes:
    """Return the content of the array's file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def decoded(path: str) -> Any:
    """Return the array in a file that is named by its SHA-256.

    Raises:
        StorageError: If the file is not there, or not what it was.
    """
    try:
        data = read_file(path, LARGE_BYTES)
    except OSError as cause:
        raise StorageError(
            f"an array of a configuration cannot be read: {cause}; put the file back"
        ) from cause
    if hashlib.sha256(data).hexdigest() != Path(path).stem:
        raise StorageError(f"{path} is damaged: its SHA-256 is not its name; put the original back")
    return np.load(io.BytesIO(data), allow_pickle=False)


def _mapped(path: str) -> Any:
    # The driver that sends this path has written or verified the file, so the worker need not read
    # all of it. Copy on write: each worker may change its own array.
    return np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray)
