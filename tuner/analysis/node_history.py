"""Nodes that took part in an experiment: since when, what ran on them, and how they left."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, final

from tuner.core.commands import Effects, StartWorker
from tuner.core.events import (
    DriverRestarted,
    Event,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    WorkerExited,
)

from .open_experiment import StoredExperiment, read_stored

_NEW_DRIVER: Final = "the experiment was continued by a new driver"
_NO_DRIVER: Final = "the experiment is not running"


class NodeState(enum.StrEnum):
    """Whether a node can be used."""

    PRESENT = "present"
    DRAINING = "draining"
    """It is about to leave, so that nothing more is started on it."""
    LEFT = "left"


@dataclass(slots=True)
class NodeRecord:
    """One node of an experiment. One that has left and joined again is one node.

    Attributes:
        name: Its name.
        state: See `NodeState`.
        why: Why it has left; empty if it has not.
        resources: What it has, by name.
        labels: What requests may ask for.
        joined_s: When it joined last, in seconds of the experiment's running time.
        left_s: When it left; None if it has not.
        running: The attempt that runs on it now, by trial.
        trials: The trials of which an attempt has been started on it.
        num_losses: How many attempts were lost on it, with the node or without.
    """

    name: str
    state: NodeState
    resources: Mapping[str, float]
    labels: Mapping[str, str]
    joined_s: float
    left_s: float | None = None
    why: str = ""
    running: dict[str, int] = field(default_factory=dict)
    trials: set[str] = field(default_factory=set)
    num_losses: int = 0

    def leave(self, at_s: float, why: str) -> None:
        """Note that it has left."""
        self.state, self.left_s, self.why = NodeState.LEFT, at_s, why
        self.running.clear()


class NodeLoss(NamedTuple):
    """The loss of an attempt together with its node.

    Attributes:
        at_s: When, in seconds of the experiment's running time.
        trial_id: The trial.
        attempt: The attempt.
        node: The node.
        why: Why the node has left.
    """

    at_s: float
    trial_id: str
    attempt: int
    node: str
    why: str


@final
class NodeHistory:
    """Collects what happens to the nodes of an experiment, event by event.

    Attributes:
        nodes: The nodes by name, in the order in which they joined first.
        places: The nodes of each attempt that was started on any, by trial and attempt.
        losses: The attempts that were lost together with a node, in order.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.places: dict[tuple[str, int], Sequence[str]] = {}
        self.losses: list[NodeLoss] = []

    def observe(self, event: Event, effects: Effects, at_s: float) -> None:
        """Note an event and what followed from it."""
        match event:
            case NodeJoined(name, resources, labels):
                self._join(name, resources, labels, at_s)
            case NodeDraining(name) if name in self.nodes:
                self.nodes[name].state = NodeState.DRAINING
            case NodeLeft(name, why) if name in self.nodes:
                self._lose(name, why, at_s)
            case WorkerExited(trial_id, attempt, outcome):
                for node in self._forget(trial_id, attempt):
                    node.num_losses += outcome is Outcome.LOST
            case DriverRestarted():
                self.end(_NEW_DRIVER, at_s)
            case _:
                pass
        for command in effects.commands:
            if isinstance(command, StartWorker):
                self._start(command)

    def end(self, why: str, at_s: float) -> None:
        """Note that all nodes have left, since their driver has ended."""
        for node in self.nodes.values():
            if node.state is not NodeState.LEFT:
                node.leave(at_s, why)

    def _join(
        self, name: str, resources: Mapping[str, float], labels: Mapping[str, str], at_s: float
    ) -> None:
        if name not in self.nodes:
            self.nodes[name] = NodeRecord(name, NodeState.PRESENT, resources, labels, at_s)
            return
        node = self.nodes[name]
        if node.state is not NodeState.LEFT:
            self._lose(name, "it has joined again", at_s)
        node.state, node.left_s, node.why = NodeState.PRESENT, None, ""
        node.resources, node.labels, node.joined_s = resources, labels, at_s

    def _start(self, command: StartWorker) -> None:
        if not any(command.nodes):
            return  # on this machine
        self.places[command.trial_id, command.attempt] = tuple(dict.fromkeys(command.nodes))
        for name in self.places[command.trial_id, command.attempt]:
            if name in self.nodes:
                self.nodes[name].running[command.trial_id] = command.attempt
                self.nodes[name].trials.add(command.trial_id)

    def _lose(self, name: str, why: str, at_s: float) -> None:
        for trial_id, attempt in list(self.nodes[name].running.items()):
            self.losses.append(NodeLoss(at_s, trial_id, attempt, name, why))
            self.nodes[name].num_losses += 1
            self._forget(trial_id, attempt)
        self.nodes[name].leave(at_s, why)

    def _forget(self, trial_id: str, attempt: int) -> list[NodeRecord]:
        """Return the nodes on which an attempt ran that has ended."""
        nodes = [
            self.nodes[name]
            for name in self.places.get((trial_id, attempt), ())
            if name in self.nodes and self.nodes[name].running.get(trial_id) == attempt
        ]
        for node in nodes:
            del node.running[trial_id]
        return nodes


def read_nodes(path: Path) -> tuple[StoredExperiment, NodeHistory]:
    """Return an experiment and the history of its nodes, for which its whole journal is replayed.

    Args:
        path: The experiment's directory; a driver may be writing in it.

    Raises:
        StorageError: If there is no experiment, or a later version wrote it.
        DamagedJournal: If its journal does not verify; a torn end is not damage.
    """
    history = NodeHistory()
    stored = read_stored(path, observe=history.observe)
    if stored.driver is None:
        history.end(_NO_DRIVER, stored.elapsed_s)
    return stored, history
