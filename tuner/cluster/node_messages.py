"""What driver and node say to each other before anything runs there, and about the node itself.

They are JSON objects with the key ``kind``, which a `Link` carries. The host of a node says
``hello``; the driver sends a ``setup`` and the user's code (``blob``, ``blob_end``), and the host
answers that it is ``ready``, or why it is ``refused``. Before, the driver may ``probe`` a storage,
see `storage_probe`. A host also tells remarks for the driver's log, and that its node is going to
leave; the driver ends it by ``close``.

A node has run the user's code, so all that it says is checked as it is read. It trusts its driver,
whose code it runs. Code and file systems are pickled, and travel as base64; a host passes on the
code without loading it.
"""

from __future__ import annotations

import base64
import importlib.metadata
import math
import os
import socket
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, final

from tuner.storage.lock import boot_id
from tuner.version import __version__
from tuner.wire.declared import Form, Malformed, Tagged, decode, encode, tag_of, tagged

PROTOCOL: Final = 1
_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_NEEDED: Final = {"tuner": "tuner", "python": "Python"}
"""What has to be the same on all nodes, by its name in messages."""
_COMPARED: Final = ("numpy", "torch", "cloudpickle")
"""Packages of which a different version is worth a warning."""
_BLOB_BYTES: Final = 512 << 10
_MAX_TEXT: Final = 4_000


def _limited(text: Any) -> str:
    if not isinstance(text, str):
        raise Malformed(f"must be a text, got {text!r:.80}")
    return text[:_MAX_TEXT]


