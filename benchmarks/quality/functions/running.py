"""Runs of searches on functions, whose results are appended to a file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tuner as tune
from benchmarks.quality.clock import Ask
from benchmarks.quality.conversation import Conversation
from benchmarks.quality.environments import python_of
from benchmarks.quality.evaluations import Evaluations
from benchmarks.quality.methods import Ours, Peer
from benchmarks.quality.peers.dialogue import MetricsSearch, Search, reply_of
from benchmarks.quality.record import Record
from benchmarks.quality.running import run_missing

from .function import Function
from .instances import FUNCTIONS
from .methods import method_of
from .ours import OurSearch

RESULTS = Path(__file__).parent / "results.jsonl"
NUM_EVALUATIONS = 80
NUM_WORKERS = (1, 4)
"""Numbers of evaluations that run at the same time."""


@dataclass(frozen=True, slots=True)
class Task:
    """A function with a number of workers.

    Attributes:
        function: What is searched.
        num_workers: Number of evaluations that run at the same time.
    """

    function: Function
    num_workers: int

    @property
    def name(self) -> str:
        """Name in records, such as ``"sphere-5 x4"``."""
        return task_name(self.function.name, self.num_workers)


def task_name(function: str, num_workers: int) -> str:
    """Return the name of a function with a number of workers in records."""
    return f"{function} x{num_workers}"


def run_all(
    methods: Sequence[str],
    functions: Sequence[str],
    num_workers: Sequence[int],
    num_seeds: int,
    path: Path,
) -> list[str]:
    """Run every search whose result is not in the file yet, and print its progress.

    Args:
        methods: Names of the searches.
        functions: Names of the functions.
        num_workers: Numbers of workers.
        num_seeds: Number of seeds, counted from 0.
        path: File of results.

    Returns:
        Names of the searches that could not be run.
    """
    tasks = [Task(FUNCTIONS[name], num) for name in functions for num in num_workers]
    return run_missing(methods, tasks, num_seeds, path, _opened)


@contextlib.contextmanager
def _opened(name: str) -> Iterator[Callable[[Task, int], Record]]:
    method = method_of(name)
    with contextlib.ExitStack() as stack:
        ask = _in_process(method) if isinstance(method, Ours) else _elsewhere(method, stack)
        yield lambda task, seed: run(ask, name, method, task, seed)


def run(ask: Ask, name: str, method: Ours | Peer, task: Task, seed: int) -> Record:
    """Run a search on a function and return its record.

    Args:
        ask: Sends requests to the search.
        name: Name of the search for the record.
        method: The search.
        task: The function and the number of workers.
        seed: Seed of the search, of the times, and of the noise of observations.

    Returns:
        The record; changes of the incumbent stand at the share of evaluations that have ended.

    Raises:
        RuntimeError: If the search waits although no evaluation is running.
    """
    function = task.function
    noise = np.random.default_rng([seed, 2])
    evaluations = Evaluations(ask, task.num_workers, NUM_EVALUATIONS, seed)
    setting = {
        "method": method.method if isinstance(method, Peer) else "",
        "space": [axis.described() for axis in function.axes],
        "max_epochs": 1,
        "num_workers": task.num_workers,
        "seed": seed,
        "num_trials": NUM_EVALUATIONS,
    }
    begun = evaluations.send("begin", setting=setting, function=function.name)
    best = float("inf")
    changes: list[tuple[float, float]] = []
    for ended in evaluations:
        value = function.observed(ended.config, noise)
        if value < best:
            best = value
            changes.append((ended.share, float(f"{function.regret(ended.config):.6g}")))
        told = {"trial": ended.trial, "epoch": 1, "value": value, "cost_s": ended.cost_s}
        evaluations.send("report", **told)
        evaluations.send("complete", **told)
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


def _in_process(method: Ours) -> Ask:
    return in_process(
        lambda function, setting: OurSearch(
            method, FUNCTIONS[function], setting["num_trials"], setting["seed"]
        )
    )


def in_process(begin: Callable[..., Search | MetricsSearch]) -> Ask:
    """Return a function that answers requests like the process of a search elsewhere.

    Args:
        begin: Returns the search, given the facts of the first request by name.
    """
    searches: list[Search | MetricsSearch] = []

    def ask(do: str, **facts: Any) -> Mapping[str, Any]:
        start_s = time.process_time()
        if do == "begin":
            searches[:] = [begin(**facts)]
            answer: dict[str, Any] = {"versions": {"tuner-hpo": tune.__version__}}
        else:
            answer = reply_of(searches[0], {"do": do, **facts})
        return {**answer, "seconds": time.process_time() - start_s}

    return ask


def _elsewhere(method: Peer, stack: contextlib.ExitStack) -> Ask:
    return stack.enter_context(
        Conversation(python_of(method.environment), f"{method.environment}_peer")
    ).ask
