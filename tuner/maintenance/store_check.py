"""Check of an object store before experiments are put there: access, locks and latency."""

from __future__ import annotations

import importlib.metadata
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Final

from tuner.errors import StorageError
from tuner.stores.checked_url import checked_url
from tuner.stores.object_store import ObjectStore

from .doctor import Finding, Level

_RETRY_S: Final = 5.0
_NUM_ROUNDS: Final = 5
_CONTENT_BYTES: Final = 16 << 10
_SLOW_MS: Final = 1000.0
_PACKAGES: Final = {
    "s3": ("fsspec", "s3fs", "botocore"),
    "s3a": ("fsspec", "s3fs", "botocore"),
    "gs": ("fsspec", "gcsfs"),
    "gcs": ("fsspec", "gcsfs"),
}


def check_store(url: str) -> list[Finding]:
    """Return the findings about a directory in an object store, in which no experiment need be.

    It writes a few small objects below ``probe/`` and deletes them again; nothing else is changed.

    Args:
        url: The directory.

    Raises:
        ValueError: If it is no URL of a directory, or the package for it is not installed.
        StorageError: If the store's library cannot be used at all.
    """
    url = checked_url("--storage", url)
    store = ObjectStore(url, retry_s=_RETRY_S)
    access = _finding("access", _check_access, store)
    if access.level is Level.ERROR:
        return [_versions(url), access]
    return [_versions(url), access, _finding("locks", _check_locks, store)]


def _versions(url: str) -> Finding:
    packages = _PACKAGES.get(url.partition("://")[0], ("fsspec",))
    found = [(name, version) for name in packages if (version := _version(name))]
    return Finding("versions", Level.OK, ", ".join(" ".join(one) for one in found) or "none needed")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""  # a directory of this machine needs none


def _finding(subject: str, check: Callable[[ObjectStore], Finding], store: ObjectStore) -> Finding:
    try:
        return check(store)
    except StorageError as error:
        what, _, remedy = str(error).partition("; ")
        return Finding(subject, Level.ERROR, what, remedy)


def _check_access(store: ObjectStore) -> Finding:
    """Write, read, list and delete an object, several times."""
    took_ms = []
    for _ in range(_NUM_ROUNDS):
        key, content = f"probe/{secrets.token_hex(16)}", secrets.token_bytes(_CONTENT_BYTES)
        begun_s = time.perf_counter()
        store.put(key, content)
        took_ms.append((time.perf_counter() - begun_s) * 1000)
        try:
            if store.get_if_exists(key) != content or key not in store.list("probe/"):
                return Finding(
                    "access",
                    Level.ERROR,
                    f"{store.url} does not show an object that was just written",
                    "use a store that is strongly consistent",
                )
        finally:
            store.delete([key])
        if store.get_if_exists(key) is not None:
            return Finding(
                "access",
                Level.ERROR,
                f"{store.url} still has an object that was just deleted",
                "allow deletions in the bucket, and use a store that is strongly consistent",
            )
    middle_ms = statistics.median(took_ms)
    what = f"objects are written, read, listed and deleted; a small one takes {middle_ms:.1f} ms"
    if middle_ms > _SLOW_MS:
        return Finding("access", Level.WARNING, what, "use a store that is nearer")
    return Finding("access", Level.OK, what)


def _check_locks(store: ObjectStore) -> Finding:
    store.probe()
    return Finding(
        "locks", Level.OK, "an object that exists is not created again; one driver at a time runs"
    )
