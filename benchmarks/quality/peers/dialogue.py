"""The peers' side of the protocol: one JSON object per line on standard input, one answer per line on standard output.

The standard library is all that is imported here, so that it runs in any environment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

CONTINUE, STOP, PAUSE = "continue", "stop", "pause"


@dataclass(frozen=True)
class Setting:
    """First message to a search.

    Attributes:
        method: Which search of the file is asked for.
        space: The axes: name, scale (``"int"`` or ``"choice"``), and low and high, both included,
            or values.
        max_epochs: How long a full training is.
        num_workers: How many trials run at once.
        seed: Of all chance.
    """

    method: str
    space: list[dict[str, Any]]
    max_epochs: int
    num_workers: int
    seed: int


@dataclass(frozen=True)
class Order:
    """What a free worker is to do.

    Attributes:
        trial: Name of the trial; a name that was given before continues that trial where it stands,
            at no cost.
        config: Its configuration; None for a trial that continues.
        until: Number of the epoch to train up to, unless it is stopped or paused before.
    """

    trial: str
    config: Mapping[str, Any] | None
    until: int


class Finished(Exception):
    """Raised by `Search.ask` where a search has nothing left to ask for, e.g. since it has tried all there is."""


class Search(Protocol):
    """What each peer is made to look like. All values are to be minimised."""

    def ask(self) -> Order | None:
        """Return what a free worker is to do; None to let it wait until something has happened.

        Raises:
            Finished: If nothing will be asked for any more.
        """

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Take in a value; return ``"continue"``, ``"stop"`` or ``"pause"``. `cost_s` is what the trial has cost so far."""

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Take in that a trial has come to where its order led, with the value that was reported last."""


def serve(make: Callable[[Setting], Search], libraries: tuple[str, ...]) -> None:
    """Answer questions until standard input ends. Libraries may print what they like: it goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    search: Search | None = None
    for line in sys.stdin:
        question = json.loads(line)
        start_s = time.process_time()
        if question["do"] == "begin":
            search = make(Setting(**question["setting"]))
            answer: dict[str, Any] = {"versions": {name: version(name) for name in libraries}}
        else:
            assert search is not None  # noqa: S101  (the first question is always to begin)
            answer = _answer(search, question)
        answer["seconds"] = time.process_time() - start_s
        print(json.dumps(answer), file=answers, flush=True)


def _answer(search: Search, question: Mapping[str, Any]) -> dict[str, Any]:
    if question["do"] == "ask":
        try:
            order = search.ask()
        except Finished:
            return {"finished": True}
        return (
            {"wait": True}
            if order is None
            else {"trial": order.trial, "config": order.config, "until": order.until}
        )
    facts = question["trial"], question["epoch"], question["value"], question["cost_s"]
    if question["do"] == "report":
        return {"verdict": search.report(*facts)}
    search.complete(*facts)
    return {}
