"""Decide where agents are asked for on the nodes of a Ray cluster."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from .engine import MAX_BACK_OFF_S, Unmet, back_off_s

_NUM_TOLD: Final = 3
"""After how many agents in a row that ended at once the user is told."""
_MAX_WAITING: Final = 100
_NEW_S: Final = 10.0
_NODE_LABEL: Final = "ray.io/node-id"
_NOT_GIVEN: Final = re.compile(
    # Marks of nodes, memory, and what placement groups have reserved.
    r"node:|accelerator_type:|(object_store_)?memory$|.*_group_(\d+_)?[0-9a-f]{32,}$"
)
_PATIENCE_S: Final = 10.0
_SHORT_LIFE_S: Final = 60.0  # idle ones are given up later
_STUCK_S: Final = 300.0
_WITHDRAW_S: Final = 30.0  # nothing is said to wait while a node is starting
_EPSILON: Final = 1e-6  # Ray counts in ten-thousandths, and reports sums of floats


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of the Ray cluster that is alive.

    Attributes:
        node_id: Ray's identifier.
        host: Host name.
        address: Under which other nodes reach it.
        total: All its resources, in Ray's names.
        available: What is free of them.
        labels: Its labels.
        is_draining: Whether it is going to leave.
    """

    node_id: str
    host: str
    address: str
    total: Mapping[str, float]
    available: Mapping[str, float]
    labels: Mapping[str, str]
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of Ray: room for an agent.

    Attributes:
        shape: Resources in Ray's names.
        node_id: Of the node that it has to be on; empty for any.
        selector: Labels that the node has to have, in Ray's syntax.
        is_probe: Whether it only makes Ray add a node, of which the agent gets all then.
    """

    shape: Mapping[str, float]
    node_id: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """An agent, from the moment it is asked for until it is gone.

    Attributes:
        number: Unique, and rising.
        ask: What was asked for.
        node_id: Of the node that it is on, as far as that is known.
        up_s: Since when it is on its node; None while it is waited for.
        asked_s: When it was asked for.
    """

    number: int
    ask: Ask
    node_id: str
    up_s: float | None
    asked_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    Attributes:
        create: Agents to ask for.
        withdraw: Numbers of those that are no longer to be waited for.
        remarks: For the user.
        refusals: For the user as well: why nodes are not used.
    """

    create: Sequence[Ask] = ()
    withdraw: Sequence[int] = ()
    remarks: Sequence[str] = ()
    refusals: Sequence[str] = ()


