"""Synchronous HyperBand: brackets of trials that are halved together.

Five choices that change results are made here:

* **Levels and sizes are built by multiplication**, never by a logarithm:
  ``int(log(1000) / log(10))`` is 2, which would lose a bracket.
* **The number of survivors is rounded down**: of `n` trials the best
  ``floor(n / reduction_factor)`` continue, but at least one.
* **Equal values rank in the order in which the trials joined**, so that no more trials continue
  than allowed.
* **A trial that misses a constraint ranks behind all that do not**, see
  `schedulers.feasible_first`.
* **A value that is not a number is worse than every number**, and does not continue. Only if no
  trial of the bracket has a number at its lowest level, where results may not be defined yet, some
  continue without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, final, overload

from schedulers.arguments import check_names, check_ranges, plain_number
from schedulers.decisions import Decision, Number, Pause, Reason, Resume, Stop
from schedulers.metric import (
    MetricReader,
    MetricScheduler,
    require_mode,
    strict,
    violation_number,
)
from schedulers.scheduler import TrialView

_FULL = "hyperband.max_t"
"""The rule that ends a fully trained trial, which is complete."""
_OVER = ("TERMINATED", "ERROR")


@final
class HyperBandScheduler(MetricScheduler):
    """HyperBand: pauses a bracket's trials at each level and continues the best of them.

    When all trials of the bracket have reached a level, the best ``1 / reduction_factor`` continue.

    A bracket hedges one way of spending the same budget. The first starts many trials and halves
    them often, beginning after a short training; each of the next starts fewer, and first compares
    them later; the last trains a few to the end and compares none. Trials join the brackets in
    the order in which they are added. When all brackets of a *band* are full, the next band begins.

    **Survivors.** Of the `n` trials that were compared on a rung, the best ``floor(n /
    reduction_factor)``, but at least one, continue; the others are stopped. Ties are broken by the
    order in which trials joined. A trial that fails or ends leaves its bracket, and no other waits
    for it: those that are left are compared. If the result that completes a rung comes from a
    survivor, that trial is not paused at all.

    **When a bracket is not full.** The bracket waits for further trials as long as any may come
    (``experiment.no_more_trials``). Where a searcher waits for results before it suggests more, as
    one with a limit of concurrent trials does, those that are there are compared among themselves;
    trials that join later are compared with all that were on that rung before.

    **When trials report rarely.** A result counts at every level up to its ``time_attr`` at which
    the trial has no value yet. So a trial that jumps over a level counts there with its later
    value, and does not stop for the next level if that is reached, too.

    **When something is missing.** A result without ``time_attr``, or before `max_t` without the
    metric, counts nowhere, and the trial trains on until it reports one; `debug_string` shows which
    was missing. A metric that is there but None, NaN or infinite is worst, and does not continue,
    except from the lowest level of a bracket in which no trial has a number there.

    **Repeated results**, after a crash or a restore, do not count again; the earlier decision
    is returned again.

    Trials must save checkpoints, or be able to when they are asked to.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow. `max_t`
            is in its units.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        max_t: A full training, the paper's ``R``, at least 1; trials that get there are complete.
            The lowest level of all is between 1 and `reduction_factor`, so choose `time_attr` such
            that 1 is a sensible training to judge by.
        reduction_factor: One trial in this many continues from a level, and levels are this factor
            apart, the paper's ``eta``; more than 1.
        stop_last_trials: Whether to stop trials at `max_t`; False lets those that got there train
            on.

    Attributes:
        band: The brackets of one band, in order, with their sizes and levels.

    Raises:
        TypeError: If a number is not a number.
        ValueError: If an argument is out of range.

    Example:
        >>> scheduler = HyperBandScheduler(metric="loss", mode="min", max_t=81, reduction_factor=3)
        >>> [plan.num_trials for plan in scheduler.band]
        [81, 34, 15, 8, 5]
        >>> scheduler.band[1].halvings(3)
        ((34, 3), (11, 9), (3, 27), (1, 81))

    Reference:
        Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar. Hyperband: A Novel Bandit-Based Approach to
        Hyperparameter Optimization. JMLR 2018, arXiv 1603.06560, Algorithm 1. Brackets may run at
        the same time, as section 3.2 there allows.

    Departures:
        From the paper: at least one trial continues from a rung, which matters only where a bracket
        is short of trials. Sizes are those of Algorithm 1; the paper's Table 1 rounds ``(s_max + 1)
        / (s + 1)`` down first, and has 27, 9 and 6 for 34, 15 and 8. From Ray Tune: the bracket
        with the most halvings comes first, as in the paper and as in Ray Tune's
        ``HyperBandForBOHB``; the number that continues is rounded down, not up; levels are not
        rounded, and none is lost to rounding; a trial that completes a rung and continues is not
        paused; a missing metric does not raise, NaN does not survive as long as a number is there;
        no trial waits for one that has failed; all of that survives a restore.
    """

    def __init__(  # noqa: PLR0917  (positions are given, too)
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: Number = 81,
        reduction_factor: Number = 3,
        stop_last_trials: bool = True,
    ) -> None:
        max_t = plain_number("max_t", max_t)
        reduction_factor = plain_number("reduction_factor", reduction_factor)
        check_ranges(max_t, 1, reduction_factor)
        check_names(time_attr, metric, mode)
        self.band = Band(max_t, reduction_factor)
        self.metric = metric
        self.mode = mode
        self._time_attr = time_attr
        self._max_t = max_t
        self._reduction_factor = reduction_factor
        self._stop_last_trials = stop_last_trials
        self._brackets: list[Bracket] = []
        self._bracket_by_trial: dict[str, Bracket] = {}
        self._metrics = MetricReader()

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Add the trial to the last bracket, or to a new one."""
        self._bracket_of(trial.trial_id)
        return ()

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Pause the trial at a rung, stop it at `max_t`, and judge each rung it completes."""
        trial_id = trial.trial_id
        bracket = self._bracket_of(trial_id)
        member = bracket.members[trial_id]
        if member.status is MemberStatus.STOPPED:
            return self._stop(member)
        time = self._metrics.amount(result, self._time_attr)
        if time is None:
            return ()
        violation = self._feasible.note(trial_id, result)
        if time >= self._max_t:
            return self._complete(bracket, member, time, result)
        # One that had failed may have been brought back by a restore.
        bracket.set_status(trial_id, MemberStatus.IN)
        was_waiting = bracket.is_waiting(trial_id)
        value = self._metrics.finite(result, str(self.metric))
        if value is not None:
            bracket.record(trial_id, time, value, violation)
        # Judged before it is paused: if it completes the rung and survives, it need not wait.
        decisions = (
            self._judge(bracket, reporter=trial_id)
            if bracket.is_waiting(trial_id) and not was_waiting
            else []
        )
        # A trial that restarts from the beginning runs until it is back at the level where it
        # waits: a pause would resume it from the earlier checkpoint.
        if bracket.is_waiting(trial_id) and time >= bracket.level_of(trial_id):
            decisions.append(Pause(trial_id, self._why_wait(bracket, member)))
        self._note_comparison(decisions)
        return decisions

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Remove the trial from its bracket, and decide about trials that waited for it."""
        return self._handle_end(trial.trial_id, MemberStatus.ENDED)

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Remove the trial from its bracket, and decide about trials that waited for it."""
        return self._handle_end(trial.trial_id, MemberStatus.FAILED)

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Judge brackets that will not be filled, and resume trials that need not wait."""
        decisions: list[Decision] = []
        for bracket in self._brackets:
            self._remove_ended(bracket)
            decisions += self._judge(bracket)
        decided = {decision.trial_id for decision in decisions}
        for trial in trials:
            if trial.status not in _OVER and trial.trial_id not in decided:
                decisions += self._repeat_decision(trial.trial_id)
        return decisions

    def _repeat_decision(self, trial_id: str) -> Sequence[Decision]:
        """Repeat the decision about a paused trial, which was lost or came during the pause."""
        bracket = self._bracket_by_trial.get(trial_id)
        if bracket is None:
            return (Resume(trial_id, Reason("hyperband.resume")),)
        member = bracket.members[trial_id]
        if member.status is MemberStatus.STOPPED:
            return self._stop(member)
        return () if bracket.is_waiting(trial_id) else (self._resume(member),)

    def _bracket_of(self, trial_id: str) -> Bracket:
        if trial_id not in self._bracket_by_trial:
            # Trials that have left a bracket are not replaced: its size counts all that joined.
            if not self._brackets or self._brackets[-1].is_full:
                self._open_bracket()
            self._brackets[-1].join(trial_id)
            self._bracket_by_trial[trial_id] = self._brackets[-1]
        return self._bracket_by_trial[trial_id]

    def _open_bracket(self) -> Bracket:
        number = len(self._brackets)
        plan = self.band[number % len(self.band)]
        self._brackets.append(Bracket(number, plan, self._reduction_factor, require_mode(self)))
        return self._brackets[-1]

    def _complete(
        self, bracket: Bracket, member: BracketMember, time: float, result: Mapping[str, Any]
    ) -> Sequence[Decision]:
        # It leaves the bracket, which may be what the others have waited for.
        bracket.set_status(member.trial_id, MemberStatus.ENDED)
        decisions = self._judge(bracket)
        if not self._stop_last_trials:
            return decisions
        value = self._metrics.finite(result, str(self.metric))
        numbers = {
            "bracket": bracket.number,
            "s": bracket.plan.s,
            **({} if value is None else {"value": strict(value)}),
            "time": strict(time),
            "max_t": self._max_t,
        }
        return [Stop(member.trial_id, Reason(_FULL, numbers), is_complete=True), *decisions]

    def _handle_end(self, trial_id: str, status: MemberStatus) -> Sequence[Decision]:
        bracket = self._bracket_by_trial.get(trial_id)
        if bracket is None:
            return ()
        if bracket.members[trial_id].status is MemberStatus.IN:
            bracket.set_status(trial_id, status)
        return self._judge(bracket)

    def _judge(self, bracket: Bracket, reporter: str | None = None) -> list[Decision]:
        decisions: list[Decision] = []
        for member in bracket.judge(is_closed=self.experiment.no_more_trials):
            if member.status is MemberStatus.STOPPED:
                decisions += self._stop(member)
            # The trial that reports is running; it continues without a decision.
            elif member.trial_id != reporter and not bracket.is_waiting(member.trial_id):
                decisions.append(self._resume(member))
        return decisions

    def _remove_ended(self, bracket: Bracket) -> None:
        """Remove trials that are over, even if their end was not reported."""
        for member in bracket.climbing:
            trial = self.experiment.trials.get(member.trial_id)
            if trial is not None and trial.status in _OVER:
                bracket.set_status(member.trial_id, MemberStatus.FAILED)

    @staticmethod
    def _stop(member: BracketMember) -> list[Decision]:
        return [Stop(member.trial_id, member.reason or Reason("hyperband.rung"))]

    @staticmethod
    def _resume(member: BracketMember) -> Decision:
        return Resume(member.trial_id, member.reason or Reason("hyperband.resume"))

    @staticmethod
    def _why_wait(bracket: Bracket, member: BracketMember) -> Reason:
        numbers = {
            "bracket": bracket.number,
            "s": bracket.plan.s,
            "level": bracket.level_of(member.trial_id),
            "value": strict(member.values[member.rung]),
            **violation_number(member.violations[member.rung]),
            "num_waiting": bracket.num_waiting(member.rung),
            "num_joined": len(bracket.members),
            "num_planned": bracket.plan.num_trials,
        }
        return Reason("hyperband.wait", numbers)

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values and decisions, as JSON values."""
        return {
            **self._base_state(),
            "brackets": [bracket.state_dict() for bracket in self._brackets],
            "without_number": sorted(self._metrics.missing),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other levels, or another metric or mode:
                recorded values would not compare.
        """
        self._load_base_state(state)
        self._brackets = []
        for saved in state["brackets"]:
            self._open_bracket().load_state_dict(saved)
        self._bracket_by_trial = {
            trial_id: bracket for bracket in self._brackets for trial_id in bracket.members
        }
        self._metrics = MetricReader(state["without_number"])

    def _settings(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "mode": self.mode,
            "time_attr": self._time_attr,
            "max_t": self._max_t,
            "reduction_factor": self._reduction_factor,
        }

    def debug_string(self) -> str:
        """Return the number of stopped trials, the progress of brackets, and missing entries."""
        num_stopped = sum(
            member.status is MemberStatus.STOPPED
            for bracket in self._brackets
            for member in bracket.members.values()
        )
        parts = [f"{type(self).__name__}: {num_stopped} stopped"]
        parts += [str(bracket) for bracket in self._brackets if not bracket.is_over]
        parts += [str(self._metrics)] if self._metrics.missing else []
        return "; ".join(parts)


