"""Command line of the fault simulation: runs many experiments, or repeats one that has failed.

::

    python -m tests.simulation --minutes 60          # all night; exits with 1 if an invariant was
    violated or something never occurred python -m tests.simulation --experiments 1000 python -m
    tests.simulation --seed 4711           # one, with all checks at every turn, and its journal
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable

from .campaign import OPTIONS, drawn_by, report_of, run_campaign
from .fault_injection import Fault
from .invariants import Violation
from .run import run_scenario
from .scenario import (
    Scenario,
    clustered_scenario,
    scenario,
    training_scenario,
    validating_scenario,
)

_LARGE = 6_000
"""Number of experiments from which on everything in `coverage.expected` has to occur."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        return _replay(_changed(_draw(options, scenario)(options.seed), options))
    return _run_many(options)


def _draw(
    options: argparse.Namespace, usual: Callable[[int], Scenario]
) -> Callable[[int], Scenario]:
    """Return what makes the scenario of a number."""
    if options.clustered:
        return clustered_scenario
    if options.validating:
        return validating_scenario
    return training_scenario if options.training else usual


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Simulate experiments with faults."
    )
    parser.add_argument("--experiments", type=int, help="how many to simulate")
    parser.add_argument("--minutes", type=float, help="how long to simulate")
    parser.add_argument(
        "--first-seed",
        type=int,
        help="number of the first one; by default the time, so that each night sees others",
    )
    parser.add_argument(
        "--no-shrink", action="store_true", help="leave a failing experiment as large as it is"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--seed", type=int, help="simulate this one alone")
    parser.add_argument(
        "--training",
        action="store_true",
        help="let trials train over several processes, in all experiments",
    )
    parser.add_argument(
        "--validating", action="store_true", help="validate checkpoints, in all experiments"
    )
    parser.add_argument(
        "--clustered", action="store_true", help="run trials on nodes, in all experiments"
    )
    for name, option in OPTIONS.items():
        parser.add_argument(option, dest=name, type=int, help=f"with another {name}")
    parser.add_argument(
        "--without", default="", help=f"switch off, separated by commas, any of: {', '.join(Fault)}"
    )
    return parser


def _changed(drawn: Scenario, options: argparse.Namespace) -> Scenario:
    changes = {
        name: getattr(options, name) for name in OPTIONS if getattr(options, name) is not None
    }
    without = {Fault(name) for name in options.without.split(",") if name}
    return dataclasses.replace(drawn, without=drawn.without | without, **changes)


def _replay(single: Scenario) -> int:
    print(single)
    try:
        print(run_scenario(single, check_every=1))
    except Violation as violation:
        print(f"FAILED {violation}")
        return 1
    return 0


def _run_many(options: argparse.Namespace) -> int:
    first = int(time.time()) if options.first_seed is None else options.first_seed
    seconds = None if options.minutes is None else 60 * options.minutes
    num = 1_000 if seconds is None and options.experiments is None else options.experiments
    campaign = run_campaign(
        first,
        num,
        seconds=seconds,
        shrinks=not options.no_shrink,
        draw=_draw(options, drawn_by),
    )
    if options.json:
        invariant = campaign.violation.invariant if campaign.violation else None
        figures = {"num_experiments": campaign.num_experiments, "cpu_s": round(campaign.cpu_s, 2)}
        print(json.dumps({**figures, "invariant": invariant, "what": str(campaign.violation)}))
        return 1 if campaign.violation else 0
    print(f"from seed {first}: {report_of(campaign)}")
    for name, number in sorted(campaign.seen.items()):
        print(f"{number:>10}  {name}")
    missing = campaign.missing if campaign.num_experiments >= _LARGE else []
    for name in missing:
        print(f"NEVER SEEN  {name}")
    return 1 if campaign.violation or missing else 0


if __name__ == "__main__":
    sys.exit(main())
