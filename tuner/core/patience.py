"""How long the engine waits: for a worker, before it has it killed, and for the experiment, before it ends it."""

from __future__ import annotations

from schedulers.decisions import Reason

from .deadlines import Deadlines
from .stoppers import Stopper
from .trial import Ending

_TIME_BUDGET = "time_budget"


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

    def _reason(self, trial_id: str) -> str:
        if trial_id in self._leaving:
            return f"it did not leave within stop_grace_s={self._stop_grace_s} after it was told to stop"
        return f"no report for more than report_timeout_s={self._report_timeout_s}"


class TimeLimits:
    """Says when the whole experiment has run long enough.

    Args:
        budget_s: Its time budget, None for none.
        stopper: The user's stop criterion, which may look at the clock as well.
    """

    def __init__(self, budget_s: float | None, stopper: Stopper) -> None:
        self._budget_s = budget_s
        self._stopper = stopper

    @property
    def next_s(self) -> float | None:
        """When to look at the clock even if nothing happens; None for no such time."""
        return min((due_s for due_s in (self._budget_s, self._stopper.due_s) if due_s is not None), default=None)

    def reason_to_stop(self, now_s: float) -> Reason | None:
        """Return why the experiment is to end now; None if it is not."""
        self._stopper.on_tick(now_s)
        if self._budget_s is not None and now_s >= self._budget_s:
            return Reason(_TIME_BUDGET, {"budget_s": self._budget_s, "elapsed_s": now_s})
        return Reason("stopper.stop_all") if self._stopper.stop_all() else None

    @staticmethod
    def ending_for(reason: Reason) -> Ending:
        """Return what it means to a trial to be ended for this: more time may be given later, a stop criterion has decided."""
        return Ending.INTERRUPTED if reason.rule == _TIME_BUDGET else Ending.STOPPED_EARLY
