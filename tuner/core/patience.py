"""How long the engine waits for a worker, before it has it killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .deadlines import Deadlines


class Patience:
    """Keeps one deadline for each worker: to report, or to leave once it has been told to.

    Args:
        report_timeout_s: How long a worker may stay silent while it trains or saves; None for ever.
        stop_grace_s: How long it may take to leave.
    """

    def __init__(self, report_timeout_s: float | None, stop_grace_s: float) -> None:
        self._report_timeout_s = report_timeout_s
        self._stop_grace_s = stop_grace_s
        self._deadlines = Deadlines()
        self._leaving: set[str] = set()

    @property
    def next_s(self) -> float | None:
        """When the next worker runs out of time; None if none will."""
        return self._deadlines.next_s()

    def expect_report(self, trial_id: str, now_s: float) -> None:
        """Wait for a sign of life; a worker that is expected to leave is given no more time for it."""
        if self._report_timeout_s is not None and trial_id not in self._leaving:
            self._deadlines.set(trial_id, now_s + self._report_timeout_s)

    def expect_exit(self, trial_id: str, now_s: float, *, is_urgent: bool = False) -> None:
        """Wait for the worker to leave, `is_urgent` not at all."""
        self._leaving.add(trial_id)
        self._deadlines.set(trial_id, now_s if is_urgent else now_s + self._stop_grace_s)

    def take_sign_of_life(self, trial_id: str) -> None:
        """Stop the clock: it is our turn to answer."""
        self._deadlines.cancel(trial_id)

    def forget(self, trial_id: str) -> None:
        """Forget a worker that is gone."""
        self._deadlines.cancel(trial_id)
        self._leaving.discard(trial_id)

    def exhausted(self, now_s: float) -> list[tuple[str, str]]:
        """Return the workers whose time is over, each with the reason to kill it."""
        return [(trial_id, self._reason(trial_id)) for trial_id in self._deadlines.take_due(now_s)]

    def state_dict(self) -> dict[str, Any]:
        """Return the deadlines as JSON values."""
        return {"due": self._deadlines.due, "leaving": sorted(self._leaving)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._leaving = set(state["leaving"])
        for trial_id, due_s in state["due"].items():
            self._deadlines.set(trial_id, due_s)

    def _reason(self, trial_id: str) -> str:
        if trial_id in self._leaving:
            return f"it did not leave within stop_grace_s={self._stop_grace_s} after it was told to stop"
        return f"no report for more than report_timeout_s={self._report_timeout_s}"
