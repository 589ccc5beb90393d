"""What a scheduler may decide about a trial.

A decision names its trial and carries its reason with the numbers it was based on, so that the engine can write it down and
tell a user, months later, why a trial ended where it did. A trial about which nothing is decided simply goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Number = int | float
"""What a reason may count with."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something was decided.

    Attributes:
        rule: The rule that fired, as a dotted name, e.g. ``"asha.rung"``.
        numbers: The numbers the rule compared, by name, e.g. ``{"value": 0.31, "cutoff": 0.25, "rung": 9}``.
    """

    rule: str
    numbers: Mapping[str, Number | str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the reason as one line, e.g. ``asha.rung (value=0.31, cutoff=0.25, rung=9)``."""
        if not self.numbers:
            return self.rule
        listed = ", ".join(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in self.numbers.items())
        return f"{self.rule} ({listed})"


@dataclass(frozen=True, slots=True)
class Stop:
    """End the trial for good.

    Attributes:
        trial_id: The trial.
        reason: Why.
        is_complete: Whether the trial has had all the resource it could get, so that its last result counts in full; False where it
            was cut short.
    """

    trial_id: str
    reason: Reason
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Save the trial, end its worker, and keep the trial for a later `Resume`."""

    trial_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue a paused trial from its latest checkpoint as soon as it fits."""

    trial_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Save:
    """Ask the trial for a checkpoint at its current result and let it go on."""

    trial_id: str
    reason: Reason


Decision = Stop | Pause | Resume | Save
