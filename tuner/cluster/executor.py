"""Executor whose trials run on the nodes of a cluster.

It is the executor for one machine, whose process service has the processes on the nodes, and where
the experiment is in an object store, its file service the files. Here it learns which nodes there
are, and the user what becomes of trials when one is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from tuner.core.commands import KillWorker, StartWorker, WorkerCommand
from tuner.core.events import Event, NodeLeft, WorkerExited
from tuner.execution.executor import Executor

from .node_losses import NodeLosses, as_lost
from .node_messages import Setup
from .node_processes import NodeProcesses
from .shared_directory import SharedProof
from .storage_probe import StoreProof

_Worker = tuple[str, int]


@final
class ClusterExecutor:
    """Runs trials on the nodes of a cluster.

    Args:
        nodes: The nodes, and the processes there.
        inner: Runs the trials by them.

    Attributes:
        nodes: As given.
        inner: As given.
    """

    def __init__(self, nodes: NodeProcesses, inner: Executor) -> None:
        self.nodes = nodes
        self.inner = inner
        self._attempts: dict[_Worker, StartWorker] = {}
        self._killed_in_silence: dict[_Worker, str] = {}
        """The silent node of attempts that were killed while nothing was heard of it."""
        self._losses = NodeLosses()

    def connect(self, setup: Setup, proof: SharedProof | StoreProof | None = None) -> list[Event]:
        """Connect to the cluster, see `ClusterNodes.open`.

        Returns:
            What has happened so far, for the driver's first turn.

        Raises:
            ClusterError: If it cannot be reached.
        """
        self.nodes.open(setup, proof)
        events = self.inner.wait(0.0)
        self.wake()  # as the driver may have been: it has not noticed that yet
        return events

    # The Executor protocol.

    def capacity(self) -> Mapping[str, float]:
        """See `Executor`; what the nodes have that are present."""
        return self.nodes.capacity()

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        started: dict[str, Sequence[str]] = {}
        for command in commands:
            if isinstance(command, StartWorker):
                self._attempts[command.trial_id, command.attempt] = command
                started[command.trial_id] = command.nodes
            elif isinstance(command, KillWorker):
                self._note_silence(command)
        self.inner.carry_out(commands)
        self._losses.tell(started)
        self.nodes.flush()

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`.

        Raises:
            ClusterError: If the cluster cannot be reached any more.
        """
        self._losses.tell({})
        events = [self._noted(event) for event in self.inner.wait(timeout_s)]
        self._losses.note_known()
        return events

    def wake(self) -> None:
        self.inner.wake()

    def clock(self) -> float:
        return self.inner.clock()

    def shutdown(self, deadline_s: float) -> None:
        self.inner.shutdown(deadline_s)

    def _note_silence(self, command: KillWorker) -> None:
        key = command.trial_id, command.attempt
        if start := self._attempts.get(key):
            silent = (node for node in start.nodes if self.nodes.is_silent(node))
            if node := next(silent, ""):
                self._killed_in_silence[key] = node

    def _noted(self, event: Event) -> Event:
        """Take notice of an event, and return it as the core is to know it."""
        match event:
            case WorkerExited(trial_id, attempt):
                self._attempts.pop((trial_id, attempt), None)
                if node := self._killed_in_silence.pop((trial_id, attempt), ""):
                    return as_lost(event, node)
            case NodeLeft(node, why):
                self._note_loss(node, why)
        return event

    def _note_loss(self, node: str, why: str) -> None:
        lost = {key: start for key, start in self._attempts.items() if node in start.nodes}
        if lost or node not in self.nodes.given_up:
            self._losses.add(node, sorted({trial_id for trial_id, _ in lost}), why)
        for key, start in lost.items():
            if len(set(start.nodes)) == 1:  # else its end follows
                del self._attempts[key]
                self._killed_in_silence.pop(key, None)
