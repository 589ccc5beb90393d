"""What driver and zygote say to each other over the socket pair that the zygote inherits.

To the zygote go requests of fixed size; one to start a worker carries the descriptor of the worker's end of its own socket pair.
From the zygote come lines of JSON::

    {"kind": "ready"}                              the trainable is loaded, or will be in each worker
    {"kind": "spawning", "reason": "..."}          workers cannot be forked, for this reason
    {"kind": "warning", "text": "..."}
    {"kind": "gone", "worker": 17, "code": -9, "peak_bytes": 50000000, "is_oom": false}

The last tells that a worker's group is gone: its exit code, or minus the signal that killed it; how much memory it, or one of its
children, has used at most; and whether the kernel has killed it for lack of memory (see `post_mortem.Remains`).
"""

from __future__ import annotations

import array
import errno
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

_REQUEST = struct.Struct("!cQ")
_CLOEXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
"""A plain number: combining flags of the enumeration runs Python code."""
_START, _KILL, _ASK, _LEARN = b"s", b"k", b"a", b"l"


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker.

    Attributes:
        worker: A number that the driver knows it by.
        descriptor: The worker's end of its socket pair; belongs to whoever holds the request.
    """

    worker: int
    descriptor: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a worker and its group.

    Attributes:
        worker: Which.
        is_gentle: Ask them to end instead, and have the worker write down where it is.
    """

    worker: int
    is_gentle: bool = False


@dataclass(frozen=True, slots=True)
class Learn:
    """Import a module that workers have had to import; see `late_imports`.

    Attributes:
        module: Its place among ``late_imports.MODULES``.
    """

    module: int


Request = Start | Kill | Learn


def send_request(control: socket.socket, request: Request) -> None:
    """Send a request; its descriptor stays open on this side.

    Raises:
        BlockingIOError: If the socket takes nothing now; nothing has been sent then.
        OSError: If the zygote is gone.
    """
    match request:
        case Start(worker, descriptor):
            socket.send_fds(control, [_REQUEST.pack(_START, worker)], [descriptor])
        case Kill(worker, is_gentle):
            control.send(_REQUEST.pack(_ASK if is_gentle else _KILL, worker))
        case Learn(module):
            control.send(_REQUEST.pack(_LEARN, module))


def receive_request(control: socket.socket) -> Request | None:
    """Return the next request, None if the driver is gone.

    Raises:
        BlockingIOError: If there is none.
    """
    try:
        data, descriptor = receive_with_descriptor(control, _REQUEST.size, socket.MSG_DONTWAIT)
    except ConnectionError:
        return None
    if not data:
        return None
    operation, worker = _REQUEST.unpack(data)
    if operation == _LEARN:
        return Learn(worker)
    if operation != _START:
        return Kill(worker, is_gentle=operation == _ASK)
    if descriptor is None:
        raise OSError(errno.EMFILE, "no descriptor is left for another worker's connection")
    return Start(worker, descriptor)


def receive_with_descriptor(
    end: socket.socket, num_bytes: int, flags: int = 0
) -> tuple[bytes, int | None]:
    """Return bytes and the descriptor that came with them, closed on exec; `socket.recv_fds` knows neither that nor flags."""
    size = array.array("i").itemsize
    data, ancillary, _, _ = end.recvmsg(num_bytes, socket.CMSG_SPACE(size), flags | _CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(content) == size:
            (descriptor,) = array.array("i", content)
            return data, descriptor
    return data, None


def encoded(report: dict[str, Any]) -> bytes:
    """Return a report of the zygote's as one line."""
    return json.dumps(report).encode() + b"\n"