def _amount(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise Malformed(f"must be a finite number of at least 0, got {value!r:.80}")


def _as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _as_bytes(text: str) -> bytes:
    return base64.b64decode(text)


_Text = Annotated[str, Form(str, _limited)]
"""A text for messages, of which a node may not send any amount."""
_Amount = Annotated[float, Form(float, _amount)]


# What a host says.


@final
@tagged("hello")
@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a host.

    Attributes:
        protocol: Version of these messages that it speaks; of another one, only `versions` count.
        versions: Versions of tuner, Python (major and minor) and packages, by name.
        hostname: Name of its machine.
        pid: Its process id.
        address: Under which other nodes reach it.
        resources: What the node has, by name.
        labels: What requests may ask for.
        boot_id: Identifies its machine until that is started again; empty where it is not known.
    """

    protocol: int
    versions: Mapping[str, _Text]
    hostname: _Text = ""
    pid: int = 0
    address: _Text = ""
    resources: Mapping[str, _Amount] | None = None
    labels: Mapping[str, _Text] | None = None
    boot_id: _Text = ""

    @classmethod
    def of_this_process(
        cls, address: str, resources: Mapping[str, float], labels: Mapping[str, str]
    ) -> Hello:
        """Return what this process says first."""
        return cls(
            PROTOCOL,
            own_versions(),
            socket.gethostname(),
            os.getpid(),
            address,
            dict(resources),
            dict(labels),
            boot_id(),
        )

    @property
    def message(self) -> dict[str, Any]:
        """The message."""
        return NODE_MESSAGES.encode(self)

    def obstacle(self) -> str:
        """Return why the node cannot take part with the driver of this process; empty if it can."""
        own = own_versions()
        different = [
            f"{shown} {self.versions.get(name, 'unknown')}, while the driver has {own.get(name)}"
            for name, shown in _NEEDED.items()
            if self.versions.get(name) != own.get(name)
        ]
        if self.protocol != PROTOCOL:
            different.append(
                f"version {self.protocol} of the messages between nodes, while the driver has "
                f"version {PROTOCOL}"
            )
        if not different:
            return ""
        return f"it has {', and '.join(different)}; install the same versions on all nodes"

    def difference(self, versions: Mapping[str, str] | None = None) -> str:
        """Return in which packages the node differs from the driver; empty for none.

        Args:
            versions: The driver's; None for those of this process.
        """
        own = own_versions() if versions is None else versions
        different = [
            f"{name} {self.versions.get(name, 'not at all')} (the driver: {own.get(name, 'none')})"
            for name in _COMPARED
            if self.versions.get(name) != own.get(name)
        ]
        if not different:
            return ""
        return f"it has {', '.join(different)}; what is pickled may not load there"


def own_versions() -> dict[str, str]:
    """Return the versions that nodes compare, without importing any package."""
    versions = {"tuner": __version__, "python": _PYTHON}
    for name in _COMPARED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@final
@tagged("ready")
@dataclass(frozen=True, slots=True)
class Ready:
    """The host is set up, and does what the driver asks for.

    Attributes:
        directory: The node's own directory, in which trials are to have theirs; empty where driver
            and nodes share the experiment's.
    """

    directory: _Text = ""


@final
@tagged("refused")
@dataclass(frozen=True, slots=True)
class SetupRefused:
    """The host cannot be set up on its node.

    Attributes:
        why: Why, and what to do.
    """

    why: _Text


@final
@tagged("probed")
@dataclass(frozen=True, slots=True)
class Probed:
    """The host has looked for what the driver has written as a probe.

    Attributes:
        why: Why it does not reach that storage; empty if it does.
    """

    why: _Text


@final
@tagged("remark")
@dataclass(frozen=True, slots=True)
class Remark:
    """Something for the driver's log.

    Attributes:
        text: What.
    """

    text: _Text


@final
@tagged("draining")
@dataclass(frozen=True, slots=True)
class Draining:
    """The host was told that its node is going to leave.

    Attributes:
        deadline_s: In how many seconds; None where that is not known.
    """

    deadline_s: _Amount | None


NodeMessage = Hello | Ready | SetupRefused | Probed | Remark | Draining
"""What a host says about its node."""

_CLASSES: Final = (Hello, Ready, SetupRefused, Probed, Remark, Draining)
NODE_MESSAGES: Final = Tagged[NodeMessage]("kind", _CLASSES)
"""What a host says about its node, see `read_node_message`."""

KINDS: Final = frozenset(map(tag_of, _CLASSES))
"""The kinds of these messages."""


def read_node_message(message: Mapping[str, Any]) -> NodeMessage:
    """Return what a host says about its node.

    Raises:
        ValueError: If the message is malformed.
    """
    if message.get("kind") == tag_of(Hello) and message.get("protocol") != PROTOCOL:
        # Of its other fields nothing is known.
        message = {name: message.get(name) for name in ("kind", "protocol", "versions")}
    return NODE_MESSAGES.decode(message)


# What the driver says: the setup.


@final
@tagged("shared")
@dataclass(frozen=True, slots=True)
class SharedStorage:
    """The experiment is in a directory that driver and nodes share.

    Attributes:
        directory: Its path, the same on all of them.
        proof: Name of a file in it, by which a host finds out whether that is so, and its content;
            see `shared_directory`.
    """

    directory: str
    proof: tuple[str, str]


@final
@tagged("stored")
@dataclass(frozen=True, slots=True)
class StoredElsewhere:
    """The experiment is in an object store.

    Attributes:
        url: Its directory there.
        epoch: The driver's number among all that have driven the experiment.
        proof: Name of an object in it, by which a host finds out whether it uses the same store as
            the driver, and its content; see `storage_probe`.
        filesystem: The pickled fsspec file system; None for that of the URL.
        cache_bytes: How large a node's copies of checkpoints may be; None for a tenth of its disk.
        retry_s: How long requests are retried, in seconds.
    """

    url: str
    epoch: int
    proof: tuple[str, str]
    filesystem: Annotated[bytes | None, Form(_as_text, _as_bytes)] = None
    cache_bytes: int | None = None
    retry_s: float = 60.0


_STORAGE: Final = Tagged[SharedStorage | StoredElsewhere]("mode", (SharedStorage, StoredElsewhere))


@final
@dataclass(frozen=True, slots=True)
class Setup:
    """What all trials of an experiment have in common.

    Attributes:
        storage: Where it is.
        environ: Environment variables to add, for all processes of trials.
        sys_path: The driver's module path.
        argv: The driver's arguments.
        kill_grace_s: See `LocalProcesses`.
        lease_s: After how many seconds without a frame of the driver a host kills all and ends.
        scratch_dir: Where a node keeps the files of an experiment in an object store; empty for the
            node's directory for temporary files.
    """

    storage: Annotated[SharedStorage | StoredElsewhere, Form(_STORAGE.encode, _STORAGE.decode)]
    environ: Mapping[str, str]
    sys_path: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    kill_grace_s: float = 5.0
    lease_s: float = 20.0
    scratch_dir: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """The message."""
        return {"kind": "setup", **encode(self)}


def read_setup(message: Mapping[str, Any]) -> Setup:
    """Return what the driver has said.

    Raises:
        ValueError: If it is malformed.
    """
    return decode(Setup, message, is_whole=False)


def blob_messages(trainable: bytes, validator: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield the messages that carry the pickled trainable and validation function.

    Args:
        trainable: See `TrainableBlob.pack`.
        validator: See there.
    """
    for name, data in (("trainable", trainable), ("validator", validator)):
        for start in range(0, len(data), _BLOB_BYTES):
            part = data[start : start + _BLOB_BYTES]
            yield {"kind": "blob", "of": name, "data": _as_text(part)}
    yield {"kind": "blob_end"}


@final
class BlobReader:
    """Puts together what `blob_messages` has divided."""

    def __init__(self) -> None:
        self._parts: defaultdict[str, bytearray] = defaultdict(bytearray)

    def add(self, message: Mapping[str, Any]) -> None:
        """Take the next message."""
        self._parts[message["of"]] += _as_bytes(message["data"])

    def take(self) -> tuple[bytes, bytes]:
        """Return the pickled trainable and validation function, and forget them."""
        trainable, validator = (bytes(self._parts[name]) for name in ("trainable", "validator"))
        self._parts.clear()
        return trainable, validator
