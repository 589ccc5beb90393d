"""Resource-changing scheduler: give unused resources to running trials, evenly or to the best."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, Final, final

from searchers.objectives.outcome_constraint import OutcomeConstraint
from searchers.recorded_arguments import Declared

from .arguments import check_names, whole_number
from .decisions import Decision, Exploit, Number, Pause, Reason, Resize, Stop
from .feasible_first import FeasibleFirst
from .fifo import FIFOScheduler
from .metric import MetricReader, as_float, checked_mode, strict
from .scheduler import ExperimentView, Scheduler, TrialView
from .trial_scheduler import adapted

Resources = Mapping[str, float]
"""Amounts by name, e.g. ``{"cpu": 2.0, "gpu": 0.5}``."""

ROUNDING = 1e-6
"""Tolerance of comparisons: the engine counts resources in larger steps."""

OVER = ("TERMINATED", "ERROR")
"""Statuses of trials that have ended."""


AllocationFunction = Callable[[ExperimentView, TrialView, Mapping[str, Any], Any], Resources | None]
"""Returns a trial's new resources, given experiment, trial, result and scheduler; or None."""


class ResourceAllocation(Declared, ABC):
    """Raises a trial's resources in steps up to a limit, never below its original request.

    Args:
        add_bundles: Whether the step is the whole original request, so that a trial occupies a
            multiple of it; where `increase_by` is given, that is the step in any case.
        increase_by: The step, e.g. ``{"cpu": 2}``; None for 1 CPU and 1 GPU, each for itself, as
            far as the trial asked for any.
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
        whole_number("increase_by_times", increase_by_times)
        if increase_by_times != -1 and increase_by_times < 1:
            raise ValueError(
                "increase_by_times must be at least 1, or -1 for any number, got "
                f"{increase_by_times}"
            )
        if self._increase_by is not None and not any(self._increase_by.values()):
            raise ValueError(
                f"increase_by must name an amount of something, got {increase_by}; None takes 1 "
                "CPU and 1 GPU"
            )
        self._max_steps = math.inf if increase_by_times == -1 else increase_by_times

    @abstractmethod
    def __call__(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        result: Mapping[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> Resources | None:
        """Return what the trial is to occupy from now on; None to leave it as it is."""

    def check_ready(self, scheduler: ResourceChangingScheduler) -> None:
        """Check that nothing is missing; called once metric and mode are known."""

    def state_dict(self) -> dict[str, Any]:
        """Return what has to be known after a restore, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def _within_reach(
        self, trial: TrialView, scheduler: ResourceChangingScheduler
    ) -> dict[str, float]:
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
            # Several GPUs are given whole: 0.75 and one step of 0.75 would be 1.5.
            while num_steps and not _is_whole_or_share(
                request.get("gpu", 0.0) + num_steps * step.get("gpu", 0.0)
            ):
                num_steps -= 1
            if num_steps:
                grown |= {
                    name: request.get(name, 0.0) + num_steps * amount
                    for name, amount in step.items()
                }
        return grown

    def _steps(self, request: Resources) -> list[dict[str, float]]:
        if self._increase_by is None and not self._add_bundles:
            return [{name: 1.0} for name in ("cpu", "gpu") if request.get(name)]
        whole = request if self._increase_by is None else self._increase_by
        step = {name: amount for name, amount in whole.items() if amount}
        return [step] if step else []


