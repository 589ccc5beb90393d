"""Runs the fault and security cases, and stores their findings.

``python -m benchmarks.faults`` runs all cases, ``python -m benchmarks.faults F4 S2`` two of them.
``--write`` runs nothing and updates the table in ``docs/reliability.md``.
"""

from __future__ import annotations

import argparse
import sys

from .case import Outcome, run
from .page import CASES, read_findings, write_findings, write_page


def main() -> int:
    """Run the cases given, or update the table, and return how many cases do not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="which to run, e.g. F4 (default: all)"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/reliability.md instead"
    )
    given = parser.parse_args()
    if given.write:
        write_page()
        return 0
    unknown = sorted(set(given.cases) - CASES.keys())
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    return sum(not _run(name) for name in given.cases or CASES)


def _run(name: str) -> bool:
    finding = run(CASES[name])
    write_findings(read_findings() | {name: finding})
    print(
        f"{name:<4} {finding.outcome:<14} {finding.repetitions:>6}  {finding.reason}".rstrip(),
        flush=True,
    )
    return finding.outcome is not Outcome.DOES_NOT_HOLD


if __name__ == "__main__":
    sys.exit(main())
