"""From which level on new trials are compared, by the evidence of `agreement`."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple, final

from schedulers.decisions import Number

from .agreement import PROBE_SHARE, Evidence, RankAgreement


class Choice(NamedTuple):
    """Where new trials are compared first, and why.

    Attributes:
        level_index: Number of the level.
        evidence: The evidence that decided; None if there is none yet.
        metric: The metric of which it is, empty for the only one.
    """

    level_index: int
    evidence: Evidence | None = None
    metric: str = ""


@final
class FirstComparison:
    """Chooses for each new trial the level of its first comparison, and remembers the choice.

    Of several metrics each has its own evidence, and the highest of the levels counts that they
    choose: a comparison in all of them loses good trials where the ranks in any of them mislead.

    Args:
        levels: Ascending amounts of training.
        reduction_factor: One trial in this many survives a comparison.
        usual: Number of the level without evidence.

    Attributes:
        latest: Number of the level that was chosen last.

    Example:
        >>> first = FirstComparison((1, 3, 9), reduction_factor=3, usual=1)
        >>> for number in range(60):
        ...     for time in (1, 3):
        ...         values = {"loss": number, "latency": number if time > 1 else -number}
        ...         first.note(f"t{number}", time, values, violation=0.0, first=1)
        >>> first.choose("new")
        >>> first.latest, first.why("new")
        (1, '0 of the 20 best at 3 were among the best at 1 (latency)')
    """

    def __init__(self, levels: Sequence[Number], reduction_factor: Number, usual: int) -> None:
        self._levels = levels
        self._reduction_factor = reduction_factor
        self._usual = usual
        self._agreements: dict[str, RankAgreement] = {}
        self._choices: dict[str, Choice] = {}
        self.latest = usual

    def __contains__(self, trial_id: str) -> bool:
        """Return whether a level was chosen for a trial."""
        return trial_id in self._choices

    def note(
        self,
        trial_id: str,
        time: Number,
        values: Mapping[str, float],
        violation: float,
        first: int,
    ) -> None:
        """Keep a trial's values at the level that it has reached.

        Args:
            trial_id: The trial.
            time: How long it has trained.
            values: By metric; smaller is better, NaN counts as worst.
            violation: By how much it misses the constraints. What misses one is worth nothing, so
                it counts as worst; while none is known to be kept or missed, ranks are by the
                metrics alone.
            first: Number of the level where the trial is compared first.
        """
        index = bisect_right(self._levels, time) - 1
        if index < 0:
            return
        is_worthless = 0 < violation < math.inf
        for metric, value in values.items():
            self._agreement(metric).note(
                trial_id, index, math.nan if is_worthless else value, first
            )

    def _agreement(self, metric: str) -> RankAgreement:
        if metric not in self._agreements:
            self._agreements[metric] = RankAgreement(self._levels, self._reduction_factor)
        return self._agreements[metric]

    def values(self) -> Mapping[str, Mapping[int, float]]:
        """Return the values of the only metric by number of the level, by trial."""
        return self._agreement("").values()

    def choice_now(self) -> Choice:
        """Return the choice for a trial that begins now."""
        choices = [
            Choice(*agreement.first_comparison(self._usual), metric)
            for metric, agreement in self._agreements.items()
        ]
        return max(choices, key=lambda choice: choice.level_index, default=Choice(self._usual))

    def choose(self, trial_id: str) -> tuple[int, Choice] | None:
        """Choose the level of a new trial.

        Returns:
            The number of the level that was chosen before, and the choice; None if they are equal.
        """
        choice = self._choices[trial_id] = self.choice_now()
        before, self.latest = self.latest, choice.level_index
        return (before, choice) if choice.level_index != before else None

    def index(self, trial_id: str, chance: float) -> int:
        """Return the number of the level where a trial is compared first.

        Args:
            trial_id: The trial, for which a level was chosen.
            chance: A number of the trial's own, uniform in [0, 1): some trials are compared as late
                as without evidence, so that more of it comes.
        """
        index = self._choices[trial_id].level_index
        return self._usual if index < self._usual and chance < PROBE_SHARE else index

    def is_later(self, trial_id: str, index: int) -> bool:
        """Return whether a trial is compared later than was chosen."""
        return index > self._choices[trial_id].level_index

    def why(self, trial_id: str) -> str:
        """Return the evidence that decided about a trial, as text."""
        return self.described(self._choices[trial_id]) or "none yet"

    def described(self, choice: Choice) -> str:
        """Return the evidence of a choice as text; empty without."""
        if choice.evidence is None:
            return ""
        text = self._agreement(choice.metric).described(choice.evidence)
        return f"{text} ({choice.metric})" if choice.metric else text

    def state_dict(self) -> dict[str, Any]:
        """Return values and choices, as JSON values."""
        return {
            "latest_index": self.latest,
            "chosen_first": {name: _plain(choice) for name, choice in self._choices.items()},
            "agreement": {metric: one.state_dict() for metric, one in self._agreements.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.latest = state["latest_index"]
        self._choices = {
            name: Choice(index, evidence and Evidence(*evidence), *metric)
            for name, (index, evidence, *metric) in state["chosen_first"].items()
        }
        agreements = state["agreement"]
        # Earlier versions knew one metric.
        for metric, saved in (
            agreements.items() if isinstance(agreements, Mapping) else [("", agreements)]
        ):
            self._agreement(metric).load_state_dict(saved)


def _plain(choice: Choice) -> list[Any]:
    evidence = choice.evidence and list(astuple(choice.evidence))
    return [choice.level_index, evidence, *([choice.metric] if choice.metric else [])]
