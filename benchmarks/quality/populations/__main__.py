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
from .problems import (
    Digits,
    NoisyQuadratic,
    Problem,
    cancer_batches,
    diabetes_input_noise,
    friedman_batches,
    mislabelled_digits,
)
from .running import Outcome, run_population

PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "quadratic": NoisyQuadratic,
    "quadratic-1000": lambda: NoisyQuadratic(num_dimensions=1000),
    "quadratic-long": lambda: NoisyQuadratic(num_epochs=300),
    "digits": Digits,
    "digits-mislabelled": mislabelled_digits,
    "friedman-batches": friedman_batches,
    "diabetes-input-noise": diabetes_input_noise,
    "cancer-batches": cancer_batches,
}
"""By name, which tells what it serves for; see `problems`."""
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
    print("| problem | method | members | interval | in step | asynchronous | time | better by | |")
    print(f"{9 * '|---'}|")
    for name in arguments.problems:
        problem = PROBLEMS[name]()
        first: list[list[Outcome]] = []
        for method in arguments.methods:
            for interval in arguments.intervals:
                outcomes = [
                    _outcomes(
                        problem,
                        method,
                        seeds,
                        interval=interval,
                        num_members=arguments.members,
                        is_asynchronous=is_asynchronous,
                    )
                    for is_asynchronous in (False, True)
                ]
                first = first or outcomes
                cells = [name, method, arguments.members, interval]
                cells += [*map(_summary, outcomes), _duration(outcomes[1])]
                cells += map(_gain, first, outcomes)
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                if method == "constants":
                    break


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
    return _mean([outcome.score for outcome in outcomes])


def _gain(first: Sequence[Outcome], outcomes: Sequence[Outcome]) -> str:
    """Return by how much the scores are better than those of the first method, seed by seed."""
    return _mean([one.score - other.score for one, other in zip(first, outcomes, strict=True)])


def _mean(values: Sequence[float]) -> str:
    """Return the mean, and half the width of its 95 % interval."""
    width = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):.3f} ± {width:.3f}"


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
        help="default: those of tuner; all are compared with the first one",
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
