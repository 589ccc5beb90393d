"""Leases: resources of the experiment for another experiment that a trial or a validation runs.

Training code may construct a trainer and call its `fit`, and a validation function may do so, too.
The processes of that inner experiment would then occupy what the outer one has given to others. So
their resources are borrowed from the outer driver, which owns all of them: the request goes over
the connection of the process that asks, and is answered when they are free.

As long as it waits for the inner experiment, the process that runs it computes nothing. What it
occupies itself therefore counts as the share of one of the inner workers, if that fits in.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

from tuner.core.trial import WorkerGroup
from tuner.errors import LeaseRefused, ResourceDeadlock
from tuner.wire.declared import encode

from .resources import CUDA_VISIBLE_DEVICES, THREAD_VARIABLES, visible_gpus

if TYPE_CHECKING:
    from .answers import Answers


class Sender(Protocol):
    """The sending side of a worker's connection."""

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Resources that were granted.

    Attributes:
        num_workers: How many workers they are enough for.
        devices: CUDA's names of the GPUs.
        capacity: The amounts by name, that of GPUs included.
    """

    num_workers: int
    devices: tuple[str, ...]
    capacity: Mapping[str, float]


@final
class LeaseHolder:
    """A worker or validator that may borrow resources from its driver.

    Attributes:
        storage_path: Where its experiment lies, in which inner ones are stored, too.
    """

    def __init__(
        self,
        sender: Sender,
        answers: Answers,
        trial_dir: str | os.PathLike[str],
        resources: Mapping[str, float],
    ) -> None:
        """Hold no lease yet.

        Args:
            sender: The connection to the driver.
            answers: What the driver sends over it.
            trial_dir: The trial's directory.
            resources: What this process occupies itself.
        """
        self.storage_path = Path(trial_dir).parent.parent
        self._sender = sender
        self._answers = answers
        self._resources = resources
        self._pid = os.getpid()
        self._tokens = itertools.count(1)
        self._own_share = threading.Lock()  # locked while an inner experiment makes use of it

    @property
    def is_in_fork(self) -> bool:
        """Whether this is the copy of a child process, which has no connection of its own."""
        return os.getpid() != self._pid

    @contextlib.contextmanager
    def lease(self, group: WorkerGroup) -> Iterator[Lease]:
        """Borrow the resources of these workers; waits until they are free.

        Raises:
            LeaseRefused: If they never will be.
        """
        covers_one = self._covers(group) and self._own_share.acquire(blocking=False)
        try:
            own = visible_gpus() if covers_one and group.resources_per_worker.get("gpu") else ()
            rest = _without_one(group) if covers_one else group
            with self._borrowed(rest, is_optional=covers_one and group.min_workers <= 1) as granted:
                devices = dict.fromkeys((*own, *granted.devices))  # a GPU may be shared
                yield _lease_of(group, granted.num_workers + covers_one, tuple(devices))
        finally:
            if covers_one:
                self._own_share.release()

    def _covers(self, group: WorkerGroup) -> bool:
        share = group.resources_per_worker
        return all(self._resources.get(name, 0.0) >= amount for name, amount in share.items())

    @contextlib.contextmanager
    def _borrowed(self, group: WorkerGroup, *, is_optional: bool) -> Iterator[Lease]:
        if group.max_workers == 0:
            yield _lease_of(group, 0, ())
            return
        token = f"{self._pid}-{next(self._tokens)}"
        try:
            self._sender.send({"kind": "lease", "token": token, "group": encode(group)})
            answer = self._answers.wait("lease", "refused", token=token)
            if "lease" in answer:
                yield _lease_of(group, int(answer["num_workers"]), tuple(answer["devices"]))
            elif is_optional:
                yield _lease_of(group, 0, ())
            else:
                kind = ResourceDeadlock if answer.get("deadlock") else LeaseRefused
                raise kind(str(answer["reason"]))
        finally:
            # Also where waiting was interrupted: it withdraws the request.
            with contextlib.suppress(OSError):  # the driver is gone
                self._sender.send({"kind": "release", "token": token})

    @contextlib.contextmanager
    def environment(self, lease: Lease) -> Iterator[None]:
        """Show the inner experiment's driver the leased GPUs, and no limit of threads."""
        num_threads = str(max(1, int(self._resources.get("cpu", 1))))
        # Set for this process alone; the user's own setting is kept for the inner workers.
        hidden = {name for name in THREAD_VARIABLES if os.environ.get(name) == num_threads}
        given = {CUDA_VISIBLE_DEVICES: ",".join(lease.devices)} if lease.devices else {}
        before = {name: os.environ.get(name) for name in hidden | given.keys()}
        for name in hidden:
            del os.environ[name]
        os.environ.update(given)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


_holder: LeaseHolder | None = None


def set_holder(holder: LeaseHolder | None) -> None:
    """Make this process one that may borrow resources."""
    global _holder  # noqa: PLW0603  (a fact about the process)
    _holder = holder


def lease_holder() -> LeaseHolder | None:
    """Return what this process may borrow with, None outside trials and validations."""
    return None if _holder is None or _holder.is_in_fork else _holder


@contextlib.contextmanager
def lease(group: WorkerGroup | None) -> Iterator[Lease | None]:
    """Borrow the resources of these workers for an inner experiment, and give them back after it.

    Waits until they are free. Outside trials and validations there is nothing to borrow.

    Args:
        group: The workers; None for an experiment whose trials are single processes, which run
            beside the trial that runs it.

    Yields:
        What was granted, None for nothing.

    Raises:
        LeaseRefused: If the resources can never be had.
        ResourceDeadlock: If all that hold resources wait for each other.
    """
    holder = lease_holder()
    if holder is None or group is None:
        yield None
        return
    with holder.lease(group) as granted, holder.environment(granted):
        yield granted


def _without_one(group: WorkerGroup) -> WorkerGroup:
    most = group.max_workers - 1
    return replace(
        group,
        num_workers=min(max(1, group.num_workers - 1), most),
        min_workers=min(max(1, group.min_workers - 1), most),
        max_workers=most,
    )


def _lease_of(group: WorkerGroup, num_workers: int, devices: tuple[str, ...]) -> Lease:
    capacity = {name: amount * num_workers for name, amount in group.resources_per_worker.items()}
    # Devices can be shared by fractions, but are granted as they are.
    return Lease(num_workers, devices, {**capacity, "gpu": float(len(devices))})
