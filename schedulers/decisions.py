"""Decisions of a scheduler: stop, pause, resume, save, exploit or resize a trial.

Each decision names its trial and carries its reason with the numbers it was based on, so that the
engine can record why a trial ended where it did. A trial without a decision continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Number = int | float
"""Type of times, levels and values that JSON can hold."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something was decided.

    Attributes:
        rule: The rule that fired, as a dotted name, e.g. ``"asha.rung"``.
        numbers: The numbers the rule compared, by name, e.g. ``{"value": 0.31, "cutoff": 0.25,
            "rung": 9}``.
    """

    rule: str
    numbers: Mapping[str, Number | str] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Return rule and numbers, as JSON values."""
        return {"rule": self.rule, "numbers": dict(self.numbers)}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Reason:
        """Return the reason that `state_dict` was returned from."""
        return Reason(state["rule"], dict(state["numbers"]))

    def __str__(self) -> str:
        """Return the reason as one line, e.g. ``asha.rung (value=0.31, cutoff=0.25, rung=9)``.

        A cutoff that is not a number, as at a rung that too few trials have reached, is "none".
        """
        if not self.numbers:
            return self.rule
        numbers = (f"{name}={_shown(name, value)}" for name, value in self.numbers.items())
        return f"{self.rule} ({', '.join(numbers)})"


def _shown(name: str, value: Number | str) -> str:
    # NaN, which JSON holds by name, where too few trials have reached the rung.
    if name == "cutoff" and str(value) == "nan":
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Stop:
    """End the trial for good.

    Attributes:
        trial_id: The trial.
        reason: Why.
        is_complete: Whether the trial has had all the resource it could get, so that its last
            result counts in full; False where it was cut short.
    """

    trial_id: str
    reason: Reason
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Save the trial, end its worker, and keep the trial for a later `Resume`.

    A trial that cannot be saved when asked, since its training code reports checkpoints by itself,
    is paused at the first result with which, or before which, it has reported one.
    """

    trial_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue a paused trial from its latest checkpoint as soon as it fits."""

    trial_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Save:
    """Save a checkpoint of the trial at its current result, and continue it."""

    trial_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Exploit:
    """Continue the trial from another trial's checkpoint, with another configuration.

    The trial need not be saved first. If it is RUNNING, its worker stops at its next report, and
    the trial is PAUSED until a `Resume`, which may be returned together with this decision: then it
    continues at once, in the same process if the trainable can be reset. If it is PAUSED, it stays
    so. The donor's checkpoint is kept until the trial has one of its own.

    Attributes:
        trial_id: The trial.
        donor_id: The trial whose checkpoint it takes.
        config: The hyperparameters with which it continues.
        reason: Why.
        checkpoint: Index of the donor's checkpoint; None for its latest. A donor that has none yet,
            or has yet to carry out a `Save`, is awaited, and its next checkpoint is taken. If
            the donor ends without one, the trial continues as it was.
    """

    trial_id: str
    donor_id: str
    config: Mapping[str, Any]
    reason: Reason
    checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class Resize:
    """Continue the trial with other resources.

    It is saved, and started again from there as soon as these resources are free.

    Attributes:
        trial_id: The trial.
        resources: What it will occupy, e.g. ``{"cpu": 2.0}``.
        reason: Why.
    """

    trial_id: str
    resources: Mapping[str, float]
    reason: Reason


Decision = Stop | Pause | Resume | Save | Exploit | Resize
