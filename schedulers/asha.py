"""Asynchronous successive halving: stop a trial at a rung where too many others were better at the same age."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from random import Random
from typing import Any, final

from .decisions import Decision, Number, Reason, Stop
from .rungs import Rungs, Standing, bracket_sizes, rung_levels
from .scheduler import MODES, Scheduler, TrialView

_FULL = "asha.max_t"
"""The rule that ends a trial which has trained as long as any may: it is complete, not cut short."""


@final
class AsyncHyperBandScheduler(Scheduler):
    """ASHA, stopping variant: compares trials at geometrically spaced levels of training and stops all but the best of each.

    Each trial is judged once at each level it reaches, against all that reached the level before it, its own value included: it goes on
    while it is among the best ``ceil(n / reduction_factor)`` of the `n` values there (`rungs` says how ties and NaN count). Nobody
    ever waits for anybody: a trial is answered at once, and needs no checkpoint.

    **When trials report rarely.** A result is judged at the highest level at or below its ``time_attr``, if the trial has not been judged
    at that level or above. Levels that it jumped over are skipped for good: a later value never gets onto a lower rung, where it would
    raise the bar for younger trials. A value does count at a level that it has passed by less than the step to the next one, so let
    all trials report equally often, best of all at the levels themselves.

    **When something is missing.** A result without ``time_attr``, or before `max_t` without the metric, decides nothing; `debug_string`
    tells which was missing. A metric that is there but None, NaN or infinite, in whatever direction, counts as worst.

    **Repeated results**, after a crash or a restore, are not judged again; a trial that was told to stop is told so again.

    Args:
        time_attr: Which entry of a result tells how long the trial has trained; must grow. `max_t` and `grace_period` are in its units.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take ``TuneConfig(mode=...)``.
        max_t: The highest level. No trial is compared there; it has simply trained enough.
        grace_period: The lowest level, between 1 and `max_t`; no trial is stopped before it.
        reduction_factor: One trial in this many survives a level, and levels are this factor apart; more than 1.
        brackets: How many brackets to spread the trials over, between 1 and the number of levels. Bracket `b` starts at the level with
            number `b`, so that its trials get a longer grace period. Each trial is drawn into a bracket with the probabilities that
            HyperBand's bracket sizes stand in, by the experiment's seed and the trial's name alone.
        stop_last_trials: Whether to stop trials at `max_t`; False lets those that got there train on.
        type: ``"stopping"``, the only one.

    Attributes:
        levels: Where trials are compared, in units of `time_attr`, ascending; the last one is `max_t`, where they end.

    Raises:
        TypeError: If a number is not a number.
        ValueError: If an argument is out of range.

    Example:
        >>> scheduler = AsyncHyperBandScheduler(metric="loss", mode="min", max_t=81, reduction_factor=3)
        >>> scheduler.levels
        (1, 3, 9, 27, 81)

    Reference:
        Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht, Talwalkar. A System for Massively Parallel Hyperparameter Tuning.
        MLSys 2020, arXiv 1810.05934. Brackets: Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar. Hyperband: A Novel Bandit-Based
        Approach to Hyperparameter Optimization. JMLR 2018, arXiv 1603.06560.

    Departures:
        From the paper, as Ray Tune: trials are stopped at a level rather than paused and promoted from it later. From Ray Tune: no level is
        lost to rounding, and `max_t` is one; a trial is ranked with its own value, ties included, instead of against an interpolated
        percentile of earlier ones; late values do not fill lower levels; NaN does not survive; brackets follow HyperBand's sizes and
        the seed; the value at a trial's end is not recorded once more; what was recorded survives a restore; a missing metric or mode is
        refused before the first trial.
    """

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
        type: str = "stopping",  # noqa: A002  (the name under which its peers know it)
    ) -> None:
        max_t = _plain("max_t", max_t)
        grace_period = _plain("grace_period", grace_period)
        reduction_factor = _plain("reduction_factor", reduction_factor)
        _check_ranges(max_t, grace_period, reduction_factor)
        _check_names(time_attr, metric, mode, type)
        self.levels = rung_levels(grace_period, max_t, reduction_factor)
        _check_brackets(brackets, self.levels)
        self.metric = metric
        self.mode = mode
        self._time_attr = time_attr
        self._max_t = max_t
        self._reduction_factor = reduction_factor
        self._bracket_sizes = bracket_sizes(self.levels, brackets)
        self._stop_last_trials = stop_last_trials
        self._seed = 0
        self._brackets: tuple[Rungs, ...] = ()
        self._verdicts: dict[str, Reason] = {}
        self._num_stopped = 0
        self._without_number: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over the experiment's metric, mode and seed.

        Raises:
            ValueError: If neither the scheduler nor the experiment names a metric and a mode.
        """
        if not super().set_search_properties(metric, mode, **spec):
            return False
        self.check_ready()
        self._seed = int(spec.get("seed") or 0)
        return True

    def check_ready(self) -> None:
        """Refuse to work without a direction.

        Raises:
            ValueError: If metric or mode is not known yet.
        """
        name = type(self).__name__
        if not self.metric:
            raise ValueError(f"metric must be the name of a metric, got {self.metric!r}; give it to TuneConfig or to {name}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be 'min' or 'max', got {self.mode!r}; give it to TuneConfig or to {name}")

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Stop the trial where it is not good enough for its age, or has reached `max_t`."""
        reason = self._verdicts.get(trial.trial_id) or self._judge(trial.trial_id, result)
        if reason is None:
            return ()
        self._verdicts[trial.trial_id] = reason
        return (Stop(trial.trial_id, reason, is_complete=reason.rule == _FULL),)

    def on_trial_complete(self, trial: TrialView, result: Mapping[str, Any] | None) -> Sequence[Decision]:
        """Forget the verdict; what the trial has recorded stays for the others to be compared with."""
        self._verdicts.pop(trial.trial_id, None)
        return ()

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Forget the verdict; what the trial has recorded stays for the others to be compared with."""
        self._verdicts.pop(trial.trial_id, None)
        return ()

    def _judge(self, trial_id: str, result: Mapping[str, Any]) -> Reason | None:
        time = self._number(result, self._time_attr)
        if time is None or math.isnan(time):
            self._without_number.add(self._time_attr)
            return None
        bracket = self._bracket_of(trial_id)
        standing = self._record(trial_id, bracket, time, result)
        numbers = {**_numbers_of(standing), "time": _strict(time), "bracket": bracket}
        if time >= self._max_t:
            return self._stop(_FULL, {**numbers, "max_t": self._max_t}) if self._stop_last_trials else None
        if standing is None or standing.survives:
            return None
        return self._stop("asha.rung", numbers)

    def _stop(self, rule: str, numbers: Mapping[str, Number | str]) -> Reason:
        self._num_stopped += 1
        return Reason(rule, numbers)

    def _record(self, trial_id: str, bracket: int, time: float, result: Mapping[str, Any]) -> Standing | None:
        rungs = self._rungs_of(bracket)
        level = rungs.reached(time)
        if level is None:
            return None
        value = self._number(result, str(self.metric))
        return None if value is None else rungs.record(trial_id, level, value if math.isfinite(value) else math.nan)

    def _number(self, result: Mapping[str, Any], name: str) -> float | None:
        """Return the entry as a float, NaN for None; None where it is missing or no number, which is remembered."""
        value = _as_float(result.get(name, ""))
        if value is None:
            self._without_number.add(name)
        return value

    def _rungs_of(self, bracket: int) -> Rungs:
        if not self._brackets:
            self.check_ready()
            starts = range(len(self._bracket_sizes))
            self._brackets = tuple(Rungs(self.levels[start:], self._reduction_factor, str(self.mode)) for start in starts)
        return self._brackets[bracket]

    def _bracket_of(self, trial_id: str) -> int:
        """Return the trial's bracket: a function of seed and name, so that there is nothing to keep and order does not matter."""
        if len(self._bracket_sizes) == 1:
            return 0
        chance = Random(f"{self._seed}/{trial_id}")  # noqa: S311  (not a secret)
        return chance.choices(range(len(self._bracket_sizes)), self._bracket_sizes)[0]

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded and decided, as JSON values."""
        return {
            "settings": self._settings(),
            "seed": self._seed,
            "brackets": [rungs.state_dict() for rungs in self._brackets],
            "verdicts": {name: {"rule": why.rule, "numbers": dict(why.numbers)} for name, why in self._verdicts.items()},
            "num_stopped": self._num_stopped,
            "without_number": sorted(self._without_number),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other levels, or another metric or mode: what was recorded would not compare.
        """
        if state["settings"] != self._settings():
            raise ValueError(
                f"state must come from a scheduler with {self._settings()}, got {state['settings']}; construct it with the same arguments"
            )
        self._seed = state["seed"]
        for bracket, saved in enumerate(state["brackets"]):
            self._rungs_of(bracket).load_state_dict(saved)
        self._verdicts = {name: Reason(why["rule"], why["numbers"]) for name, why in state["verdicts"].items()}
        self._num_stopped = state["num_stopped"]
        self._without_number = set(state["without_number"])

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
        """Return how many trials it stopped, what stands on each rung, and which entries results lacked."""
        parts = [f"{type(self).__name__}: {self._num_stopped} stopped"]
        parts += [f"bracket {index}: {' | '.join(map(str, rungs))}" for index, rungs in enumerate(self._brackets)]
        parts += [f"results without a number under {name!r}" for name in sorted(self._without_number)]
        return "; ".join(parts)


