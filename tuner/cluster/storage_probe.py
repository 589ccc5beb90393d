"""Check of whether a node reaches a storage: each end sees what the other one has written.

The driver writes a small file or object of random content, the host of a node looks for it and
writes another one beside it, and the driver looks for that. So a directory or a local store that
has the same name on each machine, and is another one, is told from one that all of them share.
`StoreProof` does that for an experiment in an object store as its nodes join, and `write_probe`
begins it before an experiment, for ``tuner doctor --cluster``.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import StorageError, StorageUnreachable
from tuner.storage.urls import is_url
from tuner.stores.object_checkpoints import proof_prefix
from tuner.stores.object_store import ObjectStore
from tuner.stores.store_calls import in_thread

from .node_messages import StoredElsewhere
from .shared_directory import PATIENCE_S, SharedProof, answer_name, answer_proof

_RETRY_S: Final = 5.0
_LAST_RETRY_S: Final = 1.0
"""How long it is tried to delete what was written."""
_REMEDY: Final = (
    "give the node what the driver has: the same storage, its network, its credentials in the "
    "environment, and the library for it"
)


@final
class StoreProof:
    """The driver's side of the proof that it and the nodes use the same object store.

    Args:
        store: The directory in the store.
        epoch: The driver's number among all that have driven the experiment, so that later ones
            know what it has left behind; 0 without an experiment.

    Attributes:
        place: URL of the directory.
        proof: Name and content of the object that it has written.

    Raises:
        StorageError: If the store cannot be written to.
    """

    def __init__(self, store: ObjectStore, epoch: int = 0) -> None:
        self._store = store.with_retry_s(_RETRY_S)
        self.place = store.url
        self.proof = f"{proof_prefix(epoch)}{secrets.token_hex(16)}", secrets.token_hex(16)
        name, content = self.proof
        self._keys = [name]
        store.put(name, content.encode())

    def complaint(self, node: str) -> str:
        """Return why what a host has written cannot be seen here; empty if it can.

        Args:
            node: What the host has called itself in `answer_store_proof`.

        Raises:
            StorageError: If the store did not answer, or refused.
        """
        name, content = self.proof
        key = answer_name(name, node)
        self._keys.append(key)
        if self._store.get_if_exists(key) == content.encode():
            return ""
        return (
            f"what it has written to {self._store.url} is not there for the driver, so that it is "
            f"another storage of that name; {_REMEDY}"
        )

    def close(self) -> None:
        """Delete what was written."""
        self._store.retry_s = _LAST_RETRY_S
        with contextlib.suppress(StorageError):  # a later driver deletes it
            self._store.delete(self._keys)


def answer_store_proof(store: ObjectStore, proof: tuple[str, str], node: str) -> str:
    """Look for the driver's object, and write another one beside it; done by the host of a node.

    Args:
        store: The directory in the store.
        proof: Name and content of the driver's object.
        node: Differs between all hosts.

    Returns:
        Why that was not possible, and what to do; empty if it was.

    Raises:
        StorageError: If the store did not answer, or refused.
    """
    name, content = proof
    if store.get_if_exists(name) != content.encode():
        return (
            f"it does not see in {store.url} what the driver has written there, so that it is "
            f"another storage of that name; {_REMEDY}"
        )
    store.put(answer_name(name, node), content.encode())
    return ""


def open_store(storage: StoredElsewhere) -> ObjectStore:
    """Return the experiment's directory in the store; done by the host of a node.

    Raises:
        Exception: Raised by the store's library, or when the user's file system is unpickled.
    """
    # From the driver, as is all code that runs here.
    filesystem = pickle.loads(storage.filesystem) if storage.filesystem else None  # noqa: S301
    return ObjectStore(storage.url, filesystem, retry_s=storage.retry_s)


def answer_in_time(store: ObjectStore, proof: tuple[str, str], node: str) -> str:
    """Answer the driver's proof, see `answer_store_proof`.

    Raises:
        StorageError: If the store did not answer, or refused.
    """
    patient = store.with_retry_s(_RETRY_S)
    # In a thread: where a store accepts a connection and does not answer, this takes long.
    answering = in_thread(lambda: answer_store_proof(patient, proof, node))
    try:
        return answering.result(2 * _RETRY_S)
    except TimeoutError:
        raise StorageUnreachable(f"{store.url} does not answer") from None


def write_probe(place: str) -> StoreProof | SharedProof:
    """Write what a node that reaches a storage can see there, see `answer_probe`.

    Args:
        place: URL of a directory in an object store, or path of a directory that exists.

    Raises:
        StorageError: If an object store cannot be written to.
        OSError: If a directory cannot be.
    """
    if is_url(place):
        return StoreProof(ObjectStore(place, retry_s=_RETRY_S))
    return SharedProof(Path(place), 0.0)


def probe_message(proof: StoreProof | SharedProof) -> dict[str, Any]:
    """Return the message to a host, which `answer_probe` takes."""
    name, content = proof.proof
    return {"kind": "probe", "place": proof.place, "proof": {"name": name, "content": content}}


def answer_probe(message: Mapping[str, Any], node: str, within_s: float = PATIENCE_S) -> str:
    """Look for what the driver has written, and write beside it; done by the host of a node.

    Args:
        message: What the driver has sent, see `probe_message`.
        node: Differs between all hosts.
        within_s: How many seconds to look for it at most in a directory; what a store has can be
            seen at once.

    Returns:
        Why that was not possible, and what to do; empty if it was.
    """
    place, proof = message["place"], (message["proof"]["name"], message["proof"]["content"])
    if not is_url(place):
        return answer_proof(place, proof, node, within_s)
    try:
        return answer_store_proof(ObjectStore(place, retry_s=_RETRY_S), proof, node)
    except (StorageError, OSError, ValueError, ImportError) as error:
        return f"it cannot use {place} ({error}); {_REMEDY}"
