"""Command line of the benchmark with several metrics: run searches and print their results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np

from benchmarks.quality.command_line import command_line, show
from benchmarks.quality.record import read

from .front import read_best
from .instances import CONFIRMATION, DEVELOPMENT, PROBLEMS
from .long_run import NUM_EVALUATIONS, write_best
from .methods import METHODS, method_of
from .problem import Problem
from .report import report, write_page
from .running import RESULTS, missing, run_all

_SETS = {
    "development": DEVELOPMENT,
    "confirmation": CONFIRMATION,
    "all": DEVELOPMENT + CONFIRMATION,
}
_NUM_DRAWN = 500


def main() -> int:
    """Run the command and return the number of methods that could not be run."""
    arguments = _parser().parse_args()
    if arguments.command == "tasks":
        print("\n".join(_task_rows()))
        return 0
    problems = arguments.problems or _SETS[arguments.set]
    if arguments.command == "best":
        write_best(problems, arguments.evaluations)
        return 0
    if arguments.command == "run":
        return len(run_all(arguments.methods, problems, arguments.seeds, arguments.results))
    best = read_best()
    records = [
        missing(kept, best) for kept in read(arguments.results) if kept.method in arguments.methods
    ]
    show(lambda: report(records, problems, arguments.seeds, arguments.ours), write_page, arguments)
    return 0


def _task_rows() -> Iterator[str]:
    yield "| problem | group | set | parameters | choices | integers | objectives | feasible |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, problem in PROBLEMS.items():
        scales = [axis.scale for axis in problem.axes]
        objectives = ", ".join(each.metric for each in problem.objectives)
        yield (
            f"| {name} | {problem.group} | "
            f"{'confirmation' if name in CONFIRMATION else 'development'} | {len(scales)} | "
            f"{scales.count('choice')} | {scales.count('int')} | {objectives} | "
            f"{_feasible_share(problem):.0%} |"
        )


def _feasible_share(problem: Problem) -> float:
    """Return the share of random configurations that keep all bounds."""
    rng = np.random.default_rng(0)
    drawn = [problem.evaluate(problem.drawn(rng)) for _ in range(_NUM_DRAWN)]
    return float(np.mean([problem.is_feasible(metrics) for metrics in drawn]))


def _parser() -> argparse.ArgumentParser:
    line = command_line(
        "benchmarks.quality.tradeoffs",
        __doc__,
        methods=METHODS,
        method_of=method_of,
        example="GPSearch(seed=3)",
        results=RESULTS,
        tasks="print a table of the problems",
    )
    best = line.add_command(
        "best", help="look for better fronts than the best known ones, by long runs"
    )
    best.add_argument(
        "--evaluations",
        type=int,
        default=NUM_EVALUATIONS,
        help=f"evaluations of each problem (default: {NUM_EVALUATIONS})",
    )
    for command in (best, line.run, line.report):
        command.add_argument(
            "--set", choices=list(_SETS), default="confirmation", help="default: confirmation"
        )
        command.add_argument(
            "--problems",
            nargs="+",
            choices=list(PROBLEMS),
            metavar="NAME",
            help="in place of a set",
        )
    return line.parser


if __name__ == "__main__":
    sys.exit(main())
