"""Metric and mode of a scheduler, and numbers read from results."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, final

from .decisions import Decision, Pause, Stop
from .feasible_first import FeasibleFirst
from .scheduler import MODES, Scheduler


class MetricScheduler(Scheduler):
    """Base class of schedulers that compare a metric, whose name and mode they must know."""

    _seed = 0
    # What `set_search_properties` makes anew; without constraints it remembers nothing.
    _feasible = FeasibleFirst()
    _has_remarked = False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the experiment's metric, mode and seed.

        Raises:
            ValueError: If neither the scheduler nor the experiment names a metric and a mode, or
                the experiment names several of which the scheduler compares none.
        """
        if not super().set_search_properties(metric, mode, **spec):
            return False
        self._take_objectives(spec.get("objectives", ()))
        self.check_ready()
        self._seed = int(spec.get("seed") or 0)
        self._feasible = FeasibleFirst(self.constraints)
        self._has_remarked = False
        return True

    def _take_objectives(self, objectives: Sequence[tuple[str, str]]) -> None:
        """Take the experiment's metrics and modes; refuse several of which none is to be compared.

        Raises:
            ValueError: If it compares one metric, and there are several.
        """
        if not self.metric and len(objectives) > 1:
            listed = ", ".join(repr(name) for name, _ in objectives)
            owner = type(self).__name__
            raise ValueError(
                f"{owner} must compare one metric, got several: {listed}; give "
                f"{owner}(metric=..., mode=...) one of them, or take MOASHAScheduler, which "
                "compares all of them"
            )

    def check_ready(self) -> None:
        """Check that metric and mode are known.

        Raises:
            ValueError: If metric or mode is not known yet.
        """
        require_mode(self)

    def _note_comparison(self, decisions: Sequence[Decision]) -> None:
        """Remark, once, if a trial is stopped or paused before it has reported a bounded metric."""
        if self._has_remarked or not self.constraints:
            return
        judged = [one.trial_id for one in decisions if _is_by_rank(one)]
        unknown = next(filter(None, map(self._feasible.unreported, judged)), ())
        if unknown:
            self._has_remarked = True
            metrics = ", ".join(dict.fromkeys(each.metric for each in unknown))
            later = (
                f", or let {self.first_comparison} be when it is known"
                if self.first_comparison
                else ""
            )
            remark = (
                f"{type(self).__name__} compares trials before they have reported {metrics}, so "
                f"that those that keep {', '.join(map(str, unknown))} may be stopped before it is "
                f"measured; report it with each result, or with the first one{later}"
            )
            self.remarks = [*self.remarks, remark]

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return what has to be the same for one scheduler to continue from another's state."""

    @property
    def _all_settings(self) -> dict[str, Any]:
        """The settings, with the experiment's constraints if it has any."""
        listed = [str(each) for each in self.constraints]
        return {**self._settings(), **({"constraints": listed} if listed else {})}

    def _base_state(self) -> dict[str, Any]:
        """Return settings and what is known about constraints, as JSON values."""
        remarked = {"has_remarked": True} if self._has_remarked else {}
        return {"settings": self._all_settings, **self._feasible.state_dict(), **remarked}

    def _load_base_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `_base_state` returned; refuse a scheduler with other settings.

        Raises:
            ValueError: If the settings differ: values would not compare.
        """
        if state["settings"] != self._all_settings:
            raise ValueError(
                f"state must come from a scheduler with {self._all_settings}, got "
                f"{state['settings']}; construct it with the same arguments"
            )
        self._feasible.load_state_dict(state)
        self._has_remarked = state.get("has_remarked", False)


def _is_by_rank(decision: Decision) -> bool:
    return isinstance(decision, Pause) or (isinstance(decision, Stop) and not decision.is_complete)


def require_mode(scheduler: Scheduler) -> str:
    """Return a scheduler's mode; refuse to work without metric and mode.

    Args:
        scheduler: The scheduler.

    Returns:
        ``"min"`` or ``"max"``.

    Raises:
        ValueError: If the metric or the mode is not known.
    """
    return checked_mode(scheduler.metric, scheduler.mode, type(scheduler).__name__)


def checked_mode(metric: str | None, mode: str | None, owner: str) -> str:
    """Return the mode, if both metric and mode are known.

    Args:
        metric: Name of the metric.
        mode: ``"min"`` or ``"max"``.
        owner: Name of the class that needs them, for the message.

    Raises:
        ValueError: If the metric or the mode is not known.
    """
    if not metric:
        raise ValueError(
            f"metric must be the name of a metric, got {metric!r}; give it to TuneConfig or to "
            f"{owner}"
        )
    if mode not in MODES:
        raise ValueError(
            f"mode must be 'min' or 'max', got {mode!r}; give it to TuneConfig or to {owner}"
        )
    return mode


@final
class MetricReader:
    """Reads numbers out of results, and remembers which entries were missing or no number.

    Attributes:
        missing: Names of the entries that any result has lacked.

    Example:
        >>> reader = MetricReader()
        >>> (
        ...     reader.number({"loss": 1}, "loss"),
        ...     reader.number({"loss": None}, "loss"),
        ...     reader.number({}, "loss"),
        ... )
        (1.0, nan, None)
        >>> reader.missing
        {'loss'}
    """

    def __init__(self, missing: Iterable[str] = ()) -> None:
        self.missing = set(missing)

    def number(self, result: Mapping[str, Any], name: str) -> float | None:
        """Return the entry as a float, NaN for None; record it as missing if it is no number."""
        # Not None for a missing entry: a metric that is None has been reported, and counts as NaN.
        value = as_float(result.get(name, ""))
        if value is None:
            self.missing.add(name)
        return value

    def finite(self, result: Mapping[str, Any], name: str) -> float | None:
        """Return the entry as a float, NaN if it is not finite; None if it is no number."""
        value = self.number(result, name)
        return value if value is None or math.isfinite(value) else math.nan

    def amount(self, result: Mapping[str, Any], name: str) -> float | None:
        """Return the entry as a float that orders results, such as a time; None if it is NaN."""
        value = self.number(result, name)
        if value is None or math.isnan(value):
            self.missing.add(name)
            return None
        return value

    def __str__(self) -> str:
        """Return what was missing, one part per entry, separated by ``"; "``."""
        return "; ".join(
            f"results without a number under {name!r}" for name in sorted(self.missing)
        )


def as_float(value: Any) -> float | None:
    """Return `value` as a float, NaN for None; None for what is no number or does not fit.

    Example:
        >>> as_float(True), as_float(None), as_float("0.5"), as_float(10**400)
        (1.0, nan, None, None)
    """
    if value is None:
        return math.nan
    # Real alone would do, but is an abstract class: it takes ten times as long to check.
    if not isinstance(value, (float, int, Real)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def violation_number(violation: float, name: str = "violation") -> dict[str, float | str]:
    """Return a violation as a number of a reason, nothing for a trial that keeps all constraints.

    Example:
        >>> violation_number(0.25), violation_number(0.0)
        ({'violation': 0.25}, {})
    """
    return {name: strict(violation)} if violation else {}


def strict(value: float) -> float | str:
    """Return NaN and infinities by name, which JSON lacks; equal names compare equal.

    Example:
        >>> strict(0.5), strict(float("nan"))
        (0.5, 'nan')
    """
    return value if math.isfinite(value) else str(value)
