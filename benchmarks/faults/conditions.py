"""Verdict of a bench: the conditions it checks and their JSON form."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A line of a verdict: a measurement and the values accepted.

    Attributes:
        what: Name of the measurement.
        measured: The measurement, as text.
        accepted: The values accepted; empty for figures that only explain others.
        holds: Whether the measurement is accepted.
    """

    what: str
    measured: str
    accepted: str = ""
    holds: bool = True

    def row(self) -> str:
        """Return the condition as a row of a table on the console."""
        verdict = ("holds" if self.holds else "DOES NOT HOLD") if self.accepted else ""
        return f"{self.what:<64} {self.measured:>24}  {self.accepted:<22} {verdict}".rstrip()


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a bench.

    Attributes:
        repetitions: How often the fault was injected.
        conditions: The conditions checked, with their measurements.
    """

    repetitions: int
    conditions: Sequence[Condition]

    @property
    def failed(self) -> list[Condition]:
        """The conditions that do not hold."""
        return [condition for condition in self.conditions if not condition.holds]

    def as_fields(self) -> dict[str, Any]:
        """Return the verdict as values of JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Verdict:
        """Return the verdict that `as_fields` described."""
        return cls(
            fields["repetitions"], [Condition(**condition) for condition in fields["conditions"]]
        )


def none_of(what: str, number: int, of: int | None = None) -> Condition:
    """Return the condition that an event never happened."""
    return Condition(
        what, f"{number:,}" if of is None else f"{number:,} of {of:,}", "0", number == 0
    )


def at_most(
    what: str, values: Iterable[float], limit_s: float, *, is_middle: bool = False
) -> Condition:
    """Return the condition that no value is above a limit; without values it does not hold.

    Args:
        what: Name of the values.
        values: Seconds.
        limit_s: The limit.
        is_middle: Whether the limit applies to the median alone, for values of which a single one
            may be high because the machine is busy.
    """
    ordered = sorted(values)
    accepted = f"<= {limit_s:g} s{', the middle one' if is_middle else ''}"
    if not ordered:
        return Condition(what, "never seen", accepted, holds=False)
    middle, worst = ordered[len(ordered) // 2], ordered[-1]
    return Condition(
        what,
        f"{middle:.3f}, at worst {worst:.3f} s",
        accepted,
        (middle if is_middle else worst) <= limit_s,
    )


def arguments(description: str | None, **defaults: float | str) -> argparse.Namespace:
    """Parse the command line of a bench: the options given here, and ``--verdict``.

    Args:
        description: Description of the bench, for ``--help``.
        **defaults: Options by name; the type of the default is that of the option.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            help=f"default: {default}",
        )
    parser.add_argument("--verdict", type=Path, help="file that the verdict is written to, as JSON")
    return parser.parse_args()


def conclude(verdict: Verdict, path: Path | None) -> int:
    """Print the verdict, and write it to a file if one is given.

    Returns:
        The exit status: how many conditions do not hold.
    """
    for condition in verdict.conditions:
        print(condition.row())
    if path is not None:
        path.write_text(json.dumps(verdict.as_fields()) + "\n", encoding="utf-8")
    return len(verdict.failed)
