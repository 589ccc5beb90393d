"""Members of a population, and how they are compared at equal resource.

The results of a member are kept as a curve of scores over time, where time is the scheduler's
``time_attr``. A curve belongs to the weights: a member that takes over a donor's weights takes over
its curve as well, up to the checkpoint from which it continues.

Five choices that change results are made here:

* **All members are compared at one step**, the latest that all of them have reached; a curve
  without a point there is interpolated linearly between its two neighbours, and before its first
  point has the value of that point. So it does not matter which member has reported last.
* **A member that lags far behind does not hold up the others**: a member is compared with those at
  most two intervals behind it, and with all that are ahead. The one behind is compared in its own
  turn, at its own step.
* **Inherited scores do not count.** A clone whose own results lie after the step would only repeat
  its donor's score there, and is left out.
* **Diverged members are worst.** A member whose latest score is not a number ranks last, even if
  earlier scores were good, and never donates.
* **Members that miss a constraint rank before those, behind all others**, by what they have
  reported last; see `schedulers.feasible_first`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, final

MAX_POINTS = 128
"""Largest number of points of a curve; then every other point of its older half is dropped."""
_MAX_LAG = 2
"""How many intervals a member may be behind another one and still be compared with it."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One result of a member.

    Attributes:
        time: How long it had trained, in units of ``time_attr``.
        score: The metric, NaN where it was not a finite number.
        iteration: Its ``training_iteration``; None where the result had none.
    """

    time: float
    score: float
    iteration: int | None = None


@final
class ScoreCurve:
    """Scores over time, never changed but at its end.

    Args:
        points: In ascending order of time.

    Example:
        >>> curve = ScoreCurve([CurvePoint(2, 0.5), CurvePoint(4, 0.75)])
        >>> curve.at(3), curve.at(100), curve.at(0)
        (0.625, 0.75, 0.5)
    """

    __slots__ = ("points",)

    def __init__(self, points: Iterable[CurvePoint] = ()) -> None:
        self.points = list(points)

    @property
    def time(self) -> float:
        """Time of the last point, 0 without one."""
        return self.points[-1].time if self.points else 0.0

    @property
    def score(self) -> float:
        """The last score, NaN without one."""
        return self.points[-1].score if self.points else math.nan

    def add(self, point: CurvePoint) -> bool:
        """Append a point; return False, and leave it out, if it is not later than the last one."""
        if self.points and point.time <= self.time:
            return False
        self.points.append(point)
        # The older half is thinned out to bound memory: comparisons look at recent times.
        if len(self.points) > MAX_POINTS:
            half = MAX_POINTS // 2
            self.points[:half] = self.points[:half:2]
        return True

    def at(self, step: float) -> float:
        """Return the score at a step, interpolated linearly; beyond the ends, the nearest point's.

        Beside a score that is not a number there is no line, and the earlier point counts.
        """
        after = bisect_right(self.points, step, key=_time_of)
        if after in (0, len(self.points)):
            return self.points[min(after, len(self.points) - 1)].score if self.points else math.nan
        left, right = self.points[after - 1], self.points[after]
        if left.time == step or not math.isfinite(right.score):
            return left.score
        # Each member reports at its own times, so that few have a point at the common step.
        return left.score + (right.score - left.score) * (step - left.time) / (
            right.time - left.time
        )

    def until(self, iteration: int | None) -> ScoreCurve:
        """Return the part of the curve up to a training iteration, all of it for None."""
        if iteration is None:
            return ScoreCurve(self.points)
        return ScoreCurve(
            point
            for point in self.points
            if point.iteration is None or point.iteration <= iteration
        )

    def state_dict(self) -> list[list[Any]]:
        """Return the points as JSON values, None for NaN."""
        return [
            [point.time, point.score if math.isfinite(point.score) else None, point.iteration]
            for point in self.points
        ]

    @staticmethod
    def from_state(state: Iterable[Sequence[Any]]) -> ScoreCurve:
        """Return the curve whose `state_dict` this is."""
        return ScoreCurve(
            CurvePoint(time, math.nan if score is None else score, iteration)
            for time, score, iteration in state
        )


def _time_of(point: CurvePoint) -> float:
    return point.time


@final
@dataclass(slots=True, eq=False)
class Member:
    """One trial as a member of the population.

    Attributes:
        trial_id: The trial.
        number: How many joined before it.
        curve: What its weights have reached.
        turn_time: Time of its last turn, or of its cloning after that; its interval begins here.
        stride: Actual length of its last interval, which ends with a result.
        num_turns: How many turns it has had.
        cloned_at: Time of the checkpoint from which it was cloned; minus infinity if it never was.
        abandoned_at: Time up to which the weights that were replaced then had been trained.
        last_abandoned_checkpoint: Index of the last of its checkpoints with such weights; -1 for
            none.
        paused_at: Time at which it was to pause; None while it trains.
        is_waiting: Whether it is paused for the others of its generation.
        awaited_donor: The donor that has to save before the member can continue as a clone; None if
            there is none.
        former: Its state before it began to wait for such a donor.
    """

    trial_id: str
    number: int
    curve: ScoreCurve = field(default_factory=ScoreCurve)
    turn_time: float = 0.0
    stride: float = 0.0
    num_turns: int = 0
    cloned_at: float = -math.inf
    abandoned_at: float = -math.inf
    last_abandoned_checkpoint: int = -1
    paused_at: float | None = None
    is_waiting: bool = False
    awaited_donor: str | None = None
    former: tuple[ScoreCurve, float, float, int] | None = None

    @property
    def time(self) -> float:
        """How long its weights have been trained."""
        return self.curve.time

    @property
    def is_further(self) -> bool:
        """Whether it has been trained for longer than the weights that it had before cloning.

        Only then may it become a clone again: with rare checkpoints, members would otherwise take
        over each other's forever.
        """
        return self.time > self.abandoned_at

    @property
    def has_own_results(self) -> bool:
        """Whether it has results of its own, not only inherited ones."""
        return bool(self.curve.points) and self.time > self.cloned_at

    def record(self, point: CurvePoint) -> bool:
        """Record a result; return False if it repeats an earlier one."""
        if not self.curve.add(point):
            return False
        self.awaited_donor = self.former = None
        return True

    def begin_turn(self) -> None:
        """End an interval and begin the next."""
        # Longer than `perturbation_interval` for a member that reports rarely.
        self.stride = self.time - self.turn_time
        self.turn_time = self.time
        self.num_turns += 1

    def resume(self) -> None:
        """Train again after a pause."""
        self.paused_at, self.is_waiting = None, False

    def become_clone(
        self, donor: Member, iteration: int | None, own_checkpoint: int | None, *, is_awaited: bool
    ) -> None:
        """Become a clone of a donor.

        Args:
            donor: The member whose weights it takes over.
            iteration: ``training_iteration`` of the donor's checkpoint, None for one that has yet
                to be saved.
            own_checkpoint: Index of its own latest checkpoint, with the weights that are replaced;
                None without one.
            is_awaited: Whether the donor has yet to save.
        """
        if is_awaited:
            self.former, self.awaited_donor = (
                (self.curve, self.turn_time, self.cloned_at, self.last_abandoned_checkpoint),
                donor.trial_id,
            )
        # Before the curve is replaced, from which its time is read.
        self.abandoned_at = self.time
        self.curve = donor.curve.until(iteration)
        self.cloned_at = self.turn_time = self.time
        self.last_abandoned_checkpoint = -1 if own_checkpoint is None else own_checkpoint

    def undo_clone(self) -> None:
        """Undo `become_clone`, since the donor has ended without a checkpoint."""
        if self.former is not None:
            self.curve, self.turn_time, self.cloned_at, self.last_abandoned_checkpoint = self.former
        self.awaited_donor = self.former = None

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, as JSON values."""
        former = None if self.former is None else _former_state(*self.former)
        # The keys are older than the attributes' names: snapshots on disk have them.
        return {
            "trial_id": self.trial_id,
            "curve": self.curve.state_dict(),
            "turn_time": self.turn_time,
            "stride": self.stride,
            "num_turns": self.num_turns,
            "born": _finite_or_none(self.cloned_at),
            "given_up": _finite_or_none(self.abandoned_at),
            "distrusted": self.last_abandoned_checkpoint,
            "paused_at": self.paused_at,
            "is_waiting": self.is_waiting,
            "awaited_donor": self.awaited_donor,
            "former": former,
        }

    @staticmethod
    def from_state(number: int, state: Mapping[str, Any]) -> Member:
        """Return the member whose `state_dict` this is."""
        former = state["former"] and (
            ScoreCurve.from_state(state["former"][0]),
            state["former"][1],
            _minus_infinity_if_none(state["former"][2]),
            state["former"][3],
        )
        return Member(
            trial_id=state["trial_id"],
            number=number,
            curve=ScoreCurve.from_state(state["curve"]),
            turn_time=state["turn_time"],
            stride=state["stride"],
            num_turns=state["num_turns"],
            cloned_at=_minus_infinity_if_none(state["born"]),
            abandoned_at=_minus_infinity_if_none(state["given_up"]),
            last_abandoned_checkpoint=state["distrusted"],
            paused_at=state["paused_at"],
            is_waiting=state["is_waiting"],
            awaited_donor=state["awaited_donor"],
            former=former,
        )


