"""Cases: a fault, the properties that have to hold despite it, and the evidence."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from .evidence import Evidence


class Outcome(enum.StrEnum):
    """Outcome of a case."""

    HOLDS = "holds"
    IN_PART = "in part"
    DOES_NOT_HOLD = "does not hold"
    NOT_SHOWN = "not shown"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A fault and the properties that have to hold despite it; a row of the table.

    Attributes:
        name: ``F1``, ``S1``, ...
        fault: The fault that is injected.
        asked: The properties that have to hold, in every repetition.
        shown_by: The tests and benches that show them.
        missing: The properties that no evidence shows yet; empty if all are shown.
    """

    name: str
    fault: str
    asked: str
    shown_by: Sequence[Evidence] = ()
    missing: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Result of running a case.

    Attributes:
        case: Its name.
        outcome: See `Outcome`.
        repetitions: How often the fault was injected: kills, or tests that passed.
        reason: The properties that did not hold or were not shown.
    """

    case: str
    outcome: Outcome
    repetitions: int
    reason: str = ""


def run(case: Case) -> Finding:
    """Run all evidence of a case."""
    verdicts = [evidence.run() for evidence in case.shown_by]
    unmet = [
        f"{condition.what}: {condition.measured}, asked for is {condition.accepted}"
        for verdict in verdicts
        for condition in verdict.failed
    ]
    repetitions = sum(verdict.repetitions for verdict in verdicts)
    if unmet:
        return Finding(case.name, Outcome.DOES_NOT_HOLD, repetitions, "; ".join(unmet))
    if not case.shown_by:
        return Finding(case.name, Outcome.NOT_SHOWN, 0, case.missing)
    return Finding(
        case.name, Outcome.IN_PART if case.missing else Outcome.HOLDS, repetitions, case.missing
    )
