"""Settings of training over several processes, and of the validation of checkpoints."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from searchers.space.conditions import holds_words
from tuner.core.settings import ValidationPolicy
from tuner.core.worker_records import WorkerGroup
from tuner.execution.resources import checked_bundle, checked_labels

from .checked_settings import (
    Settings,
    check_limit,
    check_seconds,
    check_type,
    check_whole,
    names_unknown_arguments,
)

PLACEMENT_STRATEGIES: Final = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_ACCELERATOR: Final = "ray.io/accelerator-type"
_REMOTE_KWARGS: Final = ("num_cpus", "num_gpus", "resources", "max_retries")


@names_unknown_arguments
@dataclass(slots=True, repr=False)
class ScalingConfig(Settings):
    """Over how many processes a trial trains, and what each of them occupies.

    Attributes:
        num_workers: How many workers, 1 by default. A tuple ``(min, max)`` for as many as fit when
            the trial starts, within these limits. 0 runs the training function in the process of
            the caller (``TorchTrainer.fit``) or of the trial, without a process group.
        use_gpu: Whether each worker gets a GPU.
        resources_per_worker: What each worker occupies, e.g. ``{"CPU": 2, "GPU": 0.5}``; None for
            1 CPU, and with `use_gpu` 1 GPU. Names other than CPU and GPU are custom resources, see
            ``RunConfig.resources``.
        placement_strategy: How workers are spread over machines: PACK, SPREAD, STRICT_PACK or
            STRICT_SPREAD; all mean the same on one machine.
        accelerator_type: The kind of GPU that the node of each worker must have, by the name that
            Ray gives it, e.g. ``"A100"``: its label ``ray.io/accelerator-type``. On one machine it
            has no effect.
        label_selector: What the node of each worker must have, e.g. ``{"zone": "west"}``; the
            values as for the `labels` of `with_resources`. A list with one selector for each
            worker must have the same in all places. On one machine it has no effect.
        elastic_resize_monitor_interval_s: With a tuple `num_workers`, how many seconds a trial
            keeps its number of workers before another number is considered; 60 by default.
        trainer_resources: Must be None: the driver trains nothing.
        use_tpu: Must be False, TPUs are not supported.
        topology: Must be None, likewise.

    In the search space of a trainer, fields may hold domains and grid axes, such as
    ``ScalingConfig(num_workers=grid_search([1, 2]))``.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If a value is out of range or not supported.

    Example:
        >>> config = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 4})
        >>> config.total_resources
        {'CPU': 8.0}
    """

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] | None = None
    placement_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    accelerator_type: str | None = None
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    elastic_resize_monitor_interval_s: float = 60.0
    trainer_resources: Mapping[str, float] | None = None
    use_tpu: bool = False
    topology: str | None = None

    def _check(self) -> None:
        if self.searched:
            return  # checked with the values of each trial
        self._check_workers()
        if not isinstance(self.use_gpu, bool):
            raise TypeError(
                f"use_gpu must be True or False, got {self.use_gpu!r}; "
                "resources_per_worker={'GPU': ...} says how many each worker gets"
            )
        if self.resources_per_worker is not None:
            if not isinstance(self.resources_per_worker, Mapping):
                raise TypeError(
                    "resources_per_worker must be a dictionary of amounts by name, got "
                    f"{self.resources_per_worker!r}"
                )
            checked_bundle(self.resources_per_worker)
        if self.placement_strategy not in PLACEMENT_STRATEGIES:
            raise ValueError(
                f"placement_strategy must be one of {', '.join(PLACEMENT_STRATEGIES)}, got "
                f"{self.placement_strategy!r}"
            )
        check_type("accelerator_type", self.accelerator_type, str)
        self.labels  # noqa: B018  (raises where they are none)
        check_seconds("elastic_resize_monitor_interval_s", self.elastic_resize_monitor_interval_s)
        if not 0 <= self.elastic_resize_monitor_interval_s < math.inf:
            raise ValueError(
                "elastic_resize_monitor_interval_s must be finite and at least 0 seconds, got "
                f"{self.elastic_resize_monitor_interval_s!r}"
            )
        if self.use_tpu or self.topology is not None or "TPU" in (self.resources_per_worker or ()):
            raise ValueError(
                "use_tpu, topology and the resource 'TPU' are not supported; "
                "train on GPUs (use_gpu=True) or CPUs"
            )
        if self.trainer_resources is not None:
            raise ValueError(
                f"trainer_resources must be None, got {self.trainer_resources!r}; only workers "
                "train, so request everything in resources_per_worker"
            )

    def _check_workers(self) -> None:
        given = self.num_workers
        if isinstance(given, list):  # what a tuple becomes in a file
            given = tuple(given)
            object.__setattr__(self, "num_workers", given)
        numbers = given if isinstance(given, tuple) else (given, given)
        if len(numbers) != 2 or not all(type(number) is int for number in numbers):  # noqa: PLR2004
            raise TypeError(
                f"num_workers must be a whole number or a tuple (min, max), got {given!r}"
            )
        if isinstance(given, tuple) and not 1 <= given[0] <= given[1]:
            raise ValueError(f"num_workers=(min, max) must have 1 <= min <= max, got {given!r}")
        if numbers[0] < 0:
            raise ValueError(
                f"num_workers must be at least 1, or 0 to train in this process, got {given!r}"
            )

    @property
    def searched(self) -> list[str]:
        """Names of the fields that hold a domain or a grid axis instead of a value."""
        return [field.name for field in fields(self) if holds_words(getattr(self, field.name))]

    def as_space(self) -> Any:
        """Return what stands for it in a search space: its fields if one is searched, or itself."""
        return self.given if self.searched else self

    @property
    def given(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) is not field.default
            and getattr(self, field.name) != field.default
        }

    @property
    def is_elastic(self) -> bool:
        """Whether the number of workers may differ from start to start."""
        return isinstance(self.num_workers, tuple)

    @property
    def min_workers(self) -> int:
        """The smallest number of workers."""
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        """The largest number of workers."""
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def amounts_per_worker(self) -> dict[str, float]:
        """What each worker occupies, with ``"cpu"`` and ``"gpu"`` in lower case."""
        given = checked_bundle(self.resources_per_worker or {})
        if self.resources_per_worker is None:
            given = {"cpu": 1.0}
        return {**({"gpu": 1.0} if self.use_gpu else {}), **given}

    @property
    def total_resources(self) -> dict[str, float]:
        """What the largest number of workers occupies together, with ``"CPU"`` and ``"GPU"``."""
        return {
            name.upper() if name in ("cpu", "gpu") else name: amount * max(1, self.max_workers)
            for name, amount in self.amounts_per_worker.items()
        }

    def __repr__(self) -> str:
        """Return what differs from the defaults, short enough for a table of trials."""
        shown = {"num_workers": self.num_workers, **self.given}
        given = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"ScalingConfig({given})"

    def group(self) -> WorkerGroup:
        """Return the worker group that this asks for; 0 workers are one without companions."""
        least, most = max(1, self.min_workers), max(1, self.max_workers)
        share, labels = self.amounts_per_worker, self.labels
        return WorkerGroup(most, share, least, most, self.placement_strategy, labels=labels)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the node of each worker must have.

        Raises:
            TypeError: If `label_selector` holds no labels.
            ValueError: If it has other ones for some workers than for others.
        """
        given = self.label_selector or {}
        selectors = [given] if isinstance(given, Mapping) else list(given)
        first, *others = [checked_labels(selector) for selector in selectors]
        if any(other != first for other in others):
            raise ValueError(
                f"label_selector must be the same for all workers, got {given!r}; give one "
                "dictionary"
            )
        kind = {_ACCELERATOR: self.accelerator_type} if self.accelerator_type else {}
        return kind | first


