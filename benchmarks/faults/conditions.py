"""What a bench asks for, what it found, and how both travel to the table."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """One line of a verdict.

    Attributes:
        what: What was looked at.
        measured: What was found, in words or figures.
        accepted: What is asked for; empty for figures that only explain others.
        holds: Whether it was found as asked.
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
    """What a bench comes to.

    Attributes:
        repetitions: How often the fault was caused.
        conditions: All that was asked for.
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
    """Return the condition that something never happened."""
    return Condition(
        what, f"{number:,}" if of is None else f"{number:,} of {of:,}", "0", number == 0
    )


def at_most(
    what: str, values: Iterable[float], limit_s: float, *, is_middle: bool = False
) -> Condition:
    """Return the condition that no value is above a limit; without values it does not hold.

    Args:
        what: What the values are.
        values: Seconds.
        limit_s: The limit.
        is_middle: Whether the limit is for the middle value alone, where a single one tells as much
            about the machine's other work.
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
    """Return the options of a bench from the command line: those named, with their defaults, and where the verdict goes.

    Args:
        description: What the bench does.
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
    """Print the verdict, write it to a file if one is given, and return the exit status: how many conditions do not hold."""
    for condition in verdict.conditions:
        print(condition.row())
    if path is not None:
        path.write_text(json.dumps(verdict.as_fields()) + "\n", encoding="utf-8")
    return len(verdict.failed)
