"""PyArrow's file systems, which scripts for Ray Tune pass, as those of fsspec."""

from __future__ import annotations

from typing import Any

_UNKNOWN_HERE = ("role_arn", "tls_ca_file_path")
"""Options of PyArrow's S3 client that have no equal argument of s3fs."""


def as_fsspec(filesystem: Any) -> Any:
    """Return a file system of fsspec for one of PyArrow, any other object as it is.

    For S3 it is s3fs with the same endpoint, region and credentials, which can create an object
    only if it is absent, as the lock of an experiment needs; for this machine fsspec's own; for one
    that PyArrow has made of fsspec's, that one; and a wrapper for the others.
    """
    if not is_arrow(filesystem):
        return filesystem
    from pyarrow import fs  # noqa: PLC0415  (optional)

    if isinstance(filesystem, fs.PyFileSystem):
        inner = getattr(filesystem.handler, "fs", None)
        return filesystem if inner is None else inner
    if isinstance(filesystem, fs.LocalFileSystem):
        import fsspec  # noqa: PLC0415  (optional)

        return fsspec.filesystem("file")
    return _as_s3fs(filesystem) or _wrapped(filesystem)


def is_arrow(filesystem: Any) -> bool:
    """Return whether a file system is one of PyArrow's."""
    return type(filesystem).__module__.split(".")[0] == "pyarrow"


def _as_s3fs(filesystem: Any) -> Any:
    """Return the file system of s3fs with the same options; None if there is none."""
    if filesystem.type_name != "s3":
        return None
    try:
        import s3fs  # noqa: PLC0415  (optional)
    except ImportError:
        return None
    # What it is pickled as; it has no attributes that tell.
    given: dict[str, Any] = filesystem.__reduce__()[1][0]
    proxy = given.get("proxy_options") or {}
    if any(given.get(name) for name in _UNKNOWN_HERE) or proxy.get("host"):
        return None
    options: dict[str, Any] = {"anon": bool(given.get("anonymous"))}
    credentials = {"key": "access_key", "secret": "secret_key", "token": "session_token"}
    options |= {name: given[theirs] for name, theirs in credentials.items() if given.get(theirs)}
    if endpoint := given.get("endpoint_override"):
        is_full = "://" in endpoint
        options["endpoint_url"] = endpoint if is_full else f"{given['scheme']}://{endpoint}"
    if region := given.get("region"):
        options["client_kwargs"] = {"region_name": region}
    return s3fs.S3FileSystem(**options)


def _wrapped(filesystem: Any) -> Any:
    from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: PLC0415  (optional)

    class Wrapped(ArrowFSWrapper):  # type: ignore[misc]
        def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> Any:
            # Without this it opens a file that begins at 0 such that it cannot be read in part.
            return super().cat_file(path, start, end, **{"seekable": True, **options})

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            # The wrapper's own takes the first folder for a host, and drops it.
            return path.rpartition("://")[2]

    return Wrapped(filesystem)