HyperBandForBOHB = HyperBandScheduler
"""Ray Tune's name for HyperBand that fills brackets with most halvings first, as here."""


@dataclass(frozen=True, slots=True)
class BracketPlan:
    """Size and levels of a bracket.

    Attributes:
        s: Number of its halvings, as in the paper.
        num_trials: How many trials it starts, the paper's ``n``.
        levels: Where they are compared, ascending, the paper's ``r_0`` to ``r_s``; the last one is
            a full training.
    """

    s: int
    num_trials: int
    levels: tuple[Number, ...]

    def halvings(self, reduction_factor: Number) -> tuple[tuple[int, Number], ...]:
        """Return how many trials are trained up to each level, as pairs ``(n_i, r_i)``.

        Args:
            reduction_factor: One trial in this many continues.

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

    Here ``s_max`` is the largest number with ``reduction_factor**s_max <= max_t``. Levels are whole
    where they come out whole.

    Args:
        max_t: A full training, the paper's ``R``, at least 1.
        reduction_factor: Ratio of one level to the next and of trials to those that continue, the
            paper's ``eta``, more than 1.

    Example:
        >>> [(plan.s, plan.num_trials, plan.levels) for plan in Band(9, 3)]
        [(2, 9, (1, 3, 9)), (1, 5, (3, 9)), (0, 3, (9,))]

    Reference:
        arXiv 1603.06560, Algorithm 1, lines 1 to 6.
    """

    def __init__(self, max_t: Number, reduction_factor: Number) -> None:
        # Brackets are made when they are asked for: with a factor near 1 there are tens of
        # thousands, with as many levels each.
        self._powers = _powers(reduction_factor, max_t)
        # Algorithm 1, lines 4 and 6: r_i = R * eta**(i - s), the same for all brackets.
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
        # Algorithm 1, line 3: n = ceil((s_max + 1) / (s + 1) * eta**s), in fractions, since a
        # rounding error above a whole number would add a trial.
        num_trials = math.ceil(Fraction(len(self), s + 1) * Fraction(self._powers[s]))
        return BracketPlan(s, num_trials, self._levels[len(self) - 1 - s :])


