"""Agent of a node: starts its host, replaces one that dies, and relays lines.

A cluster engine runs one agent on each node, in a process of its own kind (a Ray actor, a Dask
worker). The host, which runs the trials, is a child of that process and a program of its own: so
nothing of the engine is loaded where trials are forked, and what the engine does to its process
ends the trials only if it ends that. The two are connected by an inherited socket; when the agent's
process dies, the socket closes, and the host kills its trials and ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self, final

from tuner.execution.local.interpreter import command
from tuner.execution.local.process_setup import WakeupPipe, inherited_output
from tuner.storage import strict_json

HOST: Final = "tuner.cluster.node_host"
"""Module of the host's program."""
CLOSED: Final = 0
"""Exit code of a host that its driver has closed."""
NO_DRIVER: Final = 3
"""Exit code of a host that has heard nothing of its driver for too long."""
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_READ_BYTES: Final = 1 << 18
_DOWNWARD_BYTES: Final = 32 << 20
_UPWARD_BYTES: Final = 64 << 20
"""How much waits at most for the host, and for `Agent.take`; what is older is dropped, and sent
again by the ends of the connection."""
SILENT_S: Final = 15.0
_START_S: Final = 60.0
_MAX_DEATHS: Final = 3
_EARLY_S: Final = 30.0
"""A host that dies sooner and has never said a line has failed to start."""
_EXIT_S: Final = 5.0
"""How long a host may take to exit after it has closed its socket."""
_PAUSES_S: Final = (0.0, 0.0, 1.0, 2.0, 5.0)
"""Before a host is started, by how many before it have died soon after their start."""
_NUMBER: Final = re.compile(r"\s*\[\s*(\d+)\s*,")


class LineQueue:
    """Lines that wait, of which the oldest are dropped if there are too many.

    Args:
        max_bytes: How many bytes they may have together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lines: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, line: bytes) -> None:
        """Add a line; the newest one is kept however long it is."""
        self._lines.append(line)
        self._num_bytes += len(line)
        while self._num_bytes > self._max_bytes and len(self._lines) > 1:
            self.pop()

    def pop(self) -> bytes:
        """Remove and return the oldest line."""
        line = self._lines.popleft()
        self._num_bytes -= len(line)
        return line

    def take(self) -> list[bytes]:
        """Remove and return all lines."""
        lines = list(self._lines)
        self._lines.clear()
        self._num_bytes = 0
        return lines


class LineSocket:
    """A socket that carries lines, of which neither end waits for the other one.

    Args:
        end: The socket, which is taken over.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self._outgoing = LineQueue(_DOWNWARD_BYTES)
        self._rest = b""
        self._partial = bytearray()

    @property
    def has_backlog(self) -> bool:
        """Whether something waits until the other end has read earlier lines."""
        return bool(self._rest or self._outgoing)

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self.socket.fileno()

    def send(self, line: bytes) -> None:
        """Begin to send a line; if the other end is gone, it is dropped."""
        self._outgoing.add(line + b"\n")
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket takes."""
        while self.has_backlog:
            # A line of which a part is sent is not dropped: the next one could not be told apart.
            data = self._rest or self._outgoing.pop()
            try:
                num_sent = self.socket.send(data)
            except BlockingIOError:
                self._rest = data
                return
            except OSError:
                self._rest = b""
                self._outgoing.take()
                return
            self._rest = data[num_sent:]

    def receive(self) -> list[bytes] | None:
        """Return the lines that one read completes, None once the other end is gone."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        head, *lines = data.split(b"\n")
        self._partial += head
        if not lines:
            return []
        first, self._partial = bytes(self._partial), bytearray(lines.pop())
        return [first, *lines]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


