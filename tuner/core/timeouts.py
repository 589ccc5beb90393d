"""How long the engine waits for a worker, before it has it killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .deadlines import Deadlines, earliest
from .hang_detection import HangDetector, SuspectedHang

TERM_GRACE_S: Final = 0.5
"""How long a worker that is to be killed may take to clean up, unless it is urgent."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A worker whose time is over.

    Attributes:
        trial_id: Whose.
        reason: Why it is to be killed.
        term_grace_s: How long it may take to clean up before that.
    """

    trial_id: str
    reason: str
    term_grace_s: float


class Timeouts:
    """Keeps one deadline for each worker: to report, or to leave once it has been told to.

    Where silence has no limit, a worker that is silent for unusually long is told of.

    Args:
        report_timeout_s: How long a worker may stay silent while it trains or saves; None for ever.
        stop_grace_s: How long it may take to leave.
    """

    def __init__(self, report_timeout_s: float | None, stop_grace_s: float) -> None:
        self._report_timeout_s = report_timeout_s
        self._stop_grace_s = stop_grace_s
        self._deadlines = Deadlines()
        self._leaving: set[str] = set()
        self._watch = HangDetector()
        self._interrupt_grace_s = 0.0
        self._term_grace_s = TERM_GRACE_S
        self._all_gone_s: float | None = None

    @property
    def next_s(self) -> float | None:
        """When the next worker runs out of time or becomes suspicious; None if none will."""
        return earliest(self._deadlines.next_s(), self._watch.next_s)

    def expect_report(self, trial_id: str, now_s: float) -> None:
        """Wait for a sign of life; a worker that is expected to leave is given no more time for it."""
        if trial_id in self._leaving:
            return
        if self._report_timeout_s is None:
            self._watch.expect(trial_id, now_s)
        else:
            self._deadlines.set(trial_id, now_s + self._report_timeout_s)

    def expect_exit(self, trial_id: str, now_s: float) -> None:
        """Wait for the worker to leave."""
        self._leaving.add(trial_id)
        self._watch.forget(trial_id)
        self._deadlines.set(
            trial_id, now_s + self._stop_grace_s if self._all_gone_s is None else self._all_gone_s
        )

    def interrupt(self, now_s: float, grace_s: float, *, is_urgent: bool = False) -> None:
        """Expect everybody who is or will be told to leave to be gone `grace_s` from now, `is_urgent` at once; the first grace counts."""
        if is_urgent:
            self._all_gone_s, self._term_grace_s = now_s, 0.0
        elif self._all_gone_s is None:
            self._all_gone_s, self._interrupt_grace_s = now_s + grace_s, grace_s
        else:
            return
        for trial_id in self._leaving:
            self._deadlines.set(trial_id, self._all_gone_s)

    def on_report(self, trial_id: str, now_s: float) -> None:
        """Stop the clock of a worker that has reported or is about to; one that is expected to leave still has to leave in time."""
        if trial_id in self._leaving:
            return
        self._deadlines.cancel(trial_id)
        self._watch.on_report(trial_id, now_s)

    def suspend(self, trial_id: str) -> None:
        """Stop the clock of a worker that has not reported, unless it is expected to leave."""
        if trial_id in self._leaving:
            return
        self._deadlines.cancel(trial_id)
        self._watch.suspend(trial_id)

    def forget(self, trial_id: str) -> None:
        """Forget a worker that is gone."""
        self._deadlines.cancel(trial_id)
        self._watch.forget(trial_id)
        self._leaving.discard(trial_id)

    def may_be_due(self, now_s: float) -> bool:
        """Return whether `exhausted` or `suspicious` may have something to tell; hardly ever."""
        return self._deadlines.may_be_due(now_s) or self._watch.may_be_due(now_s)

    def take_overdue(self, now_s: float) -> list[Overdue]:
        """Return the workers whose time is over."""
        return [
            Overdue(trial_id, self._reason(trial_id), self._term_grace_s)
            for trial_id in self._deadlines.take_due(now_s)
        ]

    def take_suspected_hangs(self, now_s: float) -> list[SuspectedHang]:
        """Return the workers that have become silent for unusually long, each once."""
        return self._watch.take_silent(now_s)

    def state_dict(self) -> dict[str, Any]:
        """Return the deadlines as JSON values."""
        return {
            "due": self._deadlines.due,
            "leaving": sorted(self._leaving),
            "watch": self._watch.state_dict(),
            "interrupt_grace_s": self._interrupt_grace_s,
            "last_words_s": self._term_grace_s,
            "all_gone_s": self._all_gone_s,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._leaving = set(state["leaving"])
        self._watch.load_state_dict(state["watch"])
        self._interrupt_grace_s = state["interrupt_grace_s"]
        self._term_grace_s = state["last_words_s"]
        self._all_gone_s = state["all_gone_s"]
        for trial_id, due_s in state["due"].items():
            self._deadlines.set(trial_id, due_s)

    def _reason(self, trial_id: str) -> str:
        if trial_id in self._leaving and self._term_grace_s == 0:
            return "the experiment was interrupted again, and waited for nobody"
        if trial_id in self._leaving and self._all_gone_s is not None:
            return f"it did not leave within interrupt_grace_s={self._interrupt_grace_s} after the experiment was interrupted"
        if trial_id in self._leaving:
            return f"it did not leave within stop_grace_s={self._stop_grace_s} after it was told to stop"
        return f"no report for more than report_timeout_s={self._report_timeout_s}"
