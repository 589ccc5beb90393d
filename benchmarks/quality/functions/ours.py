"""Tuner's searchers, asked and told without an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import searchers
import tuner as tune
from benchmarks.quality.methods import Ours
from benchmarks.quality.peers.dialogue import CONTINUE, Finished, Order
from searchers.searcher import Searcher
from tuner.spec.config import AUTO as CHOSEN
from tuner.spec.default_algorithms import chosen

from .function import Axis, Function
from .methods import AUTO


class AskedSearcher:
    """A searcher of tuner behind the first half of the protocol of searches of other projects.

    Args:
        searcher: The searcher, which knows its space.
    """

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._num_asked = 0

    def ask(self) -> Order | None:
        """Return a configuration; None while the searcher waits for results.

        Raises:
            Finished: If the searcher has no more configurations.
        """
        name = str(self._num_asked)
        suggestion = self._searcher.suggest(name)
        if suggestion is None:
            return None
        if isinstance(suggestion, str):  # `Searcher.FINISHED`
            raise Finished
        self._num_asked += 1
        return Order(name, suggestion, 1)


class OurSearch(AskedSearcher):
    """A searcher with one metric.

    Args:
        method: The searcher and its arguments.
        function: What it searches.
        num_evaluations: Number of evaluations, which the searcher gets to know.
        seed: Seed of its random numbers.
    """

    def __init__(self, method: Ours, function: Function, num_evaluations: int, seed: int) -> None:
        space = space_of(function.axes)
        super().__init__(
            default_searcher(space, num_evaluations, metric="loss", mode="min")
            if method.searcher == AUTO
            else getattr(searchers, method.searcher)(**method.arguments)
        )
        self._searcher.set_search_properties(
            "loss",
            "min",
            space,
            seed=seed,
            num_samples=num_evaluations,
            experiment=f"{function.name}-{seed}",
        )

    def report(self, trial: str, epoch: int, value: float, cost_s: float) -> str:
        """Tell the searcher the value."""
        self._searcher.on_trial_result(trial, _result(value, cost_s))
        return CONTINUE

    def complete(self, trial: str, epoch: int, value: float, cost_s: float) -> None:
        """Tell the searcher that the trial has ended."""
        self._searcher.on_trial_complete(trial, _result(value, cost_s))


def space_of(axes: Sequence[Axis]) -> dict[str, Any]:
    """Return a space in the terms of tuner."""
    return {axis.name: _declared(axis) for axis in axes}


def _declared(axis: Axis) -> Any:
    if axis.when is None:
        return _domain(axis)
    parent, values = axis.when
    return tune.only_if({parent: list(values)}, _domain(axis))


def _domain(axis: Axis) -> Any:
    if axis.scale == "choice":
        return tune.choice(list(axis.values))
    if axis.scale == "int":
        integers: Callable[[int, int], Any] = tune.lograndint if axis.log else tune.randint
        return integers(int(axis.low), int(axis.high) + 1)
    return (tune.loguniform if axis.log else tune.uniform)(axis.low, axis.high)


def default_searcher(space: Mapping[str, Any], num_evaluations: int, **named: Any) -> Searcher:
    """Return the searcher that tuner takes by default.

    Args:
        space: The space.
        num_evaluations: Number of samples.
        **named: Metric, mode and constraints, as `TuneConfig` takes them.
    """
    config = tune.TuneConfig(num_samples=num_evaluations, search_alg=CHOSEN, **named)
    return chosen(config, tune.RunConfig(), space, _never_called).searcher


def _never_called(config: dict[str, Any]) -> None:  # noqa: ARG001  (the signature of a trainable)
    raise AssertionError("only the searcher is used")


def _result(value: float, cost_s: float) -> dict[str, Any]:
    return {"loss": value, "training_iteration": 1, "time_total_s": cost_s}