@final
class _Host:
    """One process of the host.

    Attributes:
        number: Its number, from 1.
        heard_s: When it said the last line, or was started, by the monotonic clock.
        lines: The socket to it.
        started_s: When it was started, by the monotonic clock.
        has_spoken: Whether it has said a line.
        is_addressed: Whether the driver has said one for it.
        is_hung: Whether it has said nothing for too long.
    """

    def __init__(self, number: int, lines: LineSocket, process: subprocess.Popen[bytes]) -> None:
        self.number = number
        self.lines = lines
        self.process = process
        self.started_s = self.heard_s = time.monotonic()
        self.has_spoken = self.is_addressed = self.is_hung = False

    @classmethod
    def start(
        cls, number: int, facts: Mapping[str, Any], module: str, environ: Mapping[str, str]
    ) -> Self:
        """Start a host.

        Args:
            number: Its number.
            facts: What it is told first.
            module: Its program.
            environ: Environment variables to add.

        Raises:
            OSError: If the system does not allow it.
        """
        ours, theirs = socket.socketpair()
        out, err = inherited_output()
        try:
            process = subprocess.Popen(  # noqa: S603  (our own interpreter)
                command(module, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **environ},
                pass_fds=(theirs.fileno(),),
                # Ctrl-C at a terminal must not reach it, nor a signal for the agent's group.
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        host = cls(number, LineSocket(ours), process)
        host.lines.send(strict_json.to_bytes({**facts, "host": number}))
        return host

    def end(self, within_s: float) -> str:
        """Close the socket, wait for the end of the process, and return how it has ended."""
        self.lines.close()
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            # Its zygote notices, and kills the trials.
            self.process.kill()
            code = self.process.wait()
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"


@final
class Agent:
    """The agent of a node; safe to use by several threads.

    Args:
        name: Unique among the agents of a driver.
        token: Identifies the driver among all that ever use the cluster.
        facts: What the node has: ``resources`` and ``labels`` by name, and the ``address`` under
            which other nodes reach it.
        environ: Environment variables to add for the host and its trials.
        module: The host's program.
        silent_s: After how many seconds a host that says nothing is killed: it hangs, and cannot
            end its trials itself when nothing is heard of the driver.

    Raises:
        OSError: If the host cannot be started.
    """

    def __init__(
        self,
        name: str,
        token: str,
        facts: Mapping[str, Any],
        *,
        environ: Mapping[str, str] | None = None,
        module: str = HOST,
        silent_s: float = SILENT_S,
    ) -> None:
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100  ("" is this directory)
        self._facts = {"name": name, "token": token, "facts": dict(facts), "path": path}
        self._environ = dict(environ or {})
        self._module = module
        self._silent_s = silent_s
        self._changed = threading.Condition()
        self._upward = LineQueue(_UPWARD_BYTES)
        self._is_closed = threading.Event()
        self._num_failed = 0
        self._num_early = 0
        self._wakeup_pipe = WakeupPipe()
        self._host: _Host | None = self._start(1)
        self._thread = threading.Thread(target=self._run, name="tuner-agent", daemon=True)
        self._thread.start()
        _agents.add(self)

    def tell(self, lines: Sequence[str]) -> None:
        """Send the host lines; those for another host than the present one are dropped."""
        with self._changed:
            host = self._host
            if host is None:
                return
            for line in lines:
                found = _NUMBER.match(line)
                if found and int(found[1]) == host.number:
                    host.is_addressed = True
                    host.lines.send(line.encode())
            if host.lines.has_backlog:
                self._wakeup_pipe.wake()

    def take(self, timeout_s: float) -> list[str]:
        """Return the lines since the last call; if there are none, wait for the first one.

        Args:
            timeout_s: How many seconds to wait at most; `close` ends the wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._upward or self._is_closed.is_set(), timeout_s)
            return [line.decode() for line in self._upward.take()]

    @property
    def pid(self) -> int:
        """Process id of the present host; 0 while there is none."""
        host = self._host
        return host.process.pid if host else 0

    def close(self, within_s: float = 5.0) -> None:
        """End the host and its trials; may be called again.

        Args:
            within_s: How many seconds it may take to end before it is killed.
        """
        with self._changed:
            if self._is_closed.is_set():
                return
            self._is_closed.set()
            self._changed.notify_all()
        self._wakeup_pipe.wake()
        self._thread.join()
        with self._changed:
            host, self._host = self._host, None
        if host:
            host.end(within_s)
        self._wakeup_pipe.close()

    # The thread.

    def _run(self) -> None:
        while (host := self._host) and not self._is_closed.is_set():
            self._relay(host)
            if not self._is_closed.is_set():
                self._replace(host)

    def _relay(self, host: _Host) -> None:
        """Relay lines until the host is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup_pipe, _READ)
            selector.register(host.lines, _READ)
            while not self._is_closed.is_set():
                with self._changed:
                    mask = _READ | _WRITE if host.lines.has_backlog else _READ
                selector.modify(host.lines, mask)
                # A start takes long where the disk, or the other processes, are slow.
                silent_s = self._silent_s if host.has_spoken else max(self._silent_s, _START_S)
                rest_s = host.heard_s + silent_s - time.monotonic()
                ready = {key.fileobj: found for key, found in selector.select(max(rest_s, 0.0))}
                if not ready and rest_s <= 0.0:
                    host.is_hung = True
                    host.process.kill()
                    return
                if self._wakeup_pipe in ready:
                    self._wakeup_pipe.clear()
                if ready.get(host.lines, 0) & _WRITE:
                    with self._changed:
                        host.lines.flush()
                if ready.get(host.lines, 0) & _READ:
                    lines = host.lines.receive()
                    if lines is None:
                        return
                    host.has_spoken |= bool(lines)
                    host.heard_s = time.monotonic()
                    self._say(lines)

    def _say(self, lines: Iterable[bytes]) -> None:
        with self._changed:
            for line in lines:
                self._upward.add(line)
            self._changed.notify_all()

    def _replace(self, host: _Host) -> None:
        """Start another host, or give up."""
        with self._changed:
            self._host = None
        why = host.end(_EXIT_S)
        if host.is_hung:
            why = "it said nothing for too long, and was killed"
        number: int | None = host.number + 1
        is_early = time.monotonic() - host.started_s < _EARLY_S
        self._num_early = self._num_early + 1 if is_early else 0
        self._num_failed = self._num_failed + 1 if is_early and not host.has_spoken else 0
        code = host.process.returncode
        if code == CLOSED:
            number, why = None, "its driver has closed it"
        elif code == NO_DRIVER:
            why = "it has not heard of its driver"
            # Nor has this agent: the driver is dead, and so would be the next host.
            number = number if host.is_addressed else None
        elif self._num_failed >= _MAX_DEATHS:
            number = None
        self._say([_gone(host.number, why, number)])
        self._start_next(number)

    def _start_next(self, number: int | None) -> None:
        while number is not None:
            if self._is_closed.wait(_PAUSES_S[min(self._num_early, len(_PAUSES_S) - 1)]):
                return
            try:
                following = self._start(number)
            except OSError as error:
                self._num_early += 1
                self._num_failed += 1
                failed, number = number, None if self._num_failed >= _MAX_DEATHS else number + 1
                self._say([_gone(failed, f"it cannot be started: {error}", number)])
            else:
                with self._changed:
                    self._host = following
                return

    def _start(self, number: int) -> _Host:
        return _Host.start(number, self._facts, self._module, self._environ)

    def release(self) -> None:
        """Close the connection without ending the host, in a fork of the agent's process."""
        if self._host:
            self._host.lines.close()


def _gone(number: int, why: str, following: int | None) -> bytes:
    return strict_json.to_bytes({"host_gone": number, "why": why, "next": following})


_agents: weakref.WeakSet[Agent] = weakref.WeakSet()


def _release_in_fork() -> None:
    # A fork that outlives the agent would otherwise keep the socket open, and the host alive.
    for agent in list(_agents):
        agent.release()
    _agents.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_fork)
