"""Kinds of errors that object stores and the libraries for them raise.

The libraries translate what a store answers into exceptions that differ between them and between
stores: a refused conditional write is a `FileExistsError` on AWS and ``OSError(22)`` on Ceph. So
the HTTP status of the answer decides where there is one, and the exception's class elsewhere.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from enum import Enum, auto, unique
from typing import Any, Final


@unique
class Failure(Enum):
    """What an error of an object store means for its caller."""

    ABSENT = auto()
    """There is no such object."""
    REFUSED = auto()
    """An object that was to be created exists already."""
    DENIED = auto()
    """Credentials are missing, wrong, expired or not sufficient; retrying does not help."""
    TRANSIENT = auto()
    """The store, or the way to it, is down or overloaded."""
    PERMANENT = auto()
    """Any other, e.g. a bucket that does not exist; retrying does not help."""


_TRANSIENT_STATUS: Final = frozenset({408, 409, 425, 429})
_BY_STATUS: Final = {
    401: Failure.DENIED,
    403: Failure.DENIED,
    404: Failure.ABSENT,
    412: Failure.REFUSED,
}
# More exact than the status where a store gives one: RequestTimeout comes with 400, and a missing
# bucket with the same 404 as a missing object.
_BY_CODE: Final = {
    "NoSuchBucket": Failure.PERMANENT,
    "RequestTimeout": Failure.TRANSIENT,
    # Its completion was carried out or given up, and the answer lost: begun anew it works.
    "NoSuchUpload": Failure.TRANSIENT,
    "ExpiredToken": Failure.DENIED,
    "InvalidToken": Failure.DENIED,
    "TokenRefreshRequired": Failure.DENIED,
}
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED_CLASSES: Final = frozenset(
    {
        "CredentialRetrievalError",
        "GoogleAuthError",
        "NoAuthTokenError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "SSOError",
        "TokenRetrievalError",
    }
)
"""Of botocore and google.auth, which are not imported for this."""
_TRANSIENT_CLASSES: Final = frozenset(
    {
        "ClientError",  # aiohttp's; botocore's has a status
        "HTTPClientError",
        "ConnectionError",
        "IncompleteReadError",
        "ResponseParserError",
        "ResponseStreamingError",
        "TransportError",
    }
)
_USER_INFO: Final = re.compile(r"(?<=//)[^/@\s]+@")


def failure_of(error: BaseException) -> Failure:
    """Return what an error of an object store, or of its library, means.

    Example:
        >>> failure_of(FileNotFoundError()), failure_of(TimeoutError())
        (<Failure.ABSENT: 1>, <Failure.TRANSIENT: 4>)
    """
    for link in _chain(error):
        if (code := _code_of(link)) in _BY_CODE:
            return _BY_CODE[code]
        if (status := _status_of(link)) is not None:
            return _of_status(status)
    if isinstance(error, OSError):
        return _of_system(error)
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _DENIED_CLASSES:
        return Failure.DENIED
    if isinstance(error, TimeoutError) or names & _TRANSIENT_CLASSES:
        return Failure.TRANSIENT
    return Failure.PERMANENT


def is_full(error: BaseException) -> bool:
    """Return whether a disk of this machine, not the store, has no space left."""
    return isinstance(error, OSError) and error.errno in _FULL and _status_of(error) is None


def describe(error: BaseException) -> str:
    """Return an error on one line, without credentials that a URL in it may hold."""
    text = " ".join(str(error).split())
    return without_credentials(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def without_credentials(text: str) -> str:
    """Return the text without users and passwords of URLs.

    Example:
        >>> without_credentials("http://user:password@host/path")
        'http://host/path'
    """
    return _USER_INFO.sub("", text)


def _of_status(status: int) -> Failure:
    if status >= 500 or status in _TRANSIENT_STATUS:  # noqa: PLR2004  (as in RFC 9110)
        return Failure.TRANSIENT
    return _BY_STATUS.get(status, Failure.PERMANENT)


def _of_system(error: OSError) -> Failure:
    match error:
        case FileNotFoundError():
            return Failure.ABSENT
        case FileExistsError():
            return Failure.REFUSED
        case PermissionError():
            return Failure.DENIED
    # gcsfs says so in words only.
    return Failure.DENIED if str(error).startswith("Forbidden") else Failure.TRANSIENT


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and those it was raised from."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status with which a store has answered; None if it has not."""
    return next(
        (status for link in _chain(error) if (status := _status_of(link)) is not None), None
    )


def _status_of(error: BaseException) -> int | None:
    answer = getattr(error, "response", None)
    status: Any = None
    if isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    elif type(error).__name__ == "HttpError":  # gcsfs's; aiohttp's have a code 400 of their own
        status = getattr(error, "code", None)
    return status if type(status) is int else None


def _code_of(error: BaseException) -> str:
    answer = getattr(error, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""
