"""Agreement of ranks between levels of training, which decides where trials are first compared.

Trials that pass a level without being compared there report values all the same. They show what a
comparison would have cost: the good trials that it would have dropped. Trials that were compared at
a level show less, since those that were dropped there have not shown what they could become.

**When an early comparison pays.** Let one trial in `r` survive a comparison, and one level be `k`
times as much training as the level below. To bring one trial to the upper level by way of a
comparison at the lower one takes `r` trials to the lower level and one of them on to the upper one.
For the same cost, ``1 + (r - 1) / k`` trials reach the upper level without a comparison. If a share
`s` of the good trials survives the comparison, then the trial that comes through is good with `r *
s` times the probability of one that was not compared. So more good trials are found at the same
cost if ``r * s > 1 + (r - 1) / k``: with a factor of 3 and levels three times apart, if more than
5/9 of the good trials are among the best third already.

**When a comparison has lost the best.** Trials that were spared all comparisons show most: those of
them that are among the best third at the highest level would be missing if they had been dropped
below. If hardly any would have survived, trials are compared later, however well the ranks of all
others agree: those were chosen by their early ranks.

**When a comparison misleads.** If no more of the best were among the best before than by chance,
one in `r`, their order at the lower level says nothing, and it is better to train longer. This can
also be seen from trials that were compared at the lower level: chance is the same for them. Between
the two, agreement with a level that itself says little about the end proves nothing, and the
comparison stays where it is.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from schedulers.decisions import Number

# Chosen by measurement, with benchmarks/quality.
EXPECTED_SHARE = 0.45
"""Share of the good trials that is expected to survive an early comparison."""
EXPECTED_WEIGHT = 10
"""The expectation counts like so many good trials."""
PROBE_SHARE = 0.1
"""Share of the trials that are compared as late as without evidence, so that more of it comes."""
MAX_TRIALS = 200
"""Evidence comes from so many of the latest trials."""
TRUSTED_SHARE = 0.5
"""Levels below one are considered if more than this share of what is best in the end was among the
best there."""
TRUST_WEIGHT = 1
"""So many good trials are assumed to speak for a level that may mislead: half-way between chance
and full agreement."""
SPARED_WEIGHT = 3
"""So many of the best trials that were spared all comparisons are assumed to speak for a level."""


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """How many of the best trials of a level were among the best at a lower one.

    Attributes:
        low: Number of the lower level.
        high: Number of the higher level.
        num_found: How many of the best trials at `high` were among the best at `low`; of those that
            tie with others there, a part.
        num_best: How many trials count as the best.
        is_of_spared: Whether only those count that were not compared up to the lower level.
    """

    low: int
    high: int
    num_found: float
    num_best: int
    is_of_spared: bool = False

    def share(self, expected: float, weight: float) -> float:
        """Return the share that was found, as if `weight` more trials had shown the expected one.

        Example:
            >>> Evidence(0, 1, num_found=4, num_best=5).share(expected=0.5, weight=5)
            0.65
        """
        return (self.num_found + weight * expected) / (self.num_best + weight)


@final
class RankAgreement:
    """Values of trials at the levels that they pass, and the first comparison that follows.

    Args:
        levels: Ascending amounts of training.
        reduction_factor: One trial in this many survives a comparison.

    Example:
        >>> agreement = RankAgreement((1, 3, 9), reduction_factor=3)
        >>> for number in range(60):
        ...     for index in range(2):
        ...         agreement.note(f"t{number}", index, float(number), first=1)
        >>> index, evidence = agreement.first_comparison(usual=1)
        >>> index, agreement.described(evidence)
        (0, '20 of the 20 best at 3 were among the best at 1')
    """

    def __init__(self, levels: Sequence[Number], reduction_factor: Number) -> None:
        self._levels = levels
        self._reduction_factor = reduction_factor
        # By trial: the number of the level where it is compared first, and its values by level.
        self._trials: dict[str, tuple[int, dict[int, float]]] = {}

    def note(self, trial_id: str, index: int, value: float, first: int) -> None:
        """Keep a trial's first value at a level.

        Args:
            trial_id: The trial.
            index: Number of the level.
            value: Smaller is better; NaN counts as worst.
            first: Number of the level where the trial is compared first.
        """
        if trial_id not in self._trials:
            if len(self._trials) >= MAX_TRIALS:
                del self._trials[next(iter(self._trials))]
            self._trials[trial_id] = (first, {})
        self._trials[trial_id][1].setdefault(index, math.inf if math.isnan(value) else value)

    def values(self) -> Mapping[str, Mapping[int, float]]:
        """Return the values of the latest trials by number of the level, by trial."""
        return {trial_id: values for trial_id, (_, values) in self._trials.items()}

    def first_comparison(self, usual: int) -> tuple[int, Evidence | None]:
        """Return the number of the level where new trials are to be compared first, and why.

        It is above the usual level if that misleads about the highest one, and below while
        comparisons at lower levels pay.

        Args:
            usual: Number of the level without evidence.

        Returns:
            The number, and the evidence that decided; None if there is none yet.
        """
        top = len(self._levels) - 1
        index, decisive = usual, None
        while index < top:
            evidence = self._evidence(index, top, since=0)
            trust = self._trust(evidence)
            if trust >= 1 / self._reduction_factor:
                # What is good at the usual level has to be worth finding.
                if index > usual or trust <= TRUSTED_SHARE:
                    return index, decisive or evidence
                break
            index, decisive = index + 1, evidence
        while 0 < index <= usual:
            evidence = self._evidence(index - 1, usual, since=usual)
            if not self._pays(evidence):
                # What speaks against a still lower level is no reason for this one.
                decisive = evidence if evidence.num_best and index == usual else decisive
                break
            index, decisive = index - 1, evidence
        while index < top:
            evidence = self._evidence_of_spared(index, top)
            if self._trust(evidence, SPARED_WEIGHT) >= 1 / self._reduction_factor:
                break
            index, decisive = index + 1, evidence
        return index, decisive

    def _evidence(self, low: int, high: int, since: int) -> Evidence:
        """Return the evidence of all trials with values at both levels.

        Args:
            low: Number of the lower level.
            high: Number of the higher level.
            since: Trials that were compared below the level with this number are left out.
        """
        pairs = [
            (values[low], values[high])
            for first, values in self._trials.values()
            if first >= since and low in values and high in values
        ]
        num_best = math.floor(len(pairs) / self._reduction_factor)
        if not num_best:
            return Evidence(low, high, 0, 0)
        below = sorted(at_low for at_low, _ in pairs)
        cutoff = below[num_best - 1]
        # Of those that tie at the cutoff, only a part survives.
        credit = (num_best - bisect_left(below, cutoff)) / below.count(cutoff)
        best = sorted(pairs, key=lambda pair: pair[1])[:num_best]
        num_found = sum(
            1.0 if at_low < cutoff else credit for at_low, _ in best if at_low <= cutoff
        )
        return Evidence(low, high, num_found, num_best)

    def _evidence_of_spared(self, low: int, top: int) -> Evidence:
        """Return how many of the best that were not compared up to a level were good enough there.

        The best are a part of all trials at the highest level.
        """
        factor = self._reduction_factor
        below = sorted(values[low] for _, values in self._trials.values() if low in values)
        num_kept = math.floor(len(below) / factor)
        if not num_kept:
            return Evidence(low, top, 0, 0, is_of_spared=True)
        finished = [each for each in self._trials.values() if top in each[1]]
        finished.sort(key=lambda each: each[1][top])
        spared = [
            values[low]
            for first, values in finished[: math.ceil(len(finished) / factor)]
            if first > low and low in values
        ]
        num_found = sum(value <= below[num_kept - 1] for value in spared)
        return Evidence(low, top, num_found, len(spared), is_of_spared=True)

    def _pays(self, evidence: Evidence) -> bool:
        factor, low = self._reduction_factor, evidence.low
        required = (1 + (factor - 1) * self._levels[low] / self._levels[low + 1]) / factor
        # Where less is required than is expected, nothing is chosen before there is evidence.
        expected = min(EXPECTED_SHARE, required)
        return evidence.share(expected, EXPECTED_WEIGHT) > required

    def _trust(self, evidence: Evidence, weight: float = TRUST_WEIGHT) -> float:
        return evidence.share((1 + 1 / self._reduction_factor) / 2, weight)

    def described(self, evidence: Evidence) -> str:
        """Return evidence as text."""
        high, low = self._levels[evidence.high], self._levels[evidence.low]
        spared = f" that were not compared at {low:g}" if evidence.is_of_spared else ""
        return (
            f"{evidence.num_found:.3g} of the {evidence.num_best} best at {high:g}{spared} were "
            f"among the best at {low:g}"
        )

    def state_dict(self) -> list[Any]:
        """Return all values, as JSON values."""
        return [
            [trial_id, first, [[index, _plain(value)] for index, value in values.items()]]
            for trial_id, (first, values) in self._trials.items()
        ]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._trials = {
            trial_id: (
                first,
                {index: math.inf if value is None else value for index, value in values},
            )
            for trial_id, first, values in state
        }


def _plain(value: float) -> float | None:
    return None if math.isinf(value) else value
