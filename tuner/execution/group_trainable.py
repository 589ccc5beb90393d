"""Trainables that run in several processes at once, which train one trial together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from tuner.core.worker_records import WorkerGroup

from .resources import checked_labels, total_amounts


class GroupTrainable(ABC):
    """A training function that is called in each worker of a group, with the same configuration.

    A class and no `Protocol`: each trial asks several times whether its trainable is one, which
    takes twenty microseconds with a protocol.

    Its process knows its rank from `session.get_context`. Where it has an attribute ``func``, the
    user's function, it is named after that, and a restore notices changes of that function's code.
    See `checks_of` for what it may check. Where it has an attribute ``trainer``, the module and
    name of the class that it comes from, that is recorded.
    """

    @abstractmethod
    def __call__(self, config: Mapping[str, Any]) -> Any:
        """Train; called in each worker."""

    @abstractmethod
    def group_for(self, config: Mapping[str, Any]) -> WorkerGroup:
        """Return the workers over which a trial with this configuration trains.

        Raises:
            ValueError: If the configuration names none that are possible.
        """

    @property
    @abstractmethod
    def validator(self) -> Callable[..., Mapping[str, Any]] | None:
        """The declared validation function, None for none."""


@runtime_checkable
class TrainableSource(Protocol):
    """An object that `Tuner` accepts in the place of a trainable, such as a trainer.

    Where it has an attribute ``run_config`` and `Tuner` is given none, that one applies.
    """

    def as_trainable(self) -> GroupTrainable:
        """Return what its workers run."""


@runtime_checkable
class RecordedTrainable(Protocol):
    """A training function that an experiment's directory tells how to make again.

    So the experiment can be continued without the user's script. See `checks_of` for what it may
    check.
    """

    def __call__(self, config: Mapping[str, Any]) -> Any:
        """Train."""

    def as_record(self) -> Mapping[str, Any]:
        """Return what it is made from, as JSON."""

    def resume_line(self, address: str) -> str:
        """Return the command of the shell that continues an experiment at this address."""


def recorded_part(trainable: Any) -> RecordedTrainable | None:
    """Return what is recorded of a trainable, without what `with_resources` has added; or None."""
    while trainable is not None and not isinstance(trainable, type):
        if isinstance(trainable, RecordedTrainable):
            return trainable
        trainable = getattr(trainable, "func", None)
    return None


def checks_of(trainable: Any, name: str) -> Callable[[Any], None] | None:
    """Return a check that a trainable makes before the experiment begins; None for none.

    Args:
        trainable: A trainable; only those that are a `GroupTrainable` or `RecordedTrainable` check.
        name: ``check_space``, which is called with the search space, ``check_run``, with the
            `RunConfig`, or ``check_tune``, with the `TuneConfig`. It raises `ValueError` if the
            function cannot be searched like that.
    """
    checking = trainable if isinstance(trainable, GroupTrainable) else recorded_part(trainable)
    check: Callable[[Any], None] | None = getattr(checking, name, None)
    return check


def what_runs(trainable: Any) -> Any:
    """Return what the workers of a trainer run; anything else as it is."""
    if isinstance(trainable, TrainableSource) and not isinstance(trainable, type):
        return trainable.as_trainable()
    return trainable


def checked_group(group: WorkerGroup) -> WorkerGroup:
    """Return a group with whole numbers of workers and a request that a worker can have.

    Raises:
        TypeError: If it is no group, or a number of workers is no whole number.
        ValueError: If a number of workers or an amount is out of range.
    """
    if not isinstance(group, WorkerGroup):
        raise TypeError(f"group_for must return a WorkerGroup, got {group!r:.80}")
    numbers = (group.min_workers, group.num_workers, group.max_workers)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise TypeError(f"a number of workers must be a whole number, got {numbers}")
    if not 1 <= group.min_workers <= group.num_workers <= group.max_workers:
        raise ValueError(
            f"num_workers must be at least 1 and between min_workers={group.min_workers} and "
            f"max_workers={group.max_workers}, got {group.num_workers}"
        )
    return replace(
        group,
        resources_per_worker=total_amounts(group.resources_per_worker),
        labels=checked_labels(group.labels),
    )
