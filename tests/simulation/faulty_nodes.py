"""Nodes in virtual time, which join, drain, leave and come back, and what has to hold of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from tuner.core.commands import AnswerReport, StartValidation, StartWorker
from tuner.core.events import Event, NodeDraining, NodeJoined, NodeLeft
from tuner.core.resources import amounts_of
from tuner.core.worker_records import ReportReply
from tuner.nodes.unmet_demand import unmet_demand

from .environment import Environment
from .invariants import Occupied, Violation, nothing_is_granted_twice, require

_JOIN_TICKS: Final = (0, 0, 2, 20)
_DRAIN_TICKS: Final = (0, 2, 10, 60)
"""Ticks from the notice to the end of a node."""
_DEADLINES_S: Final = (0.05, 0.2, 0.5, None)
"""In how many seconds a node says that it will leave; it leaves earlier or later."""
_NUM_ENDS: Final = 6
"""How many nodes end under one driver at most, so that every experiment ends."""


@dataclass(slots=True)
class _Node:
    """A node that is present; its slots, its labels, and whether it is going to leave."""

    num_slots: int
    labels: Mapping[str, str]
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
            for num_slots, labels in clustering.nodes(env.scenario.num_slots):
                self._join_later(num_slots, labels)

    def has_any(self, names: Iterable[str]) -> bool:
        """Return whether any of these nodes is present."""
        return any(name in self._present for name in names)

    def is_draining(self, name: str) -> bool:
        """Return whether a node is known to leave."""
        return name in self._present and self._present[name].is_draining

    def on_start(self, start: StartWorker) -> None:
        """I22: a worker is started on nodes that are there, stay, and have the labels it asks for.

        If a trial has run on such a node before, and there is room, it is that one.
        """
        if self._env.scenario.clustering is None:
            require("I22", not start.nodes, "%s is started on a node, and there are none", start)
            return
        wanted = self._env.ack_log.labels[start.trial_id]
        self._env.seen["started where labels were asked for"] += bool(wanted)
        for name in start.nodes:
            node = self._check_node(name, start)
            has_labels = wanted.items() <= node.labels.items()
            require("I22", has_labels, "%s is started on a node without %s", start, wanted)
        self._is_where_it_ran(start)
        self._ran_on[start.trial_id] = start.node

    def on_validation(self, start: StartValidation) -> None:
        """I22: a validation is started on a node that is there and stays.

        If its trial has run on such a node, and there is room, it is that one.
        """
        if self._env.scenario.clustering is None:
            require("I22", not start.node, "%s is started on a node, and there are none", start)
            return
        self._check_node(start.node, start)
        experiment = self._env.experiment
        last = self._ran_on.get(start.trial_id, "")
        node = self._present.get(last)
        if experiment is None or node is None or node.is_draining or start.node == last:
            return
        if experiment.trial_table[start.trial_id].node != last:
            return  # it was started elsewhere in the same turn, or the driver has withheld a start
        num_used = next(
            each.pool.used["cpu"] for each in experiment.trial_table.nodes if each.name == last
        )
        has_room = num_used + start.resources["cpu"] <= node.num_slots
        require("I22", not has_room, "%s, though %s has room, where the trial ran", start, last)

    def check_room(
        self,
        workers: Sequence[tuple[str, Occupied]],
        validations: Sequence[StartValidation],
    ) -> None:
        """I22: nodes have room for what runs on them, but for one validation by CPU.

        Args:
            workers: What workers occupy, and what is leased, each with its node.
            validations: The validations that run.
        """
        num_crowded = 0
        for name, node in self._present.items():
            capacity = {"cpu": float(node.num_slots)}
            nothing_is_granted_twice(capacity, [part for place, part in workers if place == name])
            amounts = [each.resources["cpu"] for each in validations if each.node == name]
            used = sum(amounts) + sum(
                part.share["cpu"] * part.num for place, part in workers if place == name
            )
            excess = used - node.num_slots
            num_crowded += excess > 0
            require("I22", excess <= max(amounts, default=0.0), "%s is too full: %s", name, used)
        require("I22", num_crowded <= 1, "%s nodes are too full", num_crowded)

    def _check_node(self, name: str, start: StartWorker | StartValidation) -> _Node:
        node = self._present.get(name)
        if node is None:
            raise Violation("I22", f"{start} is started on a node that has left")
        require("I22", not node.is_draining, "%s is started on a node that drains", start)
        return node

    def check_demand(self) -> None:
        """I22: what waits for room on nodes is asked for; nothing on one machine or at the end."""
        experiment = self._env.experiment
        if experiment is None:
            return
        nodes, unmet = experiment.trial_table.nodes, unmet_demand(experiment)
        if self._env.scenario.clustering is None or experiment.is_finished:
            require("I22", not unmet, "%s is asked for, for nothing", unmet)
            return
        require("I22", all(num > 0 for _, _, num in unmet), "nothing is asked for: %s", unmet)
        self._env.seen["nodes are asked for"] += bool(unmet)
        for trial in experiment.trial_table.ready.in_order():
            share = trial.group.resources_per_worker if trial.group else trial.resources
            asked = [(resources, labels) for resources, labels, _ in unmet]
            is_asked = (share, trial.labels) in asked
            has_room = nodes.num_fitting(share, 1, trial.labels)
            require("I22", is_asked or has_room, "%s waits, and nothing is asked for", trial)

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
        table = experiment.trial_table
        if last in table.reserved:
            return
        # By the engine's account: it also counts starts that the driver has withheld, since their
        # checkpoints are damaged.
        num_used = sum(
            trial.resources["cpu"]
            for trial in table.on_node(last)
            if trial.trial_id != start.trial_id
        )
        lent = [request for request, grant in table.lent.values() if last in grant.nodes]
        num_used += sum(amounts_of(request)["cpu"] for request in lent)
        if num_used + start.resources["cpu"] <= node.num_slots:
            self._env.seen["started where it has run"] += 1
            require("I22", start.node == last, "%s has run on %s, which has room", start, last)

    def _join_later(self, num_slots: int, labels: Mapping[str, str]) -> None:
        self._call_later(self._rng.choice(_JOIN_TICKS), lambda: self._join(num_slots, labels))

    def _join(self, num_slots: int, labels: Mapping[str, str]) -> None:
        self._num_joined += 1
        name = f"node{self._num_joined}"
        self._present[name] = _Node(num_slots, labels)
        self._env.seen["node joined"] += 1
        self._emit(NodeJoined(name, {"cpu": float(num_slots)}, labels))
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
        self._emit(NodeDraining(name, self._rng.choice(_DEADLINES_S)))
        self._call_later(self._rng.choice(_DRAIN_TICKS), lambda: self._leave(name))

    def _leave(self, name: str) -> None:
        node = self._present.pop(name)
        self._env.seen["node left"] += 1
        self._end(name, node.is_draining)
        self._emit(NodeLeft(name, "no sign of life"))
        self._join_later(node.num_slots, node.labels)


def parts_of(start: StartWorker) -> list[tuple[str, Occupied]]:
    """Return what an attempt occupies, each part with its node."""
    if start.group is None:
        return [(start.node, Occupied(start.resources, 1, ()))]
    each = start.nodes * start.group.num_workers if len(start.nodes) == 1 else start.nodes
    return [(name, Occupied(start.group.resources_per_worker, 1, ())) for name in each]
