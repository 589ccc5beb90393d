"""Back ends of `ObjectStore`: a file system of fsspec, or a local directory.

What is slow or unsafe in the libraries is dealt with here: caches of listings, hidden retries,
instances shared between processes, and file systems that threads must not use at the same time.
"""

from __future__ import annotations

import inspect
import math
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, final

from tuner.storage.directories import make_folder
from tuner.storage.disk import LOCAL_DISK, open_file, temporary_sibling, write_bytes
from tuner.storage.layout import STAGING_PREFIX
from tuner.storage.urls import is_s3, is_url

from .arrow_filesystem import as_fsspec
from .object_errors import status_of, without_credentials
from .s3_options import CLIENT_CONFIG, client_options
from .store_calls import current_deadline, in_thread

_PART_BYTES: Final = 16 << 20
_MAX_PARTS: Final = 10_000
"""Of one multipart upload, as S3 allows."""
_UNSATISFIABLE: Final = 416
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""Extras with the libraries whose ``pipe_file(mode="create")`` the store itself decides on."""
_LOCAL: Final = ("file", "local")
_MEMORY: Final = "memory"
_memory_lock: Final = threading.RLock()
"""Of fsspec's ``memory://``, whose threads share the position in a file that they read."""


class Backend(Protocol):
    """The objects of a directory, by their keys below it. Every method may raise what it likes.

    Attributes:
        url: The directory, without credentials.
        has_conditional_create: Whether `create` is one step. Elsewhere it looks before it writes.
    """

    url: str
    has_conditional_create: bool

    def create(self, key: str, content: bytes) -> None:
        """Create an object, or raise if it exists; see `object_errors.Failure.REFUSED`."""

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""

    def read(self, key: str, begin: int, end: int) -> bytes:
        """Return the bytes of an object from one number up to another, or up to its end."""

    def sizes(self, directory: str) -> Iterator[tuple[str, int]]:
        """Yield keys and sizes in bytes of the objects below a directory, "" for all."""

    def upload(self, key: str, source: Path) -> None:
        """Create or replace an object with the content of a file."""

    def delete(self, key: str) -> None:
        """Delete an object, which may be absent."""


def resolve(path: str, filesystem: Any) -> tuple[Any, str]:
    """Return the fsspec file system and the path on it.

    Args:
        path: A URL or a path.
        filesystem: Where it lies; None for what the URL says, or this machine.

    Raises:
        ImportError: If fsspec, or the package for this kind of URL, is not installed.
    """
    if filesystem is not None:
        filesystem = as_fsspec(filesystem)
        # As fsspec documents, although the name is private.
        return filesystem, str(filesystem._strip_protocol(path))  # noqa: SLF001
    try:
        import fsspec.core  # noqa: PLC0415  (optional)
    except ImportError as cause:
        raise ImportError(
            f'reading {path} needs fsspec; run: pip install "tuner-hpo[remote]"'
        ) from cause
    bare, options = client_options(path)
    if is_s3(bare):
        options["config_kwargs"] = CLIENT_CONFIG
    found, root = fsspec.core.url_to_fs(bare, **options)
    if is_s3(bare):
        # Where the store does not answer, minutes would pass with the library's own.
        found.retries = 1
    return found, str(root)


def filesystem_of(path: str, filesystem: Any) -> Any:
    """Return the fsspec file system on which a path is; see `resolve`."""
    return resolve(path, filesystem)[0]


def open_backend(url: str, filesystem: Any = None) -> Backend:
    """Return the backend of a URL.

    Args:
        url: The directory, e.g. ``s3://bucket/directory``; a path of this machine also does.
        filesystem: The fsspec file system it is on; None for that of the URL.

    Raises:
        ImportError: If the library for it is not installed.
        ValueError: If the URL is incomplete, a chain of URLs, of an unknown protocol or holds
            credentials.
    """
    if without_credentials(url) != url:
        raise ValueError(
            f"storage {without_credentials(url)!r} was given with credentials in its URL, which "
            "would be recorded; set the environment variables of its library, or give "
            "storage_filesystem"
        )
    if "::" in url:
        raise ValueError(f"storage {url!r} is a chain of URLs; give the URL of the store itself")
    protocol = url.partition("://")[0].lower() if is_url(url) else "file"
    if filesystem is not None:
        filesystem = as_fsspec(filesystem)
        protocol = _protocol_of(filesystem)
    if protocol in _LOCAL:
        return LocalObjects(Path(url.removeprefix(f"{protocol}://")))
    return FsspecObjects(url, filesystem, protocol)


