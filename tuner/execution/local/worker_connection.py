"""The socket pair between the driver and one worker.

The driver first sends a `Bootstrap` (its length and a pickle; the worker trusts the driver), then
one line of JSON per answer. The worker sends lines of JSON only, at most `MAX_FRAME_BYTES` each:
the driver unpickles nothing that comes from user code. Non-finite floats travel as
``{"$float": "NaN" | "Infinity" | "-Infinity"}``. For the messages see
`tuner.execution.worker_protocol`.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import cloudpickle

from tuner.core.result import MAX_SIZE_BYTES
from tuner.execution.assignment import Assignment, Rank
from tuner.execution.resources import devices_of_rank, worker_environment
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.storage import strict_json
from tuner.storage.layout import STDERR, STDOUT, of_rank

from .zygote_protocol import receive_with_descriptor

MAX_FRAME_BYTES: Final = MAX_SIZE_BYTES + 2**16
"""Longest line that the driver accepts; also limits the memory for an incomplete line."""
_READ_BYTES: Final = 1 << 16
_LENGTH: Final = struct.Struct("!Q")


class Bootstrap(NamedTuple):
    """A worker's first message, which it can read before any user code is unpickled.

    Attributes:
        trial_dir: Directory for the files with its standard output and error.
        environ: Environment variables to set.
        seed: Seed of the global random generators.
        assignment: The pickled `Assignment` or `ValidationAssignment`.
        streams: Names of the files for standard output and error.
        has_master_socket: Whether a byte follows that carries the socket on which rank 0 listens.
    """

    trial_dir: str
    environ: Mapping[str, str]
    seed: int
    assignment: bytes
    streams: tuple[str, str] = (STDOUT, STDERR)
    has_master_socket: bool = False


def pickled(value: object) -> bytes:
    """Return a pickled assignment or configuration, with what the user's script defines by value.

    Raises:
        Exception: If it cannot be pickled.
    """
    try:
        data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  (cloudpickle may do better)
        return bytes(cloudpickle.dumps(value))
    # A reference to __main__ would pickle but not load: in the worker that is another module.
    return bytes(cloudpickle.dumps(value)) if b"__main__" in data else data


class DriverEnd:
    """The driver's end. Never blocks."""

    __slots__ = ("_attached", "_outgoing", "_partial", "socket")

    def __init__(self, end: socket.socket) -> None:
        """Take over the socket."""
        end.setblocking(False)
        self.socket = end
        self._partial = bytearray()
        self._outgoing = bytearray()
        self._attached: socket.socket | None = None

    @property
    def has_backlog(self) -> bool:
        """Whether bytes wait until the worker has read earlier ones."""
        return bool(self._outgoing or self._attached)

    def send_bootstrap(self, bootstrap: Bootstrap) -> None:
        """Begin to send the first message."""
        body = pickle.dumps(tuple(bootstrap), protocol=pickle.HIGHEST_PROTOCOL)
        self.send(_LENGTH.pack(len(body)) + body)

    def attach(self, listener: socket.socket) -> None:
        """Send a socket behind the first message, and close it on this side."""
        self._attached = listener
        self._send_attached()

    def _send_attached(self) -> None:
        # Nothing else follows before the worker has read this, so that it cannot be overtaken.
        if self._attached is None or self._outgoing:
            return
        try:
            socket.send_fds(self.socket, [b"."], [self._attached.fileno()])
        except BlockingIOError:
            return
        except OSError:  # the worker is gone
            pass
        self._attached.close()
        self._attached = None

    def send(self, data: bytes) -> None:
        """Begin to send bytes; a worker that is gone is ignored."""
        if self._outgoing:  # must not overtake what waits
            self._outgoing += data
            return
        num_sent = self._try_send(data)
        if num_sent < len(data):
            self._outgoing += memoryview(data)[num_sent:]

    def flush(self) -> None:
        """Send as much of the backlog as the socket takes."""
        num_sent = self._try_send(self._outgoing)
        del self._outgoing[:num_sent]
        self._send_attached()

    def _try_send(self, data: bytes | bytearray) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # counts as sent: the worker is gone, and the zygote reports that

    def receive(self) -> list[Any] | None:
        """Return the messages that one read completes, None at the end of the connection.

        Raises:
            ValueError: If a line is too long or not strict JSON.
        """
        data = self._read()
        if data is None:
            return []
        return self._split(data) if data else None

    def drain(self) -> list[Any]:
        """Return all messages that can be read now.

        Raises:
            ValueError: See `receive`.
        """
        messages = []
        while data := self._read():
            messages += self._split(data)
        return messages

    def _read(self) -> bytes | None:
        """Return what has arrived: None if nothing has, empty at the end of the connection."""
        try:
            return self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _split(self, data: bytes) -> list[Any]:
        if not self._partial and data.find(b"\n") == len(data) - 1:
            return [strict_json.loads(data)]  # one whole line, as nearly always
        head, *lines = data.split(b"\n")
        self._partial += head
        # Even if the line is not complete, or a worker could fill the driver's memory.
        if len(self._partial) > MAX_FRAME_BYTES:
            self._partial.clear()
            raise ValueError(f"a message must not be longer than {MAX_FRAME_BYTES} bytes")
        if not lines:
            return []
        first, self._partial = bytes(self._partial), bytearray(lines.pop())
        return [strict_json.loads(line) for line in (first, *lines)]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
        if self._attached:
            self._attached.close()