@final
class Placement:
    """Where agents are, and where more of them are to be.

    Each node of the cluster gets one agent, of the size of the node or of a given one. What waits
    for room makes this ask for more nodes than there are, on which Ray's autoscaler acts. A node
    whose agent was released because it was idle gets one again when something waits. One whose
    agents end at once gets the next after a pause, which grows, and never ends the others' chances.

    Args:
        shape: Size of an agent, in Ray's names; None for whole nodes.
        max_nodes: How many agents there are at most; None for any number.
        selector: Labels that nodes have to have, in Ray's syntax.
    """

    def __init__(
        self,
        shape: Mapping[str, float] | None,
        max_nodes: int | None,
        selector: Mapping[str, str],
    ) -> None:
        self._shape = shape
        self._max_nodes = math.inf if max_nodes is None else max_nodes
        self._selector = dict(selector)
        self._released: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._not_before_s: dict[str, float] = {}
        self._partly_used_since: dict[str, float] = {}
        self._needed_s: dict[int, float] = {}
        self._remarks: list[str] = []
        self._refusals: list[str] = []

    def note_release(self, held: Held, now_s: float) -> None:
        """Take notice that an agent was ended on purpose."""
        self._released.add(held.node_id)
        self.note_end(held, now_s, "it was given up")

    def note_up(self, held: Held) -> None:
        """Take notice that an agent is on its node."""
        if not held.ask.node_id:
            self._failures.pop("", None)

    def note_end(self, held: Held, now_s: float, why: str) -> None:
        """Take notice that an agent has ended, or could not be started."""
        place = held.node_id
        if held.up_s is not None and now_s - held.up_s >= _SHORT_LIFE_S:
            self._failures.pop(place, None)
            return
        self._failures[place] += 1
        failures = self._failures[place]
        self._not_before_s[place] = now_s + back_off_s(failures)
        if failures == _NUM_TOLD:
            where = f"node {place[:12]} of the Ray cluster" if place else "nodes that Ray adds"
            self._refusals.append(
                f"{failures} agents in a row ended at once on {where}, which is tried again after "
                f"pauses of up to {MAX_BACK_OFF_S / 60:.0f} minutes; the last one: {why}"
            )

    def decide(
        self,
        nodes: Sequence[RayNode],
        held: Sequence[Held],
        unmet: Sequence[Unmet],
        now_s: float,
    ) -> Plan:
        """Return what to ask for now, and what to withdraw.

        Args:
            nodes: The nodes that are alive.
            held: All agents.
            unmet: What waits for room.
            now_s: Monotonic time.
        """
        self._forget(nodes, held)
        if unmet:
            self._released.clear()
        waiting = [one for one in held if one.up_s is None]
        anywhere = [one for one in waiting if not one.ask.node_id]
        stuck = self._stuck(nodes, waiting, now_s)
        surplus = self._surplus(nodes, held, unmet, now_s)
        room, others = _unclaimed(self._room(nodes, held, now_s), nodes, anywhere)
        withdrawn = list(dict.fromkeys([*stuck, *surplus]))
        free = max(self._max_nodes - len(held) + len(withdrawn), 0)
        if len(room) > free:
            # A node has come, but not what was waited for: it is used rather than waited on.
            others = [number for number in others if number not in withdrawn]
            others = others[: int(len(room) - free)]
            withdrawn += others
            free += len(others)
        created = _first(room, free)
        if not withdrawn:
            free = min(free - len(created), _MAX_WAITING - len(waiting))
            created += _first(self._wanted(nodes, held, unmet, len(created), now_s), free)
        self._note_partly_used(nodes, created)
        remarks, self._remarks = self._remarks, []
        refusals, self._refusals = self._refusals, []
        return Plan(created, withdrawn, remarks, refusals)

    def _forget(self, nodes: Sequence[RayNode], held: Sequence[Held]) -> None:
        present = {node.node_id for node in nodes} | {""}
        self._released &= present
        for by_place in (self._failures, self._not_before_s, self._partly_used_since):
            for gone in by_place.keys() - present:
                del by_place[gone]
        for number in self._needed_s.keys() - {one.number for one in held}:
            del self._needed_s[number]

    def _is_open(self, place: str, now_s: float) -> bool:
        return now_s >= self._not_before_s.get(place, 0.0)

    # Room on the nodes that there are.

    def _room(self, nodes: Sequence[RayNode], held: Sequence[Held], now_s: float) -> list[Ask]:
        """Return an ask for each node that has room for an agent, and has none."""
        taken = {one.node_id for one in held}
        return [
            Ask(shape, node.node_id)
            for node in nodes
            if not node.is_draining
            and node.node_id not in self._released
            and node.node_id not in taken
            and is_match(node.labels, self._selector)
            and self._is_open(node.node_id, now_s)
            and (shape := self._size_on(node, now_s))
        ]

    def _size_on(self, node: RayNode, now_s: float) -> Mapping[str, float] | None:
        """Return what an agent gets of a node, None for nothing yet."""
        if self._shape is not None:
            return self._shape if num_fitting(self._shape, node.available) else None
        whole = usable_amounts(node.total)
        if not whole:
            return None
        if num_fitting(whole, node.available):
            self._partly_used_since.pop(node.node_id, None)
            return whole
        since_s = self._partly_used_since.setdefault(node.node_id, now_s)
        # Much that is in use is free in a moment: agents of the last driver, short tasks.
        if now_s - since_s < _PATIENCE_S:
            return None
        return usable_amounts(
            {name: math.floor(node.available.get(name, 0.0) + _EPSILON) for name in whole}
        )

    def _note_partly_used(self, nodes: Sequence[RayNode], created: Sequence[Ask]) -> None:
        if self._shape is not None:
            return
        shapes = {ask.node_id: ask.shape for ask in created}
        for node in nodes:
            shape, whole = shapes.get(node.node_id), usable_amounts(node.total)
            if shape is not None and dict(shape) != whole:
                self._remarks.append(
                    f"a part of node {node.host} ({node.address}) of the Ray cluster is in use by "
                    f"others; trials get {_shown(shape)} of {_shown(whole)}"
                )

    # Room that there is not yet.

    def _wanted(
        self,
        nodes: Sequence[RayNode],
        held: Sequence[Held],
        unmet: Sequence[Unmet],
        num_created: int,
        now_s: float,
    ) -> list[Ask]:
        """Return what to ask for in addition, so that Ray adds nodes for what waits."""
        if not self._is_open("", now_s):
            return []
        asks = []
        for ask, number in self._groups(nodes, held, unmet, now_s):
            present = num_created + sum(_is_for(one, ask, now_s) for one in held)
            asks += [ask] * (number - present)
        return asks

    def _groups(
        self, nodes: Sequence[RayNode], held: Sequence[Held], unmet: Sequence[Unmet], now_s: float
    ) -> Iterator[tuple[Ask, int]]:
        """Yield what to ask for, and how many times, to make room for all that waits."""
        if self._shape is None:
            for request, labels, count in unmet:
                yield self._probe(nodes, to_ray(request), labels, count)
            return
        shares: dict[tuple[tuple[str, str], ...], float] = {}
        for request, labels, count in unmet:
            if fitting := num_fitting(to_ray(request), self._shape):
                key = tuple(sorted(labels.items()))
                shares[key] = shares.get(key, 0.0) + count / fitting
        taken = {one.node_id for one in held}
        others = [
            node
            for node in nodes
            if node.node_id in taken or not self._is_open(node.node_id, now_s)
        ]
        for key, share in shares.items():
            selector = self._elsewhere(others, self._shape, dict(key))
            yield Ask(self._shape, "", selector), math.ceil(share - _EPSILON)

    def _probe(
        self,
        nodes: Sequence[RayNode],
        request: Mapping[str, float],
        labels: Mapping[str, str],
        count: int,
    ) -> tuple[Ask, int]:
        """Return an ask of the size of a node, as far as that can be known, and how many."""
        likely = (node for node in nodes if is_match(node.labels, {**self._selector, **labels}))
        most = max((num_fitting(request, usable_amounts(node.total)) for node in likely), default=0)
        together = max(min(most, count), 1)
        shape = {name: amount * together for name, amount in request.items() if amount}
        ask = Ask(shape, "", self._elsewhere(nodes, shape, labels), is_probe=True)
        return ask, math.ceil(count / together)

    def _elsewhere(
        self, nodes: Sequence[RayNode], shape: Mapping[str, float], labels: Mapping[str, str]
    ) -> dict[str, str]:
        """Return a selector of nodes with these labels, without those that have room already."""
        selector = {**self._selector, **labels}
        if roomy := sorted(node.node_id for node in nodes if num_fitting(shape, node.available)):
            selector[_NODE_LABEL] = f"!in({','.join(roomy)})"
        return selector

    def _surplus(
        self, nodes: Sequence[RayNode], held: Sequence[Held], unmet: Sequence[Unmet], now_s: float
    ) -> list[int]:
        """Return numbers of those that have not been needed for some seconds."""
        waiting = [one for one in held if one.up_s is None and not one.ask.node_id]
        unclaimed = list(waiting)
        for ask, number in self._groups(nodes, held, unmet, now_s):
            claimed = [one for one in unclaimed if _is_alike(one.ask, ask)][:number]
            unclaimed = [one for one in unclaimed if one not in claimed]
            self._needed_s |= dict.fromkeys((one.number for one in claimed), now_s)
        return [
            one.number
            for one in unclaimed
            if now_s - self._needed_s.setdefault(one.number, now_s) >= _WITHDRAW_S
        ]

    def _stuck(
        self, nodes: Sequence[RayNode], waiting: Sequence[Held], now_s: float
    ) -> Iterator[int]:
        """Yield numbers of those whose node has no room for them after all."""
        # One that is being started is not told from one that waits, except by time.
        by_id = {node.node_id: node for node in nodes}
        for one in waiting:
            node = by_id.get(one.ask.node_id)
            if (
                node
                and now_s - one.asked_s >= _STUCK_S
                and not num_fitting(one.ask.shape, node.available)
            ):
                yield one.number


