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
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuner.core.worker_records import WorkerGroup

if TYPE_CHECKING:
    from .lease_holder import Lease, LeaseHolder

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