ASHAScheduler = AsyncHyperBandScheduler
"""The short name of the same scheduler."""


def _as_float(value: Any) -> float | None:
    if value is None:
        return math.nan
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _numbers_of(standing: Standing | None) -> dict[str, Number | str]:
    if standing is None:
        return {}
    return {
        "rung": standing.level,
        "value": _strict(standing.value),
        "cutoff": _strict(standing.cutoff),
        "rank": standing.rank,
        "num_recorded": standing.num_recorded,
        "num_kept": standing.num_kept,
    }


def _strict(value: float) -> float | str:
    """Return what JSON has no number for as its name; that also lets equal reasons be equal, which NaN does not."""
    return value if math.isfinite(value) else str(value)


def _plain(name: str, value: Any) -> Number:
    """Return an argument as a number that JSON knows; numpy's are turned into Python's."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return int(value) if isinstance(value, Integral) else float(value)


def _check_ranges(max_t: Number, grace_period: Number, reduction_factor: Number) -> None:
    if not 1 <= max_t < math.inf:
        raise ValueError(f"max_t must be at least 1 and finite, got {max_t}; it is counted in time_attr units")
    if not 1 <= grace_period <= max_t:
        raise ValueError(f"grace_period must be between 1 and max_t={max_t}, got {grace_period}; it is counted in time_attr units")
    if not 1 < reduction_factor < math.inf:
        raise ValueError(f"reduction_factor must be more than 1 and finite, got {reduction_factor}; one trial in so many survives a level")


def _check_names(time_attr: str, metric: str | None, mode: str | None, kind: str) -> None:
    if not isinstance(time_attr, str) or not time_attr:
        raise ValueError(f"time_attr must be the name of an entry of each result, got {time_attr!r}; 'training_iteration' always is")
    if metric is not None and (not isinstance(metric, str) or not metric):
        raise ValueError(f"metric must be a name or None, got {metric!r}; None takes the one of TuneConfig")
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be 'min', 'max' or None, got {mode!r}; None takes the one of TuneConfig")
    if kind == "promotion":
        raise ValueError(
            "type must be 'stopping', got 'promotion'; pausing trials at a level and promoting them later is not available yet"
        )
    if kind != "stopping":
        raise ValueError(f"type must be 'stopping', got {kind!r}")


def _check_brackets(brackets: int, levels: Sequence[Number]) -> None:
    if not isinstance(brackets, int) or isinstance(brackets, bool):
        raise TypeError(f"brackets must be a whole number, got {brackets!r}")
    if not 1 <= brackets <= len(levels):
        raise ValueError(f"brackets must be between 1 and the number of levels {len(levels)}, got {brackets}; the levels are {levels}")
