"""Messages between the driver and the zygote, over a socket pair that the zygote inherits.

The driver sends requests of fixed size; the one that starts a worker carries the descriptor of the
worker's end of its socket pair. The zygote sends lines of JSON::

    {"kind": "ready"}                          the trainable is loaded, or workers will load it
    {"kind": "spawning", "reason": "..."}      workers cannot be forked, for this reason
    {"kind": "warning", "text": "..."}
    {"kind": "unstarted", "worker": 17}        its descriptor was lost, see `LostStart`
    {"kind": "gone", "worker": 17, "code": -9, "peak_bytes": 50000000, "is_oom": false}

``gone`` says that a worker's whole process group is gone; for its other fields see
`failures.ExitInfo`.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any

from tuner.wire.record import record

_REQUEST = struct.Struct("!cQ")
# A plain number: combining members of the enumeration runs Python code, which copies pages.
_CLOEXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_START, _KILL, _TERMINATE, _PRELOAD, _DUMP_STACK = b"s", b"k", b"t", b"p", b"d"
_PARK, _LOAD = b"i", b"l"


@record
class Start:
    """Start a worker.

    Attributes:
        worker: Number that the driver has given it.
        descriptor: The worker's end of its socket pair, to be closed by the holder of the request.
    """

    worker: int
    descriptor: int


@record
class LostStart:
    """A `Start` as it is received by a zygote that can hold no further descriptor.

    Attributes:
        worker: Number of the worker, which the driver has to start again.
    """

    worker: int


@record
class Kill:
    """Kill a worker and its process group.

    Attributes:
        worker: Number of the worker.
        is_graceful: Send SIGTERM instead of SIGKILL, and have the worker dump its stack.
    """

    worker: int
    is_graceful: bool = False


@record
class DumpStack:
    """Have a worker write its stack to its standard error.

    Attributes:
        worker: Number of the worker.
    """

    worker: int


@record
class Preload:
    """Import a module that a worker has had to import; see `preload`.

    Attributes:
        module: Index in ``preload.MODULES``.
    """

    module: int


@record
class Park:
    """End all workers, forget the trainable, and wait for another one."""


@record
class Load:
    """Load another trainable, in a zygote that is parked.

    Attributes:
        descriptor: Its blob, to be closed by the holder of the request.
        identity: The driver's identity in the next experiment, see `orphans`.
    """

    descriptor: int
    identity: str


Request = Start | Kill | DumpStack | Preload | Park | Load


def send_request(control: socket.socket, request: Request) -> None:
    """Send a request; its descriptor stays open on this side.

    Raises:
        BlockingIOError: If the socket's buffer is full; nothing has been sent then.
        OSError: If the zygote is gone.
    """
    match request:
        case Start(worker, descriptor):
            socket.send_fds(control, [_REQUEST.pack(_START, worker)], [descriptor])
        case Kill(worker, is_graceful):
            control.send(_REQUEST.pack(_TERMINATE if is_graceful else _KILL, worker))
        case DumpStack(worker):
            control.send(_REQUEST.pack(_DUMP_STACK, worker))
        case Preload(module):
            control.send(_REQUEST.pack(_PRELOAD, module))
        case Park():
            control.send(_REQUEST.pack(_PARK, 0))
        case Load(descriptor, identity):
            name = identity.encode()
            # In one piece: the socket of a parked zygote is empty.
            socket.send_fds(control, [_REQUEST.pack(_LOAD, len(name)) + name], [descriptor])


def receive_request(control: socket.socket) -> Request | LostStart | None:
    """Return the next request, None if the driver is gone.

    Raises:
        BlockingIOError: If there is none.
    """
    # One request at a time: a longer read could take two descriptors, and there is room for one.
    try:
        data, descriptor = receive_with_descriptor(control, _REQUEST.size, socket.MSG_DONTWAIT)
    except ConnectionError:
        return None
    if not data:
        return None
    operation, number = _REQUEST.unpack(data)
    request: Request | LostStart | None
    if operation == _START:
        # The kernel drops a descriptor for which the process has no number left.
        request = LostStart(number) if descriptor is None else Start(number, descriptor)
    elif operation == _PRELOAD:
        request = Preload(number)
    elif operation == _DUMP_STACK:
        request = DumpStack(number)
    elif operation == _PARK:
        request = Park()
    elif operation == _LOAD:
        identity = control.recv(number).decode()
        # Without a descriptor it ends, and the driver starts another zygote.
        request = None if descriptor is None else Load(descriptor, identity)
    else:
        request = Kill(number, is_graceful=operation == _TERMINATE)
    return request


def blocking_pair() -> tuple[socket.socket, socket.socket]:
    """Return connected sockets that block.

    `socket.socketpair` leaves them non-blocking, also in the process that inherits one, where a
    module of the user's has set a default timeout.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(None)
    theirs.settimeout(None)
    return ours, theirs


def receive_with_descriptor(
    end: socket.socket, num_bytes: int, flags: int = 0
) -> tuple[bytes, int | None]:
    """Return bytes and the descriptor that came with them, which is closed on exec.

    `socket.recv_fds` can neither set that nor take flags.
    """
    size = array.array("i").itemsize
    data, ancillary, _, _ = end.recvmsg(num_bytes, socket.CMSG_SPACE(size), flags | _CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(content) == size:
            (descriptor,) = array.array("i", content)
            return data, descriptor
    return data, None


def encoded(report: dict[str, Any]) -> bytes:
    """Return a message of the zygote as one line."""
    return json.dumps(report).encode() + b"\n"
