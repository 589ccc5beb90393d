"""Base class of ASHA and MOASHA, which stop trials at rungs, or pause and promote them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, final

from schedulers.arguments import check_count, plain_number
from schedulers.decisions import Decision, Number
from schedulers.scheduler import TrialView

from .first_comparison import FirstComparison
from .halving_scheduler import HalvingScheduler, RungPlan, RungRule

_TYPES = ("auto", "promotion", "stopping")


class StopOrPromoteScheduler(HalvingScheduler):
    """Stops or promotes trials, as its type says, and compares all but the scouts later.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained.
        metric: What to compare; None to take the experiment's.
        mode: ``"min"`` or ``"max"``; None to take the experiment's.
        max_t: The highest level.
        grace_period: The lowest level.
        reduction_factor: Ratio of levels, and of trials to survivors.
        brackets: How many brackets there are.
        stop_last_trials: Whether to stop trials at `max_t`.
        kind: ``"auto"``, ``"promotion"`` or ``"stopping"``.
        later_grace_period: From where on trials that are no scouts are compared; ``"auto"`` begins
            with the highest level that is no more than half of `max_t`, None is `grace_period`.
        num_scouts: How many trials have to have got to `grace_period` before those that begin are
            no scouts any more.
        num_full_scouts: How many of the scouts, the first ones, are not compared before `max_t`.
    """

    def __init__(
        self,
        *,
        time_attr: str,
        metric: str | None,
        mode: str | None,
        max_t: Number,
        grace_period: Number,
        reduction_factor: Number,
        brackets: int,
        stop_last_trials: bool,
        kind: str,
        later_grace_period: Number | str | None,
        num_scouts: int,
        num_full_scouts: int,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            max_t=max_t,
            grace_period=grace_period,
            reduction_factor=reduction_factor,
            brackets=brackets,
        )
        _check_type(kind)
        check_count("num_scouts", num_scouts, "so many scouts are waited for")
        _check_full_scouts(num_full_scouts, num_scouts)
        self._type = kind
        self._later_index = _later_index(self.levels, later_grace_period)
        self._is_from_evidence = later_grace_period == "auto"
        # Of trials that are no scouts, if evidence decides.
        self._first = FirstComparison(self.levels, self._reduction_factor, self._later_index)
        self._num_scouts = num_scouts
        self._num_full_scouts = num_full_scouts
        # Whether each scout has reached the first level.
        self._scouts: dict[str, bool] = {}
        # Those of them that are trained to the end.
        self._full_scouts: list[str] = []
        self._plan = RungPlan(
            self.prefix, self.levels, self._reduction_factor, self._num_brackets, stop_last_trials
        )
        self._chosen: str | None = None if kind == "auto" else kind
        self._current: RungRule | None = None

    @property
    @final
    def _rule(self) -> RungRule:
        if self._current is None:
            # While the type is undecided, trials only join: the promotion rule has to know them
            # from then on, and the stopping rule, which may replace it, does not.
            is_stopping = self._chosen == "stopping"
            self._current = self._stopping_rule() if is_stopping else self._promotion_rule()
        return self._current

    @abstractmethod
    def _stopping_rule(self) -> RungRule:
        """Return a new rule that stops trials."""

    @abstractmethod
    def _promotion_rule(self) -> RungRule:
        """Return a new rule that pauses and promotes trials."""

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Draw the trial into its bracket; the first ones are scouts."""
        if trial.trial_id not in self._scouts:
            if sum(self._scouts.values()) < self._num_scouts:
                if len(self._full_scouts) < self._num_full_scouts:
                    self._full_scouts.append(trial.trial_id)
                self._scouts[trial.trial_id] = False
            else:
                self._add_later(trial.trial_id)
        return super().on_trial_add(trial)

    def _add_later(self, trial_id: str) -> None:
        """Decide where a trial is compared that is no scout."""
        if not self._is_from_evidence or trial_id in self._first:
            return
        changed = self._first.choose(trial_id)
        if changed is not None:
            before, choice = changed
            now, because = self.levels[choice.level_index], self._first.described(choice)
            remark = (
                f"{self.prefix.upper()} compares new trials from {now:g} {self._time_attr} on, "
                f"instead of {self.levels[before]:g}{because and f': {because}'}."
            )
            self.remarks = [*self.remarks, remark]

    def _first_index(self, trial_id: str) -> int:
        """Return the number of the level where a trial is compared first."""
        if trial_id in self._full_scouts:
            return len(self.levels) - 1
        if trial_id in self._scouts:
            return 0
        if trial_id in self._first:
            return self._first.index(trial_id, self._draw("probe", trial_id))
        return self._later_index

    def _draw(self, purpose: str, trial_id: str) -> float:
        # As with brackets, neither the order of arrival nor a restore may change it.
        return Random(f"{self._seed}/{purpose}/{trial_id}").random()  # noqa: S311  (not a secret)

    def _notes(self, trial_id: str, own: int, first: int) -> dict[str, Number | str]:
        """Return from where on a trial is compared and why, for the reasons of decisions.

        Args:
            trial_id: The trial.
            own: What `_first_index` returned for it.
            first: That, or the first level of its bracket if this is higher.
        """
        if trial_id not in self._first:
            return {}
        return {"compared_from": self.levels[first], "evidence": self._why_then(trial_id, own)}

    def _why_then(self, trial_id: str, own: int) -> str:
        """Return why a trial is compared when it is."""
        is_later = self._first.is_later(trial_id, own)
        return self._first.why(trial_id) + (
            "; compared later to see whether this still holds" if is_later else ""
        )

    def _note_arrival(self, trial: TrialView, time: float, lowest: Number) -> None:
        """Note that a scout has reached the first level; choose the type at a trial's first one."""
        if time >= self.levels[0] and trial.trial_id in self._scouts:
            self._scouts[trial.trial_id] = True
        if time >= lowest and self._chosen is None:
            self._choose(trial)

    def _choose(self, trial: TrialView) -> None:
        can_pause = self.experiment.can_save_on_demand or trial.has_checkpoint
        self._chosen = "promotion" if can_pause else "stopping"
        if not can_pause:
            self._current = None
        remark = (_PROMOTES if can_pause else _STOPS).format(
            name=self.prefix.upper(), owner=type(self).__name__
        )
        self.remarks = [*self.remarks, remark]

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values and decisions, as JSON values."""
        return {
            **super().state_dict(),
            "chosen": self._chosen,
            "scouts": dict(self._scouts),
            "full_scouts": list(self._full_scouts),
            **self._first.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other arguments: recorded values would not
                compare.
        """
        # The rule is chosen before the base class loads the recorded values into it.
        if state["settings"] == self._all_settings:
            self._chosen = state["chosen"]
            self._scouts = dict(state["scouts"])
            self._full_scouts = list(state["full_scouts"])
            self._first.load_state_dict(state)
            self._current = None
        super().load_state_dict(state)

    def debug_string(self) -> str:
        """Return also from where on new trials are compared, if evidence decides."""
        if not self._is_from_evidence:
            return super().debug_string()
        choice = self._first.choice_now()
        why = self._first.described(choice) or "no evidence yet"
        level = self.levels[choice.level_index]
        return f"{super().debug_string()}; new trials compared from {level:g} on: {why}"

    def _settings(self) -> dict[str, Any]:
        return {
            **super()._settings(),
            "type": self._type,
            "later_level": "auto" if self._is_from_evidence else self.levels[self._later_index],
            "num_scouts": self._num_scouts,
            "num_full_scouts": self._num_full_scouts,
        }


