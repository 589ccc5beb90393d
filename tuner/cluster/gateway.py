"""Process that holds the connection to a cluster engine, and the driver's end of it.

The engine's library is loaded in this process alone: Ray ends the whole program when the head of
its cluster is gone, which must not be the driver. The gateway relays lines between the driver and
the agents, and knows nothing of trials. Driver and gateway send JSON arrays, one on each line, over
a socket pair. The driver sends::

    ["open", base64 of the pickled engine, settings, token and known agents]
    ["to", agent, [line, ...]]
    ["demand", [[resources, labels, number], ...]]
    ["evict", agent, why]
    ["close", deadline_s]

and the gateway::

    ["opened", facts] | ["failed", why]
    ["agent", agent, facts]
    ["from", agent, [line, ...]]
    ["gone", agent, why, may_live]
    ["draining", agent, deadline_s]
    ["remark", text]
    ["lost", why]
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from tuner.errors import ClusterError
from tuner.execution.local.interpreter import command
from tuner.execution.local.process_setup import ignore_termination_signals
from tuner.storage import strict_json

from .engine import Engine, Unmet, load_engine

_READ_BYTES: Final = 1 << 18
_CLOSE_S: Final = 5.0
"""How long a gateway whose driver is gone may take to end the agents."""
_LAST_LINES: Final = 10
_LAST_BYTES: Final = 10_000


# The driver's end.


@final
class GatewayProcess:
    """A gateway, as its driver knows it.

    Args:
        engine: The engine's class, as ``module:Class``.
        settings: The engine's settings, which are pickled for the process.
        token: Identifies the driver among all that ever use the cluster.
        known: Agents that an earlier gateway of this driver has started.

    Attributes:
        socket: To be selected on: for reading, and for writing while `has_backlog`.

    Raises:
        ClusterError: If the settings cannot be pickled.
    """

    def __init__(
        self, engine: str, settings: Mapping[str, Any], token: str, known: Sequence[str] = ()
    ) -> None:
        try:
            opening = pickle.dumps((engine, dict(settings), token, list(known)))
        except Exception as error:
            raise ClusterError(
                f"the settings of the cluster cannot be sent to the process that connects to it: "
                f"{error}; give plain values, e.g. in runtime_env"
            ) from error
        self.socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter)
                command("tuner.cluster.gateway", theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                # Ctrl-C at the terminal must reach the driver alone.
                start_new_session=True,
            )
        except OSError:
            self.socket.close()
            self._errors.close()
            raise
        finally:
            theirs.close()
        self._finalizer = weakref.finalize(self, _end, self._process, self.socket, os.getpid())
        self.socket.setblocking(False)
        self._partial = bytearray()
        self._backlog: deque[memoryview] = deque()
        self._send("open", base64.b64encode(opening).decode())

    @property
    def has_backlog(self) -> bool:
        """Whether something waits until the gateway has read what was sent earlier."""
        return bool(self._backlog)

    def tell(self, agent: str, lines: Sequence[str]) -> None:
        """Send lines to an agent."""
        self._send("to", agent, lines)

    def demand(self, unmet: Sequence[Unmet]) -> None:
        """Tell the engine what waits for room."""
        self._send("demand", unmet)

    def evict(self, agent: str, why: str) -> None:
        """End an agent and all that runs on its node."""
        self._send("evict", agent, why)

    def flush(self) -> None:
        """Send as much as the socket takes."""
        while self._backlog:
            data = self._backlog[0]
            try:
                num_sent = self.socket.send(data)
            except BlockingIOError:
                return
            except OSError:  # it is gone, which `receive` reports
                self._backlog.clear()
                return
            if num_sent < len(data):
                self._backlog[0] = data[num_sent:]
            else:
                self._backlog.popleft()

    def receive(self) -> list[list[Any]] | None:
        """Return what has arrived; None if the process is gone."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        return _split(self._partial, data)

    def why_gone(self) -> str:
        """Return how the process ended, with the end of its standard error."""
        try:
            code: int | None = self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            code = None
        how = f"it ended with exit code {code}" if code is not None else "it does not answer"
        return f"{how}: {text}" if (text := self._last_errors()) else how

    def close(self, deadline_s: float) -> bool:
        """End all agents and the process, and return whether both have ended in time.

        May be called again.

        Args:
            deadline_s: How many seconds to wait at most.
        """
        if self._finalizer.alive:
            self._send("close", deadline_s)
            # With a timeout of 0 a socket does not block: a process that hangs reads nothing more.
            self.socket.settimeout(max(deadline_s, 0.0))
            with contextlib.suppress(OSError):
                while self._backlog:
                    self.socket.sendall(self._backlog.popleft())
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(deadline_s)
        self._finalizer()
        self._errors.close()
        return self._process.returncode == 0

    def _send(self, *fields: Any) -> None:
        self._backlog.append(memoryview(strict_json.to_bytes(fields) + b"\n"))
        self.flush()

    def _last_errors(self) -> str:
        if self._errors.closed:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_BYTES))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-_LAST_LINES:])


