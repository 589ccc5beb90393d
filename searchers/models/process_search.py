"""Base class of searches that fit Gaussian processes, which keeps their hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from .forecast import expected_scores
from .gaussian_process import NUM_STEPS, GaussianProcess
from .level_rows import NUM_STEPS as NUM_STEPS_OF_LEVELS
from .level_rows import level_rows, retained_parts
from .model_search import ModelSearch
from .observations import Table, ranks

Array = np.ndarray[Any, Any]

REFIT = 1.05
"""Factor of the number of trials after which hyperparameters are fitted again."""


class ProcessSearch(ModelSearch):
    """Base class of searches that fit a Gaussian process.

    Hyperparameters are fitted again when trials have become more by a twentieth. In between only
    the new trials are added. Each fit begins anew: one that goes on from the last hyperparameters
    stays where that one ended, which was much worse on the functions of benchmarks/quality.
    """

    takes_several_metrics = True
    takes_constraints = True

    _fits: Mapping[str, tuple[int, Sequence[float]]] = MappingProxyType({})
    """Number of trials, and hyperparameters, of the last fit of each metric; "" for the only one.
    """

    def process(
        self,
        rows: Array,
        targets: Array,
        num_categories: tuple[int, ...],
        depths: Array | None = None,
        trials: Array | None = None,
        *,
        metric: str = "",
    ) -> GaussianProcess:
        """Return a process fitted to the rows; see `GaussianProcess` for the arguments."""
        num_trials = self.observations.num_observed
        num_fitted, logs = self._fits.get(metric, (0, None))
        is_due = logs is None or num_trials >= REFIT * num_fitted
        process = GaussianProcess(
            rows,
            targets,
            num_categories,
            depths=depths,
            trials=trials,
            logs=None if is_due else logs,
            num_steps=NUM_STEPS if depths is None else NUM_STEPS_OF_LEVELS,
        )
        if is_due:
            self._fits = {**self._fits, metric: (num_trials, process.logs)}
        return process

    def process_of_levels(
        self, table: Table, num_categories: tuple[int, ...], metric: str = ""
    ) -> tuple[GaussianProcess, Table, int]:
        """Return a process fitted to all levels, the final ranks it expects, its number of trials.

        The ranks are those of a table that is else as given.
        """
        rows = level_rows(table)
        process = self.process(
            table.vectors[rows.places],
            rows.targets,
            num_categories,
            rows.depths,
            rows.places,
            metric=metric,
        )
        scores, _ = expected_scores(process, table)
        expected = replace(table, quantiles=ranks(scores), retained=retained_parts(rows, scores))
        return process, expected, len(np.unique(rows.places))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base class, and the last fits."""
        fits = {metric: [num, list(logs)] for metric, (num, logs) in self._fits.items()}
        of_one = {"process": fits.pop("", [0, None])}
        return {**super().state_dict(), **of_one, **({"processes": fits} if fits else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; metric, mode and space must be known already."""
        super().load_state_dict(state)
        # Searches of earlier versions have fitted each process anew.
        fits = {"": state.get("process", (0, None)), **state.get("processes", {})}
        self._fits = {metric: (num, logs) for metric, (num, logs) in fits.items() if logs}