@dataclass(slots=True)
class ValidationTaskConfig(Settings):
    """Arguments and time limit of the validation of one checkpoint.

    Attributes:
        fn_kwargs: Keyword arguments of the validation function, beside the checkpoint; None, the
            default, for none.
        timeout_s: Seconds after which the validation is killed; None, the default, for no limit.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If `timeout_s` is not positive.
    """

    fn_kwargs: Mapping[str, Any] | None = None
    timeout_s: float | None = None

    def _check(self) -> None:
        if self.fn_kwargs is None:
            object.__setattr__(self, "fn_kwargs", {})
        if not isinstance(self.fn_kwargs, Mapping) or not all(
            isinstance(name, str) for name in self.fn_kwargs
        ):
            raise TypeError(
                f"fn_kwargs must be a dictionary of arguments by name, got {self.fn_kwargs!r}"
            )
        if self.timeout_s is not None:
            check_seconds("timeout_s", self.timeout_s, " or None")
            if not self.timeout_s > 0:
                raise ValueError(
                    f"timeout_s must be a positive number of seconds or None, got "
                    f"{self.timeout_s!r}"
                )


@dataclass(slots=True)
class ValidationConfig(Settings):
    """How reported checkpoints are validated in processes of their own, beside the training.

    Attributes:
        fn: Called as ``fn(checkpoint, **fn_kwargs)``; returns a dictionary of metrics, which are
            merged into those that the checkpoint was reported with. Defined in a module or script,
            it can be called again after a restart.
        task_config: Default arguments and time limit; what `report` gives counts before them.
        ray_remote_kwargs: What each validation occupies, and how often it is tried again:
            ``num_cpus`` (1 by default), ``num_gpus`` (0), ``resources`` (other amounts by name) and
            ``max_retries`` (0) for one that raises or dies.
        max_in_flight: How many checkpoints of one trial are validated at once; 1 by default.
        max_pending: How many validations of a trial may be open before its next report waits; None,
            the default, for no limit. It never waits for validations that themselves wait for
            resources, such as those that the trial occupies.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If a value is out of range, or `ray_remote_kwargs` has another key.

    Departures:
        `max_in_flight` and `max_pending` do not exist in Ray Train, which validates all at once.
    """

    fn: Callable[..., Mapping[str, Any]]
    task_config: ValidationTaskConfig | None = None
    ray_remote_kwargs: Mapping[str, Any] | None = None
    max_in_flight: int = 1
    max_pending: int | None = None

    def _check(self) -> None:
        if not callable(self.fn):
            raise TypeError(
                f"fn must be a function of the checkpoint, got {self.fn!r}; pass it without "
                "calling it"
            )
        if self.task_config is None:
            object.__setattr__(self, "task_config", ValidationTaskConfig())
        check_type("task_config", self.task_config, ValidationTaskConfig)
        if self.ray_remote_kwargs is None:
            object.__setattr__(self, "ray_remote_kwargs", {})
        check_limit("max_in_flight", self.max_in_flight)
        check_limit("max_pending", self.max_pending)
        self._check_remote_kwargs()

    def _check_remote_kwargs(self) -> None:
        given = self.ray_remote_kwargs
        if not isinstance(given, Mapping):
            raise TypeError(f"ray_remote_kwargs must be a dictionary, got {given!r}")
        if unknown := [name for name in given if name not in _REMOTE_KWARGS]:
            raise ValueError(
                f"ray_remote_kwargs must have the keys {', '.join(_REMOTE_KWARGS)} only, got "
                f"{', '.join(map(repr, unknown))}; leave the others out"
            )
        retries = given.get("max_retries", 0)
        check_whole("ray_remote_kwargs['max_retries']", retries)
        if retries < 0:
            raise ValueError(
                f"ray_remote_kwargs['max_retries'] must be at least 0, got {retries!r}"
            )
        self._amounts()  # raises where they are none

    def _amounts(self) -> dict[str, float]:
        given = self.ray_remote_kwargs or {}
        amounts = {"cpu": given.get("num_cpus", 1), "gpu": given.get("num_gpus", 0)}
        checked = checked_bundle({**(given.get("resources") or {}), **amounts})
        return {name: amount for name, amount in checked.items() if amount or name == "cpu"}

    @property
    def policy(self) -> ValidationPolicy:
        """The part that the experiment's decisions depend on."""
        return ValidationPolicy(
            resources=self._amounts(),
            max_in_flight=self.max_in_flight,
            max_pending=self.max_pending,
            max_retries=(self.ray_remote_kwargs or {}).get("max_retries", 0),
            timeout_s=self.task_config.timeout_s if self.task_config else None,
        )

    @property
    def validator(self) -> Callable[..., Mapping[str, Any]]:
        """The function with its default arguments, which those of a report replace."""
        defaults = (self.task_config and self.task_config.fn_kwargs) or {}
        return functools.partial(self.fn, **defaults) if defaults else self.fn
