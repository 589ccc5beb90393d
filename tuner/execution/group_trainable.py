"""Trainables that run in several processes at once, which train one trial together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from tuner.core.trial import WorkerGroup


@runtime_checkable
class GroupTrainable(Protocol):
    """A training function that is called in each worker of a group, with the same configuration.

    Its process knows its rank from `session.get_context`.
    """

    def __call__(self, config: Mapping[str, Any]) -> Any:
        """Train; called in each worker."""

    def group_for(self, config: Mapping[str, Any]) -> WorkerGroup:
        """Return the workers over which a trial with this configuration trains.

        Raises:
            ValueError: If the configuration names none that are possible.
        """

    @property
    def validator(self) -> Callable[..., Mapping[str, Any]] | None:
        """The declared validation function, None for none."""


@runtime_checkable
class TrainableSource(Protocol):
    """An object that `Tuner` accepts in the place of a trainable, such as a trainer."""

    def as_trainable(self) -> GroupTrainable:
        """Return what its workers run."""
