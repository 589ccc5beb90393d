"""Trials, results and journal that all charts are drawn from."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from searchers.objectives.outcome_constraint import Constraints
from tuner.analysis.ranking import Mode, best_first, config_of, mode_for, objective_of, value_of
from tuner.core.feasibility import is_feasible
from tuner.core.pareto import Objectives
from tuner.core.result import flatten
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.errors import StorageError
from tuner.journal.reader import read as journal_records
from tuner.journal.rows import Rows

from .timeline import Timeline


@final
class Source:
    """Trials of an experiment, their results and its timeline; the source of every chart.

    The journal is read when the timeline is first needed.

    Args:
        trials: The trials, in the order of their creation.
        rows: Their results.
        experiment_path: Directory of the experiment; without a journal, charts lack times and
            decisions.
        metric: The metric that it optimises, flattened; None for none.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None for none.
        several: Metric and mode of each objective if it has several; there may be no single
            `metric` then.
        constraints: What a trial has to keep to be the best one, or on the Pareto front.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        rows: Rows,
        experiment_path: str,
        metric: str | None = None,
        mode: Mode | None = None,
        *,
        several: Objectives = (),
        constraints: Constraints = (),
    ) -> None:
        self.trials = trials
        self.rows = rows
        self.experiment_path = experiment_path
        self.metric = metric
        self.mode = mode
        self.several = several
        self.constraints = constraints
        self._configs: dict[str, Mapping[str, Any]] = {}

    @property
    def objectives(self) -> Objectives:
        """Metric and mode of everything that is optimised: several, one, or none."""
        return self.several or (((self.metric, self.mode),) if self.metric and self.mode else ())

    @functools.cached_property
    def timeline(self) -> Timeline:
        """Events with their times; empty if there is no readable journal."""
        ids = {trial.trial_id for trial in self.trials}
        try:
            return Timeline(
                journal_records(self.experiment_path),
                ids,
                self.metric,
                self.mode,
                infeasible=[one.trial_id for one in self.trials if not self.is_feasible(one)],
            )
        except StorageError:
            return Timeline((), ids)

    def with_objective(self, metric: str | None, mode: Mode | None) -> Source:
        """Return the source for another metric or direction; itself if neither is given."""
        name = metric or self.metric
        direction = mode or mode_for(metric, self.metric, self.mode, self.several)
        if (name, direction) == (self.metric, self.mode):
            return self
        return Source(
            self.trials,
            self.rows,
            self.experiment_path,
            name,
            direction,
            several=self.several,
            constraints=self.constraints,
        )

    def by_first(self) -> Source:
        """Return the source for the first of several metrics; itself where there is only one."""
        return self.with_objective(self.several[0][0], None) if self.is_trade_off else self

    @property
    def is_trade_off(self) -> bool:
        """Whether several metrics are optimised, and none of them has been chosen."""
        return bool(self.several) and self.metric is None

    @property
    def chosen(self) -> Objectives:
        """The metric with its mode, or all of a trade-off."""
        return self.several if self.is_trade_off else [self.objective]

    @property
    def objective(self) -> tuple[str, Mode]:
        """Metric and mode (``"min"`` or ``"max"``: the direction of optimisation).

        Raises:
            ValueError: If there is no metric or no mode.
        """
        return objective_of(self.metric, self.mode, self.several)

    def value_of(self, trial: Trial, metric: str | None = None) -> float:
        """Return a trial's last value of the metric, or of another one; NaN if it has none."""
        return value_of(
            trial,
            self.rows,
            metric or self.metric or "",
            # The mode of the experiment does not apply to another metric.
            self.mode if metric in (None, self.metric) else None,
        )

    def config_of(self, trial: Trial) -> Mapping[str, Any]:
        """Return the flattened configuration in force at a trial's last value of the metric.

        Without a metric it is that of its last result.
        """
        if trial.trial_id not in self._configs:
            self._configs[trial.trial_id] = flatten(config_of(trial, self.rows, self.metric))
        return self._configs[trial.trial_id]

    @functools.cached_property
    def best(self) -> Trial | None:
        """The feasible trial with the best last value, as by `get_best_result`; None for none."""
        first = next(iter(self.ranked()), None) if self.mode else None
        return first if first and self.is_feasible(first) else None

    @property
    def best_id(self) -> str | None:
        """The id of the `best` trial; None without one."""
        return self.best.trial_id if self.best else None

    def ranked(self) -> list[Trial]:
        """Return the trials that have a finite value, best first; ties in the order of creation.

        Those that are not feasible come last.
        """
        if self.metric is None or self.mode is None:
            return [trial for trial in self.trials if math.isfinite(self.value_of(trial))]
        return [
            self.trials[index]
            for index, value in best_first(
                self.trials, self.rows, self.metric, self.mode, constraints=self.constraints
            )
            if math.isfinite(value)
        ]

    def is_feasible(self, trial: Trial) -> bool:
        """Return whether a trial keeps all constraints."""
        return is_feasible(trial, self.constraints)


def state_of(trial: Trial) -> str:
    """Return a trial's state as shown in charts, e.g. ``"stopped early"``."""
    if trial.status is Status.ERROR:
        return str(TerminationReason.FAILED)
    return str(trial.ending) if trial.ending else trial.status.lower()
