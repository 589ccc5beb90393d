"""Nodes in virtual time, which join, drain, leave and come back, and what has to hold of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, final

from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import Event, NodeDraining, NodeJoined, NodeLeft
from tuner.core.trial import ReportReply

from .environment import Environment
from .invariants import Occupied, nothing_is_granted_twice, require

_JOIN_TICKS: Final = (0, 0, 2, 20)
_DRAIN_TICKS: Final = (0, 2, 10, 60)
"""Ticks from the notice to the end of a node."""
_NUM_ENDS: Final = 6
"""How many nodes end under one driver at most, so that every experiment ends."""


@dataclass(slots=True)
class _Node:
    """A node that is present; whether it is going to leave, and for how many slots it has room."""

    num_slots: int
    is_draining: bool = False


@final
class FaultyNodes:
    """The nodes of one driver; see `FaultyExecutor`.

    Together they have the slots of the scenario. For one that ends, another one comes.

    Args:
        env: The environment.
        emit: Receives events.
        call_later: Makes a call after a number of ticks.
        end: Ends all workers on a node without a word; the second argument says whether the node
            was known to leave.
    """

    def __init__(
        self,
        env: Environment,
        emit: Callable[[Event], None],
        call_later: Callable[[int, Callable[[], None]], None],
        end: Callable[[str, bool], None],
    ) -> None:
        """Let the first nodes join after a while."""
        self._env = env
        self._rng = env.scenario.rng(f"nodes of driver {env.driver_number}")
        self._emit = emit
        self._call_later = call_later
        self._end = end
        self._present: dict[str, _Node] = {}
        self._num_joined = self._num_ended = 0
        self._ran_on: dict[str, str] = {}
        """Where each trial was started last."""
        if clustering := env.scenario.clustering:
            num_left = env.scenario.num_slots
            for number in range(clustering.num_nodes, 0, -1):
                num_slots = -(-num_left // number)
                num_left -= num_slots
                if num_slots:
                    self._join_later(num_slots)

    def on_start(self, start: StartWorker, running: Iterable[StartWorker]) -> None:
        """I22: a worker is started on a node that is there, stays and has room.

        If a trial has run on such a node before, it is that one.

        Args:
            start: The command.
            running: What runs already.
        """
        if self._env.scenario.clustering is None:
            require("I22", not start.nodes, "%s is started on a node, and there are none", start)
            return
        for name in start.nodes:
            node = self._present.get(name)
            require("I22", node is not None, "%s is started on a node that has left", start)
            is_draining = node is not None and node.is_draining
            require("I22", not is_draining, "%s is started on a node that drains", start)
        self._is_where_it_ran(start)
        self._ran_on[start.trial_id] = start.node
        for name, node in self._present.items():
            occupied = [_on_node(each, name) for each in (*running, start)]
            nothing_is_granted_twice({"cpu": float(node.num_slots)}, occupied)

    def on_answer(self, answer: AnswerReport, nodes: Iterable[str]) -> None:
        """I22: a worker that can save leaves a node that drains at its next report."""
        drains = any(name in self._present and self._present[name].is_draining for name in nodes)
        if drains and self._env.scenario.can_save_on_demand:
            self._env.seen["left a draining node"] += 1
            is_leaving = answer.reply is not ReportReply.CONTINUE
            require("I22", is_leaving, "%s, though its node drains", answer)

    def _is_where_it_ran(self, start: StartWorker) -> None:
        """Check that a trial is started where it has run, if there is room for it."""
        last = self._ran_on.get(start.trial_id, "")
        node = self._present.get(last)
        experiment = self._env.experiment
        if node is None or node.is_draining or start.group or experiment is None:
            return
        # By the engine's account: it also counts starts that the driver has withheld, since their
        # checkpoints are damaged.
        others = experiment.trial_table.on_node(last)
        num_used = sum(
            trial.resources["cpu"] for trial in others if trial.trial_id != start.trial_id
        )
        if num_used + start.resources["cpu"] <= node.num_slots:
            self._env.seen["started where it has run"] += 1
            require("I22", start.node == last, "%s has run on %s, which has room", start, last)

    def _join_later(self, num_slots: int) -> None:
        self._call_later(self._rng.choice(_JOIN_TICKS), lambda: self._join(num_slots))

    def _join(self, num_slots: int) -> None:
        self._num_joined += 1
        name = f"node{self._num_joined}"
        self._present[name] = _Node(num_slots)
        self._env.seen["node joined"] += 1
        self._emit(NodeJoined(name, {"cpu": float(num_slots)}))
        clustering = self._env.scenario.clustering
        if clustering and self._num_ended < _NUM_ENDS:
            self._num_ended += 1
            ticks = 1 + int(self._rng.expovariate(1 / clustering.mean_life_ticks))
            is_announced = self._rng.random() < clustering.notice_rate
            self._call_later(
                ticks, lambda: self._drain(name) if is_announced else self._leave(name)
            )

    def _drain(self, name: str) -> None:
        self._present[name].is_draining = True
        self._env.seen["node drains"] += 1
        self._emit(NodeDraining(name, 0.5))
        self._call_later(self._rng.choice(_DRAIN_TICKS), lambda: self._leave(name))

    def _leave(self, name: str) -> None:
        node = self._present.pop(name)
        self._env.seen["node left"] += 1
        self._end(name, node.is_draining)
        self._emit(NodeLeft(name, "no sign of life"))
        self._join_later(node.num_slots)


def _on_node(start: StartWorker, name: str) -> Occupied:
    """Return what an attempt occupies of a node."""
    if start.group is None:
        return Occupied(start.resources, int(start.node == name), ())
    each = start.nodes * start.group.num_workers if len(start.nodes) == 1 else start.nodes
    return Occupied(start.group.resources_per_worker, each.count(name), ())
