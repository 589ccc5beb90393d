"""Resources of a machine: CPUs, GPUs (whole or in fractions) and custom ones; who holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from .trial import Trial
from .worker_records import WorkerGroup

Request = Mapping[str, float] | WorkerGroup
"""Amounts by name for a single process, or the workers of a group, each with the same share."""

_NO_LABELS: Final[Mapping[str, str]] = {}


class Demand(NamedTuple):
    """What is asked for, and what the nodes must have that grant it.

    Attributes:
        request: The resources.
        labels: See `tuner.nodes.nodes.matches`.
    """

    request: Request
    labels: Mapping[str, str] = _NO_LABELS

    @property
    def shape(self) -> tuple[object, ...]:
        """A key that is equal for demands that fit in the same cases."""
        shape = request_shape(self.request)
        return (*shape, "labels", *sorted(self.labels.items())) if self.labels else shape


GPU = "gpu"
THIS_NODE: Final = ""
"""Name of the only node where nodes neither join nor leave."""
_UNIT = 10_000
"""Amounts are counted in ten-thousandths, so that ten tenths are one."""


class ResourcePool:
    """Grants requests from a fixed capacity.

    GPUs are devices: a request of 1 or more takes whole ones, a fraction shares the fullest device
    that still has room, so that whole devices stay free as long as possible. A group of workers is
    granted the shares of all of them or nothing; the fractions of several may be on one device.
    """

    def __init__(self, capacity: Mapping[str, float]) -> None:
        """Create a pool with everything free.

        Args:
            capacity: Total amount by name; the number of GPUs is rounded down.
        """
        self._total = {
            # GPUs are whole devices: with 1.5 of them, one can be assigned.
            name: _units(int(amount) if name == GPU else amount)
            for name, amount in capacity.items()
        }
        self._free = dict(self._total)
        self._devices = [_UNIT] * int(capacity.get(GPU, 0))

    @property
    def capacity(self) -> dict[str, float]:
        """Total amount by name."""
        return {name: units / _UNIT for name, units in self._total.items()}

    @property
    def used(self) -> dict[str, float]:
        """Granted amount by name."""
        return {name: (units - self._free[name]) / _UNIT for name, units in self._total.items()}

    def misfit(self, request: Request) -> str:
        """Return why the request could never be granted; empty if it could.

        A group could be if the fewest workers with which it can be started fit.
        """
        if isinstance(request, WorkerGroup):
            return self._misfit_of_group(request)
        too_much = [
            name for name, amount in request.items() if _units(amount) > self._total.get(name, 0)
        ]
        if too_much:
            return (
                f"the trial asks for {dict(request)}, the experiment has {self.capacity} in all; "
                f"ask for less {' and '.join(too_much)}"
            )
        return gpu_misfit(request)

    def _misfit_of_group(self, group: WorkerGroup) -> str:
        share, fewest = group.resources_per_worker, group.fewest
        if why := gpu_misfit(group):
            return why
        num_fitting = ResourcePool(self.capacity).num_fitting(share, fewest)
        if num_fitting >= fewest:
            return ""
        enough = "enough for one" if num_fitting == 1 else f"enough for {num_fitting or 'none'}"
        return (
            f"the trial asks for {fewest} workers with {dict(share)} each, the experiment has "
            f"{self.capacity} in all, {enough}; use fewer workers, or ask for less for each"
        )

    def num_fitting(self, request: Request, limit: int) -> int:
        """Return how many such requests fit now, counting no further than `limit`.

        Groups of variable size are counted as they would be started, each as large as then fits.
        """
        if isinstance(request, WorkerGroup):
            share, most = request.resources_per_worker, request.most
            num_full, num_left = divmod(self.num_fitting(share, limit * most), most)
            return num_full + (num_left >= request.fewest)
        count = limit
        for name, amount in request.items():
            units = _units(amount)
            if units:
                free = (
                    self._num_free_shares(units)
                    if name == GPU
                    else self._free.get(name, 0) // units
                )
                count = min(count, free)
        return max(count, 0)

    def largest_fitting(self, group: WorkerGroup) -> WorkerGroup | None:
        """Return the group with as many workers as fit now; None if not even the fewest do."""
        num_workers = self.num_fitting(group.resources_per_worker, group.most)
        return group.resized(num_workers) if num_workers >= group.fewest else None

    def leaves(self, held: Request, request: Request) -> bool:
        """Return whether granting a request now would take nothing of what another one waits for.

        Devices that are shared count as if they were taken whole.
        """
        kept = _units_of(held, held.fewest if isinstance(held, WorkerGroup) else 1)
        wanted = _units_of(request, _shares(request)[1])
        free = {**self._free, GPU: sum(_UNIT for left in self._devices if left == _UNIT)}
        return all(
            kept[name] + units <= free.get(name, 0)
            for name, units in wanted.items()
            if units and kept.get(name)
        )

    def acquire(self, request: Request) -> tuple[int, ...] | None:
        """Grant the request; of a group, the shares of `num_workers`.

        Returns:
            The devices assigned, empty where no GPU was asked for; None if the request does not fit
            now. Those of a group are in the order of its ranks: as many for each as it asks for, or
            one of which it gets a fraction.
        """
        share, num_shares = _shares(request)
        if any(
            num_shares * _units(amount) > self._free.get(name, 0) for name, amount in share.items()
        ):
            return None
        devices = self._choose_devices(_units(share.get(GPU, 0)), num_shares)
        if devices is None:
            return None
        self._book(request, devices, -1)
        return devices

    def hold(self, request: Request, devices: tuple[int, ...]) -> None:
        """Reserve what `acquire` granted before a restore."""
        self._book(request, devices, -1)

    def release(self, request: Request, devices: tuple[int, ...]) -> None:
        """Release what `acquire` granted."""
        self._book(request, devices, 1)

    def _book(self, request: Request, devices: tuple[int, ...], sign: int) -> None:
        share, num_shares = _shares(request)
        for name, amount in share.items():
            if name in self._free:
                self._free[name] += sign * num_shares * _units(amount)
        # A request of several takes each device whole; a fraction takes its share of one.
        units = min(_units(share.get(GPU, 0)), _UNIT)
        for device in devices:
            self._devices[device] += sign * units

    def _choose_devices(self, units: int, num_shares: int) -> tuple[int, ...] | None:
        if units == 0:
            return ()
        if units >= _UNIT:
            whole = [index for index, free in enumerate(self._devices) if free == _UNIT]
            wanted = units // _UNIT * num_shares
            return tuple(whole[:wanted]) if len(whole) >= wanted else None
        free, chosen = list(self._devices), []
        for _ in range(num_shares):
            device = _fullest_with_room(free, units)
            if device is None:
                return None
            free[device] -= units
            chosen.append(device)
        return tuple(chosen)

    def _num_free_shares(self, units: int) -> int:
        if units >= _UNIT:
            return sum(free == _UNIT for free in self._devices) // (units // _UNIT)
        return sum(free // units for free in self._devices)


def gpu_misfit(request: Request) -> str:
    """Return why no machine could grant the GPUs that are asked for; empty if one could."""
    share, _ = _shares(request)
    if (gpus := share.get(GPU, 0)) > 1 and _units(gpus) % _UNIT:
        whose = " of each worker" if isinstance(request, WorkerGroup) else ""
        return f"gpu{whose} must be a fraction below 1 or a whole number, got {gpus}"
    return ""


def amounts_of(request: Request) -> dict[str, float]:
    """Return the amounts by name, of all workers of a group together."""
    return request.total if isinstance(request, WorkerGroup) else dict(request)


def demand_of(trial: Trial) -> Demand:
    """Return what a trial's next attempt asks for."""
    return Demand(trial.request, trial.labels)


