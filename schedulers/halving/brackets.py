"""Brackets of synchronous HyperBand: trials of one bracket wait for each other at each level, and the best of them go on together.

Four choices, each of which changes results, are made here and nowhere else:

* **Levels and sizes are built by multiplication**, never by a logarithm: ``int(log(1000) / log(10))`` is 2, and a bracket is gone.
* **Places above a rung are rounded down**: of `n` trials the best ``floor(n / reduction_factor)`` go on, but one at least.
* **Equal values rank in the order in which the trials joined**, so that no more go on than there are places.
* **A value that is not a number is worse than every number**, and does not go on. Only where no trial of the bracket has a number at its
  lowest level, so early that results may not be defined yet, some go on without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, final, overload

from schedulers.decisions import Number, Reason
from schedulers.metric_reader import strict


@dataclass(frozen=True, slots=True)
class BracketPlan:
    """What a bracket is to do.

    Attributes:
        s: Number of its halvings, as in the paper.
        num_trials: How many trials it starts, the paper's ``n``.
        levels: Where they are compared, ascending, the paper's ``r_0`` to ``r_s``; the last one is a full training.
    """

    s: int
    num_trials: int
    levels: tuple[Number, ...]

    def halvings(self, reduction_factor: Number) -> tuple[tuple[int, Number], ...]:
        """Return how many trials are trained up to each level, as pairs ``(n_i, r_i)``.

        Args:
            reduction_factor: One trial in this many goes on.

        Example:
            >>> BracketPlan(2, 15, (9, 27, 81)).halvings(3)
            ((15, 9), (5, 27), (1, 81))
        """
        sizes = [self.num_trials]
        while len(sizes) < len(self.levels):
            sizes.append(num_places(sizes[-1], reduction_factor))
        return tuple(zip(sizes, self.levels, strict=True))


@final
class Band(Sequence[BracketPlan]):
    """The brackets ``s_max`` to 0 in that order, the one with the most halvings first.

    Here ``s_max`` is the largest number with ``reduction_factor**s_max <= max_t``. Levels are whole where they come out whole.

    Args:
        max_t: A full training, the paper's ``R``, at least 1.
        reduction_factor: Ratio of one level to the next and of trials to those that go on, the paper's ``eta``, more than 1.

    Example:
        >>> [(plan.s, plan.num_trials, plan.levels) for plan in Band(9, 3)]
        [(2, 9, (1, 3, 9)), (1, 5, (3, 9)), (0, 3, (9,))]

    Reference:
        arXiv 1603.06560, Algorithm 1, lines 1 to 6.
    """

    def __init__(self, max_t: Number, reduction_factor: Number) -> None:
        self._powers = _powers(reduction_factor, max_t)
        self._levels = tuple(_quotient(max_t, power) for power in reversed(self._powers))

    def __len__(self) -> int:
        return len(self._powers)

    @overload
    def __getitem__(self, index: int) -> BracketPlan: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[BracketPlan]: ...

    def __getitem__(self, index: int | slice) -> BracketPlan | Sequence[BracketPlan]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        s = range(len(self) - 1, -1, -1)[index]
        num_trials = math.ceil(Fraction(len(self), s + 1) * Fraction(self._powers[s]))
        return BracketPlan(s, num_trials, self._levels[len(self) - 1 - s :])


def num_places(num_trials: int, reduction_factor: Number) -> int:
    """Return how many of some trials go on.

    Example:
        >>> num_places(34, 3), num_places(2, 3)
        (11, 1)
    """
    return max(1, math.floor(num_trials / Fraction(reduction_factor)))


def _powers(base: Number, largest: Number) -> list[Number]:
    """Return ``base**0`` to the last power that is not larger than `largest`."""
    powers: list[Number] = [1]
    # A product of floats may miss the largest by a rounding error; that must not cost a bracket.
    while (power := powers[-1] * base) <= largest or math.isclose(power, largest):
        powers.append(power)
    return powers


def _quotient(dividend: Number, divisor: Number) -> Number:
    quotient = Fraction(dividend) / Fraction(divisor)
    return int(quotient) if quotient.denominator == 1 else float(quotient)


class Standing(StrEnum):
    """How a trial stands in its bracket."""

    IN = "in"
    STOPPED = "stopped"
    """It was not good enough at some rung."""
    ENDED = "ended"
    """It has come to its end without that."""
    FAILED = "failed"


@dataclass(slots=True)
class Member:
    """A trial of a bracket.

    Attributes:
        trial_id: Its name.
        values: What it had reached at each level, from the lowest on, as far as it has come; NaN for what is not a number.
        rung: At how many rungs it has been among the best.
        standing: How it stands.
        verdict: What was decided about it last.
    """

    trial_id: str
    values: list[float] = field(default_factory=list)
    rung: int = 0
    standing: Standing = Standing.IN
    verdict: Reason | None = None

    def was_judged_at(self, rung: int) -> bool:
        """Return whether it has been compared there."""
        return self.rung > rung or (self.rung == rung and self.standing is Standing.STOPPED)


@final
class Bracket:
    """Trials that are halved together.

    A rung is complete when all trials of the bracket that are still in it have reached its level, none of them stands at a lower rung, and
    no further trial joins. Then those that wait there are ranked, and the best go on. Should trials join afterwards, which happens where
    the search waits for results before it suggests more, they are ranked among all that were compared on the rung before, except those
    that have failed since.

    Args:
        number: Which bracket it is, from 0.
        plan: What it is to do.
        reduction_factor: One trial in this many goes on.
        mode: ``"min"`` or ``"max"``: whether smaller or larger values are better.

    Attributes:
        members: Its trials by name, in the order in which they joined.

    Example:
        >>> bracket = Bracket(0, BracketPlan(1, 3, (1, 3)), reduction_factor=3, mode="min")
        >>> for name, loss in [("a", 0.5), ("b", 0.3), ("c", 0.4)]:
        ...     bracket.join(name)
        ...     bracket.record(name, time=1, value=loss)
        >>> [(member.trial_id, str(member.standing)) for member in bracket.judge(is_closed=False)]
        [('b', 'in'), ('c', 'stopped'), ('a', 'stopped')]
    """

    def __init__(self, number: int, plan: BracketPlan, reduction_factor: Number, mode: str) -> None:
        self.number = number
        self.plan = plan
        self.members: dict[str, Member] = {}
        self._climbing: dict[str, Member] = {}
        self._reduction_factor = reduction_factor
        self._mode = mode

    @property
    def is_full(self) -> bool:
        """Whether as many trials have joined as it is planned for."""
        return len(self.members) >= self.plan.num_trials

    @property
    def is_over(self) -> bool:
        """Whether nobody is to be compared in it any more."""
        return self.is_full and not self._climbing

    @property
    def num_rungs(self) -> int:
        """How many of its levels trials are compared at: all but the last."""
        return self.plan.s

    def join(self, trial_id: str) -> None:
        """Take in a trial."""
        self.members[trial_id] = Member(trial_id)
        self.stand(trial_id, Standing.IN)

    def stand(self, trial_id: str, standing: Standing) -> None:
        """Let a trial leave the bracket, or come back to where it was."""
        member = self.members[trial_id]
        member.standing = standing
        if standing is Standing.IN and member.rung < self.num_rungs:
            self._climbing[trial_id] = member
        else:
            self._climbing.pop(trial_id, None)

    def record(self, trial_id: str, time: float, value: float) -> None:
        """Record a value at every level up to `time` at which the trial has none yet."""
        values = self.members[trial_id].values
        while len(values) < self.num_rungs and self.plan.levels[len(values)] <= time:
            values.append(value)

    def is_waiting(self, trial_id: str) -> bool:
        """Return whether the trial has reached its next rung and was not judged there yet."""
        member = self.members[trial_id]
        return member.standing is Standing.IN and member.rung < len(member.values)

    def level_of(self, trial_id: str) -> Number:
        """Return the level that the trial is to be trained up to, or waits at."""
        return self.plan.levels[self.members[trial_id].rung]

    @property
    def climbing(self) -> Sequence[Member]:
        """Those that are in the bracket and have a rung ahead."""
        return tuple(self._climbing.values())

    def num_waiting(self, rung: int) -> int:
        """Return how many trials wait at a rung."""
        return sum(member.rung == rung and len(member.values) > rung for member in self.climbing)

    def judge(self, *, is_closed: bool) -> list[Member]:
        """Judge those who wait at rungs that are complete.

        Args:
            is_closed: Whether no further trial joins, although the bracket may not be full.

        Returns:
            Those that were judged, each once, with its last verdict; the best first.
        """
        judged: dict[str, Member] = {}
        while (self.is_full or is_closed) and (waiting := self._complete()):
            judged |= {member.trial_id: member for member in self._judge(waiting)}
        return list(judged.values())

    def _complete(self) -> list[Member]:
        """Return those that wait at the lowest rung anybody stands at, if that is all who stand there; only that one can be complete."""
        lowest = min((member.rung for member in self.climbing), default=0)
        there = [member for member in self.climbing if member.rung == lowest]
        return there if all(len(member.values) > lowest for member in there) else []

    def _judge(self, waiting: Sequence[Member]) -> list[Member]:
        rung = waiting[0].rung
        names = {member.trial_id for member in waiting}
        compared = [
            member
            for member in self.members.values()
            if member.trial_id in names
            or (member.standing is not Standing.FAILED and member.was_judged_at(rung))
        ]
        compared.sort(key=lambda member: self._worth(member.values[rung]))
        places = num_places(len(compared), self._reduction_factor)
        cutoff = compared[places - 1].values[rung]
        ranked = [
            (rank, member)
            for rank, member in enumerate(compared, start=1)
            if member.trial_id in names
        ]
        # Where all that went on earlier have failed, somebody has to take their place.
        is_deserted = not any(member.rung > rung for member in compared)
        is_undefined = rung == 0 and math.isnan(compared[0].values[rung])
        for place, (rank, member) in enumerate(ranked):
            numbers = {
                "rank": rank,
                "num_compared": len(compared),
                "num_kept": places,
                "cutoff": strict(cutoff),
            }
            is_eligible = is_undefined or not math.isnan(member.values[rung])
            self._pass_verdict(
                member,
                numbers,
                goes_on=is_eligible and (rank <= places or (is_deserted and place == 0)),
            )
        return [member for _, member in ranked]

    def _pass_verdict(
        self, member: Member, numbers: Mapping[str, Number | str], *, goes_on: bool
    ) -> None:
        where = {"bracket": self.number, "s": self.plan.s, "level": self.plan.levels[member.rung]}
        member.verdict = Reason(
            "hyperband.rung", {**where, "value": strict(member.values[member.rung]), **numbers}
        )
        member.rung += goes_on
        self.stand(member.trial_id, Standing.IN if goes_on else Standing.STOPPED)

    def _worth(self, value: float) -> tuple[bool, float]:
        """Return what orders values, the best first."""
        return (
            (True, 0.0) if math.isnan(value) else (False, value if self._mode == "min" else -value)
        )

    def __str__(self) -> str:
        """Return the bracket in a few words, e.g. ``bracket 0 (s=4): 81 of 81 joined, 27 to be compared, 3 wait at 9``."""
        lowest = min((member.rung for member in self.climbing), default=None)
        waiting = (
            f", {self.num_waiting(lowest)} wait at {self.plan.levels[lowest]:g}"
            if lowest is not None
            else ""
        )
        joined = f"{len(self.members)} of {self.plan.num_trials} joined"
        return f"bracket {self.number} (s={self.plan.s}): {joined}, {len(self._climbing)} to be compared{waiting}"

    def state_dict(self) -> list[dict[str, Any]]:
        """Return its trials, as JSON values."""
        return [
            {
                "trial_id": member.trial_id,
                "values": [strict(value) for value in member.values],
                "rung": member.rung,
                "standing": str(member.standing),
                "verdict": member.verdict
                and {"rule": member.verdict.rule, "numbers": dict(member.verdict.numbers)},
            }
            for member in self.members.values()
        ]

    def load_state_dict(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Take back what `state_dict` returned from a bracket with the same plan."""
        self.members = {saved["trial_id"]: _member(saved) for saved in state}
        for member in self.members.values():
            self.stand(member.trial_id, member.standing)


def _member(saved: Mapping[str, Any]) -> Member:
    verdict = saved["verdict"] and Reason(
        saved["verdict"]["rule"], dict(saved["verdict"]["numbers"])
    )
    values = [float(value) for value in saved["values"]]
    return Member(saved["trial_id"], values, saved["rung"], Standing(saved["standing"]), verdict)
