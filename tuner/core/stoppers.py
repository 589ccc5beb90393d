"""Stop criteria for single trials and for the whole experiment."""

from __future__ import annotations

import bisect
import copy
import datetime as dt
import math
import statistics
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any, Final

from searchers.recorded_arguments import Declared

from .result import flatten
from .trial import Trial

STOP: Final = "stop"
"""Rule for which a trial ends that the stop criterion has stopped."""


class Stopper(Declared, ABC):
    """Decides when trials have trained enough.

    A stopper reads no clock: it is given the experiment's running time, so that it decides alike in
    a real run, in a simulated one, and when a run is replayed.
    """

    @abstractmethod
    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return whether the trial is to stop; called with each result, nested as reported."""

    def on_validated(
        self, trial_id: str, result: Mapping[str, Any], added: Collection[str]
    ) -> bool:
        """Return whether the trial is to stop, now that a checkpoint of it has been validated.

        It is called once more with a result that was judged without these metrics. Override it
        where a value must not be counted twice.

        Args:
            trial_id: The trial.
            result: The checkpoint's result together with the metrics of its validation, nested.
            added: The flattened names that were not in the result when it was reported.
        """
        return self(trial_id, result)

    def numbers(self, result: Mapping[str, Any]) -> Mapping[str, float]:
        """Return the numbers for which it has stopped the trial at this result, by name."""
        return {}

    def stop_all(self) -> bool:
        """Return whether the whole experiment is to stop; asked in each turn of the driver."""
        return False

    @property
    def due_s(self) -> float | None:
        """Running time in seconds at which `stop_all` is due without any event; None for never."""
        return None

    def on_tick(self, elapsed_s: float) -> None:
        """Receive the running time in seconds, before each call of `stop_all`.

        Sessions before a restore are included.
        """

    @property
    def keeps_state(self) -> bool:
        """Whether `state_dict` returns all that the results so far have led to.

        False, unless it is overridden: the stopper is then brought back by telling it all results
        again, from the beginning.
        """
        return type(self).state_dict is not Stopper.state_dict

    def state_dict(self) -> dict[str, Any]:
        """Return all that the results so far have led to, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class _Stateless(Stopper):
    """A stopper that remembers nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, since nothing is remembered."""
        return {}


class NoopStopper(_Stateless):
    """Never stops anything."""

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return False."""
        return False


class MetricThresholdStopper(_Stateless):
    """Stops a trial once any of the named values is reached; what a ``stop`` dictionary means.

    Args:
        thresholds: By the name of the metric; of a nested one flattened (``{"env/reward": 200}``)
            or nested likewise (``{"env": {"reward": 200}}``). A number is reached by a result that
            is equal or *larger*, whatever the direction of optimisation, as in Ray Tune; for a
            metric that falls, give a string with the comparison: ``{"loss": "<= 0.1"}``.

    Raises:
        ValueError: If a threshold is neither a number nor a comparison.

    Example:
        >>> stopper = MetricThresholdStopper({"training_iteration": 10, "loss": "<= 0.1"})
        >>> stopper("t", {"training_iteration": 3, "loss": 0.05})
        True
    """

    _COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
        "<=": lambda value, bound: value <= bound,
        ">=": lambda value, bound: value >= bound,
        "<": lambda value, bound: value < bound,
        ">": lambda value, bound: value > bound,
    }

    def __init__(self, thresholds: Mapping[str, float | str]) -> None:
        self._tests = {
            key: self._parse(key, threshold) for key, threshold in flatten(thresholds).items()
        }

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return whether any threshold is reached; a missing or non-numeric value reaches none."""
        return bool(self.numbers(result))

    def numbers(self, result: Mapping[str, Any]) -> Mapping[str, float]:
        """Return the values that have reached their thresholds."""
        flat = flatten(result)
        found = [(key, flat.get(key), *test) for key, test in self._tests.items()]
        return {
            key: value
            for key, value, reaches, bound in found
            if isinstance(value, int | float) and reaches(value, bound)
        }

    @classmethod
    def _parse(
        cls, key: str, threshold: float | str
    ) -> tuple[Callable[[float, float], bool], float]:
        try:
            text = threshold.strip() if isinstance(threshold, str) else f">= {float(threshold)!r}"
            sign = next((sign for sign in cls._COMPARISONS if text.startswith(sign)), "")
            return cls._COMPARISONS[sign], float(text[len(sign) :])
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"stop[{key!r}] must be a number (reached by an equal or larger value) or a "
                f"comparison such as '<= 0.1', got {threshold!r}"
            ) from None


