"""The machines of a cluster on which trials run, each with a pool of resources of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

from tuner.core.resources import Grant, Machine, Node, Request, ResourcePool, gpu_misfit
from tuner.core.worker_records import WorkerGroup


@final
class Nodes(Machine):
    """Grants requests from the nodes that are present.

    The processes of a trial are on one node; those of a group may be spread over several, as its
    strategy says: ``"PACK"`` on as few as possible, ``"SPREAD"`` on as many as possible,
    ``"STRICT_PACK"`` on one, ``"STRICT_SPREAD"`` each on another one.
    """

    is_local = False

    def __init__(self) -> None:
        self._by_name: dict[str, Node] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether a node is present."""
        return name in self._by_name

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the nodes in the order in which they joined."""
        return iter(self._by_name.values())

    @property
    def usable(self) -> list[Node]:
        """The nodes on which something may be started."""
        return [node for node in self._by_name.values() if not node.is_draining]

    def join(self, name: str, resources: Mapping[str, float], labels: Mapping[str, str]) -> None:
        """Add a node; a new one that has the name of an old one takes its place."""
        self._by_name[name] = Node(name, ResourcePool(resources), dict(labels))

    def drain(self, name: str, *, is_announced: bool = True) -> None:
        """Start nothing more on a node, which has announced that it will leave, or is cut off."""
        node = self._by_name[name]
        node.is_draining = True
        node.is_announced |= is_announced

    def has_any_announced_end(self, names: Iterable[str]) -> bool:
        """Return whether any of these nodes has announced that it will leave."""
        present = (self._by_name.get(name) for name in names)
        return any(node.is_announced for node in present if node)

    def leave(self, name: str) -> None:
        """Remove a node, on which nothing is held any more."""
        del self._by_name[name]

    @property
    def capacity(self) -> dict[str, float]:
        """Total amount by name, of all nodes together."""
        return self._sum("capacity")

    @property
    def largest(self) -> dict[str, float]:
        """The largest amount that any node has, by name."""
        amounts: dict[str, float] = {}
        for node in self:
            for name, amount in node.pool.capacity.items():
                amounts[name] = max(amount, amounts.get(name, 0.0))
        return amounts

    @property
    def used(self) -> dict[str, float]:
        """Granted amount by name, of all nodes together."""
        return self._sum("used")

    def misfit(self, request: Request) -> str:
        """Return why the request could never be granted, whatever nodes join; empty if it could."""
        return gpu_misfit(request)

    def shortage(self, request: Request, labels: Mapping[str, str] | None = None) -> str:
        """Return why no node that is present could grant the request; empty if one could."""
        empty = Nodes()
        for node in self._matching(labels):
            empty.join(node.name, node.pool.capacity, node.labels)
        if empty.num_fitting(request, 1):
            return ""
        asked = request.shown if isinstance(request, WorkerGroup) else f"{dict(request)}"
        if labels and not isinstance(request, WorkerGroup):
            asked += f" on a node with the labels {dict(labels)}"
        if not self.usable:
            return f"the trial asks for {asked}, and no node is present"
        present = "; ".join(
            f"{node.name}: {node.pool.capacity}" + (f" {dict(node.labels)}" if labels else "")
            for node in self.usable
        )
        return f"the trial asks for {asked}, which no node has; the nodes are: {present}"

    def num_fitting(
        self,
        request: Request,
        limit: int,
        labels: Mapping[str, str] | None = None,
        without: Collection[str] = (),
    ) -> int:
        nodes = self._matching(labels, without=without)
        if not isinstance(request, WorkerGroup):
            return _sum_up((node.pool.num_fitting(request, limit) for node in nodes), limit)
        if request.strategy == "STRICT_PACK":
            return _sum_up((node.pool.num_fitting(request, limit) for node in nodes), limit)
        counts = _num_shares(nodes, request, max(limit, 0) * request.most)
        if request.strategy == "STRICT_SPREAD":
            return _num_spread(counts, request, limit)
        num_full, num_left = divmod(sum(counts), request.most)
        return max(min(num_full + (num_left >= request.fewest), limit), 0)

    def largest_fitting(
        self,
        group: WorkerGroup,
        labels: Mapping[str, str] | None = None,
        only: str | None = None,
        without: Collection[str] = (),
    ) -> WorkerGroup | None:
        counts = _num_shares(self._matching(labels, only, without), group, group.most)
        match group.strategy:
            case "STRICT_PACK":
                num_workers = max(counts, default=0)
            case "STRICT_SPREAD" if only is None:
                num_workers = sum(count > 0 for count in counts)
            case _:
                num_workers = sum(counts)
        num_workers = min(num_workers, group.most)
        return group.resized(num_workers) if num_workers >= group.fewest else None

    def held_for(
        self, held: Request, request: Request, labels: Mapping[str, str] | None = None
    ) -> list[str]:
        share = held.resources_per_worker if isinstance(held, WorkerGroup) else held
        return [
            node.name
            for node in self._matching(labels)
            if not node.pool.misfit(share) and not node.pool.leaves(held, request)
        ]

    def acquire(
        self,
        request: Request,
        labels: Mapping[str, str] | None = None,
        preferred: Sequence[str] = (),
        only: str | None = None,
        without: Collection[str] = (),
    ) -> Grant | None:
        nodes = self._in_order(self._matching(labels, only, without), preferred)
        if isinstance(request, WorkerGroup):
            return self._acquire_group(request, nodes, is_spread=only is None)
        for node in nodes:
            devices = node.pool.acquire(request)
            if devices is not None:
                return Grant((node.name,), devices)
        return None

    def place(self, preferred: Sequence[str]) -> str | None:
        nodes = self._in_order(self.usable, preferred)
        return nodes[0].name if nodes else None

    def _candidates(self, preferred: Sequence[str], only: str | None) -> list[Node]:
        nodes = self._matching(None, only)
        return sorted(nodes, key=lambda node: _rank(preferred, node.name))

    def hold(self, request: Request, grant: Grant) -> None:
        """Reserve what `acquire` granted before a restore."""
        for node, part, devices in self._parts(request, grant):
            node.pool.hold(part, devices)

    def release(self, request: Request, grant: Grant) -> None:
        """Release what `acquire` granted; what was on a node that has left is gone with it."""
        for node, part, devices in self._parts(request, grant):
            node.pool.release(part, devices)

    def state_dict(self) -> list[Any]:
        """Return the nodes as JSON values, without what is granted; empty for this machine."""
        return [
            [node.name, node.pool.capacity, dict(node.labels), node.is_draining]
            + ([False] if node.is_draining and not node.is_announced else [])
            for node in self
        ]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, resources, labels, is_draining, *is_announced in state:
            self.join(name, resources, labels)
            if is_draining:
                self.drain(name, is_announced=all(is_announced))

    def _sum(self, what: str) -> dict[str, float]:
        total: Counter[str] = Counter()
        for node in self:
            for name, amount in getattr(node.pool, what).items():
                total[name] += amount
        return dict(total)

    def _in_order(self, nodes: Sequence[Node], preferred: Sequence[str]) -> list[Node]:
        return sorted(nodes, key=lambda node: (_rank(preferred, node.name), node.load))

    def _matching(
        self,
        labels: Mapping[str, str] | None,
        only: str | None = None,
        without: Collection[str] = (),
    ) -> list[Node]:
        return [
            node
            for node in self.usable
            if (only is None or node.name == only)
            and node.name not in without
            and matches(node.labels, labels or {})
        ]

    def _acquire_group(
        self, group: WorkerGroup, nodes: list[Node], *, is_spread: bool
    ) -> Grant | None:
        counts = _num_shares(nodes, group, group.num_workers)
        chosen = _distribution(group, counts, is_spread=is_spread)
        if chosen is None:
            return None
        names: list[str] = []
        devices: list[int] = []
        for node, count in zip(nodes, chosen, strict=True):
            if count:
                assigned = node.pool.acquire(group.resized(count))
                names += [node.name] * count
                devices += assigned or ()
        is_on_one = len(set(names)) == 1
        return Grant(tuple(names[:1] if is_on_one else names), tuple(devices))

    def _parts(
        self, request: Request, grant: Grant
    ) -> Iterator[tuple[Node, Request, tuple[int, ...]]]:
        """Yield node, request and devices of each part of a grant whose node is present."""
        if len(grant.nodes) == 1 or not isinstance(request, WorkerGroup):
            if node := self._by_name.get(grant.nodes[0]):
                yield node, request, grant.devices
            return
        num_each = len(grant.devices) // len(grant.nodes)
        for name in dict.fromkeys(grant.nodes):
            ranks = [rank for rank, each in enumerate(grant.nodes) if each == name]
            devices = [
                device
                for rank in ranks
                for device in grant.devices[rank * num_each : (rank + 1) * num_each]
            ]
            if node := self._by_name.get(name):
                yield node, request.resized(len(ranks)), tuple(devices)


def matches(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether a node with these labels is one that is asked for.

    Args:
        labels: The labels of the node.
        wanted: By name, the value that a label must have, as in Ray's label selectors: ``"A100"``,
            or ``"in(A100,H100)"`` for any of several. After ``"!"`` it must have none of these, and
            may be missing.

    Example:
        >>> matches({"gpu": "A100"}, {"gpu": "in(A100, H100)", "zone": "!west"})
        True
    """
    return all(_is_wanted(labels.get(name), value) for name, value in wanted.items())


