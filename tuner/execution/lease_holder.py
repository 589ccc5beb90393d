"""How a worker or validator borrows resources from its driver, see `leasing`."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from tuner.core.worker_records import WorkerGroup
from tuner.errors import LeaseRefused, ResourceDeadlock
from tuner.wire.declared import encode
from tuner.wire.record import record

from .resources import CUDA_VISIBLE_DEVICES, THREAD_VARIABLES, visible_gpus

if TYPE_CHECKING:
    from .answers import Answers
    from .attempt import Channel


@record
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
    """A worker or validator that may borrow resources from its driver."""

    def __init__(
        self,
        channel: Channel,
        answers: Answers,
        trial_dir: str | os.PathLike[str],
        resources: Mapping[str, float],
    ) -> None:
        """Hold no lease yet.

        Args:
            channel: The connection to the driver.
            answers: What the driver sends over it.
            trial_dir: The trial's directory.
            resources: What this process occupies itself.
        """
        # No more than this: every worker makes one, and hardly any borrows.
        self._trial_dir = trial_dir
        self._channel = channel
        self._answers = answers
        self._resources = resources
        self._pid = os.getpid()
        self._tokens = itertools.count(1)
        self._own_share = threading.Lock()  # locked while an inner experiment makes use of it

    @property
    def storage_path(self) -> Path:
        """Where its experiment lies, in which inner ones are stored, too."""
        return Path(self._trial_dir).parent.parent

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
            self._channel.send({"kind": "lease", "token": token, "group": encode(group)})
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
                self._channel.send({"kind": "release", "token": token})

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
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


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
