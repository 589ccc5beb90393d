"""Proof that driver and node see the same directory, and each what the other one writes.

A directory of the same path may be another one on each machine. So the driver writes a file of
random content into the experiment's directory, the host of a node looks for it and writes another
one beside it, and the driver looks for that.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import time
from pathlib import Path
from typing import Final, final

from tuner.storage.disk import write_bytes
from tuner.storage.layout import NODE_PROOF_PREFIX

_MAX_LEASE_S: Final = 60.0
_PAUSE_S: Final = 0.2
PATIENCE_S: Final = 2.0
"""How long a host looks for the file; a network file system shows new files after a while."""
_REMEDY: Final = (
    "use a storage_path that all nodes mount under the same path and can write to, or one in an "
    "object store, such as 's3://bucket/experiments'"
)

_log = logging.getLogger("tuner")


@final
class SharedProof:
    """The driver's side.

    While the files are there, nodes may be working in the directory, see `await_former_nodes`.

    Args:
        directory: The experiment's directory.
        lease_s: How long the nodes may outlive their driver.

    Attributes:
        place: As given, as text.
        proof: Name and content of the file, for `SharedStorage`.

    Raises:
        OSError: If the file cannot be written.
    """

    def __init__(self, directory: Path, lease_s: float) -> None:
        self._directory = directory
        self.place = str(directory)
        self.proof = (
            f"{NODE_PROOF_PREFIX}{secrets.token_hex(6)}",
            f"{secrets.token_hex(16)} {lease_s:g}",
        )
        name, content = self.proof
        write_bytes(directory / name, content.encode(), sync=False)

    def complaint(self, node: str) -> str:
        """Return why what a host has written cannot be seen here; empty if it can.

        Args:
            node: What the host has called itself in `answer_proof`.
        """
        name, content = self.proof
        path = self._directory / answer_name(name, node)
        try:
            is_right = path.read_text(encoding="utf-8") == content
        except (OSError, UnicodeDecodeError) as error:
            return (
                f"{path}, which it has written, cannot be read by the driver ({error}); {_REMEDY}"
            )
        return "" if is_right else f"{path} is not what it has written; {_REMEDY}"

    def close(self) -> None:
        """Remove all files."""
        for path in self._directory.glob(f"{self.proof[0]}*"):
            path.unlink(missing_ok=True)


def await_former_nodes(directory: Path) -> None:
    """Wait until no node of a driver that has died works in an experiment's directory any more.

    Nodes end their trials themselves when their driver is dead, though not at once, and another
    driver must not start the same trials before.
    """
    leases_s = [0.0]
    for path in directory.glob(f"{NODE_PROOF_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            leases_s.append(min(float(path.read_text(encoding="utf-8").split()[1]), _MAX_LEASE_S))
    if lease_s := max(leases_s):
        _log.warning(
            "the last driver of the experiment has not ended its nodes; waiting for %g s, after "
            "which they have ended their trials themselves",
            lease_s,
        )
        time.sleep(lease_s)
    for path in directory.glob(f"{NODE_PROOF_PREFIX}*"):
        path.unlink(missing_ok=True)


def answer_proof(
    directory: str, proof: tuple[str, str], node: str, within_s: float = PATIENCE_S
) -> str:
    """Look for the driver's file and write another one beside it; done by the host of a node.

    Args:
        directory: The experiment's directory.
        proof: Name and content of the driver's file.
        node: Differs between all hosts.
        within_s: How many seconds to look for it at most.

    Returns:
        Why that was not possible, and what to do; empty if it was.
    """
    name, content = proof
    path, deadline_s = Path(directory, name), time.monotonic() + within_s
    while (why := _why_different(path, content)) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)
    if why:
        return (
            f"it does not see the experiment's directory {directory} of the driver ({why}); "
            f"{_REMEDY}"
        )
    try:
        write_bytes(Path(directory, answer_name(name, node)), content.encode(), sync=False)
    except OSError as error:
        return f"it cannot write to the experiment's directory {directory} ({error}); {_REMEDY}"
    return ""


def _why_different(path: Path, content: str) -> str:
    try:
        return "" if path.read_text(encoding="utf-8") == content else f"{path} is another file"
    except (OSError, UnicodeDecodeError) as error:
        return str(error)


def answer_name(name: str, node: str) -> str:
    """Return the name of what a host writes beside the driver's file or object of a name."""
    # Not the node's name itself, which need not be one of a file.
    return f"{name}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"