def _is_wanted(value: str | None, wanted: str) -> bool:
    if wanted.startswith("!"):
        return not _is_wanted(value, wanted[1:])
    if wanted.startswith("in(") and wanted.endswith(")"):
        return value in {each.strip() for each in wanted[3:-1].split(",")}
    return value == wanted


def _distribution(
    group: WorkerGroup, counts: Sequence[int], *, is_spread: bool
) -> list[int] | None:
    """Return how many workers each node gets, None if not all can be placed.

    Args:
        group: The workers.
        counts: How many fit on each node, in the order in which nodes are preferred.
        is_spread: Whether they may be on several nodes.
    """
    wanted = group.num_workers
    if is_spread and group.strategy == "STRICT_SPREAD":
        counts = [min(count, 1) for count in counts]
    if sum(counts) < wanted:
        return None
    if is_spread and group.strategy.endswith("SPREAD"):
        return _spread(counts, wanted)
    chosen = [0] * len(counts)
    whole = next((index for index, count in enumerate(counts) if count >= wanted), None)
    if whole is not None:
        chosen[whole] = wanted
        return chosen
    if group.strategy == "STRICT_PACK":
        return None
    # Where most fit first, so that few nodes are needed; ties as preferred.
    for index in sorted(range(len(counts)), key=lambda index: -counts[index]):
        chosen[index] = min(counts[index], wanted)
        wanted -= chosen[index]
    return chosen