class FunctionStopper(Stopper):
    """Stops a trial when a function ``(trial_id, result) -> bool`` says so.

    Raises:
        TypeError: If `function` is not callable.
    """

    def __init__(self, function: Callable[[str, Mapping[str, Any]], bool]) -> None:
        if not callable(function):
            raise TypeError(
                "function must be callable as function(trial_id, result), got "
                f"{type(function).__name__}"
            )
        self.function = function

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return the function's answer."""
        return bool(self.function(trial_id, result))

    @property
    def keeps_state(self) -> bool:
        """Whether it is a plain function, which closes over nothing that it might count in."""
        return isinstance(self.function, FunctionType) and self.function.__closure__ is None


class CombinedStopper(Stopper):
    """Stops what any of several stoppers stops; each of them sees every result.

    Departures:
        Ray Tune asks no further once one stopper has said yes, so that those behind it miss
        results.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        self.parts = stoppers

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return whether any stopper stops the trial."""
        verdicts = [stopper(trial_id, result) for stopper in self.parts]
        return any(verdicts)

    def on_validated(
        self, trial_id: str, result: Mapping[str, Any], added: Collection[str]
    ) -> bool:
        """Return whether any stopper stops the trial."""
        verdicts = [stopper.on_validated(trial_id, result, added) for stopper in self.parts]
        return any(verdicts)

    def numbers(self, result: Mapping[str, Any]) -> Mapping[str, float]:
        """Return those of all stoppers."""
        return {
            name: value for stopper in self.parts for name, value in stopper.numbers(result).items()
        }

    def stop_all(self) -> bool:
        """Return whether any stopper stops the experiment."""
        verdicts = [stopper.stop_all() for stopper in self.parts]
        return any(verdicts)

    @property
    def keeps_state(self) -> bool:
        """Whether each of the stoppers does."""
        return all(stopper.keeps_state for stopper in self.parts)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each stopper."""
        return {"stoppers": [stopper.state_dict() for stopper in self.parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned for the same stoppers."""
        for stopper, saved in zip(self.parts, state["stoppers"], strict=True):
            stopper.load_state_dict(saved)

    @property
    def due_s(self) -> float | None:
        """The earliest of the stoppers' times."""
        return min(
            (stopper.due_s for stopper in self.parts if stopper.due_s is not None), default=None
        )

    def on_tick(self, elapsed_s: float) -> None:
        """Forward the time to each stopper."""
        for stopper in self.parts:
            stopper.on_tick(elapsed_s)


class MaximumIterationStopper(_Stateless):
    """Stops a trial at its `max_iter`-th iteration.

    Args:
        max_iter: At least 1; compared with ``training_iteration``.

    Raises:
        ValueError: If `max_iter` is less than 1.

    Attributes:
        max_iter: As given.

    Departures:
        Ray Tune counts calls, so that results repeated after a crash count twice.
    """

    def __init__(self, max_iter: int) -> None:
        if max_iter < 1:
            raise ValueError(f"max_iter must be at least 1, got {max_iter!r}")
        self.max_iter = max_iter

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return whether the trial has reached its last iteration."""
        return bool(result.get("training_iteration", 0) >= self.max_iter)


class TimeoutStopper(_Stateless):
    """Stops the experiment when it has run for `timeout`; the remaining time survives a restore.

    Args:
        timeout: Seconds or a `datetime.timedelta`, more than 0.

    Raises:
        ValueError: If `timeout` is not positive.
    """

    def __init__(self, timeout: float | dt.timedelta) -> None:
        self._timeout_s = (
            timeout.total_seconds() if isinstance(timeout, dt.timedelta) else float(timeout)
        )
        if not self._timeout_s > 0:
            raise ValueError(
                f"timeout must be a positive number of seconds or a timedelta, got {timeout!r}"
            )
        self._elapsed_s = 0.0

    @property
    def due_s(self) -> float:
        """The allowed running time in seconds."""
        return self._timeout_s

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return False: only the whole experiment times out."""
        return False

    def stop_all(self) -> bool:
        """Return whether the time is up."""
        return self._elapsed_s >= self._timeout_s

    def on_tick(self, elapsed_s: float) -> None:
        """Record the running time."""
        self._elapsed_s = elapsed_s


