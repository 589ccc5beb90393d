"""Server side of the protocol between the benchmark and a search in another environment.

Each request is a line of JSON on standard input, each reply a line of JSON on standard output. Only
the standard library is imported, so that this module runs in any environment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol, cast

CONTINUE, STOP, PAUSE = "continue", "stop", "pause"


@dataclass(frozen=True)
class Setting:
    """Parameters of a search, sent with the first request.

    Attributes:
        method: Name of the search in its module.
        space: The axes. Each has a name and a scale, ``"float"``, ``"int"`` or ``"choice"``.
            Numbers have low and high, both inclusive, and may have ``"log": true``; choices have
            values. An axis with ``"when": [name, values]`` is active only if the axis of that name,
            which stands before it, is active and has one of the values. Searches without conditions
            take all axes as active; whether a configuration holds inactive ones does not matter.
        max_epochs: Number of epochs of a full training.
        num_workers: Number of trials that run at the same time.
        seed: Seed of all random numbers.
        num_trials: Number of trials in the budget; None if it is not known.
        interval: Epochs between two turns of a member of a population; None for other searches.
        num_objectives: Number of metrics to optimise; above 1 for a `MetricsSearch` only.
        num_constraints: Number of bounds that metrics have to keep, likewise.
    """

    method: str
    space: list[dict[str, Any]]
    max_epochs: int
    num_workers: int
    seed: int
    num_trials: int | None = None
    interval: int | None = None
    num_objectives: int = 1
    num_constraints: int = 0


@dataclass(frozen=True)
class Order:
    """Work for a free worker.

    Attributes:
        trial: Name of the trial. The name of an earlier trial continues it where it stopped, at no
            extra cost.
        config: Its configuration; None for a trial that continues.
        until: Epoch to train up to, unless the trial is stopped or paused before.
        source: The trial whose last state a new trial continues from; None to begin anew.
    """

    trial: str
    config: Mapping[str, Any] | None
    until: int
    source: str | None = None


class Finished(Exception):
    """Raised by `Search.ask` if the search is over, e.g. since it has tried all configurations."""


class Search(Protocol):
    """Interface of a search. All values are to be minimised."""

    def ask(self) -> Order | None:
        """Return work for a free worker; None to let it wait for the next event.

        Raises:
            Finished: If there will be no more work.
        """

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Record a value and return ``"continue"``, ``"stop"`` or ``"pause"``.

        `cost_s` is the cost of the trial so far, in virtual seconds.
        """

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Record that a trial has reached the last epoch of its order, with its last value."""


class MetricsSearch(Protocol):
    """Interface of a search with several metrics, which trains every trial to its end."""

    def ask(self) -> Order | None:
        """Return work as a `Search` does."""

    def tell(
        self,
        trial: str,
        metrics: Mapping[str, float],
        costs: Sequence[float],
        excesses: Sequence[float],
    ) -> None:
        """Record the result of a trial.

        Args:
            trial: Name of the trial.
            metrics: All metrics by name.
            costs: The objectives, all to be minimised.
            excesses: By how much each bound is missed; at most 0 where it is kept.
        """


def serve(make: Callable[[Setting], Search | MetricsSearch], libraries: tuple[str, ...]) -> None:
    """Answer requests until standard input ends."""
    # What libraries print must not get between the replies: it goes to standard error.
    replies, sys.stdout = sys.stdout, sys.stderr
    search: Search | MetricsSearch | None = None
    for line in sys.stdin:
        request = json.loads(line)
        start_s = time.process_time()
        if request["do"] == "begin":
            search = make(Setting(**request["setting"]))
            reply: dict[str, Any] = {"versions": {name: version(name) for name in libraries}}
        else:
            assert search is not None  # noqa: S101  (the first request is always "begin")
            reply = reply_of(search, request)
        reply["seconds"] = time.process_time() - start_s
        print(json.dumps(reply), file=replies, flush=True)


def reply_of(search: Search | MetricsSearch, request: Mapping[str, Any]) -> dict[str, Any]:
    """Pass a request after the first one to a search, and return the reply without seconds."""
    if request["do"] == "ask":
        try:
            order = search.ask()
        except Finished:
            return {"finished": True}
        return {"wait": True} if order is None else dict(vars(order))
    if request["do"] == "tell":
        told = (request[name] for name in ("trial", "metrics", "costs", "excesses"))
        cast("MetricsSearch", search).tell(*told)
        return {}
    search = cast("Search", search)
    arguments = request["trial"], request["epoch"], request["value"], request["cost_s"]
    if request["do"] == "report":
        return {"verdict": search.report(*arguments)}
    search.complete(*arguments)
    return {}
