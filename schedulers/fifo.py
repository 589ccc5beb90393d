"""FIFO scheduler: every trial runs to its own end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from .decisions import Decision
from .scheduler import Scheduler, TrialView


@final
class FIFOScheduler(Scheduler):
    """Runs trials in the order they were suggested, and stops none early.

    Example:
        >>> scheduler = FIFOScheduler()
        >>> scheduler.set_search_properties("loss", "min", seed=0)
        True
    """

    CONTINUE, PAUSE, STOP, NOOP = "CONTINUE", "PAUSE", "STOP", "NOOP"
    """What a subclass with Ray Tune's signatures returns; see `TrialScheduler`."""

    # Without it the signature would be that of `Declared.__new__`, which takes any arguments.
    def __init__(self) -> None:
        super().__init__()

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Return no decision."""
        return ()

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, since nothing is remembered."""
        return {}
