"""Command line of the benchmark on functions: run searches and print their results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from benchmarks.quality.command_line import command_line, show
from benchmarks.quality.record import read

from .instances import CONFIRMATION, DEVELOPMENT, FUNCTIONS
from .methods import METHODS, method_of
from .report import report, write_page
from .running import NUM_WORKERS, RESULTS, run_all

_SETS = {"development": DEVELOPMENT, "confirmation": CONFIRMATION}


def main() -> int:
    """Run the command and return the number of methods that could not be run."""
    arguments = _parser().parse_args()
    if arguments.command == "tasks":
        print("\n".join(_task_rows()))
        return 0
    functions = arguments.functions or _SETS[arguments.set]
    if arguments.command == "run":
        return len(
            run_all(
                arguments.methods,
                functions,
                arguments.workers,
                arguments.seeds,
                arguments.results,
            )
        )
    records = [kept for kept in read(arguments.results) if kept.method in arguments.methods]
    show(
        lambda: report(records, functions, arguments.workers, arguments.seeds, arguments.ours),
        write_page,
        arguments,
    )
    return 0


def _task_rows() -> Iterator[str]:
    yield "| function | group | set | parameters | choices | integers | conditional | noise |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, function in FUNCTIONS.items():
        scales = [axis.scale for axis in function.axes]
        num_conditional = sum(axis.when is not None for axis in function.axes)
        yield (
            f"| {name} | {function.group} | "
            f"{'confirmation' if name in CONFIRMATION else 'development'} | {len(scales)} | "
            f"{scales.count('choice')} | {scales.count('int')} | {num_conditional} | "
            f"{function.noise or ''} |"
        )


def _parser() -> argparse.ArgumentParser:
    line = command_line(
        "benchmarks.quality.functions",
        __doc__,
        methods=METHODS,
        method_of=method_of,
        example="TreeSearch(seed=3)",
        results=RESULTS,
        tasks="print a table of the functions",
    )
    line.add_option(
        "--set", choices=list(_SETS), default="confirmation", help="default: confirmation"
    )
    line.add_option(
        "--functions", nargs="+", choices=list(FUNCTIONS), metavar="NAME", help="in place of a set"
    )
    line.add_option(
        "--workers",
        nargs="+",
        type=int,
        default=list(NUM_WORKERS),
        metavar="NUM",
        help="numbers of evaluations at a time (default: 1 4)",
    )
    return line.parser


if __name__ == "__main__":
    sys.exit(main())
