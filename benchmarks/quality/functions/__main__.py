"""Command line of the benchmark on functions: run searches and print their results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.quality.record import read

from .instances import CONFIRMATION, DEVELOPMENT, FUNCTIONS
from .methods import METHODS, method_of
from .report import report, write_page
from .running import NUM_WORKERS, RESULTS, run_all

_WHICH = (
    f"{', '.join(METHODS)} (default: all of these), or a searcher of tuner, "
    "e.g. 'TreeSearch(seed=3)'"
)
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
    try:
        figures = "\n".join(
            report(records, functions, arguments.workers, arguments.seeds, arguments.ours)
        )
    except ValueError as error:
        sys.exit(str(error))
    print(figures)
    if arguments.write:
        write_page(figures, arguments.ours)
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
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.functions", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tasks", help="print a table of the functions")
    run = commands.add_parser("run", help="run every search whose result is not in the file yet")
    show = commands.add_parser("report", help="print the results of the searches")
    show.add_argument(
        "--ours",
        default="ours",
        type=_method,
        metavar="NAME",
        help="the search that others are compared with",
    )
    show.add_argument("--write", action="store_true", help="also write it to docs/quality.md")
    for command in (run, show):
        command.add_argument(
            "--methods", nargs="+", default=list(METHODS), type=_method, metavar="NAME", help=_WHICH
        )
        command.add_argument(
            "--set", choices=list(_SETS), default="confirmation", help="default: confirmation"
        )
        command.add_argument(
            "--functions",
            nargs="+",
            choices=list(FUNCTIONS),
            metavar="NAME",
            help="in place of a set",
        )
        command.add_argument(
            "--workers",
            nargs="+",
            type=int,
            default=list(NUM_WORKERS),
            metavar="NUM",
            help="numbers of evaluations at a time (default: 1 4)",
        )
        command.add_argument(
            "--seeds", type=int, default=30, help="number of seeds, counted from 0 (default: 30)"
        )
        command.add_argument(
            "--results",
            type=Path,
            default=RESULTS,
            help="file of results, one line of JSON for each run of a search",
        )
    return parser


def _method(name: str) -> str:
    method_of(name)
    return name


if __name__ == "__main__":
    sys.exit(main())