def request_shape(request: Request) -> tuple[object, ...]:
    """Return a key that is equal for requests that fit in the same cases."""
    if isinstance(request, WorkerGroup):
        share = request_shape(request.resources_per_worker)
        strategy = () if request.strategy == "PACK" else (request.strategy,)
        return (*share, request.fewest, request.most, *strategy)
    return tuple(sorted(request.items()))


def _units_of(request: Request, num_shares: int) -> dict[str, int]:
    """Return the amounts of so many shares, with whole devices."""
    share, _ = _shares(request)
    units = {name: num_shares * _units(amount) for name, amount in share.items()}
    if gpus := _units(share.get(GPU, 0)):
        units[GPU] = num_shares * max(gpus, _UNIT)
    return units


def _shares(request: Request) -> tuple[Mapping[str, float], int]:
    """Return the share of one process, and how many processes have one."""
    if isinstance(request, WorkerGroup):
        return request.resources_per_worker, request.num_workers
    return request, 1


def _fullest_with_room(free: Sequence[int], units: int) -> int | None:
    """Return the fullest device that has room, the first among equals; None if there is none."""
    with_room = [(left, index) for index, left in enumerate(free) if left >= units]
    return min(with_room)[1] if with_room else None


def _units(amount: float) -> int:
    return round(amount * _UNIT)


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
