"""The interface every searcher fulfils: ask for a configuration, tell what became of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from .declaration import Declared

MODES = ("min", "max")

FailedTrials = Literal["worst", "ignore"]
"""What a searcher learns from a trial that failed: that it is as bad as the worst one seen so far, or nothing."""

FAILED_TRIALS: Final[tuple[FailedTrials, ...]] = ("worst", "ignore")


class Searcher(Declared, ABC):
    """Proposes configurations and learns from results.

    A searcher is asked by one thread only and draws all chance from the seed it is given. Per trial it sees `suggest`, then any
    number of `on_trial_result` and `on_trial_pause`, then exactly one `on_trial_complete`. Retries of a crashed trial are not visible to
    it, except that results may be repeated.
    """

    FINISHED: ClassVar[str] = "FINISHED"

    metric: str | None = None
    mode: str | None = None

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode (``"min"`` or ``"max"``) of each objective: several, one, or, as long as none is known, none."""
        return ((self.metric, self.mode),) if self.metric and self.mode else ()

    def set_search_properties(self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any) -> bool:
        """Take over the experiment's metric, mode, space and seed, before the first suggestion.

        Args:
            metric: Name of the metric in flattened form, or None.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
            config: The search space, constants included.
            **spec: ``seed`` (int), ``num_samples`` (int, -1 for endless), and ``experiment`` (str), which tells this experiment from all
                others and is the same when it is restored.

        Returns:
            False where the searcher already has such a setting of its own and another one is given here.
        """
        if (metric and self.metric) or (mode and self.mode):
            return False
        self.metric = metric or self.metric
        self.mode = mode or self.mode
        return True

    @abstractmethod
    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Propose a configuration.

        Args:
            trial_id: The trial that will run it.

        Returns:
            A configuration (nested as in the space), `FINISHED` when there will be no more, or None for "not now, ask again after
            the next result".
        """

    def total_samples(self, num_samples: int) -> int | None:
        """Return how many suggestions the experiment takes in all; None for endless.

        Args:
            num_samples: ``TuneConfig.num_samples``, where -1 means endless.
        """
        return None if num_samples < 0 else num_samples

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Learn an intermediate result, flattened to ``"a/b"``."""

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Learn that a trial has been paused, and may go on later: its next result tells that it has.

        Args:
            trial_id: The trial.
            result: Its last result, flattened; None if it never reported.
        """

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False, stopped: bool = False) -> None:
        """Learn how a trial ended.

        Args:
            trial_id: The trial.
            result: Its last result, flattened; None if it never reported or failed.
            error: Whether it failed for good.
            stopped: Whether a scheduler or a stopper ended it before it was done.
        """

    def on_trial_discard(self, trial_id: str) -> None:
        """Learn that a suggestion is not run, or another configuration in its place: nothing will ever be known of it.

        The last that is heard of the trial, in place of `on_trial_complete`. Unless it is overridden, the trial counts as failed.

        Args:
            trial_id: The trial that the configuration was suggested for.
        """
        self.on_trial_complete(trial_id, error=True)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Learn how many suggestions may be unfinished at a time, e.g. to propose as many together.

        Args:
            max_concurrent: At least 1.

        Returns:
            Whether the searcher itself keeps to it, by answering None.
        """
        return False

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Learn what a configuration came to that was run elsewhere; metric, mode and space have to be known already.

        What is learned so stays with this object: where the experiment is restored, it has to be given again.

        Args:
            parameters: The configuration, nested or with names such as ``"a/b"``.
            value: The metric's value, in its own direction.
            error: Whether the run failed.
            pruned: Whether it was stopped before it was done.
            intermediate_values: What it reported on the way, from the first training iteration on.

        Raises:
            NotImplementedError: If the searcher does not learn from results, or only from its own.
            ValueError: If the configuration does not fit the space.
        """
        name = type(self).__name__
        raise NotImplementedError(f"{name} takes no evaluated points, got {parameters!r}; give it points_to_evaluate to run them again")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Learn what trials of another experiment came to.

        Args:
            trials_or_analysis: A list of trials, or what has them as ``trials``: a `ResultGrid` or an `ExperimentAnalysis`. Trials that
                reported no number are left out.
            metric: Name of the metric, flattened, whose last value counts.

        Raises:
            NotImplementedError: If the searcher does not learn from results, or only from its own.
            ValueError: If a configuration does not fit the space.
        """
        for trial in getattr(trials_or_analysis, "trials", trials_or_analysis):
            value = _value_at(trial.last_result, metric)
            if value is not None:
                status, ending = str(trial.status), str(getattr(trial, "ending", None))
                self.add_evaluated_point(trial.config, value, error=status == "ERROR", pruned=ending == "stopped early")

    @property
    def keeps_state(self) -> bool:
        """Whether `state_dict` tells all that suggestions and results so far have led to.

        False, unless it is overridden: the searcher is then brought back by living through all of them again, from the beginning.
        """
        return type(self).state_dict is not Searcher.state_dict

    def state_dict(self) -> dict[str, Any]:
        """Return all that suggestions and results so far have led to, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""


def check_objective(searcher: Searcher) -> None:
    """Check that a searcher knows one metric and its direction.

    Raises:
        ValueError: If one of them is missing.
    """
    kind = type(searcher).__name__
    if not isinstance(searcher.metric, str) or not searcher.metric:
        raise ValueError(f"metric must be the name of one metric for {kind}, got {searcher.metric!r}; set TuneConfig(metric=...)")
    if searcher.mode not in MODES:
        raise ValueError(f"mode must be one of {MODES} for {kind}, got {searcher.mode!r}; set TuneConfig(mode=...)")


def check_failed_trials(failed_trials: Any) -> FailedTrials:
    """Return what a searcher is to learn from trials that failed.

    Raises:
        ValueError: If it is neither ``"worst"`` nor ``"ignore"``.
    """
    if failed_trials not in FAILED_TRIALS:
        raise ValueError(f"failed_trials must be one of {FAILED_TRIALS}, got {failed_trials!r}; 'worst' keeps the search away from them")
    given: FailedTrials = failed_trials
    return given


def check_rewards(points: Sequence[Any], rewards: Sequence[Any]) -> None:
    """Check that there are as many rewards as points, or none.

    Raises:
        ValueError: If there are not.
    """
    if rewards and len(rewards) != len(points):
        raise ValueError(f"evaluated_rewards must hold one value per point, got {len(rewards)} for {len(points)}; add what is missing")


def _value_at(result: Any, metric: str) -> float | None:
    """Return the number under a flattened name of a nested or flat result."""
    if not isinstance(result, Mapping):
        return None
    value = result.get(metric)
    head, _, rest = metric.partition("/")
    if value is None and rest:
        return _value_at(result.get(head), rest)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