class WorkerEnd:
    """The worker's end, the `Channel` of its attempts. Blocks."""

    __slots__ = ("_descriptor", "_sending", "_unread")

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor; creating a socket object would take far longer."""
        self._descriptor = descriptor
        self._sending = threading.Lock()  # a thread may report while another one asks for a lease
        self._unread = b""

    def receive_bootstrap(self) -> Bootstrap:
        """Return the first message.

        Raises:
            EOFError: If the driver is gone.
        """
        (length,) = _LENGTH.unpack(self._read_exactly(_LENGTH.size))
        body = self._read_exactly(length)
        return Bootstrap(*pickle.loads(body))  # noqa: S301  (from the driver, as is our code)

    def _read_exactly(self, num_bytes: int) -> bytes:
        # No more: a byte that carries a descriptor may follow, which a plain read would lose.
        data = bytearray(self._unread[:num_bytes])
        self._unread = self._unread[num_bytes:]
        while len(data) < num_bytes:
            data += self._read(min(num_bytes - len(data), _READ_BYTES))
        return bytes(data)

    def receive_descriptor(self) -> int:
        """Return the descriptor that follows the first message.

        Raises:
            EOFError: If the driver is gone.
        """
        end = socket.socket(fileno=self._descriptor)
        # A default timeout of the user's would leave the descriptor non-blocking.
        end.settimeout(None)
        try:
            _, descriptor = receive_with_descriptor(end, 1)
        finally:
            end.detach()
        if descriptor is None:
            raise EOFError("the driver is gone")
        return descriptor

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        data = strict_json.to_bytes(message) + b"\n"
        with self._sending:
            while data:  # a write may take only a part, e.g. when a signal interrupts it
                data = data[os.write(self._descriptor, data) :]

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait for the next message.

        Args:
            timeout_s: How many seconds to wait at most; None for no limit.

        Raises:
            TimeoutError: If none has come in time.
            EOFError: If the driver is gone.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            if deadline_s is not None:
                self._await_bytes(deadline_s)
            self._unread += self._read()
        line, self._unread = self._unread.split(b"\n", 1)
        message: dict[str, Any] = strict_json.loads(line)
        return message

    def _await_bytes(self, deadline_s: float) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            raise TimeoutError

    def _read(self, num_bytes: int = _READ_BYTES) -> bytes:
        data = os.read(self._descriptor, num_bytes)
        if not data:
            raise EOFError("the driver is gone")
        return data


def bootstrap_for(
    assignment: Assignment | ValidationAssignment,
    working_directory: str,
    *,
    has_gpus: bool = False,
) -> Bootstrap:
    """Return the first message to a worker or a validator.

    Args:
        assignment: What it is started for.
        working_directory: The driver's; training code finds it in ``TUNE_ORIG_WORKING_DIR``.
        has_gpus: Whether the experiment has GPUs, which a process without any must not see.

    Raises:
        Exception: If a value of the configuration cannot be pickled.
    """
    directory = os.fspath(assignment.trial_dir)
    rank = None if isinstance(assignment, ValidationAssignment) else assignment.rank
    if rank:
        environ = _rank_environment(
            rank, assignment.resources, assignment.gpu_ids, has_gpus=has_gpus
        )
    else:
        environ = worker_environment(assignment.resources, assignment.gpu_ids, has_gpus=has_gpus)
    environ |= {
        "TUNER_TRIAL_ID": assignment.trial_id,
        "TUNER_TRIAL_DIR": directory,
        "TUNE_ORIG_WORKING_DIR": working_directory,
    }
    if isinstance(assignment, ValidationAssignment):
        streams = (assignment.log, assignment.log)
    else:
        number = rank.world_rank if rank else 0
        streams = (of_rank(STDOUT, number), of_rank(STDERR, number))
    has_socket = rank is not None and rank.world_rank == 0
    return Bootstrap(directory, environ, assignment.seed, pickled(assignment), streams, has_socket)


def _rank_environment(
    rank: Rank,
    resources: Mapping[str, float],
    gpu_ids: tuple[int, ...],
    *,
    has_gpus: bool,
) -> dict[str, str]:
    """Return the environment variables of one worker of a group.

    They are those that ``torchrun`` sets, so that what runs under it needs no other launcher here.
    All workers see the GPUs of the whole group on this machine, see `devices_of_rank`.

    Args:
        rank: The worker's place in the group.
        resources: What the whole group may use.
        gpu_ids: Positions among `visible_gpus` of the devices of the group on this machine.
        has_gpus: Whether the experiment has GPUs.
    """
    share = {name: amount / rank.world_size for name, amount in resources.items()}
    own = devices_of_rank(gpu_ids, rank.local_rank, rank.local_world_size)
    return worker_environment(share, gpu_ids, has_gpus=has_gpus) | {
        "RANK": str(rank.world_rank),
        "LOCAL_RANK": str(rank.local_rank),
        "WORLD_SIZE": str(rank.world_size),
        "LOCAL_WORLD_SIZE": str(rank.local_world_size),
        "NODE_RANK": str(rank.node_rank),
        "GROUP_RANK": str(rank.node_rank),
        "MASTER_ADDR": rank.master_addr,
        "MASTER_PORT": str(rank.master_port),
        "TORCHELASTIC_RUN_ID": rank.run_id,
        "ACCELERATE_TORCH_DEVICE": f"cuda:{own[0]}" if own else "cpu",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") or "1",
    }
