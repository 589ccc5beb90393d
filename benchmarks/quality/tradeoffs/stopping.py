"""Early stopping with several metrics: whole searches on tables of recorded learning curves.

The loss is read after each epoch; what a model weighs and costs is known from its first epoch on.
All tables are development tables of `benchmarks.quality`: the figures serve for choices.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import searchers
import tuner as tune
from benchmarks.quality.figures import SHARES, compare
from benchmarks.quality.methods import Ours
from benchmarks.quality.ours import TimedSearcher, domain_of
from benchmarks.quality.record import Record, read
from benchmarks.quality.running import run_missing
from benchmarks.quality.table import Table, read_table
from benchmarks.quality.trace import NUM_TRAININGS, NUM_WORKERS
from schedulers import FIFOScheduler
from schedulers.scheduler import Scheduler
from searchers.models.tradeoffs import is_on_front
from searchers.objectives import OutcomeConstraint
from searchers.searcher import Searcher
from tuner.core.events import ResultReported
from tuner.spec.default_algorithms import asha_for
from tuner.testing.simulation import simulate

from .front import Best, Front, hypervolume
from .long_run import reference_of
from .problem import Config, Objective, Problem, Values
from .report import FLOOR, cell

RESULTS = Path(__file__).parent / "stopping.jsonl"
FEASIBLE_SHARE = 0.12
"""Share of the configurations of a table that keep its bound."""
SPREAD = 0.3
"""Standard deviation of the logarithm of an epoch's duration."""
METHODS: Mapping[str, Ours] = {
    "none": Ours("the default search, full trainings", "AutoSearch", "fifo"),
    "moasha": Ours("the default: the same with MOASHA", "AutoSearch", "moasha"),
    "asha": Ours("the same with ASHA on the loss alone", "AutoSearch", "asha"),
    "random-moasha": Ours("MOASHA, random search", "BasicVariantGenerator", "moasha"),
}
_PLACES = tuple(SHARES.index(share) for share in (0.25, 0.5, 1.0))


@dataclass(frozen=True)
class Curves:
    """A table with several metrics to minimise, and perhaps a bound.

    Attributes:
        name: Name of the table.
        objectives: Of ``"loss"``, ``"seconds"`` (an epoch's training) and ``"weights"``.
        bounded: The metric with a bound that few configurations keep; empty for none.
        weights: Returns the number of weights of a configuration; None where none are counted.
    """

    name: str
    objectives: Sequence[str]
    bounded: str = ""
    weights: Callable[[Config], float] | None = None

    @cached_property
    def table(self) -> Table:
        """The recorded losses."""
        return read_table(self.name)

    @cached_property
    def lasting(self) -> Sequence[Mapping[str, float]]:
        """What does not change during the training of each configuration."""
        return [
            {"seconds": seconds, "weights": self.weights(config) if self.weights else math.nan}
            for config, seconds in zip(
                self.table.grid.configs(), self.table.costs_s.tolist(), strict=True
            )
        ]

    @cached_property
    def durations_s(self) -> Values:
        """Virtual seconds of an epoch of each configuration, 1 on average.

        They have nothing to do with its metrics: searches are compared at equal training.
        """
        num = len(self.table.grid)
        draws = np.random.default_rng(num).standard_normal(num)
        durations: Values = np.exp(SPREAD * draws - SPREAD**2 / 2)
        return durations

    def metrics(self, row: int, epoch: int) -> dict[str, float]:
        """Return what a configuration reports after an epoch."""
        return {"loss": float(self.table.curves[0, row, epoch - 1]), **self.lasting[row]}

    @cached_property
    def ends(self) -> Sequence[dict[str, float]]:
        """What each configuration reports last."""
        return [self.metrics(row, self.table.num_epochs) for row in range(len(self.table.grid))]

    @cached_property
    def problem(self) -> Problem:
        """Its objectives and bounds."""
        constraints: tuple[OutcomeConstraint, ...] = ()
        if self.bounded:
            bound = np.quantile([end[self.bounded] for end in self.ends], FEASIBLE_SHARE)
            constraints = (OutcomeConstraint(self.bounded, "<=", float(bound)),)
        objectives = [Objective(metric) for metric in self.objectives]
        return Problem(
            self.name, "models", "", (), objectives, constraints, lambda c: self.ends[c["row"]]
        )

    @cached_property
    def best(self) -> Best:
        """The front of all configurations, with the reference point that follows from it."""
        feasible = [end for end in self.ends if self.problem.is_feasible(end)]
        costs = np.array([self.problem.costs(end) for end in feasible])
        front = costs[is_on_front(costs)]
        ideal, reference = reference_of(front, costs)
        known = Best(ideal, reference, 0.0, len(self.ends))
        volume = hypervolume(known.unit(front), np.ones(costs.shape[1]))
        return dataclasses.replace(known, hypervolume=volume)


def _weights(inputs: int | str, outputs: int) -> Callable[[Config], float]:
    """Return the number of weights of perceptrons with hidden layers of equal width."""

    def count(config: Config) -> float:
        first = config[inputs] if isinstance(inputs, str) else inputs
        width, depth = config["width"], config["depth"]
        return float((first + (depth - 1) * width + outputs) * width)

    return count


