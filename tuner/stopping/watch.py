"""What the trials of an experiment have reached so far, by which its search comes to an end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from schedulers.decisions import Reason
from searchers.objectives.outcome_constraint import Constraints
from tuner.core.commands import AttemptFailed, Notice, TrialEnded, TrialPaused
from tuner.core.events import SKIPPED
from tuner.core.feasibility import is_feasible
from tuner.core.result import flatten
from tuner.core.trial import TerminationReason, Trial
from tuner.core.trial_metrics import sign_of

from .stop_search import NUM_LAST, StopSearch


class Objective(NamedTuple):
    """What is optimised.

    Attributes:
        metric: Its flattened name.
        mode: ``"min"`` or ``"max"``: its direction.
        constraints: What a trial has to keep for its value to count.
    """

    metric: str
    mode: str
    constraints: Constraints = ()


class Turn(NamedTuple):
    """A trial that has ended or is paused.

    Attributes:
        trial_id: The trial.
        cost: Its value, smaller is better; infinity if it has none that counts.
    """

    trial_id: str
    cost: float


def turn_of(notice: Notice, objective: Objective) -> Turn | None:
    """Return the trial whose end or pause this is; None for anything else.

    A trial that was interrupted together with the experiment is not over.
    """
    match notice:
        case TrialPaused(trial) | AttemptFailed(trial, _, False):
            return Turn(trial.trial_id, math.inf)
        case TrialEnded(trial) if trial.ending is TerminationReason.COMPLETED:
            return Turn(trial.trial_id, _cost(trial, objective))
        case TrialEnded(trial) if trial.ending is TerminationReason.STOPPED_EARLY or (
            trial.reason is not None and trial.reason.rule == SKIPPED
        ):
            return Turn(trial.trial_id, math.inf)
        case _:
            return None


def _cost(trial: Trial, objective: Objective) -> float:
    value = flatten(trial.judged).get(objective.metric)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return math.inf
    is_kept = is_feasible(trial, objective.constraints)
    return sign_of(objective.mode) * value if is_kept else math.inf


@final
class SearchWatch:
    """Follows the trials of an experiment, and tells when its search has come to its end.

    A trial counts where it has ended or been paused last, so that one which has just been trained
    to the end is among the last ones, whenever it began.

    Args:
        criterion: When the search ends.
        num_first: How many trials there are before those that a model proposes.
    """

    def __init__(self, criterion: StopSearch, num_first: int = 0) -> None:
        self._criterion = criterion
        self._num_first = num_first
        self._costs: dict[str, float] = {}
        self._ended_after = 0

    def take(self, turn: Turn) -> None:
        """Take notice of a trial that has ended or is paused."""
        self._costs.pop(turn.trial_id, None)
        self._costs[turn.trial_id] = turn.cost

    def reason_to_stop(self) -> Reason | None:
        """Return why the search ends now; None if it goes on.

        Once it has ended and was continued, it goes on for some trials at least.
        """
        num = len(self._costs)
        if self._num_first and num < self._num_first + NUM_LAST:
            return None
        if self._ended_after and num < self._ended_after + self._criterion.num_watched:
            return None
        return self._criterion.reason_to_stop(list(self._costs.values()))

    def note_end(self) -> None:
        """Take notice that the search has ended, for this criterion or an earlier one."""
        self._ended_after = len(self._costs)

    def state_dict(self) -> dict[str, Any]:
        """Return the trials so far, as JSON values."""
        costs = [[name, None if cost == math.inf else cost] for name, cost in self._costs.items()]
        return {"costs": costs, "ended_after": self._ended_after}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._costs = {name: math.inf if cost is None else cost for name, cost in state["costs"]}
        self._ended_after = state["ended_after"]
