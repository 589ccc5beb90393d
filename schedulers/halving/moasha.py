"""MOASHA: asynchronous successive halving for several metrics at once.

Trials on a rung are sorted into Pareto fronts, and within a front by how well they spread over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from schedulers.arguments import check_entry
from schedulers.decisions import Decision, Number, Stop
from schedulers.metric import strict
from schedulers.scheduler import MODES, ExperimentView, TrialView
from searchers.objectives import Point, dominates

from .halving_scheduler import HalvingScheduler, RungPlan, RungReport, RungRule
from .rungs import RungSystem


@final
class MOASHAScheduler(HalvingScheduler):
    """Stops trials that are not among the best at a level in several metrics at once.

    At each level, the best ``ceil(n / reduction_factor)`` of `n` trials survive.

    Trials at a level are sorted into fronts: the first are those that no other one dominates, i.e.
    equals or beats in every metric; the second those that only the first dominate, and so on.
    Better fronts survive first. A front that does not fit completely survives in the order of an
    epsilon net: first the trial that is best in the first metric, then repeatedly the one that is
    farthest from those before, so that the survivors spread over the trade-offs. Each trial is
    judged once at each level, and never waits.

    A trial with a metric that is None, NaN or infinite ranks behind all others, even if its other
    metrics are good, and continues only if it is alone at its first level. A result without one of
    the metrics decides nothing before `max_t`; `debug_string` shows which was missing. Rare and
    repeated reports are handled as by ``ASHAScheduler(type="stopping")``.

    Args:
        metrics: What to compare, at least two flattened names; or these with the mode of each, e.g.
            ``{"accuracy": "max", "latency": "min"}``. They are the scheduler's own: the metric of
            ``TuneConfig`` is ignored.
        modes: ``"min"`` or ``"max"`` for each metric, or one of them for all; None where `metrics`
            has them.
        time_attr: Entry of a result that tells how long the trial has trained; must grow. `max_t`
            and `grace_period` are in its units.
        max_t: The highest level. No trial is compared there; it has simply trained enough.
        grace_period: The lowest level, between 1 and `max_t`; no trial is stopped before it.
        reduction_factor: One trial in this many survives a level, and levels are this factor apart;
            more than 1.
        brackets: How many brackets to spread the trials over; see `ASHAScheduler`.
        stop_last_trials: Whether to stop trials at `max_t`; False lets those that got there train
            on.

    Attributes:
        levels: Where trials are compared, in units of `time_attr`, ascending; the last one is
            `max_t`, where they end.

    Raises:
        TypeError: If a number is not a number, or `metrics` are no names.
        ValueError: If an argument is out of range, or metrics and modes do not fit.

    Example:
        >>> scheduler = MOASHAScheduler({"accuracy": "max", "latency": "min"}, max_t=27)
        >>> scheduler.levels
        (1, 3, 9, 27)

    Reference:
        Schmucker, Donini, Zafar, Salinas, Archambeau. Multi-Objective Asynchronous Successive
        Halving. 2021, arXiv 2106.12639; non-dominated rank with epsilon nets (EpsNet).

    Departures:
        From Syne Tune: metrics are scaled to their range in the front before distances are taken,
        so that their units do not matter; room is rounded up and a missing or diverged metric dealt
        with as by `ASHAScheduler`; fronts are kept from report to report.
    """

    prefix = "moasha"

    def __init__(  # noqa: PLR0917  (positions are as with its peers)
        self,
        metrics: Sequence[str] | Mapping[str, str],
        modes: str | Sequence[str] | None = None,
        time_attr: str = "training_iteration",
        max_t: Number = 100,
        grace_period: Number = 1,
        reduction_factor: Number = 3,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=None,
            mode=None,
            max_t=max_t,
            grace_period=grace_period,
            reduction_factor=reduction_factor,
            brackets=brackets,
        )
        self._objectives = _paired(metrics, modes)
        plan = RungPlan(
            self.prefix, self.levels, self._reduction_factor, self._num_brackets, stop_last_trials
        )
        self._fronts = _ParetoStopping(plan, self._objectives)

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective."""
        return tuple(self._objectives.items())

    @property
    def _rule(self) -> RungRule:
        return self._fronts

    def check_ready(self) -> None:
        """Accept any metric and mode: the scheduler compares its own metrics."""

    def _report(self, trial: TrialView, time: float, result: Mapping[str, Any]) -> RungReport:
        bracket = self._bracket_of(trial.trial_id)
        if time < self.levels[bracket]:
            return RungReport(trial.trial_id, bracket, time, None)
        values = [self._metrics.finite(result, metric) for metric in self._objectives]
        signs = [1.0 if mode == "min" else -1.0 for mode in self._objectives.values()]
        point = tuple(
            sign * value for sign, value in zip(signs, values, strict=True) if value is not None
        )
        return RungReport(
            trial.trial_id, bracket, time, None, values=point if len(point) == len(values) else None
        )

    def _settings(self) -> dict[str, Any]:
        # The experiment's metric and mode are not used, and may change.
        objectives = [[metric, mode] for metric, mode in self._objectives.items()]
        return {**super()._settings(), "metric": None, "mode": None, "objectives": objectives}


