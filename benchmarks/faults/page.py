"""Findings of the cases, stored in ``findings.jsonl`` and shown in ``docs/reliability.md``."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import assert_never

from .attacks import ATTACKS
from .case import Case, Finding, Outcome
from .cluster_faults import CLUSTER_FAULTS
from .evidence import ROOT, Bench, Evidence, Suite
from .faults import FAULTS

CASES: Mapping[str, Case] = {case.name: case for case in (*FAULTS, *CLUSTER_FAULTS, *ATTACKS)}
"""All cases by their names."""
FINDINGS = Path(__file__).with_name("findings.jsonl")
PAGE = ROOT / "docs" / "reliability.md"
BEGIN = "<!-- table: python -m benchmarks.faults --write -->"
END = "<!-- end of table -->"
_HEADER = (
    "| case | what is broken | what has to hold | shown by | repetitions | outcome |\n"
    "|---|---|---|---|--:|---|"
)


def read_findings() -> dict[str, Finding]:
    """Return the latest finding of each case that has been run."""
    lines = FINDINGS.read_text(encoding="utf-8").splitlines() if FINDINGS.exists() else []
    findings = [json.loads(line) for line in lines]
    return {
        fields["case"]: Finding(**{**fields, "outcome": Outcome(fields["outcome"])})
        for fields in findings
    }


def write_findings(findings: Mapping[str, Finding]) -> None:
    """Store the findings, in the order of the cases."""
    lines = [
        json.dumps(dataclasses.asdict(findings[name])) + "\n" for name in CASES if name in findings
    ]
    FINDINGS.write_text("".join(lines), encoding="utf-8")


def table(findings: Mapping[str, Finding]) -> str:
    """Return all cases as a Markdown table."""
    not_run = (Finding(name, Outcome.NOT_SHOWN, 0, "not run yet") for name in CASES)
    rows = [_row(CASES[finding.case], findings.get(finding.case, finding)) for finding in not_run]
    return "\n".join([_HEADER, *rows])


def page(text: str, findings: Mapping[str, Finding]) -> str:
    """Return the text with the table inserted between its markers.

    Raises:
        ValueError: If the text has no such markers.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"the text has no lines {BEGIN!r} and {END!r} between which the table could stand"
        )
    return f"{head}{BEGIN}\n\n{table(findings)}\n\n{END}{tail}"


def write_page() -> None:
    """Update the table in the documentation."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read_findings()), encoding="utf-8")


def _row(case: Case, finding: Finding) -> str:
    shown_by = (
        ", ".join(
            dict.fromkeys(f"`{name}`" for evidence in case.shown_by for name in _names(evidence))
        )
        or "-"
    )
    outcome = f"**{finding.outcome}**" + (
        f"; {_lead(finding.outcome)}{finding.reason}" if finding.reason else ""
    )
    repetitions = finding.repetitions or "-"
    return f"| {case.name} | {case.fault} | {case.asked} | {shown_by} | {repetitions} | {outcome} |"


def _names(evidence: Evidence) -> Iterator[str]:
    match evidence:
        case Suite():
            yield evidence.name
        case Bench(command):
            module, *options = shlex.split(command)
            yield shlex.join([f"benchmarks.faults.{module}", *options])
        case _:
            raise TypeError(f"the table cannot name {evidence!r}")


def _lead(outcome: Outcome) -> str:
    match outcome:
        case Outcome.IN_PART:
            return "not shown: "
        case Outcome.HOLDS | Outcome.DOES_NOT_HOLD | Outcome.NOT_SHOWN:
            return ""
        case _:
            assert_never(outcome)
