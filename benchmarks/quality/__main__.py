"""Command line of the benchmark: run searches and print their results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .makeup import makeup_rows, slow_rows, task_rows
from .methods import METHODS, method_of
from .record import RESULTS, read
from .report import report, write_page
from .running import run_all
from .tasks import CONFIRMATION, TASKS

_WHICH = (
    f"{', '.join(METHODS)} (default: all of these), or a searcher of tuner, "
    "e.g. 'OptunaSearch(seed=3)'"
)


def main() -> int:
    """Run the command and return the number of methods that could not be run."""
    arguments = _parser().parse_args()
    match arguments.command:
        case "run":
            return len(
                run_all(arguments.methods, arguments.tasks, arguments.seeds, arguments.results)
            )
        case "tasks":
            print(
                "\n".join(
                    [
                        *task_rows(),
                        "",
                        "Least, median and greatest of each set:",
                        "",
                        *makeup_rows(),
                        "",
                        "Development tasks whose best configurations start slowly:",
                        "",
                        *slow_rows(),
                    ]
                )
            )
        case _:
            records = [
                record for record in read(arguments.results) if record.method in arguments.methods
            ]
            try:
                figures = "\n".join(
                    report(records, arguments.tasks, arguments.seeds, arguments.ours)
                )
            except ValueError as error:
                sys.exit(str(error))
            print(figures)
            if arguments.write:
                write_page(figures, arguments.ours)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tasks", help="print a table of the tasks and a comparison of the two sets")
    run = commands.add_parser("run", help="run every search whose result is not in the file yet")
    show = commands.add_parser("report", help="print the results of the searches")
    show.add_argument(
        "--ours",
        default="ours",
        type=_method,
        metavar="NAME",
        help="the method that others are compared with",
    )
    show.add_argument("--write", action="store_true", help="also write it to docs/quality.md")
    for command in (run, show):
        command.add_argument(
            "--methods", nargs="+", default=list(METHODS), type=_method, metavar="NAME", help=_WHICH
        )
        command.add_argument(
            "--tasks",
            nargs="+",
            default=list(CONFIRMATION),
            choices=list(TASKS),
            metavar="NAME",
            help="default: confirmation",
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
