"""Command line of the benchmark of population methods."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.quality.conversation import Conversation
from benchmarks.quality.environments import python_of
from schedulers import (
    FIFOScheduler,
    MFPopulationBasedTraining,
    PatientPopulationBasedTraining,
    PopulationBasedTraining,
)
from schedulers.scheduler import Scheduler

from .peer import run_peer_population
from .problems import Digits, NoisyQuadratic, Problem
from .running import Outcome, run_population

PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "quadratic": NoisyQuadratic,
    "quadratic-1000": lambda: NoisyQuadratic(num_dimensions=1000),
    "quadratic-long": lambda: NoisyQuadratic(num_epochs=300),
    "digits": Digits,
}
METHODS: Mapping[str, Callable[..., Scheduler]] = {
    "constants": lambda _, **__: FIFOScheduler(),
    "pbt": lambda _, **options: PopulationBasedTraining(**options),
    "mf-pbt": lambda _, **options: MFPopulationBasedTraining(**options),
    "patient-pbt": PatientPopulationBasedTraining,
}
"""By name, what makes a scheduler from the length of the training and common options."""
PEERS = {"syne-pbt": ("syne_tune", "pbt")}
"""Methods of other projects: their environment, and their name there."""


def main() -> None:
    """Run all that is asked for and print a line for each."""
    arguments = _parser().parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    print("| problem | method | members | interval | in step | asynchronous | time |")
    print(f"{7 * '|---'}|")
    for name in arguments.problems:
        problem = PROBLEMS[name]()
        for method in arguments.methods:
            for interval in arguments.intervals:
                in_step, asynchronous = (
                    _outcomes(
                        problem,
                        method,
                        seeds,
                        interval=interval,
                        num_members=arguments.members,
                        is_asynchronous=is_asynchronous,
                    )
                    for is_asynchronous in (False, True)
                )
                cells = [name, method, arguments.members, interval]
                cells += [_summary(in_step), _summary(asynchronous), _duration(asynchronous)]
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _outcomes(
    problem: Problem,
    method: str,
    seeds: Sequence[int],
    *,
    interval: int,
    num_members: int,
    is_asynchronous: bool,
) -> list[Outcome]:
    population: Mapping[str, Any] = {
        "num_members": num_members,
        "is_asynchronous": is_asynchronous,
    }
    if method in PEERS:
        environment, name = PEERS[method]
        with Conversation(python_of(environment), f"{environment}_peer") as conversation:
            return [
                run_peer_population(
                    conversation.ask, name, problem, seed, interval=interval, **population
                )
                for seed in seeds
            ]
    options: Mapping[str, Any] = {
        "time_attr": "training_iteration",
        "perturbation_interval": interval,
        "hyperparam_mutations": problem.space,
        "synch": not is_asynchronous,
    }
    return [
        run_population(
            problem,
            METHODS[method](problem.num_epochs, **options),
            seed,
            **population,
        )
        for seed in seeds
    ]


def _summary(outcomes: Sequence[Outcome]) -> str:
    """Return the mean score, and half the width of its 95 % interval."""
    scores = [outcome.score for outcome in outcomes]
    width = 1.96 * statistics.stdev(scores) / math.sqrt(len(scores))
    return f"{statistics.fmean(scores):.3f} ± {width:.3f}"


def _duration(outcomes: Sequence[Outcome]) -> str:
    return f"{statistics.fmean(outcome.duration for outcome in outcomes):.0f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.populations", description=__doc__
    )
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(METHODS),
        choices=[*METHODS, *PEERS],
        help="default: those of tuner",
    )
    parser.add_argument("--members", type=int, default=8, help="size of the population")
    parser.add_argument(
        "--intervals", nargs="+", type=int, default=[1, 5], help="perturbation_interval, in epochs"
    )
    parser.add_argument("--seeds", type=int, default=30, help="number of seeds, at least 2")
    parser.add_argument("--first-seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    main()
