"""Leases: resources that a worker or a validator is granted for an experiment of its own.

A process that trains in other processes, such as a driver function that constructs a trainer, asks
for the resources of these and waits. Leases are granted in the order in which they were asked for,
before new trials are started, and end with the process that asked. Where every process that runs
waits for another one's resources, none of them would ever end: then the one that asked last is
refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, final

from tuner.core.commands import GrantLease, RefuseLease
from tuner.core.events import LeaseOwner, LeaseRequested
from tuner.core.resources import THIS_NODE, Request, ResourcePool, amounts_of
from tuner.core.trial_table import TrialTable
from tuner.core.worker_records import WorkerGroup
from tuner.wire.declared import LIST, decode, encode


@dataclass(frozen=True, slots=True)
class _Lease:
    """A lease, or the request for one.

    Attributes:
        owner: Who asked.
        token: Of the request.
        group: What was asked for, or what was granted.
    """

    owner: Annotated[LeaseOwner, LIST]
    token: str
    group: WorkerGroup

    @property
    def holder(self) -> str:
        """Its name among all that hold resources."""
        return _holder(self.owner, self.token)


@final
class LeaseQueue:
    """All leases of an experiment, and the requests for leases in their order.

    Args:
        trial_table: The resources.
    """

    def __init__(self, trial_table: TrialTable) -> None:
        self._trial_table = trial_table
        self._waiting: dict[str, _Lease] = {}
        self._granted: dict[str, _Lease] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether any request waits."""
        return bool(self._waiting)

    @property
    def waiting_owners(self) -> set[LeaseOwner]:
        """The processes that wait for a lease."""
        return {lease.owner for lease in self._waiting.values()}

    def is_waiting_for(self, owner: LeaseOwner) -> bool:
        """Return whether a request of this process waits."""
        return any(lease.owner == owner for lease in self._waiting.values())

    def request(self, event: LeaseRequested, own: Request | None) -> RefuseLease | None:
        """Queue a request; return the refusal if it could never be granted.

        Args:
            event: The request; one that is made twice counts once.
            own: What the process itself occupies as long as it waits, None for nothing.
        """
        lease = _Lease(event.owner, event.token, event.group)
        if lease.holder in self._waiting or lease.holder in self._granted:
            return None
        if why := self._misfit(event.owner, event.group, own):
            return RefuseLease(event.owner, event.token, why)
        self._waiting[lease.holder] = lease
        return None

    def release(self, owner: LeaseOwner, token: str) -> bool:
        """End a lease, or withdraw the request; return whether it was still waiting.

        One that is unknown has ended already.
        """
        holder = _holder(owner, token)
        is_waiting = holder in self._waiting
        self._end([lease for lease in self._all() if lease.holder == holder])
        return is_waiting

    def end_owner(self, owner: LeaseOwner) -> None:
        """End all leases of a process that is gone, and withdraw its requests."""
        if self._waiting or self._granted:
            self._end([lease for lease in self._all() if lease.owner == owner])

    def clear(self) -> None:
        """End all leases, since all processes are gone."""
        self._end(self._all())

    def grant(self) -> list[GrantLease]:
        """Grant the leases that were asked for first, as far as they fit."""
        granted: list[GrantLease] = []
        while self._waiting and (command := self._grant(next(iter(self._waiting.values())))):
            granted.append(command)
        return granted

    def reserve(self) -> None:
        """Keep new trials from taking what the next lease waits for."""
        if self._waiting:
            lease = next(iter(self._waiting.values()))
            if short := self._short_of(lease):
                self._trial_table.reserve(*short)

    def resolve_deadlock(
        self, running: Sequence[LeaseOwner], blocked: Collection[LeaseOwner]
    ) -> GrantLease | RefuseLease | None:
        """Let one request through if no process would ever end; return the command.

        Args:
            running: All processes.
            blocked: Those of them that wait for something else than a lease, which another one of
                them has to bring about.
        """
        # A process that holds a lease trains in it, whatever else it asks for in another thread.
        training = {lease.owner for lease in self._granted.values()}
        waiting = {lease.owner for lease in self._waiting.values()} - training
        if waiting.union(blocked).issuperset(running):
            leases = list(self._waiting.values())
        elif not (leases := self._stuck_on_a_node(running, waiting)):
            return None
        for lease in leases:
            if command := self._grant(lease):
                return command  # it asked later, and the others would wait for nothing
        lease = leases[-1]
        del self._waiting[lease.holder]
        return RefuseLease(
            lease.owner, lease.token, self._why_deadlock(lease, running), is_deadlock=True
        )

    def _stuck_on_a_node(
        self, running: Sequence[LeaseOwner], waiting: Collection[LeaseOwner]
    ) -> list[_Lease]:
        """Return the requests on a node of which every process waits for what it has.

        What runs on other nodes frees nothing there.
        """
        for node in {node: None for owner in waiting if (node := self._node_of(owner))}:
            there = [owner for owner in running if node in self._nodes_of(owner)]
            if all(owner in waiting and self._node_of(owner) == node for owner in there):
                return [lease for lease in self._waiting.values() if lease.owner in there]
        return []

    def _why_deadlock(self, lease: _Lease, running: Sequence[LeaseOwner]) -> str:
        nodes, name = self._trial_table.nodes, self._node_of(lease.owner)
        node = next((each for each in nodes if each.name == name), None)
        capacity, used = (
            (node.pool.capacity, node.pool.used) if node else (nodes.capacity, nodes.used)
        )
        free = {name: amount - used[name] for name, amount in capacity.items()}
        where = f" on node {name}" if name else ""
        num = sum(name is None or name in self._nodes_of(owner) for owner in running)
        return (
            f"a deadlock: {_shown(lease.group)} do not fit into the {_amounts(free)} that are "
            f"free{where}, and all {num} processes that hold the rest wait for such resources "
            "themselves; set max_concurrent_trials so that fewer trials run at once, or request "
            "the resources with the trial, for example with Tuner(trainer)"
        )

    def refuse_all(self, reason: str) -> list[RefuseLease]:
        """Refuse all requests that wait."""
        refused = [
            RefuseLease(lease.owner, lease.token, reason) for lease in self._waiting.values()
        ]
        self._waiting.clear()
        return refused

    def check(self, running: Sequence[LeaseOwner]) -> None:
        """Assert every invariant; for tests.

        Args:
            running: All processes.
        """
        owners = {lease.owner for lease in self._all()}
        assert owners <= set(running), "a lease of a process that is gone"
        assert not self._waiting.keys() & self._granted.keys(), "granted, and still waiting"
        assert self._granted.keys() == {
            holder for holder in self._trial_table.lent if holder.startswith("lease/")
        }, "granted leases are not those that hold resources"

    def state_dict(self) -> dict[str, Any]:
        """Return all leases as JSON values; empty where there are none."""
        if not (self._waiting or self._granted):
            return {}
        return {
            "waiting": [encode(lease) for lease in self._waiting.values()],
            "granted": [
                {**encode(lease), "gpu_ids": list(self._trial_table.lent[holder][1].devices)}
                for holder, lease in self._granted.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for fields in state.get("waiting", ()):
            lease = decode(_Lease, fields, is_whole=False)
            self._waiting[lease.holder] = lease
        for fields in state.get("granted", ()):
            lease = decode(_Lease, fields, is_whole=False)
            self._granted[lease.holder] = lease
            self._trial_table.hold_lent(lease.holder, lease.group, tuple(fields["gpu_ids"]))

    def _all(self) -> list[_Lease]:
        return [*self._waiting.values(), *self._granted.values()]

    def _end(self, leases: Sequence[_Lease]) -> None:
        for lease in leases:
            self._waiting.pop(lease.holder, None)
            if self._granted.pop(lease.holder, None):
                self._trial_table.take_back(lease.holder)

    def _grant(self, lease: _Lease) -> GrantLease | None:
        node = self._node_of(lease.owner)
        sized = self._trial_table.nodes.largest_fitting(lease.group, only=node)
        granted = self._trial_table.lend(lease.holder, sized, only=node) if sized else None
        if sized is None or granted is None:
            return None
        del self._waiting[lease.holder]
        self._granted[lease.holder] = _Lease(lease.owner, lease.token, sized)
        return GrantLease(lease.owner, lease.token, sized.num_workers, granted.devices)

    def _misfit(self, owner: LeaseOwner, group: WorkerGroup, own: Request | None) -> str:
        """Return why it could never be granted, even if its owner alone were left."""
        nodes, name = self._trial_table.nodes, self._node_of(owner)
        own_node = next((node for node in nodes if node.name == name), None)
        where = f"node {name}" if own_node and name else "the experiment"
        pool = ResourcePool(own_node.pool.capacity if own_node else nodes.capacity)
        if own is not None:
            pool.acquire(own)
        num_fitting = pool.num_fitting(group.resources_per_worker, group.fewest)
        if num_fitting >= group.fewest:
            return ""
        held = f", of which that process holds {_amounts(amounts_of(own))}" if own else ""
        return (
            f"{_shown(group)} beside the process that asks for them never fit: {where} has "
            f"{_amounts(pool.capacity)} in all{held}, enough for {num_fitting or 'none'} more; use "
            "fewer workers, ask for less for each, or let the trial itself ask for less with "
            "with_resources"
        )

    def _nodes_of(self, owner: LeaseOwner) -> Sequence[str]:
        """Return the nodes on which a process occupies resources."""
        trial = self._trial_table[owner.trial_id]
        return trial.nodes if owner.index is None else (trial.validations[owner.index].node,)

    def _node_of(self, owner: LeaseOwner) -> str | None:
        """Return the node of a process, which starts others only there; None for any."""
        trial = self._trial_table[owner.trial_id]
        node = trial.node if owner.index is None else trial.validations[owner.index].node
        return node or None

    def _short_of(self, lease: _Lease) -> tuple[str, frozenset[str]] | None:
        """Return the resources that new trials must not take while a request waits, and where."""
        nodes, group = self._trial_table.nodes, lease.group
        share, node = group.resources_per_worker, self._node_of(lease.owner)
        if node is not None:
            return nodes.short_on(share, group.fewest, only=node)
        short = {
            name
            for name, amount in share.items()
            if amount and nodes.num_fitting({name: amount}, group.fewest) < group.fewest
        }
        return THIS_NODE, frozenset(short)


def _holder(owner: LeaseOwner, token: str) -> str:
    index = "" if owner.index is None else owner.index
    return f"lease/{owner.trial_id}/{owner.attempt}/{index}/{token}"


def _shown(group: WorkerGroup) -> str:
    workers = "1 worker" if group.fewest == 1 else f"{group.fewest} workers"
    return f"{workers} with {_amounts(group.resources_per_worker)} each"


def _amounts(amounts: Mapping[str, float]) -> str:
    listed = (f"{amount:g} {name}" for name, amount in amounts.items() if amount or name == "cpu")
    return ", ".join(listed) or "nothing"
