"""The list of fault cases: it is complete, names existing benches and matches the documentation."""

import re

import pytest

from benchmarks.faults.case import Case, Outcome, run
from benchmarks.faults.conditions import Condition, Verdict
from benchmarks.faults.evidence import ROOT, Bench
from benchmarks.faults.page import BEGIN, CASES, END, PAGE, page, read_findings

pytestmark = pytest.mark.unit
ALL_BENCHES = [
    evidence for case in CASES.values() for evidence in case.shown_by if isinstance(evidence, Bench)
]


def test_every_case_is_listed_once():
    assert list(CASES) == [f"F{number}" for number in range(1, 42)] + [
        f"S{number}" for number in range(1, 10)
    ]


def test_named_benchmarks_exist():
    names = {bench.command.split()[0] for bench in ALL_BENCHES}
    assert names
    folder = ROOT / "benchmarks" / "faults"
    assert [name for name in names if not (folder / f"{name}.py").exists()] == []


def test_a_case_without_evidence_says_what_is_missing():
    assert [case.name for case in CASES.values() if not case.shown_by and not case.missing] == []


def test_the_documentation_shows_the_findings():
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, read_findings()) == text


def test_the_documentation_links_to_files_that_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def test_a_page_without_marks_for_the_table_is_rejected():
    with pytest.raises(ValueError, match="has no lines"):
        page(f"{END} {BEGIN}", {})


class FakeEvidence:
    """Evidence with a given verdict."""

    def __init__(self, *, holds):
        self._verdict = Verdict(3, [Condition("rows lost", "1", "0", holds)])

    def run(self):
        return self._verdict


@pytest.mark.parametrize(
    ("shown_by", "missing", "outcome", "repetitions", "reason"),
    [
        ([FakeEvidence(holds=True), FakeEvidence(holds=True)], "", Outcome.HOLDS, 6, ""),
        ([FakeEvidence(holds=True)], "a real disk", Outcome.IN_PART, 3, "a real disk"),
        (
            [FakeEvidence(holds=True), FakeEvidence(holds=False)],
            "a real disk",
            Outcome.DOES_NOT_HOLD,
            6,
            "rows lost: 1, asked for is 0",
        ),
        ([], "a canary", Outcome.NOT_SHOWN, 0, "a canary"),
    ],
)
def test_a_case_holds_only_if_all_its_evidence_holds(
    shown_by, missing, outcome, repetitions, reason
):
    finding = run(Case("F1", "a fault", "no loss", shown_by, missing))
    assert (finding.outcome, finding.repetitions, finding.reason) == (outcome, repetitions, reason)
