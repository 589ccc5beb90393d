"""How free resources are divided among trials that run: evenly, or all to the best."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Protocol, final

from schedulers.halving.arguments import check_names
from searchers.recorded_arguments import Declared

from .metric_reader import Readings, strict
from .scheduler import MODES, ExperimentView, TrialView

Resources = Mapping[str, float]
"""Amounts by name, e.g. ``{"cpu": 2.0, "gpu": 0.5}``."""

ROUNDING = 1e-6
"""Differences that are none: the engine counts resources in larger steps."""

OVER = ("TERMINATED", "ERROR")
"""Statuses of trials that need nothing any more."""


class Books(Protocol):
    """What an allocation function may ask the scheduler that calls it; `ResourceChangingScheduler` fulfils it."""

    @property
    def metric(self) -> str | None:
        """The experiment's metric."""

    @property
    def mode(self) -> str | None:
        """``"min"`` or ``"max"``."""

    @property
    def num_live(self) -> int:
        """How many trials there are that are not over."""

    def original_request(self, trial: TrialView) -> Resources:
        """Return what the trial asked for when it was added."""

    def available_to(self, trial: TrialView) -> Resources:
        """Return the most that the trial can occupy now, what it has included."""


AllocationFunction = Callable[[ExperimentView, TrialView, Mapping[str, Any], Any], Resources | None]
"""Says what a trial is to occupy from now on, given the experiment, the trial, its result and the `Books`; None for no change."""


class ResourceAllocation(Declared, ABC):
    """Raises a trial's resources in steps, from its original request up to a limit, and never shrinks them below that request.

    Args:
        add_bundles: Whether the step is the whole original request, so that a trial occupies a multiple of it; where `increase_by` is
            given, that is the step in any case.
        increase_by: The step, e.g. ``{"cpu": 2}``; None for 1 CPU and 1 GPU, each for itself, as far as the trial asked for any.
        increase_by_times: The largest number of steps above the request; -1 for any number.
        reserve_resources: What is never handed out, e.g. ``{"cpu": 1}``; None for nothing.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Resources | None = None,
        increase_by_times: int = -1,
        reserve_resources: Resources | None = None,
    ) -> None:
        self._add_bundles = add_bundles
        self._increase_by = (
            None if increase_by is None else _checked_amounts("increase_by", increase_by)
        )
        self._reserved = _checked_amounts("reserve_resources", reserve_resources or {})
        if not isinstance(increase_by_times, int) or isinstance(increase_by_times, bool):
            raise TypeError(f"increase_by_times must be a whole number, got {increase_by_times!r}")
        if increase_by_times != -1 and increase_by_times < 1:
            raise ValueError(
                f"increase_by_times must be at least 1, or -1 for any number, got {increase_by_times}"
            )
        if self._increase_by is not None and not any(self._increase_by.values()):
            raise ValueError(
                f"increase_by must name an amount of something, got {increase_by}; None takes 1 CPU and 1 GPU"
            )
        self._max_steps = math.inf if increase_by_times == -1 else increase_by_times

    @abstractmethod
    def __call__(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        result: Mapping[str, Any],
        scheduler: Books,
    ) -> Resources | None:
        """Return what the trial is to occupy from now on; None to leave it as it is."""

    def check_ready(self, scheduler: Books) -> None:
        """Refuse to begin where something is missing; called once the experiment's metric and mode are known."""

    def state_dict(self) -> dict[str, Any]:
        """Return what has to be known after a restore, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    def _within_reach(self, trial: TrialView, scheduler: Books) -> dict[str, float]:
        """Return the most that the trial can occupy now."""
        return {
            name: amount - self._reserved.get(name, 0.0)
            for name, amount in scheduler.available_to(trial).items()
        }

    def _grown(self, request: Resources, limit: Resources) -> dict[str, float]:
        """Return the request, raised by as many steps as the limit allows."""
        grown = dict(request)
        for step in self._steps(request):
            room = [
                (limit.get(name, 0.0) - request.get(name, 0.0)) / amount
                for name, amount in step.items()
            ]
            num_steps = max(0, math.floor(min(*room, self._max_steps) + ROUNDING))
            while num_steps and not _is_whole_or_share(
                request.get("gpu", 0.0) + num_steps * step.get("gpu", 0.0)
            ):
                num_steps -= 1
            grown |= (
                {name: request.get(name, 0.0) + num_steps * amount for name, amount in step.items()}
                if num_steps
                else {}
            )
        return grown

    def _steps(self, request: Resources) -> list[dict[str, float]]:
        if self._increase_by is not None:
            return [{name: amount for name, amount in self._increase_by.items() if amount}]
        if self._add_bundles:
            return (
                [step]
                if (step := {name: amount for name, amount in request.items() if amount})
                else []
            )
        return [{name: 1.0} for name in ("cpu", "gpu") if request.get(name)]


@final
class DistributeResources(ResourceAllocation):
    """Divides all resources evenly among the trials that are not over; each gets its share at its next result.

    Args:
        add_bundles: Whether a trial occupies a multiple of its original request; where `increase_by` is given, that is the step anyway.
        increase_by: The step, e.g. ``{"cpu": 2}``; None for 1 CPU and 1 GPU, each for itself, as far as the trial asked for any.
        increase_by_times: The largest number of steps above the request; -1 for any number.
        reserve_resources: What is never handed out, e.g. ``{"cpu": 1}``; None for nothing.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> DistributeResources(increase_by={"cpu": 2}, increase_by_times=3).declared_arguments
        {'increase_by': {'cpu': 2}, 'increase_by_times': 3}

    Departures:
        From Ray Tune: resources are plain amounts, so that new bundles and larger ones come to the same; with ``add_bundles=True`` the step
        is the original request. What further trials may still need is left to them (see `ResourceChangingScheduler.available_to`).
    """

    def __call__(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        result: Mapping[str, Any],
        scheduler: Books,
    ) -> Resources | None:
        """Return the trial's request, raised up to its even share as far as that is free."""
        even = max(1, scheduler.num_live)
        shares = {
            name: (amount - self._reserved.get(name, 0.0)) / even
            for name, amount in experiment.resources.items()
        }
        within_reach = self._within_reach(trial, scheduler)
        limit = {name: min(share, within_reach.get(name, 0.0)) for name, share in shares.items()}
        return self._grown(scheduler.original_request(trial), limit)


