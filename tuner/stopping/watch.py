"""What the trials of an experiment have reached so far, by which its search comes to an end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, final

from schedulers.decisions import Reason
from searchers.objectives import Constraints, Point, minimised
from tuner.core.commands import AttemptFailed, Notice, TrialEnded, TrialPaused
from tuner.core.events import SKIPPED
from tuner.core.feasibility import is_feasible
from tuner.core.pareto import Objectives, values_of
from tuner.core.trial import TerminationReason, Trial

from .reached import NUM_TYPICAL
from .stop_search import NUM_LAST, StopSearch


class Goals(NamedTuple):
    """What is optimised.

    Attributes:
        objectives: Flattened name and mode (``"min"`` or ``"max"``) of each metric.
        constraints: What a trial has to keep for its values to count.
    """

    objectives: Objectives
    constraints: Constraints = ()

    @property
    def shown(self) -> dict[str, str]:
        """The metric or metrics, for `why_search_ended`."""
        key = "metric" if len(self.objectives) == 1 else "metrics"
        return {key: ", ".join(metric for metric, _ in self.objectives)}


class Turn(NamedTuple):
    """A trial that has ended or is paused.

    Attributes:
        trial_id: The trial.
        point: Its value of each metric, smaller is better; None if it does not count.
        newest: The same, also of a trial that was stopped or paused.
    """

    trial_id: str
    point: Point | None
    newest: Point | None = None


def turn_of(notice: Notice, goals: Goals) -> Turn | None:
    """Return the trial whose end or pause this is; None for anything else.

    A trial that was interrupted together with the experiment is not over.
    """
    match notice:
        case AttemptFailed(trial, _, False):
            return Turn(trial.trial_id, None)
        case TrialEnded(trial) if trial.ending is TerminationReason.COMPLETED:
            point = point_of(trial, goals)
            return Turn(trial.trial_id, point, point)
        case TrialPaused(trial):
            return Turn(trial.trial_id, None, point_of(trial, goals))
        case TrialEnded(trial) if trial.ending is TerminationReason.STOPPED_EARLY or (
            trial.reason is not None and trial.reason.rule == SKIPPED
        ):
            return Turn(trial.trial_id, None, point_of(trial, goals))
        case _:
            return None


def point_of(trial: Trial, goals: Goals) -> Point | None:
    """Return the newest values of a trial, smaller is better; None if it does not count."""
    values = values_of(trial, goals.objectives)
    if values is None or not is_feasible(trial, goals.constraints):
        return None
    return minimised([values], [mode for _, mode in goals.objectives])[0]


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
        self._points: dict[str, Point | None] = {}
        self._first: dict[str, Point] = {}
        self._ended_after = 0

    def take(self, turn: Turn) -> None:
        """Take notice of a trial that has ended or is paused."""
        self._points.pop(turn.trial_id, None)
        self._points[turn.trial_id] = turn.point
        is_first = turn.trial_id in self._first or len(self._first) < NUM_TYPICAL
        if is_first and turn.newest is not None:
            self._first[turn.trial_id] = turn.newest

    def reason_to_stop(self) -> Reason | None:
        """Return why the search ends now; None if it goes on.

        Once it has ended and was continued, it goes on for some trials at least.
        """
        num = len(self._points)
        if self._num_first and num < self._num_first + NUM_LAST:
            return None
        if self._ended_after and num < self._ended_after + self._criterion.num_watched:
            return None
        return self._criterion.reason_to_stop(
            list(self._points.values()), list(self._first.values())
        )

    def note_end(self) -> None:
        """Take notice that the search has ended, for this criterion or an earlier one."""
        self._ended_after = len(self._points)

    def state_dict(self) -> dict[str, Any]:
        """Return the trials so far, as JSON values."""
        points = [[name, point and list(point)] for name, point in self._points.items()]
        first = [[name, list(point)] for name, point in self._first.items()]
        return {"points": points, "first": first, "ended_after": self._ended_after}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._points = {name: point and tuple(point) for name, point in state["points"]}
        self._first = {name: tuple(point) for name, point in state["first"]}
        self._ended_after = state["ended_after"]
