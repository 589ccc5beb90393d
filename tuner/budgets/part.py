"""What an experiment has spent of its resources, and that it ends when a budget is used up.

What is in use changes at the ends of turns only, and a journal tells when those were. So between
two changes each amount is a rate times the time, in a replay as it was, and the time at which a
budget is used up is known in advance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from schedulers.decisions import Reason
from tuner.core.events import ResultReported
from tuner.core.part import Part
from tuner.core.policies import BUDGET
from tuner.core.progress import BudgetUse
from tuner.core.result import TIME_TOTAL_S, TRAINING_ITERATION
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial

if TYPE_CHECKING:
    from tuner.core.experiment import Experiment

ITERATIONS: Final = "iterations"
_HOUR_S: Final = 3600.0


@final
class Budgets(Part):
    """Adds up what processes occupy and what trials train, and ends the experiment in time.

    All that trials, validations and leases occupy counts, retries included. No process of a driver
    that has died is known to have lived longer than its journal, so that the time since the last
    record does not count. A budget that is first declared at a restore begins with what the trials
    are known to have trained until then.

    Args:
        core: The state machine.
    """

    def __init__(self, core: Experiment) -> None:
        super().__init__(core)
        self._limits: Mapping[str, float] = {}
        self._spent = _trained(core.trials)
        """What was spent until `_since_s`, by unit."""
        self._rates: Mapping[str, float] = {}
        """What is spent in each second since then."""
        self._since_s = core.now_s
        self._due_s = math.inf
        """When the first of the budgets is used up."""

    def end_processes(self) -> None:
        """Spend nothing more: no process of the last session is alive."""
        self._change({})

    def begin_session(self, settings: ExperimentSettings) -> None:
        """Apply the budgets of a new session."""
        self._limits = settings.budget
        self._look_ahead()

    def add_state(self, fields: dict[str, Any]) -> None:
        """Add what is spent, and what is being spent."""
        fields["budgets"] = {
            "spent": dict(self._spent),
            "rates": dict(self._rates),
            "since_s": self._since_s,
        }

    def load_state(self, fields: Mapping[str, Any]) -> None:
        """Restore what was spent, and what was being spent."""
        state = fields["budgets"]
        self._spent = defaultdict(float, state["spent"])
        self._rates, self._since_s = state["rates"], state["since_s"]
        self._look_ahead()

    def on_result(self, trial: Trial, event: ResultReported, flat: Mapping[str, Any]) -> bool:
        """Count the iterations since the result before, or since the attempt began."""
        is_first = trial.num_rows == trial.resumed_row + 1
        before = trial.resumed_iteration if is_first else trial.iteration
        self._spent[ITERATIONS] += max(flat.get(TRAINING_ITERATION, 0) - before, 0)
        if ITERATIONS in self._limits:
            self._look_ahead()
        return False

    def on_turn_ended(self) -> None:
        """Note what is in use from now on."""
        self._change(self._in_use())

    @property
    def next_s(self) -> float | None:
        """When the first of the budgets is used up; None where that is open."""
        is_open = self._core.is_stopping or self._due_s == math.inf
        return None if is_open else self._due_s

    def reason_to_end(self, own: Reason | None) -> Reason | None:
        """Return that a budget is used up, unless something else is wrong."""
        now_s = self._core.now_s
        if own or now_s < self._due_s:
            return own
        first = min(self._uses(), key=lambda use: use.due_s)
        spent = first.spent_at(now_s)
        return Reason(BUDGET, {"unit": first.unit, "budget": first.limit, "spent": spent})

    @property
    def progress(self) -> Mapping[str, Any]:
        """What is spent of each budget."""
        return {"budgets": tuple(self._uses())}

    def _uses(self) -> Iterable[BudgetUse]:
        return (
            BudgetUse(unit, limit, self._spent[unit], self._rates.get(unit, 0.0), self._since_s)
            for unit, limit in self._limits.items()
        )

    def _in_use(self) -> dict[str, float]:
        """Return what is spent in each second, by unit."""
        table = self._core.trial_table
        amounts = defaultdict(float, table.nodes.used)
        for part in self._core.parts:
            for name, amount in part.unbooked.items():
                amounts[name] += amount
        amounts["trial"] = float(len(table.live))
        return {f"{name}_hours": amount / _HOUR_S for name, amount in amounts.items() if amount}

    def _change(self, rates: Mapping[str, float]) -> None:
        """Spend at other rates from now on."""
        if rates == self._rates:
            return
        now_s = self._core.now_s
        for unit, rate in self._rates.items():
            self._spent[unit] += rate * (now_s - self._since_s)
        self._rates, self._since_s = rates, now_s
        self._look_ahead()

    def _look_ahead(self) -> None:
        self._due_s = min((use.due_s for use in self._uses()), default=math.inf)


def _trained(trials: Iterable[Trial]) -> defaultdict[str, float]:
    """Return what trials have spent at least, by their last results."""
    spent: defaultdict[str, float] = defaultdict(float)
    for trial in trials:
        hours = float(trial.last_result.get(TIME_TOTAL_S) or 0.0) / _HOUR_S
        spent[ITERATIONS] += trial.iteration
        for name, amount in {**trial.resources, "trial": 1.0}.items():
            spent[f"{name}_hours"] += amount * hours
    return spent
