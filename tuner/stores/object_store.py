"""A directory of an object store: create-if-absent, read, list, upload, download and delete.

Every call is retried while the store cannot be reached or is overloaded, until its deadline. Keys
are relative to the directory, with slashes. Object stores have no rename and no lock: what must not
be overwritten is made with `ObjectStore.create`, and what is written by `ObjectStore.put` must bear
that a request which was given up takes effect later.
"""

from __future__ import annotations

import errno
import logging
import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, final

from tuner.errors import StorageError, StorageUnreachable
from tuner.storage.directories import make_folder
from tuner.storage.disk import LARGE_BYTES
from tuner.storage.urls import join_url

from .object_backends import Backend, open_backend
from .object_errors import Failure, describe, failure_of
from .store_calls import Outage, StoreCalls

_T = TypeVar("_T")

_RETRY_S: Final = 60.0
"""How long a call may take, in seconds."""
_FILES_AT_ONCE: Final = 4
_PARTS_AT_ONCE: Final = 4
_PART_BYTES: Final = 8 << 20
"""What is downloaded by one request; times the two above in memory."""
_PROBE: Final = "probe"

_log = logging.getLogger("tuner")


@final
class ObjectStore:
    """A directory of an object store, safe to use by several threads and in forked children.

    Args:
        url: The directory, as in ``s3://bucket/experiments/run``, ``gs://bucket/run``,
            ``memory://run`` (within this process) or ``file:///path``. It need not exist, its
            bucket must.
        filesystem: The fsspec file system it is on, for credentials and endpoints of your own; None
            for that of the URL, with the credentials that its library finds.
        retry_s: How long, in seconds, a call may take while the store cannot be reached, is
            overloaded or does not answer; at least 5 s. A large file has this time for each of its
            parts, and a second more for each MiB that is on its way at a time.

    Raises:
        ImportError: If the library for this kind of store is not installed.
        ValueError: If the URL is not complete.

    Example:
        >>> store = ObjectStore("memory://bucket/run")
        >>> store.create("lock/1", b"mine"), store.create("lock/1", b"yours")
        (True, False)
        >>> store.get("lock/1"), store.get_if_exists("lock/2")
        (b'mine', None)
        >>> store.child("lock").list()
        {'1': 4}
        >>> store.delete(["lock/1"])
    """

    def __init__(self, url: str, filesystem: Any = None, *, retry_s: float = _RETRY_S) -> None:
        backend = open_backend(url, filesystem)
        self._open(backend, "", StoreCalls(retry_s, Outage(backend.url)))

    def _open(self, backend: Backend, prefix: str, calls: StoreCalls) -> None:
        self._backend = backend
        self._prefix = prefix
        self._calls = calls
        self.url = join_url(backend.url, prefix.rstrip("/")) if prefix else backend.url
        """The directory, for messages: without credentials."""

    @property
    def retry_s(self) -> float:
        """How long calls are retried, in seconds.

        May be set at any time, for this store and its children; calls of other threads that are
        being retried heed it after at most 5 s.
        """
        return self._calls.limit_s

    @retry_s.setter
    def retry_s(self, limit_s: float) -> None:
        self._calls.limit_s = limit_s

    @property
    def outage_s(self) -> float:
        """For how long the store has answered none of the calls that wait, in seconds; 0 if none.

        The same for all directories over the same connections.
        """
        return self._calls.outage.duration_s

    def child(self, name: str) -> ObjectStore:
        """Return a directory in this one, which shares its connections."""
        child = object.__new__(ObjectStore)
        child._open(self._backend, f"{self._key(name)}/", self._calls)
        return child

    def with_retry_s(self, retry_s: float) -> ObjectStore:
        """Return the same directory, over the same connections, with retries of its own."""
        same = object.__new__(ObjectStore)
        same._open(self._backend, self._prefix, StoreCalls(retry_s, self._calls.outage))
        return same

    def create(self, key: str, content: bytes) -> bool:
        """Create an object unless it exists.

        An answer may be lost after the object was created. So where the store says that the object
        exists, its content decides: if it is the one given, this call has created it. Contents must
        therefore differ between writers, e.g. by a random token.

        Returns:
            Whether the object has the content given; False if it has another.

        Raises:
            StorageUnreachable: If the store did not answer, or refused for another reason.
        """
        path = self._key(key)

        def attempt() -> bool:
            try:
                self._backend.create(path, content)
            except Exception as error:
                if failure_of(error) is not Failure.REFUSED:
                    raise
            else:
                return True
            try:
                return self._backend.read(path, 0, len(content) + 1) == content
            except FileNotFoundError as error:
                # Deleted in between, or a listing of the store that is behind.
                raise OSError(errno.EAGAIN, f"{key} exists, and cannot be read") from error

        return self._write(attempt, len(content))

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object.

        Raises:
            StorageUnreachable: If the store did not answer, or refused.
        """
        path = self._key(key)
        self._write(lambda: self._backend.put(path, content), len(content))

    def get(self, key: str, limit_bytes: int = LARGE_BYTES) -> bytes:
        """Return the content of an object, never from a cache.

        Args:
            key: The object.
            limit_bytes: The largest size in bytes that is read.

        Raises:
            FileNotFoundError: If there is no such object.
            StorageError: If it is larger.
            StorageUnreachable: If the store did not answer, or refused.
        """
        path = self._key(key)
        content = self._calls.call(self.url, lambda: self._backend.read(path, 0, limit_bytes + 1))
        if len(content) > limit_bytes:
            raise StorageError(
                f"object {self.url}/{key} has more than {limit_bytes} bytes, the most that is read"
            )
        return content

    def get_if_exists(self, key: str, limit_bytes: int = LARGE_BYTES) -> bytes | None:
        """Return the content of an object, None if there is no such object; see `get`."""
        try:
            return self.get(key, limit_bytes)
        except FileNotFoundError:
            return None

    def list(self, prefix: str = "") -> dict[str, int]:
        """Return the sizes in bytes of the objects whose keys begin with a prefix, sorted by key.

        Stores may list what was deleted a moment ago, and not yet list what is new.

        Raises:
            StorageError: If a key would lead out of a local directory that it is downloaded to.
            StorageUnreachable: If the store did not answer, or refused.
        """
        directory = (self._prefix + prefix).rpartition("/")[0]
        found = self._calls.call(self.url, lambda: dict(self._backend.sizes(directory)))
        sizes = {
            name.removeprefix(self._prefix): size
            for name, size in sorted(found.items())
            if name.startswith(self._prefix + prefix)
        }
        for key in sizes:
            if not _is_safe(key):
                raise StorageError(
                    f"{self.url} holds an object with the key {key!r}, which is no name of a file "
                    "below a directory; delete it"
                )
        return sizes

    def upload(self, files: Mapping[str, Path]) -> None:
        """Create or replace objects with the contents of files, several at once.

        Args:
            files: The files by the keys of their objects. They must not change meanwhile.

        Raises:
            FileNotFoundError: If there is no such file.
            StorageUnreachable: If the store did not answer, or refused.
        """
        paths = {self._key(key): source for key, source in files.items()}
        for source in paths.values():
            if not source.is_file():
                raise FileNotFoundError(errno.ENOENT, "no such file to upload", str(source))
        _at_once(lambda path: self._upload(path, paths[path]), list(paths))

    def download(self, files: Mapping[str, Path]) -> None:
        """Write the contents of objects into files, several at once.

        Args:
            files: The files by the keys of their objects. Missing directories are made. After an
                error some files may be missing or incomplete.

        Raises:
            FileNotFoundError: If an object does not exist.
            OSError: If a file cannot be written since the disk is full.
            StorageUnreachable: If the store did not answer, or refused.
        """
        paths = {self._key(key): target for key, target in files.items()}
        for directory in sorted({target.parent for target in paths.values()}):
            make_folder(directory)
        _at_once(lambda path: self._download(path, paths[path]), list(paths))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, in any order and several at once; absent ones are no error.

        Raises:
            StorageUnreachable: If the store did not answer, or refused.
        """
        _at_once(
            lambda path: self._calls.call(self.url, lambda: self._backend.delete(path)),
            [self._key(key) for key in keys],
        )

    def probe(self, *, is_checked: bool = True) -> None:
        """Check that the store keeps an object that is created a second time as it was.

        The lock of an experiment and its journal depend on that.

        Args:
            is_checked: Whether a store that does not is refused; if not, this warns.

        Raises:
            StorageError: If it does not.
            StorageUnreachable: If the store did not answer, or refused.
        """
        if self._backend.has_conditional_create and self._creates_once():
            return
        problem = (
            f"{self.url} cannot create an object only if it does not exist (no conditional "
            "writes), so two drivers could run the experiment at the same time"
        )
        if is_checked:
            raise StorageError(
                f"{problem}; use another store, or set storage_lock='none' and make sure yourself "
                "that only one driver runs"
            )
        warnings.warn(f"{problem}; make sure that only one does", RuntimeWarning, stacklevel=2)

    def _creates_once(self) -> bool:
        key = f"{_PROBE}/{secrets.token_hex(16)}"
        first, second = (secrets.token_bytes(16) for _ in range(2))
        try:
            return self.create(key, first) and not self.create(key, second)
        finally:
            # Should the store not answer, that has been raised already.
            with suppress(StorageError):
                self.delete([key])

    def _upload(self, path: str, source: Path) -> None:
        try:
            size_bytes = source.stat().st_size
            self._write(lambda: self._backend.upload(path, source), size_bytes)
        except StorageUnreachable as error:
            if not source.is_file():
                raise FileNotFoundError(
                    errno.ENOENT, "the file was removed while it was uploaded", str(source)
                ) from error
            raise

    def _download(self, path: str, target: Path) -> None:
        """Download in parts, each of which is retried: the whole may take longer than any fault."""

        def read(begin: int) -> bytes:
            end = begin + _PART_BYTES
            return self._calls.call(
                self.url, lambda: self._backend.read(path, begin, end), _PART_BYTES
            )

        part = read(0)
        with target.open("wb") as file:
            file.write(part)
            if len(part) < _PART_BYTES:
                return
            with ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="tuner-objects") as pool:
                while len(part) == _PART_BYTES:
                    begins = [file.tell() + n * _PART_BYTES for n in range(_PARTS_AT_ONCE)]
                    for part in pool.map(read, begins):
                        file.write(part)
                        if len(part) < _PART_BYTES:
                            break

    def _write(self, call: Callable[[], _T], size_bytes: int) -> _T:
        try:
            return self._calls.call(self.url, call, size_bytes)
        except FileNotFoundError as error:
            raise StorageUnreachable(
                f"{self.url} cannot be written: {describe(error)}; check that its bucket exists"
            ) from error
        except OSError as error:
            raise StorageUnreachable(
                f"{self.url} cannot be written: {describe(error)}; make space there"
            ) from error

    def _key(self, key: str) -> str:
        if not _is_safe(key):
            raise ValueError(
                f"key {key!r} is not relative, or has empty parts, '.' or '..'; give a key such as "
                "'folder/name'"
            )
        return self._prefix + key


def _is_safe(key: str) -> bool:
    return "\0" not in key and all(part not in ("", ".", "..") for part in key.split("/"))


def _at_once(call: Callable[[str], object], paths: list[str]) -> None:
    """Call for each path, several at once; raises the first error when no call runs any more."""
    if len(paths) == 1:
        call(paths[0])
        return
    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="tuner-objects") as pool:
        calls = [pool.submit(call, path) for path in paths]
        try:
            for each in calls:
                each.result()
        finally:
            # Not those that have not begun, after an error.
            pool.shutdown(cancel_futures=True)