def _spread(counts: Sequence[int], wanted: int) -> list[int]:
    """Return how many workers each node gets if each gets one in turn."""
    chosen = [0] * len(counts)
    while wanted:
        for index, count in enumerate(counts):
            if wanted and chosen[index] < count:
                chosen[index] += 1
                wanted -= 1
    return chosen


def _num_shares(nodes: Sequence[Node], group: WorkerGroup, limit: int) -> list[int]:
    """Return how many workers fit on each node."""
    return [node.pool.num_fitting(group.resources_per_worker, limit) for node in nodes]


def _num_spread(counts: Sequence[int], group: WorkerGroup, limit: int) -> int:
    """Return how many groups fit of which no two workers are on one node."""
    left, num_groups = list(counts), 0
    while num_groups < limit:
        roomy = sorted((index for index, count in enumerate(left) if count), key=lambda i: -left[i])
        if len(roomy) < group.fewest:
            break
        for index in roomy[: group.most]:
            left[index] -= 1
        num_groups += 1
    return num_groups


def _sum_up(counts: Iterator[int], limit: int) -> int:
    total = 0
    for count in counts:
        total += count
        if total >= limit:
            return max(limit, 0)
    return max(total, 0)


def _rank(preferred: Sequence[str], name: str) -> int:
    return preferred.index(name) if name in preferred else len(preferred)