def node_of(
    info: Mapping[str, Any], available: Mapping[str, float], *, is_draining: bool
) -> RayNode:
    """Return a node from what ``ray.nodes()`` says of it."""
    return RayNode(
        info["NodeID"],
        info.get("NodeManagerHostname") or info["NodeManagerAddress"],
        info["NodeManagerAddress"],
        dict(info.get("Resources") or {}),
        available,
        dict(info.get("Labels") or {}),
        is_draining,
    )


def usable_amounts(total: Mapping[str, float]) -> dict[str, float]:
    """Return what trials can use of a node, in Ray's names; nothing without a CPU and a GPU.

    Memory is not asked for, so that it need not be divided among the trials.
    """
    usable = {
        name: amount for name, amount in total.items() if amount > 0 and not _NOT_GIVEN.match(name)
    }
    return usable if usable.get("CPU") or usable.get("GPU") else {}


def to_ray(request: Mapping[str, float]) -> dict[str, float]:
    """Return a trial's request in Ray's names."""
    return {
        name.upper() if name in ("cpu", "gpu") else name: amount for name, amount in request.items()
    }


def from_ray(shape: Mapping[str, float]) -> dict[str, float]:
    """Return an agent's shape in the names of trials; ``"cpu"`` and ``"gpu"`` are always there."""
    given = {
        name.lower() if name in ("CPU", "GPU") else name: float(amount)
        for name, amount in shape.items()
    }
    return {"cpu": 0.0, "gpu": 0.0, **given}


