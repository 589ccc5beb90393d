"""Check of whether a node reaches a storage: each end sees what the other one has written.

It is done before an experiment, by ``tuner doctor --cluster``. The driver writes a small file or
object of random content, the host of a node looks for it and writes another one beside it, and the
driver looks for that. So a directory or a local store that has the same name on each machine, and
is another one, is told from one that all of them share.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import StorageError
from tuner.storage.object_store import ObjectStore
from tuner.storage.urls import is_url

from .shared_directory import PATIENCE_S, SharedProof, answer_proof

_PREFIX: Final = "probe/"
_RETRY_S: Final = 5.0
_REMEDY: Final = (
    "give the node what the driver has: the same storage, its network, its credentials in the "
    "environment, and the library for it"
)


@final
class StorageProbe:
    """The driver's side.

    Args:
        place: URL of a directory in an object store, or path of a directory that exists.

    Raises:
        StorageError: If an object store cannot be written to.
        OSError: If a directory cannot be.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._store = ObjectStore(place, retry_s=_RETRY_S) if is_url(place) else None
        self._shared: SharedProof | None = None
        self._keys: list[str] = []
        self._name, self._content = f"{_PREFIX}{secrets.token_hex(16)}", secrets.token_hex(16)
        if self._store:
            self._store.put(self._name, self._content.encode())
            self._keys.append(self._name)
        else:
            self._shared = SharedProof(Path(place), 0.0)
            self._name, self._content = self._shared.proof

    @property
    def message(self) -> dict[str, Any]:
        """The message to a host, which `answer_probe` takes."""
        return {
            "kind": "probe",
            "place": self.place,
            "proof": {"name": self._name, "content": self._content},
        }

    def complaint(self, node: str) -> str:
        """Return why what a host has written cannot be seen here; empty if it can.

        Args:
            node: What the host has called itself in `answer_probe`.
        """
        if self._shared:
            return self._shared.complaint(node)
        key = _answer_key(self._name, node)
        self._keys.append(key)
        if self._store and self._store.get_if_exists(key) != self._content.encode():
            return (
                f"what it has written to {self.place} is not there for the driver, so that it is "
                f"another storage of that name; {_REMEDY}"
            )
        return ""

    def close(self) -> None:
        """Remove what was written."""
        if self._shared:
            self._shared.close()
        if self._store:
            with contextlib.suppress(StorageError):  # which has been reported
                self._store.delete(self._keys)


def answer_probe(message: Mapping[str, Any], node: str, within_s: float = PATIENCE_S) -> str:
    """Look for what the driver has written, and write beside it; done by the host of a node.

    Args:
        message: What the driver has sent, see `StorageProbe.message`.
        node: Differs between all hosts.
        within_s: How many seconds to look for it at most in a directory; what a store has can be
            seen at once.

    Returns:
        Why that was not possible, and what to do; empty if it was.
    """
    place, name, content = message["place"], message["proof"]["name"], message["proof"]["content"]
    if not is_url(place):
        return answer_proof(place, (name, content), node, within_s)
    try:
        store = ObjectStore(place, retry_s=_RETRY_S)
        if store.get_if_exists(name) != content.encode():
            return (
                f"it does not see in {place} what the driver has written there, so that it is "
                f"another storage of that name; {_REMEDY}"
            )
        store.put(_answer_key(name, node), content.encode())
    except (StorageError, OSError, ValueError, ImportError) as error:
        return f"it cannot use {place} ({error}); {_REMEDY}"
    return ""


def _answer_key(name: str, node: str) -> str:
    return f"{name}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"
