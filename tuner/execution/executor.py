"""The interface between the driver and executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tuner.core.commands import WorkerCommand
from tuner.core.events import Event


class Executor(Protocol):
    """Carries out commands and returns events.

    Exactly one `WorkerExited` follows each `StartWorker`, and it is the last event of that attempt.
    Exactly one `ValidationEnded` follows each `StartValidation`, once its processes are gone.
    Events of one worker keep their order. A problem of one trial raises no exception here: it is an
    event. An executor must not assume that driver and worker share memory.
    """

    def capacity(self) -> Mapping[str, float]:
        """Return the total resources, e.g. ``{"cpu": 8.0, "gpu": 1.0}``."""

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """Begin to carry out the commands, in order, without waiting for their effect.

        A command for an attempt that has ended is ignored.
        """

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return all events so far; if there are none, wait for the first one.

        Args:
            timeout_s: How many seconds to wait at most, None for no limit. `wake` ends the wait.
        """

    def wake(self) -> None:
        """Make a concurrent or the next `wait` return at once.

        May be called from signal handlers and other threads.
        """

    def clock(self) -> float:
        """Return the executor's time in seconds from an arbitrary origin; it never decreases."""

    def shutdown(self, deadline_s: float) -> None:
        """Kill the remaining workers and release all resources; may be called again.

        Args:
            deadline_s: How many seconds to wait at most.
        """