_PROMOTES = (
    "{name} pauses trials at its levels and promotes the best of them later, since trials save "
    "checkpoints; {owner}(type='stopping') stops them instead, and never waits."
)
_STOPS = (
    "{name} stops trials at its levels for good, since they save no checkpoints to continue from; "
    "with checkpoints it pauses them and promotes the best later."
)


def _later_index(levels: Sequence[Number], later_grace_period: Any) -> int:
    if later_grace_period is None:
        return 0
    if later_grace_period == "auto":
        return max((i for i, level in enumerate(levels) if 2 * level <= levels[-1]), default=0)
    if isinstance(later_grace_period, str):
        raise TypeError(
            f"later_grace_period must be a number, 'auto' or None, got {later_grace_period!r}; "
            "'auto' decides by results"
        )
    period = plain_number("later_grace_period", later_grace_period)
    if not levels[0] <= period <= levels[-1]:
        raise ValueError(
            f"later_grace_period must be between grace_period={levels[0]} and max_t={levels[-1]}, "
            f"got {period}; None takes grace_period, 'auto' decides by results"
        )
    return next(index for index, level in enumerate(levels) if level >= period)


def _check_full_scouts(num_full_scouts: Any, num_scouts: int) -> None:
    check_count("num_full_scouts", num_full_scouts, "so many scouts are trained to max_t")
    if num_full_scouts > num_scouts:
        raise ValueError(
            f"num_full_scouts must be at most num_scouts={num_scouts}, got {num_full_scouts}; they "
            "are the first of the scouts"
        )


def _check_type(kind: str) -> None:
    if kind not in _TYPES:
        raise ValueError(
            f"type must be 'auto', 'promotion' or 'stopping', got {kind!r}; 'auto' promotes where "
            "trials save checkpoints"
        )
