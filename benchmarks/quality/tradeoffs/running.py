"""Runs of searches on problems with several metrics, whose results are appended to a file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.clock import Ask
from benchmarks.quality.conversation import Conversation
from benchmarks.quality.environments import python_of
from benchmarks.quality.evaluations import Evaluations
from benchmarks.quality.functions.running import in_process
from benchmarks.quality.methods import Ours, Peer
from benchmarks.quality.record import Record
from benchmarks.quality.running import run_missing

from .front import Best, Front, read_best
from .instances import PROBLEMS
from .methods import method_of
from .ours import OurSearch
from .problem import Problem

RESULTS = Path(__file__).parent / "results.jsonl"
NUM_EVALUATIONS = 80
NUM_WORKERS = 4
"""Number of evaluations that run at the same time."""


@dataclass(frozen=True, slots=True)
class Task:
    """A problem with what is known of its best front.

    Attributes:
        problem: What is searched.
        best: What is known of it.
    """

    problem: Problem
    best: Best

    @property
    def name(self) -> str:
        """Name in records."""
        return self.problem.name


def run_all(
    methods: Sequence[str], problems: Sequence[str], num_seeds: int, path: Path
) -> list[str]:
    """Run every search whose result is not in the file yet, and print its progress.

    Args:
        methods: Names of the searches.
        problems: Names of the problems.
        num_seeds: Number of seeds, counted from 0.
        path: File of results.

    Returns:
        Names of the searches that could not be run.
    """
    best = read_best()
    tasks = [Task(PROBLEMS[name], best[name]) for name in problems]
    return run_missing(methods, tasks, num_seeds, path, _opened)


@contextlib.contextmanager
def _opened(name: str) -> Iterator[Callable[[Task, int], Record]]:
    method = method_of(name)
    with contextlib.ExitStack() as stack:
        ask = _in_process(method) if isinstance(method, Ours) else _elsewhere(method, stack)
        yield functools.partial(run, ask, name, method)


def run(ask: Ask, name: str, method: Ours | Peer, task: Task, seed: int) -> Record:
    """Run a search on a problem and return its record.

    Args:
        ask: Sends requests to the search.
        name: Name of the search for the record.
        method: The search.
        task: The problem.
        seed: Seed of the search and of the times that evaluations take.

    Returns:
        The record. Its regrets are 1 minus the hypervolume where ideal and reference are 0 and 1,
        so that they hold when a better front becomes known; see `missing`. They change at the share
        of evaluations that have ended.

    Raises:
        RuntimeError: If the search waits although no evaluation is running.
    """
    problem, front = task.problem, Front(task.problem, task.best)
    evaluations = Evaluations(ask, NUM_WORKERS, NUM_EVALUATIONS, seed)
    setting = {
        "method": method.method if isinstance(method, Peer) else "",
        "space": [axis.described() for axis in problem.axes],
        "max_epochs": 1,
        "num_workers": NUM_WORKERS,
        "seed": seed,
        "num_trials": NUM_EVALUATIONS,
        "num_objectives": len(problem.objectives),
        "num_constraints": len(problem.constraints),
    }
    begun = evaluations.send("begin", setting=setting, problem=problem.name)
    changes: list[tuple[float, float]] = []
    for ended in evaluations:
        metrics = problem.evaluate(ended.config)
        if front.add(metrics) or not changes:
            changes.append((ended.share, float(f"{1 - front.hypervolume:.6g}")))
        evaluations.send(
            "tell",
            trial=ended.trial,
            metrics=dict(metrics),
            costs=problem.costs(metrics).tolist(),
            excesses=problem.excesses(metrics).tolist(),
        )
    return Record(
        name,
        task.name,
        seed,
        tuple(changes),
        evaluations.num_asked,
        evaluations.num_ended,
        round(evaluations.decision_s, 4),
        dict(begun["versions"]),
    )


def missing(kept: Record, best: Mapping[str, Best]) -> Record:
    """Return a record whose regrets are the shares of the best known hypervolume not reached."""
    reachable = best[kept.task].hypervolume
    changes = tuple((at, 1 - (1 - regret) / reachable) for at, regret in kept.changes)
    return dataclasses.replace(kept, changes=changes)


def _in_process(method: Ours) -> Ask:
    return in_process(
        lambda problem, setting: OurSearch(
            method, PROBLEMS[problem], setting["num_trials"], setting["seed"]
        )
    )


def _elsewhere(method: Peer, stack: contextlib.ExitStack) -> Ask:
    return stack.enter_context(
        Conversation(python_of(method.environment), f"{method.environment}_metrics_peer")
    ).ask
