"""The interface between the driver and whatever runs the trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tuner.core.commands import WorkerCommand
from tuner.core.events import Event


class Executor(Protocol):
    """Carries commands out and hands events back.

    Exactly one `WorkerExited` follows each `StartWorker`, after which nothing more comes from that attempt. A worker's events keep
    their order. No trouble of one trial ever raises here: it becomes an event. An executor never assumes that driver and worker
    share memory.
    """

    def capacity(self) -> Mapping[str, float]:
        """Return the total resources, e.g. ``{"cpu": 8.0, "gpu": 1.0}``."""

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """Begin to carry out the commands, in order, without waiting for their effect.

        A command for an attempt that is already gone is ignored.
        """

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return what has happened, waiting for the first event up to `timeout_s` seconds (None: for ever).

        Returns early and empty when `wake` is called.
        """

    def wake(self) -> None:
        """Make a concurrent or the next `wait` return at once; may be called from signal handlers and other threads."""

    def clock(self) -> float:
        """Return the executor's time in seconds from an arbitrary origin; it never runs backwards."""

    def shutdown(self, deadline_s: float) -> None:
        """Kill what still runs and release everything; may be called again. Waits at most `deadline_s` seconds."""
