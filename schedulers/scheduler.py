"""The interface of schedulers, and the views that they get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, final

from searchers.objectives.outcome_constraint import OutcomeConstraint
from searchers.recorded_arguments import Declared

from .decisions import Decision

MODES = ("min", "max")


class TrialView(Protocol):
    """What a scheduler may see of a trial; the engine's own trial record fits it."""

    @property
    def trial_id(self) -> str:
        """The trial's name, unique in the experiment."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The trial's hyperparameters; not to be modified."""

    @property
    def status(self) -> str:
        """``PENDING``, ``RUNNING``, ``PAUSED``, ``TERMINATED`` or ``ERROR``."""

    @property
    def resources(self) -> Mapping[str, float]:
        """What the trial occupies while it runs, e.g. ``{"cpu": 1.0}``; not to be modified."""

    @property
    def has_checkpoint(self) -> bool:
        """Whether the trial has a committed checkpoint to continue from."""

    @property
    def checkpoint_index(self) -> int | None:
        """Index of its latest checkpoint, counted from 0 in order of saving; None without one.

        Where the metric comes from validations, it is the latest whose metric the scheduler knows.
        """

    @property
    def checkpoint_iteration(self) -> int | None:
        """``training_iteration`` of this checkpoint; None without one."""


class ExperimentView(Protocol):
    """A scheduler's view of the experiment; it changes between calls, and is read-only."""

    @property
    def trials(self) -> Mapping[str, TrialView]:
        """All trials so far by name, in the order in which they were added."""

    @property
    def max_trials(self) -> int | None:
        """How many trials there will be at most, existing ones included; None if unknown."""

    @property
    def no_more_trials(self) -> bool:
        """Whether no new trial will come before an existing one continues.

        The search is over, or waits for results.
        """

    @property
    def can_save_on_demand(self) -> bool:
        """Whether trials save on demand; else only when the training code reports checkpoints."""

    @property
    def resources(self) -> Mapping[str, float]:
        """All that trials can occupy together, e.g. ``{"cpu": 8.0}``.

        On a cluster these are the resources of the nodes that are present; there are none before
        the first one has joined.
        """

    @property
    def node_resources(self) -> Mapping[str, float]:
        """The most of each resource that one machine has, which limits a trial of one process."""


@final
class NoExperiment:
    """What a scheduler sees before it has an experiment."""

    trials: Mapping[str, TrialView] = MappingProxyType({})
    max_trials: int | None = None
    no_more_trials: bool = True
    can_save_on_demand: bool = False
    resources: Mapping[str, float] = MappingProxyType({})
    node_resources: Mapping[str, float] = MappingProxyType({})


class Scheduler(Declared, ABC):
    """Judges results and decides which trials continue.

    A scheduler never holds the engine: it is given facts and returns decisions, and one callback
    may decide about several trials. Where a validation of a checkpoint supplies the metric, the
    result is given to it once more when that has ended, with the metric and the result's own
    ``training_iteration``; the trial may have trained on since, or have ended, and decisions about
    it take effect at its next report. It reads no clock and draws random numbers only from the seed
    it is given, so the same facts in the same order give the same decisions. Callbacks arrive in
    this order for each trial: `on_trial_add` once, then `on_trial_result` for each result, then
    exactly one of `on_trial_complete` and `on_trial_error`. A trial that crashes and is tried again
    may repeat results it has already reported; one that is interrupted together with the whole
    experiment is not over, and reports again when the experiment is restored.

    Attributes:
        metric: Flattened name of the metric; None while it is unknown.
        mode: ``"min"`` or ``"max"``: its direction.
        constraints: What results have to keep, see `TuneConfig`; empty while unknown.
        experiment: View of the experiment; the engine sets it before the first trial is added.
        changes_trials: Whether trials may continue with another configuration, or other resources,
            than they began with; a what-if replay of recorded results is then impossible.
        first_comparison: Name of the argument that sets at which ``time_attr`` trials are compared
            for the first time; if no trial gets there, the user is warned at the end. None for a
            scheduler without such an argument.
        remarks: Sentences for the user. The engine shows each once and clears the list; assign
            a new list rather than appending to the class's tuple.
    """

    metric: str | None = None
    mode: str | None = None
    constraints: tuple[OutcomeConstraint, ...] = ()
    experiment: ExperimentView = NoExperiment()
    changes_trials: ClassVar[bool] = False
    first_comparison: ClassVar[str | None] = None
    remarks: Sequence[str] = ()

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode (``"min"`` or ``"max"``) of each objective; empty while unknown."""
        return ((self.metric, self.mode),) if self.metric and self.mode else ()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the experiment's metric, mode and seed, before the first trial is added.

        Args:
            metric: Name of the metric in flattened form (``"val/loss"``), or None where the
                experiment names none.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
            **spec: ``seed`` (int), from which all of its random numbers must be drawn;
                ``objectives``, metric and mode of each objective, where there are several of which
                `metric` and `mode` are None; and ``constraints``, the `OutcomeConstraint` of each
                metric that has one.

        Returns:
            False if the scheduler already has another metric or mode; the same one is accepted.
        """
        if (metric and self.metric not in (None, metric)) or (
            mode and self.mode not in (None, mode)
        ):
            return False
        self.metric = metric or self.metric
        self.mode = mode or self.mode
        self.constraints = tuple(spec.get("constraints", self.constraints))
        return True

    def completed_space(self, space: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the search space with added hyperparameters that only this scheduler varies.

        Called once, before anything is sampled; the values that trials begin with are sampled like
        those of all other parameters.
        """
        return space

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Handle a new trial, which is PENDING."""
        return ()

    @abstractmethod
    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Judge a result.

        Args:
            trial: The trial that reported and now waits for the answer; it is RUNNING. One whose
                metric comes from a validation may have any status.
            result: Its metrics, nested ones flattened to ``"a/b"``, with the keys that the engine
                adds.

        Returns:
            Decisions about this trial or others; trials without one continue.
        """

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Handle a trial that ended or was stopped; `result` is its last one, if any."""
        return ()

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Handle a trial that has failed for good."""
        return ()

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Decide about paused trials when no other trial is ready to run.

        Called while trials are PAUSED, no trial is pending and a slot is free, before the searcher
        is asked for another trial. Once ``experiment.no_more_trials`` holds and no trial can be
        resumed, paused trials have to be stopped; otherwise the engine stops them with the reason
        ``"idle"``.

        Args:
            trials: The paused trials, in the order they were paused.
            num_free_slots: How many more trials could run now, at least 1.
        """
        return ()

    @property
    def keeps_state(self) -> bool:
        """Whether `state_dict` returns the complete state.

        False unless it is overridden: the scheduler is then restored by replaying all facts from
        the beginning.
        """
        return type(self).state_dict is not Scheduler.state_dict

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def debug_string(self) -> str:
        """Return one line about the scheduler's state, to be printed."""
        return type(self).__name__
