"""Evidence that a case holds: tests of the suite, repeated if needed, and benches."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import final
from xml.etree import ElementTree as ET

from .conditions import Condition, Verdict

ROOT = Path(__file__).resolve().parents[2]


class Evidence(ABC):
    """Something that can be run to see whether a case holds."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in the table."""

    @abstractmethod
    def run(self) -> Verdict:
        """Run it with its output on standard error, and return the verdict."""


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Suite(Evidence):
    """Tests of the suite.

    Attributes:
        file: The file below ``tests/``, without its suffix.
        names: Test functions without the prefix ``test_``; empty for all in the file.
        repeat: Number of runs of each test.
    """

    file: str
    names: Sequence[str] = ()
    repeat: int = 1

    @property
    def name(self) -> str:
        """The path of the file."""
        return f"tests/{self.file}.py"

    @property
    def nodes(self) -> list[str]:
        """The node ids for pytest."""
        return [f"{self.name}::test_{name}" for name in self.names] or [self.name]

    def run(self) -> Verdict:
        """Run the tests with pytest."""
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory, "report.xml")
            options = [
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "benchmarks.faults.repeat",
                f"--repeat={self.repeat}",
                f"--junit-xml={report}",
            ]
            _run([sys.executable, "-m", "pytest", *options, *self.nodes])
            return _verdict_of(report) if report.exists() else _broken("pytest wrote no report")


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Bench(Evidence):
    """A bench of this package.

    Attributes:
        command: The name of the module, and its options.
    """

    command: str

    @property
    def name(self) -> str:
        """The command, without ``python -m benchmarks.faults.``."""
        return self.command

    def run(self) -> Verdict:
        """Run the bench in a separate process."""
        module, *options = shlex.split(self.command)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "verdict.json")
            status = _run(
                [
                    sys.executable,
                    "-m",
                    f"benchmarks.faults.{module}",
                    *options,
                    "--verdict",
                    str(path),
                ]
            )
            if not path.exists():
                return _broken(f"{module} ended with status {status}")
            return Verdict.from_fields(json.loads(path.read_text(encoding="utf-8")))


def _run(command: Sequence[str]) -> int:
    return subprocess.run(  # noqa: S603  (our own)
        command, cwd=ROOT, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False
    ).returncode


def _verdict_of(report: Path) -> Verdict:
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314  (pytest has just written it)
    failed = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = [case for case in cases if case.find("skipped") is not None]
    if not cases:
        return _broken("pytest found no test")
    unmet = [Condition(str(case.get("name")), "failed", "passes", holds=False) for case in failed]
    unmet += [
        Condition(str(case.get("name")), "skipped", "passes", holds=False) for case in skipped
    ]
    return Verdict(
        len(cases) - len(skipped), unmet or [Condition("tests that passed", str(len(cases)), "all")]
    )


def _broken(why: str) -> Verdict:
    return Verdict(0, [Condition(why, "nothing", "a verdict", holds=False)])