@final
class DistributeResources(ResourceAllocation):
    """Divides all resources evenly among live trials; each gets its share at its next result.

    Args:
        add_bundles: Whether a trial occupies a multiple of its original request; where
            `increase_by` is given, that is the step anyway.
        increase_by: The step, e.g. ``{"cpu": 2}``; None for 1 CPU and 1 GPU, each for itself, as
            far as the trial asked for any.
        increase_by_times: The largest number of steps above the request; -1 for any number.
        reserve_resources: What is never handed out, e.g. ``{"cpu": 1}``; None for nothing.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> DistributeResources(increase_by={"cpu": 2}, increase_by_times=3).declared_arguments
        {'increase_by': {'cpu': 2}, 'increase_by_times': 3}

    Departures:
        From Ray Tune: resources are plain amounts, so that new bundles and larger ones come to the
        same; with ``add_bundles=True`` the step is the original request. What further trials may
        still need is left to them (see `ResourceChangingScheduler.available_to`).
    """

    def __call__(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        result: Mapping[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> Resources | None:
        """Return the trial's request, raised up to that part of its even share that is free."""
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
    """Gives all free resources to the currently best trial; other trials keep theirs.

    A trial other than the best changes only where it has more than there is: then it shrinks, down
    to its original request.

    Args:
        add_bundles: Whether a trial occupies a multiple of its original request; where
            `increase_by` is given, that is the step anyway.
        increase_by: The step, e.g. ``{"cpu": 2}``; None for 1 CPU and 1 GPU, each for itself, as
            far as the trial asked for any.
        increase_by_times: The largest number of steps above the request; -1 for any number.
        reserve_resources: What is never handed out, e.g. ``{"cpu": 1}``; None for nothing.
        metric: What is compared, the latest value of each trial; None for the experiment's metric.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None for the
            experiment's mode.

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
        self._feasible = FeasibleFirst()

    def check_ready(self, scheduler: ResourceChangingScheduler) -> None:
        """Check that metric and mode are known if they are needed.

        Raises:
            ValueError: If neither this function nor the experiment names a metric and a mode.
        """
        checked_mode(
            self._metric or scheduler.metric, self._mode or scheduler.mode, type(self).__name__
        )
        self._feasible = FeasibleFirst(scheduler.constraints)

    def __call__(
        self,
        experiment: ExperimentView,
        trial: TrialView,
        result: Mapping[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> Resources | None:
        """Return the trial's request, raised by all that is free if it is the best."""
        value = MetricReader().finite(result, str(self._metric or scheduler.metric))
        self._feasible.note(trial.trial_id, result)
        if value is not None:
            self._values[trial.trial_id] = value
        self._forget_ended(experiment)
        within_reach = self._within_reach(trial, scheduler)
        # More than there is for it now, as after a second trial has started.
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

    def _forget_ended(self, experiment: ExperimentView) -> None:
        for trial_id in list(self._values):
            if trial_id not in experiment.trials or experiment.trials[trial_id].status in OVER:
                del self._values[trial_id]

    def _best(self, mode: str | None) -> str | None:
        """Return the best trial, of equal ones the one that reported first.

        Trials that keep all constraints are better than those that do not.
        """
        sign = 1.0 if mode == "min" else -1.0
        known = {
            trial_id: (self._feasible.violation(trial_id), sign * value)
            for trial_id, value in self._values.items()
            if not math.isnan(value)
        }
        return min(known, key=known.__getitem__, default=None)

    def state_dict(self) -> dict[str, Any]:
        """Return the latest value of each trial."""
        values = [[trial_id, strict(value)] for trial_id, value in self._values.items()]
        return {"values": values, **self._feasible.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._feasible.load_state_dict(state)
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
    # Ray Tune's users write CPU and GPU, where a trial's request has cpu and gpu.
    return {
        resource.lower() if resource in ("CPU", "GPU") else resource: float(amount)
        for resource, amount in amounts.items()
    }


_EVENLY: Final = DistributeResources()
_HOLDING = ("PENDING", "RUNNING")


@final
class ResourceChangingScheduler(Scheduler):
    """Wraps another scheduler, and gives free resources to the trials that it continues.

    After each result of a trial the allocation function returns what the trial is to occupy from
    now on. If that differs from what it has, it is saved and started again with the new resources,
    which the training code can ask for and must be able to use. Nothing is changed for a trial that
    the other scheduler stops, pauses or gives another's checkpoint at this result, nor for one that
    has no checkpoint and cannot be saved when it is asked to.

    The function's answer is applied only if the trial keeps at least its original request and all
    trials together need no more than there is; otherwise it is ignored, and the user is warned
    once. A trial that trains over several workers gets as many whole ones as the answer is enough
    for, within ``ScalingConfig(num_workers=(smallest, largest))``; its original request is that of
    the smallest number.

    Args:
        base_scheduler: The scheduler that decides about trials; None for `FIFOScheduler`.
        resources_allocation_function: Returns a trial's new resources. Called with the experiment
            (as `ExperimentView`), the trial, its flattened result and this scheduler, which can be
            asked for `original_request`, `available_to` and `num_live`; returns all that the trial
            is to occupy, e.g. ``{"cpu": 3.0}``, or None for no change. None to change nothing. A
            function should depend only on its arguments; one that keeps state across a restore must
            be a `ResourceAllocation`.

    Raises:
        TypeError: If an argument has the wrong type.

    Example:
        >>> from schedulers import ASHAScheduler
        >>> scheduler = ResourceChangingScheduler(
        ...     ASHAScheduler(max_t=9), DistributeResources(reserve_resources={"cpu": 1})
        ... )
        >>> scheduler.set_search_properties("loss", "min", seed=0)
        True
        >>> scheduler.metric
        'loss'

    Departures:
        From Ray Tune: the function gets a view of the experiment instead of the controller, and
        resources are plain amounts by name; trials are never given more than there is; resources
        that a trial yet to come could start with are not handed out until it has been clear for a
        result that none comes; what was handed out survives a restore.
    """

    changes_trials: ClassVar[bool] = True

    def __init__(
        self,
        base_scheduler: Scheduler | None = None,
        resources_allocation_function: AllocationFunction | None = _EVENLY,
    ) -> None:
        base_scheduler = adapted(base_scheduler)
        if base_scheduler is not None and not isinstance(base_scheduler, Scheduler):
            raise TypeError(f"base_scheduler must be a scheduler or None, got {base_scheduler!r}")
        if resources_allocation_function is not None and not callable(
            resources_allocation_function
        ):
            raise TypeError(
                "resources_allocation_function must be a function or None, got "
                f"{resources_allocation_function!r}"
            )
        self._base = base_scheduler or FIFOScheduler()
        self._allocate = resources_allocation_function
        # By trial: what it asked for; what it gets as soon as that is free.
        self._requests: dict[str, dict[str, float]] = {}
        self._promised: dict[str, dict[str, float]] = {}
        # Trials that have not ended, in order: summing up what all trials hold takes long where
        # thousands have ended.
        self._live: dict[str, None] = {}
        # By trial: since when it has seen room for another trial, and how many trials there were.
        self._room_since: dict[str, tuple[float, int]] = {}
        self._is_reserved = False
        self._has_complained = False
        self._num_resized = 0

    @property
    def base_scheduler(self) -> Scheduler:
        """The scheduler that decides about trials."""
        return self._base

    @property
    def metric(self) -> str | None:
        """Metric of the base scheduler."""
        return self._base.metric

    @metric.setter
    def metric(self, metric: str | None) -> None:
        self._base.metric = metric

    @property
    def mode(self) -> str | None:
        """Mode of the base scheduler."""
        return self._base.mode

    @mode.setter
    def mode(self, mode: str | None) -> None:
        self._base.mode = mode

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective of the base scheduler."""
        return self._base.objectives

    @property
    def constraints(self) -> tuple[OutcomeConstraint, ...]:
        """Constraints of the base scheduler."""
        return self._base.constraints

    @constraints.setter
    def constraints(self, constraints: tuple[OutcomeConstraint, ...]) -> None:
        self._base.constraints = constraints

    @property
    def experiment(self) -> ExperimentView:
        """View of the experiment, the same for both schedulers."""
        return self._base.experiment

    @experiment.setter
    def experiment(self, experiment: ExperimentView) -> None:
        self._base.experiment = experiment

    @property
    def needs_population(self) -> bool:
        """Whether the base takes all trials for one population."""
        return bool(getattr(self._base, "needs_population", False))

    @property
    def log_config(self) -> bool:
        """Whether the engine logs which trial clones which."""
        return bool(getattr(self._base, "log_config", False))

    @property
    def remarks(self) -> Sequence[str]:
        """Remarks of both schedulers."""
        return self._base.remarks

    @remarks.setter
    def remarks(self, remarks: Sequence[str]) -> None:
        self._base.remarks = remarks

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Pass the experiment's metric, mode and seed to the base scheduler.

        Raises:
            ValueError: If the base scheduler or the allocation function needs a metric and a mode
                and has none.
        """
        is_accepted = self._base.set_search_properties(metric, mode, **spec)
        if is_accepted and isinstance(self._allocate, ResourceAllocation):
            self._allocate.check_ready(self)
        return is_accepted

    def completed_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the search space as the base scheduler completes it."""
        return self._base.completed_space(space)

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Record the trial's request, and pass the trial to the base scheduler."""
        self._record_resources(trial)
        return self._base.on_trial_add(trial)

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Let the base scheduler judge the result; if the trial continues, consider a resize."""
        decisions = self._base.on_trial_result(trial, result)
        self._record_resources(trial)
        # A trial that reports has been resized, or the engine has refused to.
        self._promised.pop(trial.trial_id, None)
        if (
            self._allocate is None
            or _is_interrupted(trial.trial_id, decisions)
            or not self._can_move(trial, result)
        ):
            return decisions
        self._is_reserved = self._must_reserve(trial, result)
        wanted = self._allocate(self.experiment, trial, result, self)
        if wanted is not None and not malformed(wanted):
            wanted = _in_whole_workers(trial, wanted)
        if wanted is None or not self._is_valid_change(trial, wanted):
            return decisions
        return [
            *decisions,
            self._resize(trial, {name: float(amount) for name, amount in wanted.items()}),
        ]

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Forget the trial, and pass its end to the base scheduler."""
        self._requests.pop(trial.trial_id, None)
        self._forget(trial.trial_id)
        return self._base.on_trial_complete(trial, result)

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Forget the trial but for its request; pass its end to the base scheduler."""
        # A restore may bring a failed trial back, with the resources that it had last: its original
        # request is then known from here only.
        self._forget(trial.trial_id)
        return self._base.on_trial_error(trial)

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Pass the call to the base scheduler."""
        return self._base.on_idle(trials, num_free_slots)

    @property
    def num_live(self) -> int:
        """How many trials there are that are not over, paused ones included."""
        trials = self.experiment.trials
        return sum(
            trial_id not in trials or trials[trial_id].status not in OVER for trial_id in self._live
        )

    def original_request(self, trial: TrialView) -> Resources:
        """Return what a trial asked for when it was added.

        Args:
            trial: A trial of the experiment.
        """
        return dict(self._requests.get(trial.trial_id, trial.resources))

    def available_to(self, trial: TrialView) -> Resources:
        """Return the most that a trial can occupy now: what it has, and what is free.

        On a cluster this is no more than one node has, unless workers on several nodes train it.
        What others hold, wait for or were promised is not free. Neither is room in which a further
        trial could start, as long as one may come for it: that is so until
        ``experiment.no_more_trials``, or until no trial has been added from one result to a later
        one.

        Args:
            trial: A trial of the experiment.
        """
        most = self._most_of(trial)
        free = {
            name: min(amount, most.get(name, 0.0))
            for name, amount in self._left_by_others(trial).items()
        }
        if not self._is_reserved:
            return free
        return {name: min(amount, trial.resources.get(name, 0.0)) for name, amount in free.items()}

    def _most_of(self, trial: TrialView) -> Resources:
        """Return the most that a trial could ever occupy, of what there is."""
        experiment = self.experiment
        if getattr(trial, "group", None) is not None:
            return experiment.resources
        # Views that tests of users make may not have it.
        return getattr(experiment, "node_resources", experiment.resources)

    def _left_by_others(self, trial: TrialView) -> dict[str, float]:
        left = {name: float(amount) for name, amount in self.experiment.resources.items()}
        for other in self._live:
            if other != trial.trial_id:
                for name, amount in self._held(other).items():
                    left[name] = left.get(name, 0.0) - amount
        return left

    def _held(self, trial_id: str) -> Resources:
        trial = self.experiment.trials.get(trial_id)
        if trial is None or trial.status in OVER:
            return {}
        promised = self._promised.get(trial_id, {})
        if trial.status not in _HOLDING:
            return promised
        # Until a trial has been resized, it holds its old resources, and its new ones must not be
        # given away: of each, the larger amount.
        return {
            name: max(trial.resources.get(name, 0.0), promised.get(name, 0.0))
            for name in {**trial.resources, **promised}
        }

    def _must_reserve(self, trial: TrialView, result: Mapping[str, Any]) -> bool:
        """Return whether free resources must be left to a trial that is yet to come."""
        experiment, request = self.experiment, self.original_request(trial)
        num_trials = len(experiment.trials)
        is_last = experiment.no_more_trials or num_trials >= (
            experiment.max_trials or num_trials + 1
        )
        free = {
            name: amount - trial.resources.get(name, 0.0)
            for name, amount in self._left_by_others(trial).items()
        }
        if is_last or any(
            amount > free.get(name, 0.0) + ROUNDING for name, amount in request.items()
        ):
            self._room_since.pop(trial.trial_id, None)
            return False
        # A searcher may take a while to suggest a trial. If none has come from one result to the
        # next, none is expected; repeated results, whose time does not grow, do not count.
        time = as_float(result.get("training_iteration"))
        if time is None:
            return True
        since, num_before = self._room_since.get(trial.trial_id, (time, -1))
        if num_before != num_trials:
            since = time
            self._room_since[trial.trial_id] = (time, num_trials)
        return not time > since

    def _can_move(self, trial: TrialView, result: Mapping[str, Any]) -> bool:
        """Return whether a trial can be moved without losing progress.

        A trial that loses a little each time might never end.
        """
        if self.experiment.can_save_on_demand:
            return True
        return trial.checkpoint_iteration is not None and trial.checkpoint_iteration == result.get(
            "training_iteration"
        )

    def _is_valid_change(self, trial: TrialView, wanted: Resources) -> bool:
        """Return whether a request is valid and a change; warn the user once if it is invalid."""
        complaint = malformed(wanted)
        if not complaint and _is_same(wanted, trial.resources):
            return False
        complaint = complaint or misfit(wanted, self._most_of(trial)) or self._excess(trial, wanted)
        if complaint and not self._has_complained:
            self._has_complained = True
            remark = (
                f"resources_allocation_function wanted {wanted} for trial {trial.trial_id}, which "
                f"is ignored: {complaint}"
            )
            self.remarks = [*self.remarks, remark]
        return not complaint

    def _excess(self, trial: TrialView, wanted: Resources) -> str:
        """Return why the request is too large; empty if it is not."""
        left, request = self._left_by_others(trial), self.original_request(trial)
        for name, amount in request.items():
            if wanted.get(name, 0.0) < amount - ROUNDING:
                return f"{name} must be at least {amount}, which the trial asked for"
        for name, amount in wanted.items():
            # Its request is always allowed, even if others have taken it: the trial waits for it.
            if amount > max(left.get(name, 0.0), request.get(name, 0.0)) + ROUNDING:
                return (
                    f"{name} must be at most {max(left.get(name, 0.0), 0.0)}, which is what other "
                    "trials leave"
                )
        return ""

    def _resize(self, trial: TrialView, wanted: dict[str, float]) -> Resize:
        self._promised[trial.trial_id] = wanted
        self._num_resized += 1
        numbers: dict[str, Number | str] = {}
        left = self._left_by_others(trial)
        for name in sorted({**trial.resources, **wanted}):
            numbers |= {
                name: wanted.get(name, 0.0),
                f"{name}_before": trial.resources.get(name, 0.0),
                f"{name}_available": left.get(name, 0.0),
            }
        return Resize(
            trial.trial_id,
            dict(wanted),
            Reason("resource_changing.resize", {**numbers, "num_live": self.num_live}),
        )

    def _record_resources(self, trial: TrialView) -> None:
        self._live[trial.trial_id] = None
        self._requests.setdefault(trial.trial_id, _smallest(trial))

    def _forget(self, trial_id: str) -> None:
        self._live.pop(trial_id, None)
        self._promised.pop(trial_id, None)
        self._room_since.pop(trial_id, None)

    @property
    def keeps_state(self) -> bool:
        """Whether the base scheduler keeps its state."""
        return self._base.keeps_state

    def state_dict(self) -> dict[str, Any]:
        """Return both schedulers' state and that of the allocation function, as JSON values."""
        return {
            "base": self._base.state_dict(),
            "allocation": (
                self._allocate.state_dict()
                if isinstance(self._allocate, ResourceAllocation)
                else {}
            ),
            "requests": {trial_id: dict(request) for trial_id, request in self._requests.items()},
            "live": list(self._live),
            "promised": {trial_id: dict(promised) for trial_id, promised in self._promised.items()},
            "unclaimed": {trial_id: list(seen) for trial_id, seen in self._room_since.items()},
            "has_complained": self._has_complained,
            "num_resized": self._num_resized,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._base.load_state_dict(state["base"])
        if isinstance(self._allocate, ResourceAllocation):
            self._allocate.load_state_dict(state["allocation"])
        self._requests = {
            trial_id: dict(request) for trial_id, request in state["requests"].items()
        }
        self._live = dict.fromkeys(state["live"])
        self._promised = {
            trial_id: dict(promised) for trial_id, promised in state["promised"].items()
        }
        self._room_since = {
            trial_id: (seen[0], seen[1]) for trial_id, seen in state["unclaimed"].items()
        }
        self._has_complained = state["has_complained"]
        self._num_resized = state["num_resized"]

    def debug_string(self) -> str:
        """Return the number of resizes and the base scheduler's line."""
        return f"{type(self).__name__}: {self._num_resized} resized; {self._base.debug_string()}"


def _smallest(trial: TrialView) -> dict[str, float]:
    """Return the least with which a trial can train."""
    group = getattr(trial, "group", None)
    return dict(group.resized(group.min_workers).total if group else trial.resources)


def _in_whole_workers(trial: TrialView, wanted: Resources) -> Resources:
    """Return what the trial's workers occupy if there are as many as the amounts are enough for."""
    group = getattr(trial, "group", None)
    if group is None:
        return wanted
    enough_for = [
        math.floor(wanted.get(name, 0.0) / amount + ROUNDING)
        for name, amount in group.resources_per_worker.items()
        if amount
    ]
    num_workers = min(enough_for, default=group.max_workers)
    within = max(group.min_workers, min(num_workers, group.max_workers))
    return dict(group.resized(within).total)


def _is_interrupted(trial_id: str, decisions: Sequence[Decision]) -> bool:
    """Return whether a trial does not simply continue."""
    return any(
        decision.trial_id == trial_id and isinstance(decision, Stop | Pause | Exploit | Resize)
        for decision in decisions
    )


def _is_same(some: Resources, others: Resources) -> bool:
    return all(
        abs(some.get(name, 0.0) - others.get(name, 0.0)) < ROUNDING for name in {**some, **others}
    )
