"""Command line of the benchmark: run searches and print their results."""

from __future__ import annotations

import argparse
import sys

from .command_line import command_line, show
from .makeup import makeup_rows, slow_rows, task_rows
from .methods import METHODS, method_of
from .record import RESULTS, read
from .report import report, write_page
from .running import run_all
from .tasks import CONFIRMATION, TASKS


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
            show(
                lambda: report(records, arguments.tasks, arguments.seeds, arguments.ours),
                write_page,
                arguments,
            )
    return 0


def _parser() -> argparse.ArgumentParser:
    line = command_line(
        "benchmarks.quality",
        __doc__,
        methods=METHODS,
        method_of=method_of,
        example="OptunaSearch(seed=3)",
        results=RESULTS,
        tasks="print a table of the tasks and a comparison of the two sets",
    )
    line.add_option(
        "--tasks",
        nargs="+",
        default=list(CONFIRMATION),
        choices=list(TASKS),
        metavar="NAME",
        help="default: confirmation",
    )
    return line.parser


if __name__ == "__main__":
    sys.exit(main())