TABLES: Mapping[str, Curves] = {
    curves.name: curves
    for curves in (
        Curves("digits_few", ("loss", "weights"), weights=_weights(64, 10)),
        Curves("photo_channel_forest", ("loss", "seconds")),
        Curves("photo_place", ("loss", "weights"), "seconds", _weights("num_features", 3)),
        Curves("digits", ("loss", "weights", "seconds"), weights=_weights(64, 10)),
        Curves("diabetes_trees", ("loss", "seconds")),
        Curves("digit_loops_leaves", ("loss", "seconds"), "loss"),
        Curves("digits_conv", ("loss", "seconds")),
        Curves("cancer_few", ("loss", "seconds"), "loss"),
    )
}
"""By name: tables with one training seed whose configurations differ in what they cost."""


def run(name: str, curves: Curves, seed: int) -> Record:
    """Run a search on a table and return its record.

    Args:
        name: One of `METHODS`.
        curves: The table with its metrics.
        seed: Seed of the search.

    Returns:
        The record, whose regrets are the shares of the best hypervolume that the values reported so
        far have not reached.
    """
    method, table, problem = METHODS[name], curves.table, curves.problem
    searcher = getattr(searchers, method.searcher)(**method.arguments)
    timed = TimedSearcher(searcher, table, seed)
    end_s = NUM_TRAININGS * table.num_epochs / NUM_WORKERS

    def reported(config: dict[str, Any]) -> Iterator[dict[str, float]]:
        row = table.grid.index(config)
        for epoch in range(1, table.num_epochs + 1):
            yield curves.metrics(row, epoch)

    simulation = simulate(
        reported,
        param_space={axis.name: domain_of(axis, table.grid) for axis in table.grid.axes},
        tune_config=tune.TuneConfig(
            metric=list(curves.objectives),
            mode="min",
            constraints={each.metric: each.comparison for each in problem.constraints},
            num_samples=-1,
            search_alg=timed,
            scheduler=_scheduler(method.scheduler, searcher, table.num_epochs),
            time_budget_s=end_s,
            seed=seed,
        ),
        num_slots=NUM_WORKERS,
        duration_s=lambda config, _: float(curves.durations_s[table.grid.index(config)]),
    )
    front, changes, num_epochs = Front(problem, curves.best), list[tuple[float, float]](), 0
    for entry in simulation.history:
        if not isinstance(event := entry.event, ResultReported) or entry.at_s > end_s:
            continue
        num_epochs += 1
        if front.add(event.metrics) or not changes:
            missing = 1 - front.hypervolume / curves.best.hypervolume
            changes.append((round(entry.at_s / end_s, 5), float(f"{missing:.4g}")))
    return Record(
        name,
        curves.name,
        seed,
        tuple(changes),
        timed.num_suggestions,
        num_epochs,
        round(timed.seconds, 4),
        {"tuner-hpo": tune.__version__},
    )


def _scheduler(name: str, searcher: Searcher, num_epochs: int) -> Scheduler:
    if name == "fifo":
        return FIFOScheduler()
    one = {} if name == "moasha" else {"metric": "loss", "mode": "min"}
    return asha_for(
        searcher,
        num_epochs,
        num_samples=-1,
        has_several=not one,
        type="promotion",
        stop_last_trials=True,
        **one,
    )


@contextlib.contextmanager
def _opened(name: str) -> Iterator[Callable[[Curves, int], Record]]:
    yield functools.partial(run, name)


def report(records: Sequence[Record], tables: Sequence[str], num_seeds: int) -> Iterator[str]:
    """Yield the lines of a report: what each search reaches, and its distance from full trainings.

    Args:
        records: All available records.
        tables: Names of the tables to report.
        num_seeds: Number of seeds of each, counted from 0.
    """
    figures = compare(records, tables, num_seeds, floor=FLOOR)
    yield (
        "| search | hypervolume | mean log10 missing | ... over time | minus `none` | ... at half "
        "| ... at the end | suggestions |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name in figures.regrets:
        logs = figures.logs(name)
        cells = [
            " / ".join(f"{1 - figures.regrets[name][..., each].mean():.3f}" for each in _PLACES),
            " / ".join(f"{logs[..., each].mean():.2f}" for each in _PLACES),
            f"{logs.mean():.2f}",
            *(
                cell(figures.difference(name, "none", share)) if name != "none" else ""
                for share in (None, 0.5, 1.0)
            ),
            f"{figures.suggestions[name]:.0f}",
        ]
        yield f"| {METHODS[name].about} (`{name}`) | {' | '.join(cells)} |"


def main() -> None:
    """Run what is missing and print the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.tradeoffs.stopping", description=__doc__
    )
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=4, help="default: 4")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    arguments = parser.parse_args()
    tables = [TABLES[name] for name in arguments.tables]
    run_missing(arguments.methods, tables, arguments.seeds, arguments.results, _opened)
    print("\n".join(report(list(read(arguments.results)), arguments.tables, arguments.seeds)))


if __name__ == "__main__":
    main()