@final
class _ParetoStopping(RungRule):
    """Stops a trial at a rung unless it is among the best there in all metrics together."""

    def __init__(self, plan: RungPlan, objectives: Mapping[str, str]) -> None:
        super().__init__(plan)
        self._objectives = objectives
        self._brackets = tuple(
            ParetoRungs(plan.levels[start:], plan.reduction_factor)
            for start in range(plan.num_brackets)
        )

    def judge(self, report: RungReport, experiment: ExperimentView) -> Sequence[Decision]:
        """Stop the trial if too many trials of its level are better, or at the last level."""
        rungs = self._brackets[report.bracket]
        level = rungs.reached(report.time)
        standing = (
            None
            if level is None or report.values is None
            else rungs.record(report.trial_id, level, report.values)
        )
        numbers = self._numbers_of(report, standing)
        if report.time >= self._plan.levels[-1]:
            return self._complete(report, numbers)
        if standing is None or standing.survives:
            return ()
        return (Stop(report.trial_id, self._reason("rung", numbers)),)

    def _numbers_of(
        self, report: RungReport, standing: FrontStanding | None
    ) -> dict[str, Number | str]:
        of_report: dict[str, Number | str] = {
            "time": strict(report.time),
            "bracket": report.bracket,
        }
        if standing is None:
            return of_report
        signs = [1.0 if mode == "min" else -1.0 for mode in self._objectives.values()]
        values = standing.values or (math.nan,) * len(signs)
        return {
            "rung": standing.level,
            **{
                metric: strict(sign * value)
                for metric, sign, value in zip(self._objectives, signs, values, strict=True)
            },
            "front": standing.front,
            "num_better": standing.num_better,
            "position": standing.position,
            "num_recorded": standing.num_recorded,
            "num_kept": standing.num_kept,
            **of_report,
        }

    def summaries(self) -> Sequence[ParetoRungs]:
        """Return the rungs of each bracket."""
        return self._brackets

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values, as JSON values."""
        return {"brackets": [rungs.state_dict() for rungs in self._brackets]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for rungs, saved in zip(self._brackets, state["brackets"], strict=True):
            rungs.load_state_dict(saved)


def _paired(metrics: Any, modes: Any) -> dict[str, str]:
    """Return the mode of each metric, or refuse what does not make one."""
    if isinstance(metrics, Mapping):
        if modes is not None:
            raise ValueError(
                f"modes must be None where metrics has them, got {modes!r}; give them once"
            )
        names, chosen = list(metrics), list(metrics.values())
    elif isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise TypeError(
            f"metrics must be names, or names with modes, got {metrics!r}; e.g. {{'accuracy': "
            "'max', 'latency': 'min'}"
        )
    else:
        names = list(metrics)
        chosen = [modes] * len(names) if modes is None or isinstance(modes, str) else list(modes)
    _check_pairs(names, chosen, modes)
    return dict(zip(names, chosen, strict=True))


def _check_pairs(names: Sequence[Any], chosen: Sequence[Any], modes: Any) -> None:
    for name in names:
        check_entry("each of metrics", name, "e.g. 'accuracy'")
    if len(names) != len(set(names)) or len(names) < 2:  # noqa: PLR2004
        raise ValueError(
            f"metrics must be at least two different names, got {list(names)}; for one metric "
            "there is ASHAScheduler"
        )
    if len(chosen) != len(names) or any(mode not in MODES for mode in chosen):
        raise ValueError(
            f"modes must be 'min' or 'max' for each of {list(names)}, got "
            f"{modes if modes is not None else list(chosen)!r}"
        )


def epsilon_net(points: Sequence[Point]) -> Iterator[int]:
    """Yield the indices of the points, each next one farthest from all before it.

    It begins with the point that is best in the first metric. Each metric is scaled to its range
    first. Among equals the earlier comes first.

    Args:
        points: At least one.

    Example:
        >>> list(epsilon_net([(0, 9), (1, 8), (5, 5), (9, 0)]))
        [0, 3, 2, 1]

    Reference:
        Clarkson. Nearest-Neighbor Searching and Metric Space Dimensions. 2006, section 3; as the
        tie-breaking of MOASHA.
    """
    # A metric in which all points are equal has no range; it adds nothing to any distance.
    ranges = [
        (min(column), (max(column) - min(column)) or 1.0) for column in zip(*points, strict=True)
    ]
    scaled = [
        tuple((x - low) / width for x, (low, width) in zip(point, ranges, strict=True))
        for point in points
    ]
    chosen = min(range(len(points)), key=lambda number: points[number][0])
    # Of each point that is left, the distance to the nearest chosen one; updated, not computed
    # anew, so that the net takes O(n) distances for each point.
    distances = dict.fromkeys(range(len(points)), math.inf)
    while True:
        yield chosen
        del distances[chosen]
        if not distances:
            return
        for number, distance in distances.items():
            distances[number] = min(distance, math.dist(scaled[number], scaled[chosen]))
        chosen = max(distances, key=distances.__getitem__)


@dataclass(frozen=True, slots=True)
class FrontStanding:
    """How a trial stood on a rung at the moment it was recorded there.

    Attributes:
        level: The rung's level.
        values: What it has reached; empty where a metric was not a finite number.
        front: Number of its front; 1 for the trials that no other dominates. The last one for what
            was not a finite number.
        num_better: Number of trials in better fronts.
        num_recorded: How many trials the rung held, this one included.
        num_kept: How many of them survive.
        position: Place in its front's epsilon net, from 1; at most one more than there was room
            for, and 1 where room decided alone.
        is_first: Whether it is the first rung that the trial has come to.
    """

    level: Number
    values: Point
    front: int
    num_better: int
    num_recorded: int
    num_kept: int
    position: int
    is_first: bool = True

    @property
    def survives(self) -> bool:
        """Whether the trial is good enough to continue."""
        return self.num_better + self.position <= self.num_kept and (
            self.is_first or bool(self.values)
        )


class _Rung:
    """The points of one rung, sorted into fronts as they come."""

    __slots__ = ("fronts", "num_invalid", "num_skipped", "points")

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.fronts: list[list[int]] = []
        self.num_invalid = 0
        self.num_skipped = 0

    @property
    def num_recorded(self) -> int:
        return len(self.points) + self.num_invalid

    def add(self, point: Point) -> int:
        """Insert the point, move dominated points down, and return the index of its front."""
        self.points.append(point)
        place = number = self._front_for(point)
        moving = [len(self.points) - 1]
        # Points that are pushed down move to the next front; of its points, only those that an
        # arrival dominates have to move on.
        while moving:
            if number == len(self.fronts):
                self.fronts.append([])
            staying, pushed = self._split(self.fronts[number], moving)
            self.fronts[number] = sorted(staying + moving)
            moving, number = pushed, number + 1
        return place

    def _front_for(self, point: Point) -> int:
        # A point dominated by a front is dominated by all better fronts, too; so it belongs to the
        # first front that does not dominate it.
        low, high = 0, len(self.fronts)
        while low < high:
            middle = (low + high) // 2
            if any(dominates(self.points[number], point) for number in self.fronts[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def _split(self, front: Sequence[int], arrivals: Sequence[int]) -> tuple[list[int], list[int]]:
        staying: list[int] = []
        pushed: list[int] = []
        for number in front:
            is_dominated = any(
                dominates(self.points[arrival], self.points[number]) for arrival in arrivals
            )
            (pushed if is_dominated else staying).append(number)
        return staying, pushed

    def position(self, front: int, room: int) -> int:
        """Return the last point's position in its front's epsilon net; 1 if all or none fit."""
        members = self.fronts[front]
        # Where the whole front survives, or nothing of it, the order within it does not matter.
        if room <= 0 or room >= len(members):
            return 1
        own = members.index(len(self.points) - 1)
        net = epsilon_net([self.points[number] for number in members])
        return next(
            (
                place
                for place, number in zip(range(1, room + 1), net, strict=False)
                if number == own
            ),
            room + 1,
        )

    def state_dict(self) -> dict[str, Any]:
        points = [list(point) for point in self.points]
        return {"points": points, "num_invalid": self.num_invalid, "num_skipped": self.num_skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # Fronts do not depend on the order of arrival, so they are sorted anew.
        for point in state["points"]:
            self.add(tuple(point))
        self.num_invalid = int(state["num_invalid"])
        self.num_skipped = int(state["num_skipped"])


@dataclass(frozen=True, slots=True)
class FrontSummary:
    """A rung as people want to see it.

    Attributes:
        level: The rung's level.
        num_recorded: How many trials were compared on it.
        num_skipped: How many trials jumped over it by reporting too rarely.
        num_best: How many trials no other dominates.
    """

    level: Number
    num_recorded: int
    num_skipped: int
    num_best: int

    def __str__(self) -> str:
        """Return a summary, e.g. ``level 4: 7 recorded, 0 skipped, 2 not dominated``."""
        return (
            f"level {self.level:g}: {self.num_recorded} recorded, {self.num_skipped} skipped, "
            f"{self.num_best} not dominated"
        )


@final
class ParetoRungs(RungSystem[_Rung]):
    """Rungs on which trials are compared by several metrics.

    Fronts are kept as trials come, so that recording a trial costs O(n) comparisons with those
    there, and more only for those that change their front.

    Args:
        levels: Ascending amounts of training, at least one.
        reduction_factor: One trial in this many survives a rung.

    Example:
        >>> rungs = ParetoRungs((1, 3), reduction_factor=2)
        >>> rungs.record("a", level=1, values=(1.0, 2.0)).survives
        True
        >>> standing = rungs.record("b", level=1, values=(2.0, 3.0))
        >>> standing.front, standing.num_better, standing.num_kept, standing.survives
        (2, 1, 1, False)
    """

    def _empty_rung(self) -> _Rung:
        return _Rung()

    def record(self, trial_id: str, level: Number, values: Point) -> FrontStanding | None:
        """Record a trial at a level, and every level below that it has not been at as skipped.

        Args:
            trial_id: The trial.
            level: One of `levels`.
            values: What it has reached, less being better; one that is not a finite number makes
                the trial worse than all others.

        Returns:
            How it stands among all that were recorded there so far; None where it has been at this
            level or a higher one before, and nothing is recorded.

        Raises:
            ValueError: If there is no such level.
        """
        climbed = self._climb(trial_id, level)
        if climbed is None:
            return None
        before, index = climbed
        rung, is_first = self._rungs[index], before < 0
        if not all(map(math.isfinite, values)):
            rung.num_invalid += 1
            return FrontStanding(
                level=self.levels[index],
                values=(),
                front=len(rung.fronts) + 1,
                num_better=rung.num_recorded - 1,
                num_recorded=rung.num_recorded,
                num_kept=self._num_kept(rung),
                position=1,
                is_first=is_first,
            )
        front = rung.add(values)
        num_better, num_kept = sum(map(len, rung.fronts[:front])), self._num_kept(rung)
        return FrontStanding(
            level=self.levels[index],
            values=values,
            front=front + 1,
            num_better=num_better,
            num_recorded=rung.num_recorded,
            num_kept=num_kept,
            position=rung.position(front, num_kept - num_better),
            is_first=is_first,
        )

    def __iter__(self) -> Iterator[FrontSummary]:
        """Yield a summary of each rung, lowest first."""
        for level, rung in zip(self.levels, self._rungs, strict=True):
            num_best = len(rung.fronts[0]) if rung.fronts else 0
            yield FrontSummary(level, rung.num_recorded, rung.num_skipped, num_best)