def _former_state(
    curve: ScoreCurve, turn_time: float, cloned_at: float, last_abandoned_checkpoint: int
) -> list[Any]:
    return [curve.state_dict(), turn_time, _finite_or_none(cloned_at), last_abandoned_checkpoint]


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _minus_infinity_if_none(value: float | None) -> float:
    return -math.inf if value is None else value


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """Ranking of members at one step.

    Attributes:
        step: Where they are compared.
        members: Best first.
        scores: What each has at that step, in the same order; NaN for what has diverged.
        violations: By how much each misses the constraints, in the same order.
    """

    step: float
    members: tuple[Member, ...]
    scores: tuple[float, ...]
    violations: tuple[float, ...]

    def rank(self, member: Member) -> int:
        """Return the member's place, 1 for the best."""
        return self.members.index(member) + 1

    def score(self, member: Member) -> float:
        """Return the member's score at the step."""
        return self.scores[self.members.index(member)]

    def violation(self, member: Member) -> float:
        """Return by how much the member misses the constraints."""
        return self.violations[self.members.index(member)]

    def quantile_size(self, fraction: float) -> int:
        """Return the size of the best and worst `fraction`, rounded up, at most half of all."""
        num = len(self.members)
        # Rounded up, but 0.1 * 30 is a little more than 3 in binary.
        return min(math.ceil(fraction * num - 1e-9), num // 2)


def compare(
    member: Member,
    others: Iterable[Member],
    mode: str,
    key: str,
    violation_of: Callable[[str], float] = lambda _: 0.0,
) -> Comparison | None:
    """Compare a member with others at the latest step that all have reached.

    Args:
        member: Whose turn it is; it has a result.
        others: Those it may be compared with, in any order.
        mode: ``"min"`` or ``"max"``: whether smaller or larger scores are better.
        key: Seed of the random order of equal scores.
        violation_of: Returns by how much a trial misses the constraints.

    Returns:
        How they stand; None if the member itself is left out.

    Example:
        >>> early = Member("a", 0, ScoreCurve([CurvePoint(1, 0.3)]))
        >>> late = Member("b", 1, ScoreCurve([CurvePoint(1, 0.2), CurvePoint(2, 0.4)]), stride=1)
        >>> comparison = compare(late, [early], "max", key="0")
        >>> comparison.step, comparison.scores, comparison.rank(late)
        (1, (0.3, 0.2), 2)
    """
    # One that lags far behind would move the step for all others back to its own time.
    earliest = member.time - _MAX_LAG * member.stride
    taking_part = [
        other for other in (member, *others) if other.has_own_results and other.time >= earliest
    ]
    # The last to report would look best if everyone's latest score counted.
    step = min((other.time for other in taking_part), default=-math.inf)
    # At the step itself, or before, a clone has only its donor's scores.
    compared = [other for other in taking_part if other.cloned_at < step]
    if member not in compared:
        return None
    sign = 1.0 if mode == "min" else -1.0
    standing = []
    for other in compared:
        score = other.curve.at(step) if math.isfinite(other.curve.score) else math.nan
        violation = violation_of(other.trial_id)
        # Drawn by name, not in order: a tie must not favour the oldest, nor change at a restore.
        tie = Random(f"{key}/{other.trial_id}").random()  # noqa: S311  (not a secret)
        place = (True, 0.0, 0.0, tie)
        if not math.isnan(score):
            place = (False, violation, sign * score, tie)
        standing.append((place, other, score, violation))
    standing.sort(key=lambda entry: entry[0])
    return Comparison(
        step,
        tuple(other for _, other, *_ in standing),
        tuple(score for *_, score, _ in standing),
        tuple(violation for *_, violation in standing),
    )
