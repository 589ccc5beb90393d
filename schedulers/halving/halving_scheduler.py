"""Base class of the asynchronous halving schedulers, and the interface of their rung rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from schedulers.arguments import check_names, check_ranges, checked_brackets, plain_number
from schedulers.decisions import Decision, Number, Reason, Resume, Stop
from schedulers.metric import MetricReader, MetricScheduler
from schedulers.scheduler import ExperimentView, TrialView

from .rungs import bracket_sizes, rung_levels


@dataclass(frozen=True, slots=True)
class RungPlan:
    """Parameters of a rung rule.

    Attributes:
        prefix: Prefix of the names of its reasons.
        levels: The levels of bracket 0, ascending; each further bracket starts one level later.
        reduction_factor: One trial in this many survives a rung.
        num_brackets: How many brackets there are.
        stops_last_trials: Whether to stop trials at the last level.
    """

    prefix: str
    levels: Sequence[Number]
    reduction_factor: Number
    num_brackets: int = 1
    stops_last_trials: bool = True


@dataclass(frozen=True, slots=True)
class RungReport:
    """A result, reduced to what a rung rule needs.

    Attributes:
        trial_id: The trial that reported.
        bracket: The trial's bracket.
        time: How long it has trained.
        value: Its metric, NaN if that is not a finite number; None if the result lacks it.
        values: Several metrics, negated where more is better; None if there is one metric, or one
            is missing.
        violation: By how much the trial misses the experiment's constraints.
        lowest: The level at which it is compared for the first time; it is not recorded at those
            below.
        notes: More numbers for the reasons of decisions about the trial.
    """

    trial_id: str
    bracket: int
    time: float
    value: float | None
    values: tuple[float, ...] | None = None
    violation: float = 0.0
    lowest: Number = 0
    notes: Mapping[str, Number | str] = field(default_factory=dict)

    @property
    def reached(self) -> tuple[float, ...] | None:
        """Its metrics, one or several; None if the result lacks one."""
        return self.values if self.value is None else (self.value,)


class RungRule(ABC):
    """Decides about trials that reach a rung, and keeps the recorded values.

    Args:
        plan: Levels and brackets.
    """

    def __init__(self, plan: RungPlan) -> None:
        self._plan = plan

    @abstractmethod
    def judge(self, report: RungReport, experiment: ExperimentView) -> Sequence[Decision]:
        """Record a report and decide about its trial, and perhaps about others."""

    def on_idle(
        self, trials: Sequence[TrialView], num_free_slots: int, experiment: ExperimentView
    ) -> Sequence[Decision]:
        """Decide about paused trials; see `Scheduler.on_idle`.

        A rule that pauses none resumes them, however they were paused.
        """
        return [
            Resume(trial.trial_id, self._reason("goes_on")) for trial in trials[:num_free_slots]
        ]

    def join(self, trial_id: str, bracket: int) -> None:  # noqa: B027  (not all rules need it)
        """Add a running trial: a new one, or one that was over and is run again."""

    def leave(
        self, trial_id: str, bracket: int, experiment: ExperimentView, *, is_trained: bool
    ) -> Sequence[Decision]:
        """Handle a trial's end; its recorded values stay, and others are compared with them.

        Args:
            trial_id: The trial.
            bracket: Its bracket.
            experiment: The experiment.
            is_trained: Whether it ended by itself, after some results.
        """
        return ()

    @abstractmethod
    def summaries(self) -> Sequence[Iterable[object]]:
        """Return for each bracket the printable summaries of its rungs."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values, as JSON values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def _reason(self, name: str, numbers: Mapping[str, Number | str] | None = None) -> Reason:
        return Reason(f"{self._plan.prefix}.{name}", numbers or {})

    def _complete(
        self, report: RungReport, numbers: Mapping[str, Number | str]
    ) -> Sequence[Decision]:
        """Stop a trial at the last level, unless such trials train on."""
        if not self._plan.stops_last_trials:
            return ()
        reason = Reason(
            full_training(self._plan.prefix), {**numbers, "max_t": self._plan.levels[-1]}
        )
        return (Stop(report.trial_id, reason, is_complete=True),)


