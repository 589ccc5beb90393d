"""The two ends of the socket pair between the driver and one worker.

The driver first sends a `Birth` (its length and a pickle: the driver is trusted), then one line of strict JSON for each answer. The
worker only ever sends lines of strict JSON, and not more than `MAX_FRAME_BYTES` each: the driver unpickles nothing that comes from
code it does not know.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import cloudpickle

from tuner.execution.messages import Assignment
from tuner.execution.metric_conversion import MAX_SIZE_BYTES
from tuner.storage import strict_json

MAX_FRAME_BYTES: Final = MAX_SIZE_BYTES + 2**16
"""Longest line that the driver takes from a worker, a result with all that is said beside it; also bounds what it holds of one line."""
_READ_BYTES: Final = 1 << 16
_RESULT_START: Final = b'{"kind":"result","metrics":'
_RESULT_END: Final = b',"checkpoint":null}'
_LENGTH: Final = struct.Struct("!Q")


class Birth(NamedTuple):
    """What a worker is told before anything of the user's is unpickled.

    Attributes:
        trial_dir: Directory that takes its standard output and error.
        environ: Variables to set.
        seed: Seed of the global random generators.
        assignment: The pickled `Assignment`.
    """

    trial_dir: str
    environ: Mapping[str, str]
    seed: int
    assignment: bytes


def pickled(assignment: Assignment) -> bytes:
    """Return the assignment pickled, by value where it holds something that the user's script defines."""
    try:
        data = pickle.dumps(assignment, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  (reduction methods may raise anything; cloudpickle has the last word)
        return bytes(cloudpickle.dumps(assignment))
    # A reference to the script's own names would pickle well and fail to load: there, __main__ is another module.
    return bytes(cloudpickle.dumps(assignment)) if b"__main__" in data else data


class DriverEnd:
    """The driver's end: never blocks, and believes nothing."""

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

    def send_birth(self, birth: Birth) -> None:
        """Begin to send the first message."""
        body = pickle.dumps(tuple(birth), protocol=pickle.HIGHEST_PROTOCOL)
        self.send(_LENGTH.pack(len(body)) + body)

    def send(self, data: bytes) -> None:
        """Begin to send bytes; a worker that is gone is ignored."""
        if self._outgoing:
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
            return len(data)

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
        """Return what has come, nothing at the end of the connection, and None where nothing has come yet."""
        try:
            return self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _split(self, data: bytes) -> list[Any]:
        if not self._partial and data.find(b"\n") == len(data) - 1:
            return [_decoded(data)]  # one whole line, as nearly always
        head, *lines = data.split(b"\n")
        self._partial += head
        if len(self._partial) > MAX_FRAME_BYTES:
            self._partial.clear()
            raise ValueError(f"a message must not be longer than {MAX_FRAME_BYTES} bytes")
        if not lines:
            return []
        first, self._partial = bytes(self._partial), bytearray(lines.pop())
        return [_decoded(line) for line in (first, *lines)]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class WorkerEnd:
    """The worker's end: the `Channel` of `attempt`. Blocks."""

    __slots__ = ("_descriptor", "_unread")

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor; a socket object would be most of the cost of a worker's first message."""
        self._descriptor = descriptor
        self._unread = b""

    def receive_birth(self) -> Birth:
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
        self._unread = b""  # there is no answer yet
        return Birth(*pickle.loads(body))  # noqa: S301  (from the driver, which also gave us our code)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        data = strict_json.to_bytes(message) + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]

    def receive(self) -> dict[str, Any]:
        """Wait for the next message.

        Raises:
            EOFError: If the driver is gone.
        """
        while b"\n" not in self._unread:
            self._unread += self._read()
        line, self._unread = self._unread.split(b"\n", 1)
        message: dict[str, Any] = strict_json.loads(line)
        return message

    def _read(self) -> bytes:
        data = os.read(self._descriptor, _READ_BYTES)
        if not data:
            raise EOFError("the driver is gone")
        return data


def _decoded(line: bytes) -> Any:
    try:
        return _as_result(line) or strict_json.loads(line)
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None


def _as_result(line: bytes) -> dict[str, Any] | None:
    """Return a result without a checkpoint, as most messages are, with the text of its metrics, which need not be spelled anew then.

    What is between the beginning and the end of such a message is JSON itself, or it is another message, for which None is returned; so is
    it for one that holds what `strict_json` marks.
    """
    frame = line.removesuffix(b"\n")
    if (
        not (frame.startswith(_RESULT_START) and frame.endswith(_RESULT_END))
        or b"$" in frame
        or not frame.isascii()
    ):
        return None
    text = frame[len(_RESULT_START) : -len(_RESULT_END)]
    try:
        return {
            "kind": "result",
            "metrics": strict_json.loads(text),
            "checkpoint": None,
            "text": text,
        }
    except ValueError:
        return None
