"""Populations of other projects in virtual time, which replace members by new trials."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from benchmarks.quality.clock import Ask
from benchmarks.quality.peers.dialogue import STOP
from searchers.space import Domain, Float

from .problems import Problem, State
from .running import Outcome, durations_of, score_of_best


@dataclass(slots=True)
class _Trial:
    """A member of the population, until another one takes its place.

    Attributes:
        name: Its name.
        config: Its hyperparameters.
        state: What it has learnt.
        rng: Its random number generator.
        epoch: How long it and those that it continues have been trained.
    """

    name: str
    config: dict[str, float]
    state: State
    rng: Generator
    epoch: int = 0


def run_peer_population(
    ask: Ask,
    method: str,
    problem: Problem,
    seed: int,
    *,
    interval: int,
    num_members: int,
    is_asynchronous: bool,
) -> Outcome:
    """Train a population of another project and return how it has ended.

    Each member has a worker of its own. When a trial is stopped, its worker trains the next one,
    which continues from the last state of another; when a trial has been trained to the end, its
    worker is done.

    Args:
        ask: Sends a request to the other project.
        method: Name of the method there.
        problem: What to train.
        seed: Seed of the method, of the training and of the workers' speeds.
        interval: Epochs between two turns of a member.
        num_members: Size of the population.
        is_asynchronous: Whether workers have different speeds.
    """
    setting = {
        "method": method,
        "space": [_axis(name, domain) for name, domain in problem.space.items()],
        "max_epochs": problem.num_epochs,
        "num_workers": num_members,
        "seed": seed,
        "interval": interval,
    }
    ask("begin", setting=setting)
    durations = durations_of(seed, num_members, is_asynchronous=is_asynchronous)
    trials: dict[str, _Trial] = {}
    num_clones, end_s = 0, 0.0

    def next_trial() -> _Trial:
        nonlocal num_clones
        order = ask("ask")
        rng = default_rng([seed, 1, len(trials), 0])
        trial = _Trial(order["trial"], order["config"], (), rng)
        if order["source"] is None:
            trial.state = problem.start(rng)
        else:
            source = trials[order["source"]]
            trial.state, trial.epoch = source.state, source.epoch
            num_clones += 1
        trials[trial.name] = trial
        return trial

    # When the epoch in progress ends, by worker.
    members = [next_trial() for _ in durations]

    def epoch_s(worker: int) -> float:
        return durations[worker] * problem.duration(members[worker].config)

    due = [(epoch_s(worker), worker) for worker in range(num_members)]
    heapq.heapify(due)
    finished: list[State] = []
    while due:
        end_s, worker = heapq.heappop(due)
        trial = members[worker]
        with np.errstate(all="ignore"):
            trial.state = problem.train(trial.state, trial.config, trial.rng)
            loss = problem.loss(trial.state)
        trial.epoch += 1
        facts = {"trial": trial.name, "epoch": trial.epoch, "value": loss, "cost_s": end_s}
        verdict = ask("report", **facts)["verdict"]
        if trial.epoch == problem.num_epochs:
            finished.append(trial.state)
            continue
        if verdict == STOP:
            members[worker] = next_trial()
        heapq.heappush(due, (end_s + epoch_s(worker), worker))
    return Outcome(score_of_best(problem, finished), end_s, num_clones)


def _axis(name: str, domain: Domain) -> dict[str, Any]:
    assert isinstance(domain, Float)  # noqa: S101  (as in all problems)
    scale = {"scale": "float", "log": domain.is_log}
    return {"name": name, **scale, "low": domain.lower, "high": domain.upper}