def num_places(num_trials: int, reduction_factor: Number) -> int:
    """Return how many of some trials continue.

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


class MemberStatus(StrEnum):
    """Status of a trial in its bracket."""

    IN = "in"
    STOPPED = "stopped"
    """It was not good enough at some rung."""
    ENDED = "ended"
    """It has ended otherwise: by itself, at the highest level, or stopped by the user."""
    FAILED = "failed"


@dataclass(slots=True)
class BracketMember:
    """A trial of a bracket.

    Attributes:
        trial_id: Its name.
        values: Its value at each level that it has reached, from the lowest on; NaN for what is not
            a number.
        violations: By how much it missed the constraints at each of them.
        rung: At how many rungs it has been among the best.
        status: Its status in the bracket.
        reason: Why the last decision about it was made; None before the first.
    """

    trial_id: str
    values: list[float] = field(default_factory=list)
    violations: list[float] = field(default_factory=list)
    rung: int = 0
    status: MemberStatus = MemberStatus.IN
    reason: Reason | None = None

    def was_judged_at(self, rung: int) -> bool:
        """Return whether it has been compared there."""
        return self.rung > rung or (self.rung == rung and self.status is MemberStatus.STOPPED)


@final
class Bracket:
    """Trials that are halved together.

    A rung is complete when all trials of the bracket that are still in it have reached its level,
    none of them is at a lower rung, and no further trial joins. Then those that wait there are
    ranked, and the best continue. Should trials join afterwards, which happens where the search
    waits for results before it suggests more, they are ranked among all that were compared on the
    rung before, except those that have failed since.

    Args:
        number: Which bracket it is, from 0.
        plan: Its size and levels.
        reduction_factor: One trial in this many continues.
        mode: ``"min"`` or ``"max"``: whether smaller or larger values are better.

    Attributes:
        members: Its trials by name, in the order in which they joined.

    Example:
        >>> bracket = Bracket(0, BracketPlan(1, 3, (1, 3)), reduction_factor=3, mode="min")
        >>> for name, loss in [("a", 0.5), ("b", 0.3), ("c", 0.4)]:
        ...     bracket.join(name)
        ...     bracket.record(name, time=1, value=loss)
        >>> [(member.trial_id, str(member.status)) for member in bracket.judge(is_closed=False)]
        [('b', 'in'), ('c', 'stopped'), ('a', 'stopped')]
    """

    def __init__(self, number: int, plan: BracketPlan, reduction_factor: Number, mode: str) -> None:
        self.number = number
        self.plan = plan
        self.members: dict[str, BracketMember] = {}
        # Those of `members` that are in the bracket and have a rung ahead.
        self._climbing: dict[str, BracketMember] = {}
        self._reduction_factor = reduction_factor
        self._mode = mode

    @property
    def is_full(self) -> bool:
        """Whether as many trials have joined as the plan has."""
        return len(self.members) >= self.plan.num_trials

    @property
    def is_over(self) -> bool:
        """Whether no trial is left to be compared in it."""
        return self.is_full and not self._climbing

    def join(self, trial_id: str) -> None:
        """Add a trial."""
        self.members[trial_id] = BracketMember(trial_id)
        self.set_status(trial_id, MemberStatus.IN)

    def set_status(self, trial_id: str, status: MemberStatus) -> None:
        """Set a trial's status: it leaves the bracket, or returns to its rung."""
        member = self.members[trial_id]
        member.status = status
        if status is MemberStatus.IN and member.rung < self.plan.s:
            self._climbing[trial_id] = member
        else:
            self._climbing.pop(trial_id, None)

    def record(self, trial_id: str, time: float, value: float, violation: float = 0.0) -> None:
        """Record a value at every level up to `time` at which the trial has none yet."""
        member = self.members[trial_id]
        # At all levels but the last, a full training, where no trial is compared.
        while len(member.values) < self.plan.s and self.plan.levels[len(member.values)] <= time:
            member.values.append(value)
            member.violations.append(violation)

    def is_waiting(self, trial_id: str) -> bool:
        """Return whether the trial has reached its next rung and was not judged there yet."""
        member = self.members[trial_id]
        return member.status is MemberStatus.IN and member.rung < len(member.values)

    def level_of(self, trial_id: str) -> Number:
        """Return the level up to which the trial trains, or at which it waits."""
        return self.plan.levels[self.members[trial_id].rung]

    @property
    def climbing(self) -> Sequence[BracketMember]:
        """The trials that are in the bracket and have a rung ahead."""
        return tuple(self._climbing.values())

    def num_waiting(self, rung: int) -> int:
        """Return how many trials wait at a rung."""
        return sum(member.rung == rung and len(member.values) > rung for member in self.climbing)

    def judge(self, *, is_closed: bool) -> list[BracketMember]:
        """Judge the trials that wait at complete rungs.

        Args:
            is_closed: Whether no further trial joins, although the bracket may not be full.

        Returns:
            Those that were judged, each once, with its last reason; the best first.
        """
        # Repeated, since survivors with values of higher levels, which they have reported at once,
        # may complete the next rung.
        judged: dict[str, BracketMember] = {}
        while (self.is_full or is_closed) and (waiting := self._complete()):
            judged |= {member.trial_id: member for member in self._judge(waiting)}
        return list(judged.values())

    def _complete(self) -> list[BracketMember]:
        """Return the trials at the lowest rung if all of them wait; no other can be complete."""
        lowest = min((member.rung for member in self.climbing), default=0)
        there = [member for member in self.climbing if member.rung == lowest]
        return there if all(len(member.values) > lowest for member in there) else []

    def _judge(self, waiting: Sequence[BracketMember]) -> list[BracketMember]:
        rung = waiting[0].rung
        names = {member.trial_id for member in waiting}
        compared = [
            member
            for member in self.members.values()
            if member.trial_id in names
            or (member.status is not MemberStatus.FAILED and member.was_judged_at(rung))
        ]
        # The sort is stable: equal values keep the order in which the trials joined.
        compared.sort(key=lambda member: self._sort_key(member, rung))
        places = num_places(len(compared), self._reduction_factor)
        worst = compared[places - 1]
        ranked = [
            (rank, member)
            for rank, member in enumerate(compared, start=1)
            if member.trial_id in names
        ]
        # If all trials that continued earlier have failed, another has to take their place.
        has_no_survivor = not any(member.rung > rung for member in compared)
        is_undefined = rung == 0 and math.isnan(compared[0].values[rung])
        for place, (rank, member) in enumerate(ranked):
            numbers = {
                "rank": rank,
                "num_compared": len(compared),
                "num_kept": places,
                "cutoff": strict(worst.values[rung]),
                **violation_number(worst.violations[rung], "cutoff_violation"),
            }
            is_eligible = is_undefined or not math.isnan(member.values[rung])
            self._decide(
                member,
                numbers,
                survives=is_eligible and (rank <= places or (has_no_survivor and place == 0)),
            )
        return [member for _, member in ranked]

    def _decide(
        self, member: BracketMember, numbers: Mapping[str, Number | str], *, survives: bool
    ) -> None:
        where = {"bracket": self.number, "s": self.plan.s, "level": self.plan.levels[member.rung]}
        own = {
            "value": strict(member.values[member.rung]),
            **violation_number(member.violations[member.rung]),
        }
        member.reason = Reason("hyperband.rung", {**where, **own, **numbers})
        member.rung += survives
        self.set_status(member.trial_id, MemberStatus.IN if survives else MemberStatus.STOPPED)

    def _sort_key(self, member: BracketMember, rung: int) -> tuple[bool, float, float]:
        """Return a key that sorts from best to worst: feasible, infeasible, NaN."""
        value = member.values[rung]
        if math.isnan(value):
            return True, 0.0, 0.0
        return False, member.violations[rung], value if self._mode == "min" else -value

    def __str__(self) -> str:
        """Return a summary, e.g. ``bracket 0 (s=4): 81 of 81 joined, 27 to be compared``."""
        lowest = min((member.rung for member in self.climbing), default=None)
        waiting = (
            f", {self.num_waiting(lowest)} wait at {self.plan.levels[lowest]:g}"
            if lowest is not None
            else ""
        )
        joined = f"{len(self.members)} of {self.plan.num_trials} joined"
        return (
            f"bracket {self.number} (s={self.plan.s}): {joined}, {len(self._climbing)} to be "
            f"compared{waiting}"
        )

    def state_dict(self) -> list[dict[str, Any]]:
        """Return its trials, as JSON values."""
        return [
            {
                "trial_id": member.trial_id,
                "values": [strict(value) for value in member.values],
                **_violations_state(member),
                "rung": member.rung,
                "standing": str(member.status),
                "verdict": member.reason and member.reason.state_dict(),
            }
            for member in self.members.values()
        ]

    def load_state_dict(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restore the state that `state_dict` returned from a bracket with the same plan."""
        self.members = {saved["trial_id"]: _member(saved) for saved in state}
        for member in self.members.values():
            self.set_status(member.trial_id, member.status)


def _violations_state(member: BracketMember) -> dict[str, Any]:
    if not any(member.violations):
        return {}
    return {"violations": [strict(violation) for violation in member.violations]}


def _member(saved: Mapping[str, Any]) -> BracketMember:
    values = [float(value) for value in saved["values"]]
    return BracketMember(
        trial_id=saved["trial_id"],
        values=values,
        violations=[float(each) for each in saved.get("violations", [0.0] * len(values))],
        rung=saved["rung"],
        status=MemberStatus(saved["standing"]),
        reason=saved["verdict"] and Reason.from_state(saved["verdict"]),
    )
