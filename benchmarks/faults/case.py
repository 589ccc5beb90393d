"""A case: something that is broken, what has to hold all the same, and what shows it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from .evidence import Evidence


class Outcome(enum.StrEnum):
    """What a case comes to."""

    HOLDS = "holds"
    IN_PART = "in part"
    DOES_NOT_HOLD = "does not hold"
    NOT_SHOWN = "not shown"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One line of the table.

    Attributes:
        name: ``F1``, ``S1``, ...
        fault: What is broken.
        asked: What has to hold, in every repetition.
        shown_by: What shows it.
        missing: What of it nothing shows yet, in words; empty if all of it is shown.
    """

    name: str
    fault: str
    asked: str
    shown_by: Sequence[Evidence] = ()
    missing: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What a case came to when it was run.

    Attributes:
        case: Its name.
        outcome: See `Outcome`.
        repetitions: How often the fault was caused: kills, or tests that passed.
        reason: What did not hold or was not shown.
    """

    case: str
    outcome: Outcome
    repetitions: int
    reason: str = ""


def run(case: Case) -> Finding:
    """Run all that shows a case."""
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
