"""Paths and URLs told apart, without looking at what a URL names."""

from __future__ import annotations

import os
import re
from typing import Final

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# At least two characters before the colon: "C:/data" is a path.
_URL_LIKE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[:/]")
_CHAIN: Final = re.compile(r"[a-z][a-z0-9+.-]*::", re.IGNORECASE)


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
