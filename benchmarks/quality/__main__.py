"""Runs searches and prints what they came to; see `benchmarks.quality`."""

from __future__ import annotations

import argparse
from pathlib import Path

from .methods import METHODS
from .record import RESULTS, read
from .report import report, task_rows
from .running import run_all
from .tasks import REPORTING, TASKS


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run every search whose result is not in the file yet")
    run.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME", help="default: all")
    show = commands.add_parser("report", help="print the tables of docs/quality.md")
    show.add_argument("--ours", default="ours-tree", choices=list(METHODS), metavar="NAME", help="what others are compared with")
    show.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME", help="default: all")
    commands.add_parser("tasks", help="print a table of the tasks")
    for command in (run, show):
        command.add_argument("--tasks", nargs="+", default=list(REPORTING), choices=list(TASKS), metavar="NAME", help="default: reporting")
        command.add_argument("--seeds", type=int, default=10, help="how many seeds, from 0 on (default: 10)")
        command.add_argument("--results", type=Path, default=RESULTS, help="file of results, a line of JSON for each search")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run_all(arguments.methods, arguments.tasks, arguments.seeds, arguments.results)
        return
    kept = [] if arguments.command == "tasks" else [one for one in read(arguments.results) if one.method in arguments.methods]
    lines = report(kept, arguments.tasks, arguments.seeds, arguments.ours) if kept else task_rows()
    print("\n".join(lines))


if __name__ == "__main__":
    main()
