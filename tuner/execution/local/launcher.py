"""The driver's side of the zygote: its process, the requests to it, its reports."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tuner.execution import preload
from tuner.execution.devices import loading_environment

from .standard_streams import inherited_output
from .trainable_blob import Parcel, command
from .zygote_protocol import Kill, Learn, Request, Start, send_request

_READ_BYTES: Final = 1 << 16
_EXIT_S: Final = 2.0
"""How long a zygote may take to leave when the interpreter ends without a shutdown."""


class Launcher:
    """One zygote. Starting it does not wait for it: requests queue until it is ready.

    Attributes:
        control: The driver's end of the control socket, to be selected on.
        is_ready: Whether it has loaded what it has to.
    """

    def __init__(self, parcel: Parcel, method: str, environ: Mapping[str, str]) -> None:
        """Start the process.

        Args:
            parcel: What it inherits.
            method: ``fork`` or ``spawn``, how it starts workers.
            environ: Variables that it, and all it starts, has besides its own.
        """
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        self.is_ready = False
        self._partial = b""
        self._requests: deque[Request] = deque()
        self._learnt: set[str] = set()
        knell, holder = os.pipe()
        out, err = inherited_output()
        inherited = (theirs.fileno(), knell, parcel.descriptor)
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter)
                command("tuner.execution.local.zygote", method, *inherited),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**loading_environment(), **environ},
                pass_fds=inherited,
                start_new_session=True,
            )
        except OSError:
            self.control.close()
            os.close(holder)
            raise
        finally:
            theirs.close()
            os.close(knell)
        self._end = weakref.finalize(self, _end, self._process, self.control, holder, os.getpid())
        _launchers.add(self)
        self._holder = holder

    @property
    def has_backlog(self) -> bool:
        """Whether requests wait until the zygote has read earlier ones."""
        return bool(self._requests)

    def start(self, worker: int, end: socket.socket) -> None:
        """Have a worker started that speaks through the socket, which becomes the zygote's."""
        self._requests.append(Start(worker, end.detach()))
        self.flush()

    def kill(self, worker: int, *, is_gentle: bool = False) -> None:
        """Have a worker killed with its group, `is_gentle` asked to end; nothing happens if it is gone."""
        self._requests.append(Kill(worker, is_gentle))
        self.flush()

    def learn(self, modules: Iterable[str]) -> None:
        """Have modules imported before the next worker is forked, each once; see `preload`."""
        for name in modules:
            if name in preload.MODULES and name not in self._learnt:
                self._learnt.add(name)
                self._requests.append(Learn(preload.MODULES.index(name)))
        self.flush()

    def flush(self) -> None:
        """Send as many requests as the socket takes."""
        while self._requests:
            request = self._requests[0]
            try:
                send_request(self.control, request)
            except BlockingIOError:
                return
            except OSError:  # the zygote is gone; its end of file will say so
                pass
            self._requests.popleft()
            _close(request)

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the reports that one read completes, None once the zygote is gone."""
        try:
            data = self.control.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self, deadline_s: float = _EXIT_S) -> int:
        """End the zygote and all workers; return its exit code."""
        while self._requests:
            _close(self._requests.popleft())
        if self._end.detach():
            _end(self._process, self.control, self._holder, os.getpid(), deadline_s)
        return self._process.returncode or 0


def _close(request: Request) -> None:
    if isinstance(request, Start):
        os.close(request.descriptor)


def _end(
    process: subprocess.Popen[bytes],
    control: socket.socket,
    holder: int,
    owner: int,
    deadline_s: float = _EXIT_S,
) -> None:
    if os.getpid() != owner:
        return  # a fork of the driver's, which has no say in it
    control.close()
    os.close(holder)
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()


def _let_go() -> None:
    """In a fork of the driver: hold nothing that would keep the workers alive after the driver's death."""
    for launcher in list(_launchers):
        if launcher._end.detach():  # noqa: SLF001  (same module)
            launcher.control.close()
            with contextlib.suppress(OSError):
                os.close(launcher._holder)  # noqa: SLF001  (same module)
    _launchers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
