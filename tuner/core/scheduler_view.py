"""What a scheduler may see of the experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import final

from schedulers.scheduler import ExperimentView, NoExperiment, TrialView

from .settings import ExperimentSettings
from .suggestion_budget import SuggestionBudget
from .trial_table import TrialTable


@final
class LiveExperimentView:
    """Shows the live state of an experiment, and lets nothing be changed.

    Args:
        trial_table: The trials.
        suggestion_budget: The account with the searcher.
        settings: Returns the settings that hold now.
    """

    def __init__(
        self,
        trial_table: TrialTable,
        suggestion_budget: SuggestionBudget,
        settings: Callable[[], ExperimentSettings],
    ) -> None:
        self._trial_table = trial_table
        self._desk = suggestion_budget
        self._settings = settings

    @property
    def trials(self) -> Mapping[str, TrialView]:
        """All trials so far by name, in the order in which they were added; none for which there has been no slot yet."""
        return MappingProxyType(self._trial_table.admitted)

    @property
    def max_trials(self) -> int | None:
        """How many trials there will be at most; None where nobody can tell."""
        return self._settings().max_trials

    @property
    def no_more_trials(self) -> bool:
        """Whether no further trial comes before one of those that are there goes on."""
        suggestion_budget, trial_table = self._desk, self._trial_table
        if trial_table.backlog:
            return False
        is_waiting_for_nothing = suggestion_budget.is_postponed and not (
            trial_table.live or trial_table.ready or trial_table.held
        )
        return not suggestion_budget.num_outstanding and (
            suggestion_budget.is_exhausted or is_waiting_for_nothing
        )

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
