"""What a node does at its driver's request: run processes, and move files where there is a store.

See `node_processes` and `files_on_nodes` for the driver's side.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never, final

from tuner.execution.assignment import Assignment
from tuner.execution.local import orphans
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.local.trainable_blob import PickledCode
from tuner.execution.process_service import Gone, HasFileno, NodeChanged, Unstarted, Woken
from tuner.execution.start_retry import unstarted_by
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.storage.directories import make_own_folder

from .file_messages import FILE_REQUESTS
from .node_files import NodeFiles
from .node_messages import Setup
from .service_messages import (
    PROCESS_EVENTS,
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
)

Tell = Callable[[Mapping[str, Any]], None]
"""Sends the driver a message."""

_log = logging.getLogger("tuner")


@final
class NodeService:
    """Runs processes on a node, and moves their files.

    Args:
        setup: What all of them have in common.
        place: The experiment's directory.
        code: What the user has declared.
        resources: What the node has.
        address: Under which other nodes reach it.
        tell: Sends the driver a message.
        files_for: Makes what moves files, given what has `wait` return soon; None where all are in
            a shared directory.
    """

    def __init__(  # noqa: PLR0917  (what it works with, given once)
        self,
        setup: Setup,
        place: str,
        code: PickledCode,
        resources: Mapping[str, float],
        address: str,
        tell: Tell,
        files_for: Callable[[Callable[[], None]], NodeFiles] | None = None,
    ) -> None:
        self._tell = tell
        self._trials: dict[int, str] = {}
        """The trial of each process."""
        self._processes = LocalProcesses(
            code,
            has_gpus=bool(resources.get("gpu")),
            kill_grace_s=setup.kill_grace_s,
            environ={**setup.environ, orphans.VARIABLE: kill_left_behind(place)},
            address=address,
        )
        self._files = files_for(self._processes.wake) if files_for else None

    def take(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Do what messages of the driver ask for."""
        for message in messages:
            if self._files and FILE_REQUESTS.knows(message["kind"]):
                self._files.do(FILE_REQUESTS.decode(message))
            else:
                self._do(REQUESTS.decode(message))

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        """Call a function during `wait` while something is readable."""
        self._processes.watch(readable, on_readable)

    def wait(self, timeout_s: float) -> None:
        """Wait for something to happen, and tell the driver."""
        if self._files and self._files.timeout_s is not None:
            timeout_s = min(timeout_s, self._files.timeout_s)
        for event in self._processes.wait(timeout_s):
            if isinstance(event, Gone | Unstarted):
                self._end(event.key)
            if not isinstance(event, (Woken, NodeChanged)):
                self._tell(PROCESS_EVENTS.encode(event))
        if self._files:
            self._files.settle()

    def close(self) -> None:
        """Kill all that is left."""
        if self._files:
            self._files.close()
        self._processes.close(SHUTDOWN_S)

    def _do(self, request: Request) -> None:
        processes = self._processes
        match request:
            case Listen() | Start() | Validate():
                self._begin(request)
            case Reassign(key, assignment):
                self._end(key)
                processes.reassign(key, assignment)
                self._note(key, assignment)
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
                self._note(request.key, request.assignment)
                self._processes.start(request.key, request.assignment)
        except Exception as error:  # noqa: BLE001  (only this process cannot be started)
            self._end(request.key)
            self._processes.kill(request.key)  # with the socket at which it was to listen
            what = "validation" if isinstance(request, Validate) else "worker"
            unstarted: Unstarted = unstarted_by(request.key, error, what)
            self._tell(PROCESS_EVENTS.encode(unstarted))

    def _note(self, key: int, assignment: Assignment | ValidationAssignment) -> None:
        if self._files:
            self._trials[key] = assignment.trial_id
            attempt = assignment.attempt if isinstance(assignment, Assignment) else None
            self._files.begin(assignment.trial_id, attempt)

    def _end(self, key: int) -> None:
        """Tell what a process has written, before it is told that it is gone."""
        if self._files and (trial_id := self._trials.pop(key, "")):
            self._files.end(trial_id)


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