class TrialPlateauStopper(Stopper):
    """Stops a trial whose metric has stopped moving.

    Args:
        metric: Flattened name.
        std: The trial stops when the standard deviation of its latest `num_results` values is at
            most this.
        num_results: How many values to look at, at least 1; the population deviation is taken.
        grace_period: How many results a trial reports before it may be stopped.
        metric_threshold: Stop only once the metric is at least this good; None for no such
            condition.
        mode: ``"min"`` or ``"max"``, the direction in which `metric_threshold` is compared; needed
            with it.

    Raises:
        ValueError: If an argument is out of range, or `metric_threshold` comes without `mode`.
    """

    def __init__(  # noqa: PLR0917  (Ray Tune's signature)
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if num_results < 1 or grace_period < 0 or std < 0:
            raise ValueError(
                "num_results must be at least 1, grace_period and std at least 0, got "
                f"{num_results=}, {grace_period=}, {std=}"
            )
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(
                f"mode must be 'min' or 'max' where metric_threshold is given, got {mode!r}"
            )
        self._metric = metric
        self._std = std
        self._num_results = num_results
        self._grace_period = grace_period
        self._threshold = metric_threshold
        self._mode = mode
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._windows: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=num_results)
        )

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return whether the metric has reached a plateau; a result without it changes nothing."""
        value = flatten(result).get(self._metric)
        if not isinstance(value, int | float):
            return False
        window = self._windows[trial_id]
        window.append(value)
        self._counts[trial_id] += 1
        if self._counts[trial_id] < self._grace_period or len(window) < self._num_results:
            return False
        return (
            self._is_good_enough(value)
            and all(map(math.isfinite, window))
            and statistics.pstdev(window) <= self._std
        )

    def on_validated(
        self, trial_id: str, result: Mapping[str, Any], added: Collection[str]
    ) -> bool:
        """Count the metric if it comes from the validation; else it has been counted already."""
        return self._metric in added and self(trial_id, result)

    def state_dict(self) -> dict[str, Any]:
        """Return the latest values of each trial, and how many there were."""
        return {
            trial_id: [count, *self._windows[trial_id]] for trial_id, count in self._counts.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for trial_id, (count, *window) in state.items():
            self._counts[trial_id] = count
            self._windows[trial_id].extend(window)

    def _is_good_enough(self, value: float) -> bool:
        if self._threshold is None:
            return True
        return value <= self._threshold if self._mode == "min" else value >= self._threshold


class ExperimentPlateauStopper(Stopper):
    """Stops the experiment when its best values have stopped improving.

    Args:
        metric: Flattened name.
        std: The experiment has come to rest when the standard deviation of the `top` best values is
            at most this.
        top: How many of the best values to look at, at least 2.
        mode: ``"min"`` or ``"max"``: the direction of optimisation.
        patience: For how many further results it must stay at rest.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
        if top < 2 or std < 0 or patience < 0:  # noqa: PLR2004  (one value has no deviation)
            raise ValueError(
                f"top must be at least 2, std and patience at least 0, got {top=}, {std=}, "
                f"{patience=}"
            )
        self._metric = metric
        self._std = std
        self._sign = 1.0 if mode == "min" else -1.0
        self._top = top
        self._timeouts = patience
        self._best: list[float] = []
        self._num_at_rest = 0

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Record the result; a trial is stopped only together with the experiment."""
        value = flatten(result).get(self._metric)
        if isinstance(value, int | float) and math.isfinite(value):
            bisect.insort(self._best, self._sign * value)
            del self._best[self._top :]
            is_finished = (
                len(self._best) == self._top and statistics.pstdev(self._best) <= self._std
            )
            self._num_at_rest = self._num_at_rest + 1 if is_finished else 0
        return self.stop_all()

    def on_validated(
        self, trial_id: str, result: Mapping[str, Any], added: Collection[str]
    ) -> bool:
        """Count the metric if it comes from the validation; else it has been counted already."""
        return self._metric in added and self(trial_id, result)

    def stop_all(self) -> bool:
        """Return whether the best values have been at rest for longer than the patience."""
        return self._num_at_rest > self._timeouts

    def state_dict(self) -> dict[str, Any]:
        """Return the best values, and for how many results they have been at rest."""
        return {"best": list(self._best), "num_at_rest": self._num_at_rest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._best = list(state["best"])
        self._num_at_rest = state["num_at_rest"]


def warning_of_direction(trial: Trial, metric: str, thresholds: Mapping[str, Any]) -> str:
    """Return a warning for a trial stopped by its first result although the metric is to fall.

    Such a number is mostly meant to be fallen to, and `MetricThresholdStopper` stops at it or
    above.

    Args:
        trial: A trial that has just ended.
        metric: The metric to minimise, by its flattened name.
        thresholds: The flattened dictionary that was given as the stop criterion.
    """
    threshold, reason = thresholds.get(metric), trial.reason
    if (
        trial.num_rows != 1
        or not isinstance(threshold, int | float)
        or reason is None
        or reason.rule != STOP
        or metric not in reason.numbers
    ):
        return ""
    return (
        f"trial {trial.trial_id} was stopped at its first result, with "
        f"{metric}={reason.numbers[metric]:.6g}: a number in stop is reached "
        f"by an equal or larger value, also with mode='min'; to stop trials once {metric} has "
        f"fallen to {threshold!r}, "
        f"write stop={{{metric!r}: '<= {threshold!r}'}}"
    )


def unused(stopper: Stopper) -> Stopper:
    """Return a copy of a stopper of this module, so that experiments share no state."""
    if type(stopper) is CombinedStopper:
        return CombinedStopper(*map(unused, stopper.parts))
    is_own = type(stopper).__module__ == __name__ and not isinstance(stopper, FunctionStopper)
    return copy.deepcopy(stopper) if is_own else stopper


def users_stoppers(stopper: Stopper) -> list[Any]:
    """Return the user's own stoppers and callables in a stopper that may have state."""
    if isinstance(stopper, CombinedStopper):
        return [part for one in stopper.parts for part in users_stoppers(one)]
    part = stopper.function if isinstance(stopper, FunctionStopper) else stopper
    is_own = type(part).__module__ in (__name__, "builtins", "functools")
    return [part] if not is_own and getattr(part, "__dict__", None) else []


def stopper_from(criterion: Any) -> Stopper:
    """Return the stopper that a ``stop`` argument means.

    Args:
        criterion: None; a dictionary of thresholds; a function ``(trial_id, result) -> bool``; a
            stopper; a list of stoppers, any of which may stop.

    Raises:
        TypeError: If it is none of these.
        ValueError: If a dictionary holds something that is no threshold.
    """
    match criterion:
        case None:
            return NoopStopper()
        case Stopper():
            return criterion
        case dict():
            return MetricThresholdStopper(criterion)
        case list() | tuple() if all(isinstance(item, Stopper) for item in criterion):
            return CombinedStopper(*criterion)
        case _ if callable(criterion) and not isinstance(criterion, type):
            return FunctionStopper(criterion)
        case _:
            raise TypeError(
                "stop must be a dict, a function (trial_id, result) -> bool, a Stopper or a "
                f"list of those, got {criterion!r}"
            )