class HalvingScheduler(MetricScheduler):
    """Assigns trials to brackets at random and passes their reports to a rung rule.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained.
        metric: What to compare; None to take the experiment's.
        mode: ``"min"`` or ``"max"``; None to take the experiment's.
        max_t: The highest level.
        grace_period: The lowest level.
        reduction_factor: Ratio of levels, and of trials to survivors.
        brackets: How many brackets there are.

    Attributes:
        prefix: Prefix of the names of its reasons.
        levels: Where trials are compared, in units of `time_attr`, ascending; the last one is
            `max_t`.
    """

    prefix: ClassVar[str]
    first_comparison: ClassVar[str | None] = "grace_period"

    def __init__(
        self,
        *,
        time_attr: str,
        metric: str | None,
        mode: str | None,
        max_t: Number,
        grace_period: Number,
        reduction_factor: Number,
        brackets: int = 1,
    ) -> None:
        max_t = plain_number("max_t", max_t)
        grace_period = plain_number("grace_period", grace_period)
        reduction_factor = plain_number("reduction_factor", reduction_factor)
        check_ranges(max_t, grace_period, reduction_factor)
        check_names(time_attr, metric, mode)
        self.levels = rung_levels(grace_period, max_t, reduction_factor)
        self._num_brackets = checked_brackets(brackets, self.levels)
        if self._num_brackets < brackets:
            self.remarks = (self._remark_on_brackets(brackets),)
        self.metric = metric
        self.mode = mode
        self._time_attr = time_attr
        self._reduction_factor = reduction_factor
        self._bracket_sizes = bracket_sizes(self.levels, self._num_brackets)
        # Of trials that have not ended yet: if a worker dies before it stops, or the driver does,
        # the trial repeats results, and has to get the same answer.
        self._stop_reasons: dict[str, Reason] = {}
        self._num_stopped = 0
        self._metrics = MetricReader()

    @property
    @abstractmethod
    def _rule(self) -> RungRule:
        """The rule that decides about trials on rungs."""

    @abstractmethod
    def _report(self, trial: TrialView, time: float, result: Mapping[str, Any]) -> RungReport:
        """Read a result."""

    def _remark_on_brackets(self, brackets: int) -> str:
        levels = ", ".join(f"{level:g}" for level in self.levels)
        return (
            f"{type(self).__name__}(brackets={brackets}) makes {self._num_brackets} brackets, as "
            f"each begins one level later than the one before and the levels are {levels}; a "
            "smaller grace_period or reduction_factor makes more"
        )

    def _get_mode(self) -> str:
        self.check_ready()
        return str(self.mode)

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Draw the trial into its bracket."""
        self._rule.join(trial.trial_id, self._bracket_of(trial.trial_id))
        return ()

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Judge the trial if it has reached a level; repeat an earlier stop."""
        earlier = self._stop_reasons.get(trial.trial_id)
        if earlier is not None:
            return (self._stop(trial.trial_id, earlier),)
        time = self._metrics.amount(result, self._time_attr)
        if time is None:
            return ()
        report = self._report(trial, time, result)
        # Again, since a trial that had failed may have been brought back by a restore.
        self._rule.join(report.trial_id, report.bracket)
        return self._record_stops(self._rule.judge(report, self.experiment))

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Forget the trial's stop reason; its recorded values stay for later comparisons."""
        return self._handle_end(trial.trial_id, is_trained=result is not None)

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Forget the trial's stop reason; its recorded values stay for later comparisons."""
        return self._handle_end(trial.trial_id, is_trained=False)

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Repeat the stops that were decided, and ask the rule about the other trials."""
        stopping = [trial.trial_id for trial in trials if trial.trial_id in self._stop_reasons]
        others = [trial for trial in trials if trial.trial_id not in self._stop_reasons]
        stops = [self._stop(trial_id, self._stop_reasons[trial_id]) for trial_id in stopping]
        decided = self._rule.on_idle(others, num_free_slots, self.experiment) if others else ()
        return (*stops, *self._record_stops(decided))

    def _handle_end(self, trial_id: str, *, is_trained: bool) -> Sequence[Decision]:
        # A trial that was to stop has not ended by itself, even if it was the first to do so.
        is_own_end = self._stop_reasons.pop(trial_id, None) is None
        bracket = self._bracket_of(trial_id)
        return self._record_stops(
            self._rule.leave(
                trial_id, bracket, self.experiment, is_trained=is_trained and is_own_end
            )
        )

    def _record_stops(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        stops = [decision for decision in decisions if isinstance(decision, Stop)]
        self._stop_reasons.update({stop.trial_id: stop.reason for stop in stops})
        self._num_stopped += len(stops)
        self._note_comparison(decisions)
        return decisions

    def _stop(self, trial_id: str, reason: Reason) -> Stop:
        return Stop(trial_id, reason, is_complete=reason.rule == full_training(self.prefix))

    def _bracket_of(self, trial_id: str) -> int:
        """Return the trial's bracket, which depends on seed and trial id alone."""
        if len(self._bracket_sizes) == 1:
            return 0
        # Not a common stream of draws, in which a trial's bracket would depend on all before it:
        # neither the order of arrival nor a restore may change it.
        rng = Random(f"{self._seed}/{trial_id}")  # noqa: S311  (not a secret)
        return rng.choices(range(len(self._bracket_sizes)), self._bracket_sizes)[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values and decisions, as JSON values."""
        return {
            **self._base_state(),
            "seed": self._seed,
            **self._rule.state_dict(),
            "verdicts": {name: why.state_dict() for name, why in self._stop_reasons.items()},
            "num_stopped": self._num_stopped,
            "without_number": sorted(self._metrics.missing),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other levels, or another metric or mode:
                recorded values would not compare.
        """
        self._load_base_state(state)
        self._seed = state["seed"]
        self._rule.load_state_dict(state)
        self._stop_reasons = {
            name: Reason.from_state(why) for name, why in state["verdicts"].items()
        }
        self._num_stopped = state["num_stopped"]
        self._metrics = MetricReader(state["without_number"])

    def _settings(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "mode": self.mode,
            "time_attr": self._time_attr,
            "levels": list(self.levels),
            "reduction_factor": self._reduction_factor,
            "brackets": len(self._bracket_sizes),
        }

    def debug_string(self) -> str:
        """Return the number of stopped trials, a summary of each rung, and missing entries."""
        parts = [f"{type(self).__name__}: {self._num_stopped} stopped"]
        parts += [
            f"bracket {index}: {' | '.join(map(str, rungs))}"
            for index, rungs in enumerate(self._rule.summaries())
        ]
        parts += [str(self._metrics)] if self._metrics.missing else []
        return "; ".join(parts)


def full_training(prefix: str) -> str:
    """Return the name of the rule that ends a fully trained trial, which is complete.

    Example:
        >>> full_training("asha")
        'asha.max_t'
    """
    return f"{prefix}.max_t"
