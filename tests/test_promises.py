"""Every promise and every fault case has tests, which exist."""

import functools
import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.faults.evidence import Suite
from benchmarks.faults.page import CASES, PAGE
from tests import tiers

ROOT = tiers.ROOT.parent
PROMISES = tomllib.loads((tiers.ROOT / "promises.toml").read_text(encoding="utf-8"))
TESTS_OF_CASES = {
    name: [
        node for evidence in case.shown_by if isinstance(evidence, Suite) for node in evidence.nodes
    ]
    for name, case in CASES.items()
}
"""Tests of each fault case and security case; a file stands for all tests in it."""
_DEFINITION = re.compile(r"^class (\w+)|^( *)def (test_\w+)", re.MULTILINE)


def numbers(kind, names):
    """Return the numbers of those names that are of a kind, e.g. F or S."""
    return sorted(int(name[1:]) for name in names if name[0] == kind)


def named_in(path, text):
    """Return ids of the tests and test classes in a file, without an import of it."""
    ids, owner = {path}, ""
    for name, indent, test in _DEFINITION.findall(text):
        if name:
            owner = name
        ids.add("::".join([path, *([owner] if name or indent else []), *([test] if test else [])]))
    return ids


@functools.cache
def read(path):
    """Return what `named_in` returns, or nothing if there is no such file."""
    file = ROOT / path
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    assert tiers.tier_of(Path(path), text) in tiers.TIERS
    return named_in(path, text) if file.exists() else set()


def missing(tests):
    """Return those of the tests that do not exist."""
    return [test for test in tests if test not in read(test.partition("::")[0])]


def test_every_promise_is_listed_and_has_a_test():
    assert numbers("S", PROMISES) == [*range(1, 123)]
    assert numbers("D", PROMISES) == [*range(1, 8)]
    assert {name[0] for name in PROMISES} == {"S", "D", "F"}
    for name, entry in PROMISES.items():
        assert set(entry) == {"promise", "tests"}, name
        assert entry["promise"], name
        assert entry["tests"], name


def test_every_fault_case_has_a_test():
    rows = re.findall(r"^\| (F\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert numbers("F", rows) == numbers("F", CASES) == [*range(1, 42)]
    shown_by_benches = {name for name, tests in TESTS_OF_CASES.items() if not tests}
    assert shown_by_benches == {name for name in PROMISES if name[0] == "F"}


def test_tests_of_promises_and_of_cases_exist():
    promised = {name: missing(entry["tests"]) for name, entry in PROMISES.items()}
    assert {name: gone for name, gone in promised.items() if gone} == {}, "in tests/promises.toml"
    cases = {name: missing(tests) for name, tests in TESTS_OF_CASES.items()}
    assert {name: gone for name, gone in cases.items() if gone} == {}, "in benchmarks/faults"


@pytest.mark.parametrize(
    "test",
    [
        "tests/test_promises.py::test_that_was_renamed",
        "tests/test_promises.py::TestNothing",
        "tests/test_removed.py",
        "tests/test_tiers.py::TestNothing::test_a_mark_of_the_file_goes_before_the_folder",
    ],
)
def test_a_test_that_does_not_exist_is_missed(test):
    assert missing([test]) == [test]


def test_tests_are_found_in_functions_and_classes():
    text = "def test_a(): pass\nclass TestB:\n    def test_c(self): pass\ndef test_d(): pass\n"
    assert named_in("a.py", text) == {
        "a.py",
        "a.py::test_a",
        "a.py::TestB",
        "a.py::TestB::test_c",
        "a.py::test_d",
    }
