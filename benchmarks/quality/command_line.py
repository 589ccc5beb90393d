"""Commands and options that the benchmarks of searches have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final


@final
@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of a benchmark, to which the choice of its tasks is added.

    Attributes:
        parser: All of it.
        add_command: Adds a further command, given its name and ``help``.
        run: The command that runs searches.
        report: The command that prints their results.
    """

    parser: argparse.ArgumentParser
    add_command: Callable[..., argparse.ArgumentParser]
    run: argparse.ArgumentParser
    report: argparse.ArgumentParser

    def add_option(self, name: str, **settings: Any) -> None:
        """Add an option to both commands, as `argparse.ArgumentParser.add_argument` does."""
        for command in (self.run, self.report):
            command.add_argument(name, **settings)


def command_line(
    module: str,
    description: str | None,
    *,
    methods: Collection[str],
    method_of: Callable[[str], object],
    example: str,
    results: Path,
    tasks: str,
) -> CommandLine:
    """Return a command line with the commands ``tasks``, ``run`` and ``report``.

    Args:
        module: What is run by ``python -m``.
        description: What the benchmark does.
        methods: Names of its searches.
        method_of: Raises ValueError for what is neither such a name nor a call.
        example: A call of a searcher of tuner.
        results: File of results.
        tasks: What ``tasks`` does.
    """

    def method(name: str) -> str:
        method_of(name)
        return name

    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tasks", help=tasks)
    line = CommandLine(
        parser,
        commands.add_parser,
        commands.add_parser("run", help="run every search whose result is not in the file yet"),
        commands.add_parser("report", help="print the results of the searches"),
    )
    line.report.add_argument(
        "--ours",
        default="ours",
        type=method,
        metavar="NAME",
        help="the search that others are compared with",
    )
    line.report.add_argument(
        "--write", action="store_true", help="also write it to docs/quality.md"
    )
    line.add_option(
        "--methods",
        nargs="+",
        default=list(methods),
        type=method,
        metavar="NAME",
        help=f"{', '.join(methods)} (default: all of these), or a searcher of tuner, "
        f"e.g. '{example}'",
    )
    line.add_option(
        "--seeds", type=int, default=30, help="number of seeds, counted from 0 (default: 30)"
    )
    line.add_option(
        "--results",
        type=Path,
        default=results,
        help="file of results, one line of JSON for each run of a search",
    )
    return line


def show(
    figures: Callable[[], Iterable[str]],
    write_page: Callable[[str, str], None],
    arguments: argparse.Namespace,
) -> None:
    """Print a report, and write it to the page if asked to.

    Args:
        figures: Returns its lines; raises ValueError where results are missing.
        write_page: Writes the report, given the name of the search that others are compared with.
        arguments: Of the command ``report``.
    """
    try:
        text = "\n".join(figures())
    except ValueError as error:
        sys.exit(str(error))
    print(text)
    if arguments.write:
        write_page(text, arguments.ours)
