"""Checks of URLs of directories in object stores, such as ``s3://bucket/dir``."""

from __future__ import annotations

import importlib.util
from typing import Any, Final
from urllib.parse import urlsplit

from tuner.storage.urls import is_url, split_options, with_options

from .arrow_filesystem import as_fsspec, is_arrow
from .s3_options import normal_options

_NEEDS_NO_HOST: Final = frozenset({"file", "local", "memory"})
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""The extra of this package that installs the driver of a protocol."""
_METHODS: Final = ("_strip_protocol", "unstrip_protocol", "cat_file", "pipe_file", "find", "info")


def checked_url(name: str, url: str, filesystem: Any = None) -> str:
    """Return the URL of a directory in its normal form, without a slash at its end.

    Args:
        name: The argument, for messages.
        url: The URL, or with a file system the path on it.
        filesystem: The file system, of fsspec or PyArrow; None for the one that the URL names.

    Raises:
        ValueError: If it is no URL of a directory, holds credentials, or names a file system that
            does not exist or whose package is not installed.
        TypeError: If the file system is not one of fsspec's or PyArrow's.

    Example:
        >>> checked_url("storage_path", "s3://bucket/dir/")
        's3://bucket/dir'
    """
    options = ""
    if filesystem is not None:
        url = _full_url(name, url, filesystem)
    else:
        url, given = split_options(url)
        options = normal_options(name, given)
    _check_form(name, url)
    _check_parts(name, url)
    if filesystem is None:
        _check_protocol(name, url)
    protocol, _, rest = url.partition("://")
    return with_options(f"{protocol.lower()}://{rest.rstrip('/')}", options)


def check_filesystem(filesystem: Any) -> None:
    """Check that an object has the methods of an fsspec file system, or is one of PyArrow's.

    Raises:
        TypeError: If it has not.
    """
    if is_arrow(filesystem) or all(
        callable(getattr(filesystem, method, None)) for method in _METHODS
    ):
        return
    raise TypeError(
        f"storage_filesystem must be an fsspec file system, got {_shown(filesystem)}; pass "
        "fsspec.filesystem(...) or one of pyarrow.fs, or leave it out and give a URL such as "
        "'s3://bucket/dir'"
    )


def _shown(filesystem: Any) -> str:
    # Not by its repr, which may contain credentials.
    return (
        repr(filesystem)
        if isinstance(filesystem, str)
        else f"an object of {type(filesystem).__module__}.{type(filesystem).__qualname__}"
    )


def _full_url(name: str, path: str, filesystem: Any) -> str:
    check_filesystem(filesystem)
    filesystem = as_fsspec(filesystem)
    if not path.strip("/ "):
        raise ValueError(f"{name} must name a directory of storage_filesystem, got {path!r}")
    protocols = filesystem.protocol
    protocols = (protocols,) if isinstance(protocols, str) else tuple(protocols)
    given = path.partition("://")[0].lower() if is_url(path) else ""
    if given and given not in protocols:
        raise ValueError(
            f"{name} must be a directory of storage_filesystem, which is one of "
            f"{', '.join(map(repr, protocols))}, got {path!r}; leave storage_filesystem out, or "
            "pass the path without a protocol"
        )
    if not given and not set(protocols) & _NEEDS_NO_HOST:
        path = path.lstrip("/")  # "/bucket/dir" is "bucket/dir"
    stripped = filesystem._strip_protocol(path)  # noqa: SLF001  (as fsspec documents)
    return str(filesystem.unstrip_protocol(stripped))


def _check_form(name: str, url: str) -> None:
    if "::" in url.partition("://")[0] or url.count("://") > 1:
        raise ValueError(
            f"{name} must be the URL of one file system, got {url!r}; remove what precedes '::'"
        )
    if not is_url(url):
        raise ValueError(
            f"{name} must be a directory, or a URL such as 's3://bucket/dir', got {url!r}, which "
            "looks like a URL with one slash; pass a string with two slashes (a pathlib.Path drops "
            "one), or write ./ in front for a folder of that name"
        )
    user = urlsplit(url).netloc.rpartition("@")[0]
    if ":" in user:  # abfs://container@account has no colon
        raise ValueError(
            f"{name} must not contain a password, got a URL with one; set the credentials in the "
            "environment or in the configuration file of the store's client"
        )
    if any(character in url for character in "\0?*\\"):
        raise ValueError(
            f"{name} must not contain '?', '*', '\\' or a null character, got "
            f"{url.partition('?')[0]!r} with more behind it"
            if "?" in url
            else f"{name} must not contain '?', '*', '\\' or a null character, got {url!r}"
        )


def _check_parts(name: str, url: str) -> None:
    protocol, _, rest = url.partition("://")
    is_hostless = protocol.lower() in _NEEDS_NO_HOST
    parts = (rest.removeprefix("/") if is_hostless else rest).rstrip("/").split("/")
    if parts == [""]:
        raise ValueError(
            f"{name} must name {'a directory' if is_hostless else 'a bucket'}, got {url!r}; write "
            f"{protocol}://{'/dir' if is_hostless else 'bucket/dir'}"
        )
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(
            f"{name} must have names between its slashes, none of them '.' or '..', got {url!r}; "
            "keys of an object store are not resolved like paths"
        )


def _check_protocol(name: str, url: str) -> None:
    protocol = url.partition("://")[0].lower()
    extra = _EXTRAS.get(protocol, "remote")
    install = f'run: pip install "tuner-hpo[{extra}]"'
    try:
        from fsspec.registry import (  # noqa: PLC0415  (optional)
            known_implementations,
            registry,
        )
    except ImportError as cause:
        raise ValueError(f"{name}={url!r} needs fsspec, which is not installed; {install}") from (
            cause
        )
    if protocol in registry:
        return
    entry = known_implementations.get(protocol)
    if entry is None:
        raise ValueError(
            f"{name} must begin with a protocol that fsspec knows, such as s3://, gs:// or "
            f"abfs://, got {url!r}; pass a file system of your own as storage_filesystem"
        )
    package = entry["class"].partition(".")[0]
    if importlib.util.find_spec(package) is None:
        remedy = install if protocol in _EXTRAS else f"run: pip install {package}"
        raise ValueError(f"{name}={url!r} needs {package}, which is not installed; {remedy}")
