"""A measured figure, its JSON form and its row in the table."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A measured value.

    Attributes:
        what: Name of the measurement.
        value: The measurement, in `unit`.
        unit: E.g. ``"s"`` or ``"/s"``.
        goal: The goal, as text; empty for figures that only explain others.
    """

    what: str
    value: float
    unit: str
    goal: str = ""

    def print(self) -> None:
        """Print the figure as a line of JSON."""
        print(json.dumps(dataclasses.asdict(self)), flush=True)

    @classmethod
    def parse(cls, line: str) -> Figure:
        """Return the figure that was printed as `line`."""
        return cls(**json.loads(line))

    def row(self) -> str:
        """Return the figure as a row of the table."""
        value = f"{self.value:,.3f}" if self.value < 10 else f"{self.value:,.0f}"  # noqa: PLR2004  (three digits are enough)
        return f"{self.what:<58} {value:>12} {self.unit:<9} {self.goal}"