def _end(process: subprocess.Popen[bytes], end: socket.socket, owner: int) -> None:
    end.close()
    if os.getpid() == owner:  # a forked child must not end its parent's gateway
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def _split(partial: bytearray, data: bytes) -> list[list[Any]]:
    """Return the messages that are complete by more data, and keep the rest."""
    # Only what is new is searched: a message may be many times as long as what one read returns.
    head, *lines = data.split(b"\n")
    partial += head
    if not lines:
        return []
    first, rest = bytes(partial), lines.pop()
    partial[:] = rest
    return [strict_json.loads(line) for line in (first, *lines)]


# The process.


def main(descriptor: str) -> None:
    """Relay lines until the driver closes its end, or is gone.

    Args:
        descriptor: Number of the inherited socket.
    """
    ignore_termination_signals()
    gateway = _Gateway(socket.socket(fileno=int(descriptor)))
    gateway.run()
    # Threads of the engine's library may never end.
    sys.stderr.flush()
    os._exit(0)


@final
class _Gateway:
    """The relay, and the engine behind it."""

    def __init__(self, driver: socket.socket) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    def run(self) -> None:
        partial = bytearray()
        while data := self._receive():
            for kind, *fields in _split(partial, data):
                if kind == "close":
                    self._close(*fields)
                    return
                self._do(kind, *fields)
        self._close(_CLOSE_S)

    def _receive(self) -> bytes:
        try:
            return self._driver.recv(_READ_BYTES)
        except OSError:
            return b""

    def _do(self, kind: str, *fields: Any) -> None:
        if kind == "open":
            self._open(*pickle.loads(base64.b64decode(fields[0])))  # noqa: S301  (from the driver)
        elif engine := self._engine:
            match kind:
                case "to":
                    engine.tell(*fields)
                case "demand":
                    engine.demand(fields[0])
                case "evict":
                    engine.evict(*fields)

    def _open(self, path: str, settings: dict[str, Any], token: str, known: list[str]) -> None:
        try:
            engine = load_engine(path)(settings, token, self)
            facts = engine.open(known)
        except ClusterError as error:
            self._send("failed", str(error))
        except Exception as error:  # noqa: BLE001  (the library's errors are many)
            self._send("failed", f"{type(error).__name__}: {error}")
        else:
            self._engine = engine
            self._send("opened", dict(facts))

    def _close(self, deadline_s: float) -> None:
        # The library may hang where the cluster is gone; nothing of ours may outlive the driver.
        timer = threading.Timer(deadline_s, os._exit, (1,))
        timer.daemon = True
        timer.start()
        if self._engine:
            self._engine.close(deadline_s)
        timer.cancel()

    def _send(self, *fields: Any) -> None:
        data = strict_json.to_bytes(fields) + b"\n"
        with self._lock, contextlib.suppress(OSError):  # the driver is gone, which `run` notices
            self._driver.sendall(data)

    # What an engine reports, see `Relay`.

    def agent_up(self, agent: str, facts: Mapping[str, Any]) -> None:
        self._send("agent", agent, dict(facts))

    def received(self, agent: str, lines: Sequence[str]) -> None:
        self._send("from", agent, list(lines))

    def agent_gone(self, agent: str, why: str, *, may_live: bool = False) -> None:
        self._send("gone", agent, why, may_live)

    def draining(self, agent: str, deadline_s: float | None) -> None:
        self._send("draining", agent, deadline_s)

    def remark(self, text: str, *, is_refusal: bool = False) -> None:
        self._send("remark", text, is_refusal)

    def lost(self, why: str) -> None:
        self._send("lost", why)