@final
class DistributeResourcesToTopJob(ResourceAllocation):
    """Gives all that is free to the trial that is best at present; what others were given before they keep.

    A trial other than the best changes only where it has more than there is: then it shrinks, down to its original request.

    Args:
        add_bundles: Whether a trial occupies a multiple of its original request; where `increase_by` is given, that is the step anyway.
        increase_by: The step, e.g. ``{"cpu": 2}``; None for 1 CPU and 1 GPU, each for itself, as far as the trial asked for any.
        increase_by_times: The largest number of steps above the request; -1 for any number.
        reserve_resources: What is never handed out, e.g. ``{"cpu": 1}``; None for nothing.
        metric: What is compared, the latest value of each trial; None for the experiment's metric.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None for the experiment's mode.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> DistributeResourcesToTopJob(metric="loss", mode="min").declared_arguments
        {'metric': 'loss', 'mode': 'min'}

    Departures:
        From Ray Tune: as `DistributeResources`; and a value that is None, NaN or infinite is worst.
    """

    def __init__(  # noqa: PLR0917  (positions are given, too)
        self,
        add_bundles: bool = False,
        increase_by: Resources | None = None,
        increase_by_times: int = -1,
        reserve_resources: Resources | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        check_names("training_iteration", metric, mode)
        self._metric = metric
        self._mode = mode
        self._values: dict[str, float] = {}

    def check_ready(self, scheduler: Books) -> None:
        """Refuse to begin without a direction.

        Raises:
            ValueError: If neither this function nor the experiment names a metric and a mode.
        """
        name = type(self).__name__
        if not (self._metric or scheduler.metric):
            raise ValueError(
                f"metric must be the name of a metric, got None; give it to TuneConfig or to {name}"
            )
        if (self._mode or scheduler.mode) not in MODES:
            raise ValueError(
                f"mode must be 'min' or 'max', got {self._mode or scheduler.mode!r}; give it to TuneConfig or to {name}"
            )

    def __call__(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        result: Mapping[str, Any],
        scheduler: Books,
    ) -> Resources | None:
        """Return the trial's request, raised by all that is free if it is the best."""
        value = Readings().finite(result, str(self._metric or scheduler.metric))
        if value is not None:
            self._values[trial.trial_id] = value
        self._forget_those_over(experiment)
        within_reach = self._within_reach(trial, scheduler)
        has_too_much = any(
            amount > within_reach.get(name, 0.0) + ROUNDING
            for name, amount in trial.resources.items()
        )
        is_best = self._best(self._mode or scheduler.mode) == trial.trial_id
        return (
            self._grown(scheduler.original_request(trial), within_reach)
            if is_best or has_too_much
            else None
        )

    def _forget_those_over(self, experiment: ExperimentView) -> None:
        for trial_id in list(self._values):
            if trial_id not in experiment.trials or experiment.trials[trial_id].status in OVER:
                del self._values[trial_id]

    def _best(self, mode: str | None) -> str | None:
        """Return the trial with the best value, of equal ones the one that reported first."""
        known = {
            trial_id: value for trial_id, value in self._values.items() if not math.isnan(value)
        }
        return (min if mode == "min" else max)(known, key=known.__getitem__, default=None)

    def state_dict(self) -> dict[str, Any]:
        """Return the latest value of each trial."""
        return {"values": [[trial_id, strict(value)] for trial_id, value in self._values.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._values = {trial_id: float(value) for trial_id, value in state["values"]}


def malformed(resources: Any) -> str:
    """Return why something is no amounts by name; empty if it is.

    Example:
        >>> malformed({"cpu": 2.0}), malformed({"cpu": "two"})
        ('', "cpu must be a finite number of at least 0, got 'two'")
    """
    if not isinstance(resources, Mapping):
        return f"resources must be a dictionary of amounts, got {resources!r}"
    wrong = [name for name, amount in resources.items() if not _is_amount(amount)]
    return (
        f"{wrong[0]} must be a finite number of at least 0, got {resources[wrong[0]]!r}"
        if wrong
        else ""
    )


def misfit(resources: Resources, capacity: Resources) -> str:
    """Return why no trial could ever occupy these amounts; empty if one could.

    Example:
        >>> misfit({"cpu": 2.0}, {"cpu": 4.0}), misfit({"gpu": 1.5}, {"gpu": 4.0})
        ('', 'gpu must be a fraction below 1 or a whole number, got 1.5')
    """
    for name, amount in resources.items():
        if amount > capacity.get(name, 0.0) + ROUNDING:
            return f"{name} must be at most {capacity.get(name, 0.0)}, got {amount}"
    gpus = resources.get("gpu", 0.0)
    return (
        ""
        if _is_whole_or_share(gpus)
        else f"gpu must be a fraction below 1 or a whole number, got {gpus}"
    )


def _is_whole_or_share(gpus: float) -> bool:
    return gpus < 1 or abs(gpus - round(gpus)) < ROUNDING


def _is_amount(amount: Any) -> bool:
    return (
        isinstance(amount, Real) and not isinstance(amount, bool) and 0 <= float(amount) < math.inf
    )


def _checked_amounts(name: str, amounts: Any) -> dict[str, float]:
    if not isinstance(amounts, Mapping):
        raise TypeError(
            f"{name} must be a dictionary of amounts, got {amounts!r}; for example {{'cpu': 2}}"
        )
    for resource, amount in amounts.items():
        if not _is_amount(amount):
            raise ValueError(
                f"{name}[{resource!r}] must be a finite number of at least 0, got {amount!r}"
            )
    # Ray Tune writes CPU and GPU, where a trial's request has cpu and gpu.
    return {
        resource.lower() if resource in ("CPU", "GPU") else resource: float(amount)
        for resource, amount in amounts.items()
    }
