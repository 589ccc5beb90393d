"""Tuner's searchers with several metrics, asked and told without an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import searchers
from benchmarks.quality.functions.methods import AUTO
from benchmarks.quality.functions.ours import AskedSearcher, default_searcher, space_of
from benchmarks.quality.methods import Ours

from .problem import Problem


class OurSearch(AskedSearcher):
    """A searcher with several metrics, or with constraints.

    Args:
        method: The searcher and its arguments.
        problem: What it searches.
        num_evaluations: Number of evaluations, which the searcher gets to know.
        seed: Seed of its random numbers.
    """

    def __init__(self, method: Ours, problem: Problem, num_evaluations: int, seed: int) -> None:
        space = space_of(problem.axes)
        objectives = tuple((each.metric, each.mode) for each in problem.objectives)
        super().__init__(
            default_searcher(
                space,
                num_evaluations,
                metric=[metric for metric, _ in objectives],
                mode=[mode for _, mode in objectives],
                constraints={each.metric: each.comparison for each in problem.constraints},
            )
            if method.searcher == AUTO
            else getattr(searchers, method.searcher)(**method.arguments)
        )
        metric, mode = objectives[0] if len(objectives) == 1 else (None, None)
        several = {"objectives": objectives} if len(objectives) > 1 else {}
        self._searcher.set_search_properties(
            metric,
            mode,
            space,
            seed=seed,
            num_samples=num_evaluations,
            experiment=f"{problem.name}-{seed}",
            constraints=tuple(problem.constraints),
            **several,
        )

    def tell(
        self,
        trial: str,
        metrics: Mapping[str, float],
        costs: Sequence[float],
        excesses: Sequence[float],
    ) -> None:
        """Tell the searcher the metrics, and that the trial has ended."""
        result: dict[str, Any] = {**metrics, "training_iteration": 1, "time_total_s": 1.0}
        self._searcher.on_trial_result(trial, result)
        self._searcher.on_trial_complete(trial, result)