def num_fitting(request: Mapping[str, float], amounts: Mapping[str, float]) -> int:
    """Return how many times a request fits into amounts; one that asks for nothing fits once."""
    return min(
        (
            int((amounts.get(name, 0.0) + _EPSILON) // amount)
            for name, amount in request.items()
            if amount
        ),
        default=1,
    )


def is_match(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Return whether labels meet a selector in Ray's syntax.

    Each value is ``x``, ``!x``, ``in(x,y)`` or ``!in(x,y)``. What is negated is met where the label
    is missing as well.
    """
    return all(_is_met(labels.get(name), wanted) for name, wanted in selector.items())


def _is_met(value: str | None, wanted: str) -> bool:
    is_negated = wanted.startswith("!")
    wanted = wanted.removeprefix("!")
    if wanted.startswith("in(") and wanted.endswith(")"):
        values = [each.strip() for each in wanted[3:-1].split(",")]
    else:
        values = [wanted]
    return (value in values) is not is_negated


def _is_for(held: Held, ask: Ask, now_s: float) -> bool:
    """Return whether an agent is going to take some of what waits."""
    if held.up_s is None:
        return _is_alike(held.ask, ask) or bool(held.ask.node_id)
    # The driver does not know of it yet.
    return now_s - held.up_s < _NEW_S


def _is_alike(one: Ask, other: Ask) -> bool:
    """Return whether two asks for agents anywhere are for the same."""
    # The amounts of probes follow what waits at the moment; each brings a whole node.
    return (
        not one.node_id
        and one.is_probe is other.is_probe
        and _labels(one.selector) == _labels(other.selector)
        and (one.shape.keys() == other.shape.keys())
    )


def _unclaimed(
    room: Sequence[Ask], nodes: Sequence[RayNode], anywhere: Sequence[Held]
) -> tuple[list[Ask], list[int]]:
    """Return the room that Ray does not give to those that wait already, and who gets none."""
    labels = {node.node_id: node.labels for node in nodes}
    left, others = list(room), []
    for one in anywhere:
        fitting = (ask for ask in left if is_match(labels[ask.node_id], one.ask.selector))
        if not one.ask.is_probe and (ask := next(fitting, None)):
            left.remove(ask)
        else:
            others.append(one.number)
    return left, others


def _labels(selector: Mapping[str, str]) -> dict[str, str]:
    return {name: wanted for name, wanted in selector.items() if name != _NODE_LABEL}


def _first(asks: Sequence[Ask], limit: float) -> list[Ask]:
    return list(asks[: int(min(max(limit, 0), len(asks)))])


def _shown(shape: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(shape.items()))
