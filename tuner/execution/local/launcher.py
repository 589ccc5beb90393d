"""The driver's side of the zygote: its process, requests to it, and its reports."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tuner.execution.resources import loading_environment

from .interpreter import command
from .process_setup import inherited_output
from .trainable_blob import TrainableBlob
from .zygote_protocol import (
    DumpStack,
    Kill,
    Load,
    Park,
    Preload,
    Request,
    Start,
    blocking_pair,
    send_request,
)

_READ_BYTES: Final = 1 << 16
_EXIT_S: Final = 2.0
"""How long a zygote may take to exit when the interpreter ends without a shutdown."""


class Launcher:
    """One zygote. Starting it does not wait for it: requests queue until it is ready.

    Attributes:
        control: The driver's end of the control socket, to be selected on.
        is_ready: Whether the zygote has loaded the trainable, or knows that workers have to.
        is_loading_again: Whether it is one of an earlier experiment that loads another trainable,
            until it is ready. Requests wait until then, since it may end instead.
    """

    def __init__(self, blob: TrainableBlob, method: str, environ: Mapping[str, str]) -> None:
        """Start the process.

        Args:
            blob: The trainable.
            method: ``fork`` or ``spawn``: how the zygote starts workers.
            environ: Environment variables to add, for the zygote and all processes it starts.
        """
        self.control, theirs = blocking_pair()
        self.control.setblocking(False)
        self.is_ready = self.is_loading_again = False
        self._partial = b""
        self._has_ended = False
        self._requests: deque[Request] = deque()
        self._preloaded: set[str] = set()
        liveness, self._liveness_writer = os.pipe()
        out, err = inherited_output()
        inherited = (theirs.fileno(), liveness, blob.descriptor)
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter)
                command("tuner.execution.local.zygote", method, *inherited),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**loading_environment(), **environ},
                pass_fds=inherited,
                # Ctrl-C at the terminal must reach the driver alone.
                start_new_session=True,
            )
        except OSError:
            self.control.close()
            os.close(self._liveness_writer)
            raise
        finally:
            # The zygote has its copies. With ours open, neither side would see the other's end.
            theirs.close()
            os.close(liveness)
        self._finalizer = self._finalized(_EXIT_S)
        _launchers.add(self)

    def _finalized(self, deadline_s: float) -> weakref.finalize[Any, Any]:
        """Have the zygote ended when the driver ends without a shutdown.

        That is by an exception or at the end of a notebook, or while the zygote is kept.
        """
        return weakref.finalize(
            self, _end, self._process, self.control, self._liveness_writer, os.getpid(), deadline_s
        )

    @property
    def has_backlog(self) -> bool:
        """Whether requests wait until the zygote has read earlier ones."""
        return bool(self._requests) and not self.is_loading_again

    def start(self, worker: int, end: socket.socket) -> None:
        """Request a worker that communicates over the socket, which the launcher takes over."""
        self._requests.append(Start(worker, end.detach()))
        self.flush()

    def kill(self, worker: int, *, is_graceful: bool = False) -> None:
        """Request the end of a worker and its group: by SIGTERM if `is_graceful`, else by SIGKILL.

        Has no effect if the worker is gone.
        """
        self._requests.append(Kill(worker, is_graceful))
        self.flush()

    def dump_stack(self, worker: int) -> None:
        """Request that a worker writes its stack to its standard error."""
        self._requests.append(DumpStack(worker))
        self.flush()

    def preload(self, modules: Iterable[str]) -> None:
        """Request each module's import before the next worker is forked; see `preload`."""
        from tuner.execution import preload  # noqa: PLC0415  (few trials import such modules)

        for name in modules:
            if name in preload.MODULES and name not in self._preloaded:
                self._preloaded.add(name)
                self._requests.append(Preload(preload.MODULES.index(name)))
        self.flush()

    def flush(self) -> None:
        """Send as many requests as the socket takes."""
        while self._requests and not self.is_loading_again:
            request = self._requests[0]
            try:
                send_request(self.control, request)
            except BlockingIOError:
                return
            except OSError:  # the zygote is gone, which the end of file will show
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
            data = b""
        if not data:
            self._has_ended = True
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def note_ready(self) -> None:
        """Note that the zygote has loaded the trainable, and send what waited for that."""
        self.is_ready, self.is_loading_again = True, False
        self.flush()

    def take_over(self, other: Launcher) -> None:
        """Send the requests that wait in another one, which has come to its end."""
        self._requests.extend(other._requests)
        other._requests.clear()
        self.flush()

    def park(self, within_s: float) -> bool:
        """End all workers, and return whether the zygote can be used again.

        It does not hold the trainable any more. Otherwise it is to be closed.
        """
        if not self.is_ready or self._requests:
            return False
        until_s = time.monotonic() + within_s
        self.control.setblocking(True)
        try:
            send_request(self.control, Park())
            while (left_s := until_s - time.monotonic()) > 0:
                self.control.settimeout(left_s)
                for report in self.receive() or ():
                    if report["kind"] == "parked":
                        # Without processes of its own it can be killed at once.
                        self._finalizer.detach()
                        self._finalizer = self._finalized(0.0)
                        return bool(report["can_load"])
                if self._has_ended:
                    return False
        except OSError:  # also where it takes too long
            return False
        finally:
            self.control.setblocking(False)
        return False

    def load_again(self, blob: TrainableBlob, identity: str) -> bool:
        """Have a parked zygote load another trainable; return whether it is there to do so."""
        try:
            send_request(self.control, Load(blob.descriptor, identity))
        except OSError:
            return False
        self.is_ready, self.is_loading_again = False, True
        self._finalizer.detach()
        self._finalizer = self._finalized(_EXIT_S)
        return True

    def close(self, deadline_s: float = _EXIT_S) -> int:
        """End the zygote and all workers; return the zygote's exit code."""
        while self._requests:
            _close(self._requests.popleft())
        if self._finalizer.detach():
            _end(self._process, self.control, self._liveness_writer, os.getpid(), deadline_s)
        return self._process.returncode or 0

    def release(self) -> None:
        """Close the connections without ending the zygote, in a fork of the driver."""
        if self._finalizer.detach():
            self.control.close()
            with contextlib.suppress(OSError):
                os.close(self._liveness_writer)


def _close(request: Request) -> None:
    if isinstance(request, Start):
        os.close(request.descriptor)


def _end(
    process: subprocess.Popen[bytes],
    control: socket.socket,
    liveness_writer: int,
    owner: int,
    deadline_s: float = _EXIT_S,
) -> None:
    if os.getpid() != owner:
        return  # in a fork of the driver, whose exit must not end the experiment
    # Each of the two ends the zygote: it kills all its descendants, and exits. The closed liveness
    # pipe also makes the kernel kill the workers, in case the zygote is stuck.
    control.close()
    os.close(liveness_writer)
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()


def _release_in_fork() -> None:
    # A fork that outlives the driver would otherwise keep the liveness pipe open, and the workers
    # alive.
    for launcher in list(_launchers):
        launcher.release()
    _launchers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_fork)
