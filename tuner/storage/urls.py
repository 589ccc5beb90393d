"""URLs of directories in object stores: told from paths, joined and split, as mere texts."""

from __future__ import annotations

import os
import re
from typing import Final

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# At least two characters before the colon: "C:/data" is a path.
_URL_LIKE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[:/]")
_CHAIN: Final = re.compile(r"[a-z][a-z0-9+.-]*::", re.IGNORECASE)
_S3_PROTOCOLS: Final = ("s3", "s3a")


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the URL of a directory in an object store.

    Example:
        >>> is_url("s3://bucket/dir"), is_url("./s3:/dir"), is_url("C:/data")
        (True, False, False)
    """
    return _URL.match(os.fspath(path)) is not None


def is_like_url(path: str) -> bool:
    """Return whether a path is a URL, or was probably meant to be one."""
    return _URL_LIKE.match(path) is not None


def is_remote(path: str) -> bool:
    """Return whether a path is a URL, or a chain of them as in ``simplecache::s3://bucket/key``."""
    return is_url(path) or _CHAIN.match(path) is not None


def join_url(url: str, name: str) -> str:
    """Return the URL of something in a directory.

    Example:
        >>> join_url("s3://bucket/dir", "group/exp")
        's3://bucket/dir/group/exp'
        >>> join_url("s3://bucket?region=eu-west-1", "exp")
        's3://bucket/exp?region=eu-west-1'
    """
    bare, options = split_options(url)
    return with_options(f"{bare.rstrip('/')}/{name}", options)


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of the directory above, and the last name in the URL.

    Example:
        >>> split_url("s3://bucket/dir/exp/")
        ('s3://bucket/dir', 'exp')
        >>> split_url("s3://bucket/exp?region=eu-west-1")
        ('s3://bucket?region=eu-west-1', 'exp')
    """
    bare, options = split_options(url)
    above, _, name = bare.rstrip("/").rpartition("/")
    return with_options(above, options), name


def path_in(url: str, root: str) -> str:
    """Return where something is below a directory, both given by their URLs.

    Example:
        >>> path_in("s3://bucket/dir/group/exp", "s3://bucket/dir")
        'group/exp'
    """
    return split_options(url)[0].removeprefix(f"{split_options(root)[0]}/")


def is_s3(url: str) -> bool:
    """Return whether a URL is that of an S3 store."""
    return url.partition("://")[0].lower() in _S3_PROTOCOLS


def split_options(url: str) -> tuple[str, str]:
    """Return a URL without its options, and the options; both as they stand.

    Example:
        >>> split_options("s3://bucket/dir?region=eu-west-1")
        ('s3://bucket/dir', 'region=eu-west-1')
        >>> split_options("gs://bucket/dir?")
        ('gs://bucket/dir?', '')
    """
    bare, mark, options = url.partition("?")
    if not mark or not is_s3(bare):
        return url, ""
    return bare, options


def with_options(url: str, options: str) -> str:
    """Return a URL with options, which may be none."""
    return f"{url}?{options}" if options else url
