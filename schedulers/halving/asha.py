"""ASHA: asynchronous successive halving, by stopping or by promotion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from schedulers.decisions import Decision, Number
from schedulers.metric import as_float
from schedulers.scheduler import TrialView

from .freeze_thaw import FreezeThaw, PausedTrial, Promise
from .halving_scheduler import RungReport, RungRule
from .promotion_rule import PromotionRule
from .promotion_rungs import ValueRung
from .stagnation import Stagnation
from .stop_or_promote import StopOrPromoteScheduler
from .stopping_rule import StoppingRule


@final
class ASHAScheduler(StopOrPromoteScheduler):
    """ASHA: continues only the best trials of each of several geometrically spaced levels.

    **Type "stopping".** Each trial is judged once at each level it reaches, against all that
    reached the level before it, its own value included: it continues while it is among the best
    ``ceil(n / reduction_factor)`` of the `n` values there, and is stopped otherwise (see `rungs`
    for ties and NaN). No trial waits for another: a result is answered at once, and needs no
    checkpoint.

    **Type "promotion".** Each trial pauses at each level it reaches, with its checkpoint. When a
    slot is free, the best paused trial among the best ``floor(n / reduction_factor)`` of a level
    continues to the next one, highest level first; if there is none, a new trial starts (see
    `promotion_rule` for ties and NaN). So a first decision can be revised when more trials have
    reported, and a bad trial does not continue only because it was early; but trials have to save
    and load. A paused trial that can never be among the best of its level, however bad the results
    of later trials are, is stopped at once, so that its checkpoint can be deleted; this needs a
    known number of trials. The best trial of a level always keeps its checkpoint.

    **How a promotion ends.** When no new trial comes, none runs and none may be promoted, all
    paused trials are stopped. If no trial has reached `max_t` by then, nor ended by itself above
    the highest level with a paused trial, the best trial there is promoted first, as often as
    necessary: so two trials with a factor of three still yield one full training. Where the search
    does not end but waits for a trial to end, as with a limit on how many are unfinished, the last
    one of the lowest level is stopped to make room.

    **Type "auto"** is "promotion" if trials can be saved when asked, or the first trial that
    reaches a level has a checkpoint by then, and "stopping" otherwise; `remarks` say so.

    **When later trials are better.** A search that learns soon suggests only good configurations,
    and first results hardly show which of them is best: fast learners lead. With
    `later_grace_period`, only scouts are compared from `grace_period` on, so that the search soon
    has data to learn from. Scouts are the trials that begin before `num_scouts` trials have reached
    `grace_period`; later trials are first compared at `later_grace_period`. The first
    `num_full_scouts` of the scouts are trained to `max_t` without a comparison: they show what
    early values say about the end, and what the search would have missed.

    **From where on they are compared** follows from results with ``later_grace_period="auto"``. It
    begins with the highest level that is no more than half of `max_t`. A lower one is used while
    enough of the trials that were good there had been among the best at the lower one already, so
    that an earlier comparison saves more than it loses; a higher one, up to `max_t`, if what is
    best at `max_t` was not among the best before more often than by chance. One later trial in ten
    keeps the first choice, so that evidence keeps coming. The longer the search finds nothing
    better, the more of its trials are trained to `max_t` without a comparison, whatever they
    report: either nothing better is left, and nothing is lost, or comparisons drop it. What becomes
    of these trials is evidence, too. A paused trial continues, although it is not among the best of
    its level, if it is forecast to end well, see `freeze_thaw`; none is given up before the last
    trial has started. See `agreement` and `stagnation` for the other rules. `remarks`
    say when the choice changes, and the decisions about each trial where it was compared first, and
    on what evidence.

    **When trials report rarely.** A result is judged at the highest level at or below its
    ``time_attr``, if the trial has not been judged at that level or above. Levels that it jumped
    over are skipped for good: a later value never gets onto a lower rung, where it would raise the
    bar for younger trials. A value does count at a level that it has passed by less than the step
    to the next one, so let all trials report equally often, best of all at the levels themselves.

    **When something is missing.** A result without ``time_attr``, or before `max_t` without the
    metric, decides nothing; `debug_string` shows which was missing. A metric that is None, NaN or
    infinite counts as worst. A trial is never promoted with such a value, and survives stopping
    with it only if it is alone at its first level.

    **Repeated results**, after a crash or a restore, are not recorded again; earlier decisions to
    stop or pause are returned again.

    **With constraints**, trials that keep all of them rank before those that do not, see
    `schedulers.feasible_first`; what a trial has reported when it is recorded at a level decides.
    To evidence and forecasts one that misses a constraint counts as worst, and it never continues
    for what it promises.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow. `max_t`
            and `grace_period` are in its units.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        max_t: The highest level. No trial is compared there; it has simply trained enough.
        grace_period: The lowest level, between 1 and `max_t`; no trial is stopped before it.
        reduction_factor: One trial in this many survives a level, and levels are this factor apart;
            more than 1.
        brackets: How many brackets to spread the trials over, at least 1; of more than there are
            levels, as many are made as there are levels. Bracket `b` starts at the level with
            number `b`, so that its trials get a longer grace period. Each trial is drawn into a
            bracket with probabilities proportional to HyperBand's bracket sizes, by the
            experiment's seed and the trial's name alone.
        stop_last_trials: Whether to stop trials at `max_t`; False lets those that got there train
            on.
        type: ``"auto"``, ``"promotion"`` or ``"stopping"``.
        later_grace_period: Trials that are no scouts are compared from the first level on that is
            no lower than this, between `grace_period` and `max_t`; ``"auto"`` to choose it from
            results; None to compare all of them from `grace_period` on.
        num_scouts: How many trials have to have got to `grace_period` before those that begin are
            no scouts any more.
        num_full_scouts: How many of the scouts, the first ones, are not compared before `max_t`; at
            most `num_scouts`.

    Attributes:
        levels: Where trials are compared, in units of `time_attr`, ascending; the last one is
            `max_t`, where they end.

    Raises:
        TypeError: If a number is not a number.
        ValueError: If an argument is out of range.

    Example:
        >>> scheduler = ASHAScheduler(
        ...     metric="loss", mode="min", max_t=81, reduction_factor=3
        ... )
        >>> scheduler.levels
        (1, 3, 9, 27, 81)

    Reference:
        Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar. A System for
        Massively Parallel Hyperparameter Tuning. MLSys 2020, arXiv 1810.05934, algorithm 2.

        Brackets: Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar. Hyperband: A Novel Bandit-Based
        Approach to Hyperparameter Optimization. JMLR 2018, arXiv 1603.06560.

    Departures:
        From the paper: with "stopping", as Ray Tune, trials are stopped at a level rather than
        paused; with "promotion" a short experiment promotes its best trial to `max_t` in the end,
        trials that cannot be promoted are stopped early, and a free slot goes to the highest level
        of all brackets instead of one drawn bracket; the first trials may have a grace period of
        their own. From Ray Tune, which never promotes: no level is lost to rounding, and `max_t` is
        one; a trial is ranked with its own value, ties included, instead of against an interpolated
        percentile of earlier ones; late values do not fill lower levels; NaN does not survive;
        brackets follow HyperBand's sizes and the seed, and there are no more of them than levels;
        the value at a trial's end is not recorded once more; what was recorded survives a restore;
        a missing metric or mode is refused before the first trial.
    """

    prefix = "asha"

    def __init__(  # noqa: PLR0917  (positions are given, too)
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: Number = 100,
        grace_period: Number = 1,
        reduction_factor: Number = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        type: str = "auto",  # noqa: A002  (the name under which its peers know it)
        later_grace_period: Number | str | None = None,
        num_scouts: int = 0,
        num_full_scouts: int = 0,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            max_t=max_t,
            grace_period=grace_period,
            reduction_factor=reduction_factor,
            brackets=brackets,
            stop_last_trials=stop_last_trials,
            kind=type,
            later_grace_period=later_grace_period,
            num_scouts=num_scouts,
            num_full_scouts=num_full_scouts,
        )
        self._stagnation = Stagnation()
        self._freeze_thaw = FreezeThaw(self.levels)
        # Later trials that are trained to the end, with the part of the training by then in which
        # no better value was found.
        self._spared: dict[str, float] = {}

    def _stopping_rule(self) -> RungRule:
        return StoppingRule(self._plan, self._get_mode)

    def _promotion_rule(self) -> RungRule:
        reconsider = self._most_promising if self._is_from_evidence else None
        return PromotionRule(self._plan, self._value_rung, reconsider)

    def _value_rung(self) -> ValueRung:
        # A method, since a copy of the scheduler has one of its own.
        return ValueRung(self._get_mode())

    def completed_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the search space as it is; forecasts need to know it."""
        self._freeze_thaw.take_space(space)
        return space

    def _most_promising(self, paused: Sequence[PausedTrial]) -> Promise | None:
        return self._freeze_thaw.most_promising(
            paused,
            self._first.values(),
            self.experiment.trials,
            self.levels[self._first.latest],
        )

    def _add_later(self, trial_id: str) -> None:
        is_new = trial_id not in self._first
        super()._add_later(trial_id)
        if not (self._is_from_evidence and is_new):
            return
        if self._draw("spared", trial_id) < self._stagnation.spared_share:
            self._spared[trial_id] = self._stagnation.part

    def _first_index(self, trial_id: str) -> int:
        return len(self.levels) - 1 if trial_id in self._spared else super()._first_index(trial_id)

    def _why_then(self, trial_id: str, own: int) -> str:
        if trial_id not in self._spared:
            return super()._why_then(trial_id, own)
        return (
            f"{self._first.why(trial_id)}; trained to the end, since the latest "
            f"{self._spared[trial_id]:.0%} of all training had brought nothing better"
        )

    def _report(self, trial: TrialView, time: float, result: Mapping[str, Any]) -> RungReport:
        bracket = self._bracket_of(trial.trial_id)
        own = self._first_index(trial.trial_id)
        first = max(bracket, own)
        violation = self._feasible.note(trial.trial_id, result)
        if self._is_from_evidence:
            self._note_value(trial.trial_id, time, result, violation, first)
        # Below `lowest` the report has no value, and the rule records nothing.
        lowest = self.levels[first]
        self._note_arrival(trial, time, lowest)
        value = self._metrics.finite(result, str(self.metric)) if time >= lowest else None
        return RungReport(
            trial.trial_id,
            bracket,
            time,
            value,
            violation=violation,
            lowest=lowest,
            notes=self._notes(trial.trial_id, own, first),
        )

    def _note_value(
        self,
        trial_id: str,
        time: float,
        result: Mapping[str, Any],
        violation: float,
        first: int,
    ) -> None:
        value = as_float(result.get(str(self.metric), ""))
        if value is None:
            return
        value = value if math.isfinite(value) else math.nan
        value = -value if self.mode == "max" else value
        self._stagnation.note(trial_id, time, value, violation)
        self._first.note(trial_id, time, {"": value}, violation, first)

    def _handle_end(self, trial_id: str, *, is_trained: bool) -> Sequence[Decision]:
        self._stagnation.forget(trial_id)
        return super()._handle_end(trial_id, is_trained=is_trained)

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values and decisions, as JSON values."""
        return {
            **super().state_dict(),
            "stagnation": self._stagnation.state_dict(),
            "spared": dict(self._spared),
            "freeze_thaw": self._freeze_thaw.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other arguments: recorded values would not
                compare.
        """
        super().load_state_dict(state)
        # Schedulers of earlier versions spared no trials and made no forecasts.
        if "stagnation" in state:
            self._stagnation.load_state_dict(state["stagnation"])
            self._spared = dict(state["spared"])
            self._freeze_thaw.load_state_dict(state["freeze_thaw"])


AsyncHyperBandScheduler = ASHAScheduler
"""Ray Tune's long name of the same scheduler."""