@final
class FsspecObjects:
    """Objects reached through a file system of fsspec; see `Backend`."""

    def __init__(self, url: str, filesystem: Any, protocol: str) -> None:
        self._given = url, filesystem
        self._protocol = protocol
        self._pid = 0
        self._filesystem: Any = None
        self._root = ""
        self._connect()
        if not self._root.strip("/"):
            raise ValueError(
                f"storage {url!r} names no bucket; give one, as in {protocol}://bucket/directory"
            )
        self.url = (url if is_url(url) else f"{protocol}://{self._root.lstrip('/')}").rstrip("/")
        # Not PyArrow's, which are wrapped.
        self._is_native = protocol in _EXTRAS and hasattr(self._filesystem, "loop")
        self.has_conditional_create = self._is_native or protocol == _MEMORY

    def create(self, key: str, content: bytes) -> None:
        with self._exclusive():
            filesystem, path = self._at(key)
            if self.has_conditional_create:
                self._call(filesystem, "pipe_file", path, content, mode="create")
                return
            with suppress(FileNotFoundError):
                self._call(filesystem, "cat_file", path, start=0, end=1)
                raise FileExistsError(path)
            self.put(key, content)

    def put(self, key: str, content: bytes) -> None:
        with self._exclusive():
            filesystem, path = self._at(key)
            self._write(filesystem, "pipe_file", path, path, content)

    def read(self, key: str, begin: int, end: int) -> bytes:
        # A range, since without one s3fs first asks for the size, for which it lists the directory
        # where the object is absent, or looks into its cache.
        with self._exclusive():
            filesystem, path = self._at(key)
            try:
                content: bytes = self._call(filesystem, "cat_file", path, start=begin, end=end)
            except Exception as error:
                if status_of(error) != _UNSATISFIABLE:
                    raise
                return b""  # it ends before
            return content

    def sizes(self, directory: str) -> Iterator[tuple[str, int]]:
        with self._exclusive():
            filesystem, path = self._at(directory)
            filesystem.invalidate_cache()
            try:
                found = self._call(filesystem, "find", path.rstrip("/"), detail=True)
            except FileNotFoundError as error:
                if status_of(error) is not None:
                    raise  # no such bucket
                found = {}
        for name, information in found.items():
            # Consoles mark folders by empty objects named "folder/".
            if information["type"] == "file" and not (
                name.endswith("/") and not information["size"]
            ):
                key = name.lstrip("/").removeprefix(f"{self._root.strip('/')}/")
                yield key, int(information["size"])

    def upload(self, key: str, source: Path) -> None:
        with self._exclusive():
            filesystem, path = self._at(key)
            part_bytes = max(_PART_BYTES, math.ceil(source.stat().st_size / _MAX_PARTS))
            options: dict[str, Any] = {"callback": _progress()}
            if self._is_native:
                options["chunksize"] = part_bytes
            self._write(filesystem, "put_file", path, str(source), path, **options)

    def delete(self, key: str) -> None:
        with self._exclusive():
            filesystem, path = self._at(key)
            with suppress(FileNotFoundError):
                self._call(filesystem, "rm_file", path)

    def _write(
        self, filesystem: Any, name: str, path: str, *arguments: Any, **options: Any
    ) -> None:
        try:
            self._call(filesystem, name, *arguments, **options)
        except FileNotFoundError:
            if self._is_native:
                raise
            # Other than object stores, servers of files want a folder made first.
            self._call(filesystem, "makedirs", path.rpartition("/")[0], exist_ok=True)
            self._call(filesystem, name, *arguments, **options)

    def _call(self, filesystem: Any, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the file system, or give up at the deadline of the present call.

        The methods themselves wait for as long as their library likes, so what takes long is
        waited for here. That of an asynchronous file system is cancelled if it is given up.
        """
        deadline = current_deadline()
        if deadline is None or self._protocol == _MEMORY:
            return getattr(filesystem, name)(*arguments, **options)
        # Where fsspec has made the method of a coroutine, it is an attribute of the object.
        coroutine_of = getattr(filesystem, f"_{name}", None)
        if name in vars(filesystem) and inspect.iscoroutinefunction(coroutine_of):
            import asyncio  # noqa: PLC0415  (loaded already by such a file system, and only there)

            made = coroutine_of(*arguments, **options)
            return deadline.result_of(asyncio.run_coroutine_threadsafe(made, filesystem.loop))
        call = partial(getattr(filesystem, name), *arguments, **options)
        return deadline.result_of(in_thread(call))

    def _at(self, key: str) -> tuple[Any, str]:
        # The event loop of an asynchronous file system does not live on in a forked child.
        if self._pid != os.getpid():
            self._connect()
        return self._filesystem, f"{self._root}/{key}"

    def _connect(self) -> None:
        url, filesystem = self._given
        self._filesystem, root = (
            _connect(url, self._protocol)
            if filesystem is None
            else resolve(url, _own_instance(filesystem, self._protocol))
        )
        self._root = root.rstrip("/")
        self._pid = os.getpid()

    def _exclusive(self) -> AbstractContextManager[Any]:
        return _memory_lock if self._protocol == _MEMORY else nullcontext()


def _progress() -> Any:
    """Return an fsspec callback that gives the present call its time again."""
    from fsspec.callbacks import DEFAULT_CALLBACK, Callback  # noqa: PLC0415  (optional)

    deadline = current_deadline()
    if deadline is None:
        return DEFAULT_CALLBACK
    on_progress = deadline.on_progress

    class Progress(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            on_progress()

    return Progress()


def _protocol_of(filesystem: Any) -> str:
    protocol = filesystem.protocol
    return str(protocol if isinstance(protocol, str) else protocol[0])


def _connect(url: str, protocol: str) -> tuple[Any, str]:
    extra = _EXTRAS.get(protocol, "remote")
    try:
        import fsspec.core  # noqa: PLC0415  (optional)

        bare, given = client_options(url)
        filesystem, root = fsspec.core.url_to_fs(bare, **_options(protocol, given))
    except ImportError as cause:
        raise ImportError(
            f"storage {url} needs a library that is not installed ({cause}); "
            f'run: pip install "tuner-hpo[{extra}]"'
        ) from cause
    return _bounded(filesystem, protocol), str(root)


def _own_instance(filesystem: Any, protocol: str) -> Any:
    """Return a new instance of the same file system, as fsspec makes one of a pickled one.

    The user's may cache listings, and its connections belong to the process that has made them.
    Other than asynchronous ones are used as they are: they may hold more than their arguments.
    """
    from fsspec.asyn import AsyncFileSystem  # noqa: PLC0415  (optional)

    if not isinstance(filesystem, AsyncFileSystem) or protocol not in _EXTRAS:
        return filesystem
    given = {
        name: value
        for name, value in filesystem.storage_options.items()
        if name not in ("asynchronous", "loop")
    }
    made = type(filesystem)(*filesystem.storage_args, **_options(protocol, given))
    return _bounded(made, protocol)


def _options(protocol: str, given: dict[str, Any]) -> dict[str, Any]:
    options = {**given, "skip_instance_cache": True, "use_listings_cache": False}
    if _EXTRAS.get(protocol) == "s3":
        options["config_kwargs"] = {**CLIENT_CONFIG, **(given.get("config_kwargs") or {})}
        # Times the parts in memory, times the files at once.
        options.setdefault("max_concurrency", 4)
    return options


def _bounded(filesystem: Any, protocol: str) -> Any:
    if _EXTRAS.get(protocol) == "s3":
        filesystem.retries = 1
    return filesystem


@final
class LocalObjects:
    """Objects that are the files of a directory of this machine; see `Backend`.

    Several processes may use the same directory. What is written is on disk when a call returns.
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_absolute():
            raise ValueError(f"storage {str(directory)!r} is relative; give an absolute path")
        self._directory = directory
        # Not quoted, as `Path.as_uri` would: it is read as it stands.
        self.url = f"file://{directory}"
        self.has_conditional_create = True

    def create(self, key: str, content: bytes) -> None:
        path = self._place(key)
        temporary = temporary_sibling(path)
        write_bytes(temporary, content)
        try:
            # A link, since a file that is opened with O_EXCL can be read before it is written.
            os.link(temporary, path)
        finally:
            temporary.unlink()
        LOCAL_DISK.sync_directory(path.parent)

    def put(self, key: str, content: bytes) -> None:
        write_bytes(self._place(key), content)

    def read(self, key: str, begin: int, end: int) -> bytes:
        with open_file(self._directory / key) as file:
            file.seek(begin)
            return file.read(end - begin)

    def sizes(self, directory: str) -> Iterator[tuple[str, int]]:
        for folder, _, names in os.walk(self._directory / directory):
            for name in names:
                path = Path(folder, name)
                if not name.startswith(STAGING_PREFIX) and not path.is_symlink():
                    with suppress(FileNotFoundError):
                        yield str(path.relative_to(self._directory)), path.stat().st_size

    def upload(self, key: str, source: Path) -> None:
        path = self._place(key)
        temporary = temporary_sibling(path)
        try:
            shutil.copyfile(source, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self, key: str) -> None:
        (self._directory / key).unlink(missing_ok=True)

    def _place(self, key: str) -> Path:
        path = self._directory / key
        make_folder(path.parent)
        return path
