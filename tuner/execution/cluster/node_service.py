"""What runs on a node: processes, as its driver asks, see `node_processes`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, assert_never, final

from tuner.execution.local import orphans
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.local.trainable_blob import PickledCode
from tuner.execution.process_service import HasFileno, NodeChanged, Unstarted, Woken
from tuner.execution.start_retry import unstarted_by
from tuner.storage.directories import make_own_folder

from .node_messages import Setup
from .service_messages import (
    REQUESTS,
    DumpStack,
    ExpectExit,
    Kill,
    Listen,
    Preload,
    Reassign,
    Request,
    Send,
    Start,
    Validate,
    record_message,
)

Tell = Callable[[Mapping[str, Any]], None]
"""Sends the driver a message."""

_log = logging.getLogger("tuner")


class NodeWork(Protocol):
    """What a node does for its driver, once it is set up."""

    def take(self, messages: Sequence[Mapping[str, Any]], /) -> None:
        """Do what messages of the driver ask for."""

    def watch(self, readable: HasFileno, on_readable: Callable[[], None], /) -> None:
        """Call a function during `wait` while something is readable."""

    def wait(self, timeout_s: float, /) -> None:
        """Wait for something to happen, and tell the driver."""

    def close(self) -> None:
        """Kill all that is left."""


@final
class NodeService:
    """Runs processes on a node.

    Args:
        setup: What all of them have in common.
        place: The experiment's directory.
        code: What the user has declared.
        resources: What the node has.
        address: Under which other nodes reach it.
        tell: Sends the driver a message.
    """

    def __init__(  # noqa: PLR0917  (what it works with, given once)
        self,
        setup: Setup,
        place: str,
        code: PickledCode,
        resources: Mapping[str, float],
        address: str,
        tell: Tell,
    ) -> None:
        self._tell = tell
        self._processes = LocalProcesses(
            code,
            has_gpus=bool(resources.get("gpu")),
            kill_grace_s=setup.kill_grace_s,
            environ={**setup.environ, orphans.VARIABLE: kill_left_behind(place)},
            address=address,
        )

    def take(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """See `NodeWork`."""
        for message in messages:
            self._do(REQUESTS.decode(message))

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        """See `NodeWork`."""
        self._processes.watch(readable, on_readable)

    def wait(self, timeout_s: float) -> None:
        """See `NodeWork`."""
        for event in self._processes.wait(timeout_s):
            if not isinstance(event, (Woken, NodeChanged)):
                self._tell(record_message(event))

    def close(self) -> None:
        """See `NodeWork`."""
        self._processes.close(SHUTDOWN_S)

    def _do(self, request: Request) -> None:
        processes = self._processes
        match request:
            case Listen() | Start() | Validate():
                self._begin(request)
            case Reassign(key, assignment):
                processes.reassign(key, assignment)
            case Send(key, line):
                processes.send(key, line.encode())
            case Kill(key, grace_s):
                processes.kill(key, grace_s)
            case ExpectExit(key):
                processes.expect_exit(key)
            case DumpStack(key):
                processes.dump_stack(key)
            case Preload(modules):
                processes.preload(modules)
            case _:
                assert_never(request)

    def _begin(self, request: Listen | Start | Validate) -> None:
        try:
            if isinstance(request, Listen):
                self._processes.listen(request.key, is_local=request.is_local)
            else:
                # The driver has made it, which another machine may not see at once.
                make_own_folder(Path(request.assignment.trial_dir))
                self._processes.start(request.key, request.assignment)
        except Exception as error:  # noqa: BLE001  (only this process cannot be started)
            self._processes.kill(request.key)  # with the socket at which it was to listen
            what = "validation" if isinstance(request, Validate) else "worker"
            unstarted: Unstarted = unstarted_by(request.key, error, what)
            self._tell(record_message(unstarted))


SHUTDOWN_S = 5.0
"""How long processes may take to end with their host."""


def kill_left_behind(place: str) -> str:
    """Kill what a dead host has left of an experiment; return the name for what this one starts.

    Args:
        place: Where the experiment is.
    """
    identity = orphans.DriverIdentity.of_host(place)
    for orphan in orphans.kill_orphans_of(identity):
        _log.warning(
            "%s was still running, left behind by a trial of a host that is dead; it has been "
            "killed",
            orphan,
        )
    return str(identity)
