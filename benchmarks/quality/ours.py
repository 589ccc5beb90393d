"""Tuner's searches, run with the real driver, core, scheduler and searcher.

Only training is replaced by the table, and time is virtual.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import searchers
import tuner as tune
from schedulers import ASHAScheduler, FIFOScheduler
from schedulers.scheduler import Scheduler
from searchers.searcher import Searcher
from tuner.core.events import ResultReported
from tuner.spec.default_algorithms import asha_for
from tuner.testing.simulation import Entry, simulate

from .grid import Axis, Grid
from .methods import Ours
from .table import Table
from .trace import NUM_WORKERS, Epoch, Trace, duration_s

_SEED = "training_seed"


@final
class TimedSearcher(Searcher):
    """Wrapper of a searcher that counts its suggestions and its CPU seconds.

    It adds the number of a training seed to each suggestion, if the table has several.
    """

    # The searchers that are compared with several metrics take both.
    takes_several_metrics = True
    takes_constraints = True

    def __init__(self, searcher: Searcher, table: Table, seed: int) -> None:
        self._searcher = searcher
        self._table = table
        self._seed = seed
        self._num_starts: Counter[int] = Counter()
        self.num_suggestions = 0
        self.seconds = 0.0

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """See `Searcher`."""
        return self._searcher.set_search_properties(metric, mode, config, **spec)

    def num_trials_for(self, num_samples: int) -> int | None:
        """See `Searcher`."""
        return self._searcher.num_trials_for(num_samples)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """See `Searcher`."""
        suggestion: dict[str, Any] | str | None = self._timed(self._searcher.suggest, trial_id)
        if not isinstance(suggestion, dict):
            return suggestion
        self.num_suggestions += 1
        if self._table.num_seeds == 1:
            return suggestion
        row = self._table.grid.index(suggestion)
        start = self._num_starts[row]
        self._num_starts[row] += 1
        return {**suggestion, _SEED: self._table.seed_of(self._seed, row, start)}

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """See `Searcher`."""
        self._timed(self._searcher.on_trial_result, trial_id, result)

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """See `Searcher`."""
        self._timed(
            self._searcher.on_trial_complete, trial_id, result, error=error, stopped=stopped
        )

    def _timed(self, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        start_s = time.process_time()
        try:
            return call(*arguments, **keywords)
        finally:
            self.seconds += time.process_time() - start_s


def run_ours(method: Ours, table: Table, seed: int) -> Trace:
    """Run a search of tuner on a table.

    Args:
        method: Searcher and scheduler.
        table: The table to search.
        seed: Seed of the experiment.
    """
    searcher = getattr(searchers, method.searcher)(**method.arguments)
    timed = TimedSearcher(searcher, table, seed)
    simulation = simulate(
        _curves(table),
        param_space={axis.name: domain_of(axis, table.grid) for axis in table.grid.axes},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=-1,
            search_alg=timed,
            scheduler=_scheduler(method.scheduler, searcher, table.num_epochs),
            time_budget_s=duration_s(table),
            seed=seed,
        ),
        num_slots=NUM_WORKERS,
        duration_s=lambda config, _: float(table.costs_s[table.grid.index(config)]),
    )
    trials = {
        trial.trial_id: (table.grid.index(trial.config), trial.config.get(_SEED, 0))
        for trial in simulation.grid.trials
    }
    epochs = list(_epochs(simulation.history, trials, duration_s(table)))
    return Trace(epochs, timed.num_suggestions, timed.seconds, {"tuner-hpo": tune.__version__})


def _curves(table: Table) -> Callable[[dict[str, Any]], Iterator[dict[str, float]]]:
    def curve(config: dict[str, Any]) -> Iterator[dict[str, float]]:
        for value in table.seen[config.get(_SEED, 0), table.grid.index(config)]:
            yield {"loss": float(value)}

    return curve


def _scheduler(name: str, searcher: Searcher, num_epochs: int) -> Scheduler:
    if name == "default":
        return asha_for(
            searcher, num_epochs, num_samples=-1, type="promotion", stop_last_trials=True
        )
    if name == "fifo":
        return FIFOScheduler()
    return ASHAScheduler(max_t=num_epochs, grace_period=1, reduction_factor=3, type=name)


def domain_of(axis: Axis, grid: Grid) -> Any:
    """Return the domain of an axis, as an experiment declares it."""
    domain = (
        tune.choice(list(axis.values))
        if axis.scale == "choice"
        else tune.randint(0, len(axis.values))
    )
    condition = grid.condition_of(axis)
    return domain if condition is None else tune.only_if(dict([condition]), domain)


def _epochs(
    history: Sequence[Entry], trials: Mapping[str, tuple[int, int]], end_s: float
) -> Iterator[Epoch]:
    for entry in history:
        if isinstance(event := entry.event, ResultReported) and entry.at_s <= end_s:
            row, seed = trials[event.trial_id]
            yield Epoch(entry.at_s, row, event.metrics["training_iteration"], seed)
