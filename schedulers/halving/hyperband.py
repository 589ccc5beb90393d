"""Synchronous HyperBand: brackets of trials that are halved together, from many short trainings to few long ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from schedulers.decisions import Decision, Number, Pause, Reason, Resume, Stop
from schedulers.metric_mode import DirectedScheduler, require_direction
from schedulers.metric_reader import Readings, strict
from schedulers.scheduler import TrialView

from .arguments import check_names, plain_number
from .brackets import Band, Bracket, Member, Standing

_FULL = "hyperband.max_t"
"""The rule that ends a trial which has trained as long as any may: it is complete, not cut short."""
_OVER = ("TERMINATED", "ERROR")


@final
class HyperBandScheduler(DirectedScheduler):
    """HyperBand: trials of a bracket are paused at each level until all of them are there, and the best ``1 / reduction_factor`` go on.

    A bracket hedges one way of spending the same budget. The first starts many trials and halves them often, beginning after a short
    training; each of the next starts fewer, and first compares them later; the last trains a few to the end and compares nobody. Trials
    join the brackets in the order in which they are added. When all brackets of a *band* are full, the next band begins.

    **Who goes on.** Of the `n` trials that were compared on a rung, the best ``floor(n / reduction_factor)``, one at least; the others are
    stopped. Ties are broken by the order in which trials joined. A trial that fails or ends leaves its bracket, and nobody waits for it:
    those that are left are compared. If the result that completes a rung comes from one that goes on, that trial is not paused at all.

    **When a bracket is not full.** It is waited for further trials as long as any may come (``experiment.no_more_trials``). Where a
    searcher waits for results before it suggests more, as one with a limit of concurrent trials does, those that are there are compared
    among themselves; trials that join later are compared with all that were on that rung before.

    **When trials report rarely.** A result counts at every level up to its ``time_attr`` at which the trial has no value yet. So a trial
    that jumps over a level counts there with its later value, and does not stop for the next level if that is reached, too.

    **When something is missing.** A result without ``time_attr``, or before `max_t` without the metric, counts nowhere, and the trial
    trains on until it reports one; `debug_string` tells which was missing. A metric that is there but None, NaN or infinite is worst, and
    does not go on, except from the lowest level of a bracket in which no trial has a number there.

    **Repeated results**, after a crash or a restore, do not count again; the trial is told once more what it was told before.

    Trials must save checkpoints, or be able to when they are asked to.

    Args:
        time_attr: Which entry of a result tells how long the trial has trained; must grow. `max_t` is in its units.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take ``TuneConfig(mode=...)``.
        max_t: A full training, the paper's ``R``, at least 1; trials that get there are complete. The lowest level of all is between 1
            and `reduction_factor`, so choose `time_attr` such that 1 is a sensible training to judge by.
        reduction_factor: One trial in this many goes on from a level, and levels are this factor apart, the paper's ``eta``; more than 1.
        stop_last_trials: Whether to stop trials at `max_t`; False lets those that got there train on.

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
        Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar. Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization.
        JMLR 2018, arXiv 1603.06560, Algorithm 1. Brackets may run at the same time, as section 3.2 there allows.

    Departures:
        From the paper: at least one trial goes on from a rung, which matters only where a bracket is short of trials. Sizes are those of
        Algorithm 1; the paper's Table 1 rounds ``(s_max + 1) / (s + 1)`` down first, and has 27, 9 and 6 for 34, 15 and 8. From Ray Tune:
        the bracket with the most halvings comes first, as in the paper and as in Ray Tune's ``HyperBandForBOHB``; the number that goes
        on is rounded down, not up; levels are not rounded, and none is lost to rounding; a trial that completes a rung and goes on is not
        paused; a missing metric does not raise, NaN does not survive as long as a number is there; nobody waits for a trial that has
        failed; all of that survives a restore.
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
        if not 1 <= max_t < math.inf:
            raise ValueError(
                f"max_t must be at least 1 and finite, got {max_t}; it is counted in time_attr units"
            )
        if not 1 < reduction_factor < math.inf:
            raise ValueError(
                f"reduction_factor must be more than 1 and finite, got {reduction_factor}; one trial in so many goes on"
            )
        check_names(time_attr, metric, mode)
        self.band = Band(max_t, reduction_factor)
        self.metric = metric
        self.mode = mode
        self._time_attr = time_attr
        self._max_t = max_t
        self._reduction_factor = reduction_factor
        self._stop_last_trials = stop_last_trials
        self._brackets: list[Bracket] = []
        self._home: dict[str, Bracket] = {}
        self._readings = Readings()

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Let the trial join the last bracket, or the first trial of a new one."""
        self._bracket_of(trial.trial_id)
        return ()

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Pause the trial where it has to wait for others, stop it at `max_t`, and decide about all whose rung it completes."""
        trial_id = trial.trial_id
        bracket = self._bracket_of(trial_id)
        member = bracket.members[trial_id]
        if member.standing is Standing.STOPPED:
            return self._stop(member)
        time = self._readings.amount(result, self._time_attr)
        if time is None:
            return ()
        if time >= self._max_t:
            return self._complete(bracket, member, time, result)
        bracket.stand(
            trial_id, Standing.IN
        )  # one that had failed may have been brought back by a restore
        was_waiting = bracket.is_waiting(trial_id)
        self._record(bracket, trial_id, time, result)
        decisions = (
            self._judge(bracket, reporter=trial_id)
            if bracket.is_waiting(trial_id) and not was_waiting
            else []
        )
        # One that has to begin anew is let go until it is back where it waits: it would be resumed from where it is paused.
        if bracket.is_waiting(trial_id) and time >= bracket.level_of(trial_id):
            decisions.append(Pause(trial_id, self._why_wait(bracket, member)))
        return decisions

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Let the trial leave its bracket, and decide about those that waited for it."""
        return self._let_go(trial.trial_id, Standing.ENDED)

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Let the trial leave its bracket, and decide about those that waited for it."""
        return self._let_go(trial.trial_id, Standing.FAILED)

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Decide in brackets that will not be filled, and resume all paused trials that need not wait."""
        decisions: list[Decision] = []
        for bracket in self._brackets:
            self._miss_nobody(bracket)
            decisions += self._judge(bracket)
        decided = {decision.trial_id for decision in decisions}
        for trial in trials:
            if trial.status not in _OVER and trial.trial_id not in decided:
                decisions += self._remind(trial.trial_id)
        return decisions

    def _remind(self, trial_id: str) -> Sequence[Decision]:
        """Say again what was decided about a paused trial: it was still on its way into the pause, or the decision was lost."""
        bracket = self._home.get(trial_id)
        if bracket is None:
            return (Resume(trial_id, Reason("hyperband.resume")),)
        member = bracket.members[trial_id]
        if member.standing is Standing.STOPPED:
            return self._stop(member)
        return () if bracket.is_waiting(trial_id) else (self._resume(member),)

    def _bracket_of(self, trial_id: str) -> Bracket:
        if trial_id not in self._home:
            if not self._brackets or self._brackets[-1].is_full:
                self._open()
            self._brackets[-1].join(trial_id)
            self._home[trial_id] = self._brackets[-1]
        return self._home[trial_id]

    def _open(self) -> Bracket:
        number = len(self._brackets)
        plan = self.band[number % len(self.band)]
        self._brackets.append(
            Bracket(number, plan, self._reduction_factor, require_direction(self))
        )
        return self._brackets[-1]

    def _record(
        self, bracket: Bracket, trial_id: str, time: float, result: Mapping[str, Any]
    ) -> None:
        value = self._readings.finite(result, str(self.metric))
        if value is not None:
            bracket.record(trial_id, time, value)

    def _complete(
        self, bracket: Bracket, member: Member, time: float, result: Mapping[str, Any]
    ) -> Sequence[Decision]:
        bracket.stand(member.trial_id, Standing.ENDED)
        decisions = self._judge(bracket)
        if not self._stop_last_trials:
            return decisions
        value = self._readings.finite(result, str(self.metric))
        told = {} if value is None else {"value": strict(value)}
        numbers = {
            "bracket": bracket.number,
            "s": bracket.plan.s,
            **told,
            "time": strict(time),
            "max_t": self._max_t,
        }
        return [Stop(member.trial_id, Reason(_FULL, numbers), is_complete=True), *decisions]

    def _let_go(self, trial_id: str, standing: Standing) -> Sequence[Decision]:
        bracket = self._home.get(trial_id)
        if bracket is None:
            return ()
        if bracket.members[trial_id].standing is Standing.IN:
            bracket.stand(trial_id, standing)
        return self._judge(bracket)

    def _judge(self, bracket: Bracket, reporter: str | None = None) -> list[Decision]:
        decisions: list[Decision] = []
        for member in bracket.judge(is_closed=self.experiment.no_more_trials):
            if member.standing is Standing.STOPPED:
                decisions += self._stop(member)
            elif member.trial_id != reporter and not bracket.is_waiting(member.trial_id):
                decisions.append(self._resume(member))
        return decisions

    def _miss_nobody(self, bracket: Bracket) -> None:
        """Let those leave that are over, whatever was heard of it: nothing may wait for them."""
        for member in bracket.climbing:
            trial = self.experiment.trials.get(member.trial_id)
            if trial is not None and trial.status in _OVER:
                bracket.stand(member.trial_id, Standing.FAILED)

    @staticmethod
    def _stop(member: Member) -> list[Decision]:
        return [Stop(member.trial_id, member.verdict or Reason("hyperband.rung"))]

    @staticmethod
    def _resume(member: Member) -> Decision:
        return Resume(member.trial_id, member.verdict or Reason("hyperband.resume"))

    @staticmethod
    def _why_wait(bracket: Bracket, member: Member) -> Reason:
        numbers = {
            "bracket": bracket.number,
            "s": bracket.plan.s,
            "level": bracket.level_of(member.trial_id),
            "value": strict(member.values[member.rung]),
            "num_waiting": bracket.num_waiting(member.rung),
            "num_joined": len(bracket.members),
            "num_planned": bracket.plan.num_trials,
        }
        return Reason("hyperband.wait", numbers)

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded and decided, as JSON values."""
        return {
            "settings": self._settings(),
            "brackets": [bracket.state_dict() for bracket in self._brackets],
            "without_number": sorted(self._readings.lacking),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other levels, or another metric or mode: what was recorded would not compare.
        """
        self._check_settings(state)
        self._brackets = []
        for saved in state["brackets"]:
            self._open().load_state_dict(saved)
        self._home = {
            trial_id: bracket for bracket in self._brackets for trial_id in bracket.members
        }
        self._readings = Readings(state["without_number"])

    def _settings(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "mode": self.mode,
            "time_attr": self._time_attr,
            "max_t": self._max_t,
            "reduction_factor": self._reduction_factor,
        }

    def debug_string(self) -> str:
        """Return how many trials it stopped, how far each bracket has come that is not over, and which entries results lacked."""
        num_stopped = sum(
            member.standing is Standing.STOPPED
            for bracket in self._brackets
            for member in bracket.members.values()
        )
        parts = [f"{type(self).__name__}: {num_stopped} stopped"]
        parts += [str(bracket) for bracket in self._brackets if not bracket.is_over]
        parts += [str(self._readings)] if self._readings.lacking else []
        return "; ".join(parts)


HyperBandForBOHB = HyperBandScheduler
"""Ray Tune's name for HyperBand with the bracket of the most halvings first, which is how this one always does it."""
