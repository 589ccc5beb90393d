"""Resources of the machine on which trials run, and what is granted of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from .resources import Request, ResourcePool
from .trial import WorkerGroup

THIS_NODE: Final = ""
"""Name of the only node where nodes neither join nor leave."""


class Grant(NamedTuple):
    """What was granted of a request.

    Attributes:
        nodes: Names of the nodes: one where all processes are on the same, otherwise one for each
            worker of a group, by rank.
        devices: Devices assigned on them, in the order of the ranks.
    """

    nodes: tuple[str, ...]
    devices: tuple[int, ...]


@dataclass(slots=True)
class Node:
    """A machine that takes part in the experiment.

    Attributes:
        name: Unique among the nodes that are present.
        pool: Its resources.
        labels: What requests may ask for, e.g. ``{"accelerator": "A100"}``.
        is_draining: Whether it is about to leave, so that nothing more is started on it.
        is_announced: Whether it has said so itself.
    """

    name: str
    pool: ResourcePool
    labels: Mapping[str, str] = field(default_factory=dict)
    is_draining: bool = False
    is_announced: bool = False

    @property
    def load(self) -> float:
        """The largest share of any of its resources that is in use, 0 to 1."""
        used = self.pool.used
        return max(
            (used[name] / total for name, total in self.pool.capacity.items() if total),
            default=0.0,
        )


class Machine:
    """Grants requests from the resources of this machine, the only node there is.

    On a cluster, `tuner.nodes.nodes.Nodes` takes its place. Labels, and the strategy of a group,
    have no effect here.

    Args:
        capacity: Total amounts by name.

    Attributes:
        is_local: Whether there is only this machine.
    """

    is_local: ClassVar[bool] = True

    def __init__(self, capacity: Mapping[str, float]) -> None:
        self._pool = ResourcePool(capacity)
        self._node = Node(THIS_NODE, self._pool)

    def __contains__(self, name: str) -> bool:
        """Return whether a node is present."""
        return name == THIS_NODE

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the nodes in the order in which they joined."""
        return iter((self._node,))

    @property
    def usable(self) -> list[Node]:
        """The nodes on which something may be started."""
        return [self._node]

    def has_any_announced_end(self, names: Iterable[str]) -> bool:
        """Return whether any of these nodes has announced that it will leave."""
        return False

    @property
    def capacity(self) -> dict[str, float]:
        """Total amount by name, of all nodes together."""
        return self._pool.capacity

    @property
    def largest(self) -> dict[str, float]:
        """The largest amount that any node has, by name."""
        return self._pool.capacity

    @property
    def used(self) -> dict[str, float]:
        """Granted amount by name, of all nodes together."""
        return self._pool.used

    def misfit(self, request: Request) -> str:
        """Return why the request could never be granted, whatever nodes join; empty if it could."""
        return self._pool.misfit(request)

    def shortage(self, request: Request, labels: Mapping[str, str] | None = None) -> str:
        """Return why no node that is present could grant the request; empty if one could."""
        return self._pool.misfit(request)

    def num_fitting(
        self,
        request: Request,
        limit: int,
        labels: Mapping[str, str] | None = None,
        without: Collection[str] = (),
    ) -> int:
        """Return how many such requests fit now.

        Args:
            request: What is asked for.
            limit: How far to count.
            labels: What the nodes must have.
            without: Names of nodes that are left out.
        """
        return 0 if without else self._pool.num_fitting(request, limit)

    def largest_fitting(
        self,
        group: WorkerGroup,
        labels: Mapping[str, str] | None = None,
        only: str | None = None,
        without: Collection[str] = (),
    ) -> WorkerGroup | None:
        """Return the group with as many workers as fit now; None if not even the fewest do.

        Args:
            group: The group.
            labels: What the nodes must have.
            only: The node on which all must be; None for any.
            without: Names of nodes that are left out.
        """
        return None if without else self._pool.largest_fitting(group)

    def held_for(
        self, held: Request, request: Request, labels: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the nodes where granting a request would take what another one waits for.

        Nodes that cannot contribute to the other one are not among them.

        Args:
            held: What the other one asks for.
            request: What would be granted.
            labels: What the nodes must have for the other one.
        """
        return [] if self._pool.leaves(held, request) else [THIS_NODE]

    def acquire(
        self,
        request: Request,
        labels: Mapping[str, str] | None = None,
        preferred: Sequence[str] = (),
        only: str | None = None,
        without: Collection[str] = (),
    ) -> Grant | None:
        """Grant the request; of a group, the shares of `num_workers`.

        Args:
            request: What is asked for.
            labels: What the nodes must have.
            preferred: Names of nodes that are tried first, in this order; the others follow, the
                least loaded first.
            only: The node on which it must be; None for any.
            without: Names of nodes that are left out.

        Returns:
            None if the request does not fit now.
        """
        devices = None if without else self._pool.acquire(request)
        return None if devices is None else Grant((THIS_NODE,), devices)

    def place(self, preferred: Sequence[str]) -> str | None:
        """Return the node for what occupies nothing; None while there is none.

        Args:
            preferred: See `acquire`.
        """
        return THIS_NODE

    def short_on(
        self,
        request: Mapping[str, float],
        num: int,
        preferred: Sequence[str] = (),
        only: str | None = None,
    ) -> tuple[str, frozenset[str]] | None:
        """Return where so many such requests are to be waited for, and what is short there.

        That is one node, so that the others can be used meanwhile.

        Args:
            request: What each of them asks for.
            num: How many they are.
            preferred: Names of nodes that come first; the others follow in the order in which they
                joined.
            only: The node on which it must be; None for any.

        Returns:
            None if no node that is present has as much.
        """
        for node in self._candidates(preferred, only):
            if ResourcePool(node.pool.capacity).num_fitting(request, num) >= num:
                amounts = {name: amount for name, amount in request.items() if amount}
                short = {
                    name
                    for name, amount in amounts.items()
                    if node.pool.num_fitting({name: amount}, num) < num
                }
                return node.name, frozenset(short or amounts)
        return None

    def _candidates(self, preferred: Sequence[str], only: str | None) -> list[Node]:
        return [self._node]

    def hold(self, request: Request, grant: Grant) -> None:
        """Reserve what `acquire` granted before a restore."""
        self._pool.hold(request, grant.devices)

    def release(self, request: Request, grant: Grant) -> None:
        """Release what `acquire` granted; what was on a node that has left is gone with it."""
        self._pool.release(request, grant.devices)

    def state_dict(self) -> list[Any]:
        """Return the nodes as JSON values, without what is granted; empty for this machine."""
        return []

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Restore what `state_dict` returned."""
