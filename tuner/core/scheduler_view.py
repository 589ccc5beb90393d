"""What a scheduler may see of the experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import final

from schedulers.scheduler import ExperimentView, NoExperiment, TrialView

from .settings import ExperimentSettings
from .suggestion_budget import SearchDesk
from .trial_table import Roster


@final
class ExperimentWindow:
    """Shows the live state of an experiment, and lets nothing be changed.

    Args:
        roster: The trials.
        desk: The account with the searcher.
        settings: Returns the settings that hold now.
    """

    def __init__(
        self, roster: Roster, desk: SearchDesk, settings: Callable[[], ExperimentSettings]
    ) -> None:
        self._roster = roster
        self._desk = desk
        self._settings = settings

    @property
    def trials(self) -> Mapping[str, TrialView]:
        """All trials so far by name, in the order in which they were added; none for which there has been no slot yet."""
        return MappingProxyType(self._roster.admitted)

    @property
    def max_trials(self) -> int | None:
        """How many trials there will be at most; None where nobody can tell."""
        return self._settings().max_trials

    @property
    def no_more_trials(self) -> bool:
        """Whether no further trial comes before one of those that are there goes on."""
        desk, roster = self._desk, self._roster
        if roster.backlog:
            return False
        is_waiting_for_nothing = desk.is_postponed and not (
            roster.live or roster.ready or roster.held
        )
        return not desk.num_outstanding and (desk.is_exhausted or is_waiting_for_nothing)

    @property
    def can_save_on_demand(self) -> bool:
        """Whether trials save when they are asked to."""
        return self._settings().checkpoints.can_save_on_demand

    @property
    def resources(self) -> Mapping[str, float]:
        """All that trials can occupy together."""
        return self._settings().capacity

    def __deepcopy__(self, memo: object) -> ExperimentView:
        """Return what a scheduler sees without an experiment: its copy belongs to another one."""
        return NoExperiment()
