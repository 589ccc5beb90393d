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

from tuner.execution.metric_conversion import MAX_SIZE_BYTES
from tuner.execution.resources import worker_environment
from tuner.execution.validation import ValidationAssignment
from tuner.execution.worker_protocol import Assignment
from tuner.storage import strict_json
from tuner.storage.layout import STDERR, STDOUT

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
    """

    trial_dir: str
    environ: Mapping[str, str]
    seed: int
    assignment: bytes
    streams: tuple[str, str] = (STDOUT, STDERR)


def pickled(assignment: Assignment | ValidationAssignment) -> bytes:
    """Return the pickled assignment; what the user's script defines is pickled by value."""
    try:
        data = pickle.dumps(assignment, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  (cloudpickle may do better)
        return bytes(cloudpickle.dumps(assignment))
    # A reference to __main__ would pickle but not load: in the worker that is another module.
    return bytes(cloudpickle.dumps(assignment)) if b"__main__" in data else data


class DriverEnd:
    """The driver's end. Never blocks."""

    __slots__ = ("_outgoing", "_partial", "socket")

    def __init__(self, end: socket.socket) -> None:
        """Take over the socket."""
        end.setblocking(False)
        self.socket = end
        self._partial = bytearray()
        self._outgoing = bytearray()

    @property
    def has_backlog(self) -> bool:
        """Whether bytes wait until the worker has read earlier ones."""
        return bool(self._outgoing)

    def send_bootstrap(self, bootstrap: Bootstrap) -> None:
        """Begin to send the first message."""
        body = pickle.dumps(tuple(bootstrap), protocol=pickle.HIGHEST_PROTOCOL)
        self.send(_LENGTH.pack(len(body)) + body)

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
        while len(self._unread) < _LENGTH.size:
            self._unread += self._read()
        (length,) = _LENGTH.unpack_from(self._unread)
        body = bytearray(self._unread[_LENGTH.size :])
        while len(body) < length:
            body += self._read()
        self._unread = b""  # nothing follows before the worker has reported
        return Bootstrap(*pickle.loads(body))  # noqa: S301  (from the driver, as is our code)

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

    def _read(self) -> bytes:
        data = os.read(self._descriptor, _READ_BYTES)
        if not data:
            raise EOFError("the driver is gone")
        return data


def bootstrap_for(
    assignment: Assignment | ValidationAssignment, working_directory: str
) -> Bootstrap:
    """Return the first message to a worker or a validator.

    Args:
        assignment: What it is started for.
        working_directory: The driver's; training code finds it in ``TUNE_ORIG_WORKING_DIR``.

    Raises:
        Exception: If a value of the configuration cannot be pickled.
    """
    directory = os.fspath(assignment.trial_dir)
    environ = worker_environment(assignment.resources, assignment.gpu_ids) | {
        "TUNER_TRIAL_ID": assignment.trial_id,
        "TUNER_TRIAL_DIR": directory,
        "TUNE_ORIG_WORKING_DIR": working_directory,
    }
    streams = (
        (assignment.log, assignment.log)
        if isinstance(assignment, ValidationAssignment)
        else (STDOUT, STDERR)
    )
    return Bootstrap(directory, environ, assignment.seed, pickled(assignment), streams)
