"""The interface every scheduler fulfils: facts in, decisions out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from searchers.declaration import Declared

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
    def has_checkpoint(self) -> bool:
        """Whether the trial has a committed checkpoint to continue from."""


class Scheduler(Declared, ABC):
    """Judges results and decides which trials go on.

    A scheduler never holds the engine: it is told facts and returns decisions, and one callback may decide about several trials.
    It reads no clock and draws chance only from the seed it is given, so the same facts in the same order give the same decisions.
    Callbacks arrive in this order for each trial: `on_trial_add` once, then `on_trial_result` for each result, then exactly one of
    `on_trial_complete` and `on_trial_error`. A trial that crashes and is tried again may repeat results it has already reported.
    """

    metric: str | None = None
    mode: str | None = None

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over the experiment's metric, mode and seed, before the first trial is added.

        Args:
            metric: Name of the metric in flattened form (``"val/loss"``), or None where the experiment names none.
            mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
            **spec: ``seed`` (int), from which all of the scheduler's chance must be drawn.

        Returns:
            False where the scheduler already has a metric or mode of its own and another one is given here.
        """
        if (metric and self.metric) or (mode and self.mode):
            return False
        self.metric = metric or self.metric
        self.mode = mode or self.mode
        return True

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        """Learn of a new trial, which is PENDING."""
        return ()

    @abstractmethod
    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Judge a result.

        Args:
            trial: The trial that reported and now waits for the answer; it is RUNNING.
            result: Its metrics, nested ones flattened to ``"a/b"``, with the keys that the engine adds.

        Returns:
            Decisions about this trial or others; none means that all go on.
        """

    def on_trial_complete(self, trial: TrialView, result: Mapping[str, Any] | None) -> Sequence[Decision]:
        """Learn that a trial has ended well or was stopped; `result` is its last one, None if it never reported."""
        return ()

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Learn that a trial has failed for good."""
        return ()

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Say what to do with paused trials when nothing else is ready to run.

        Called only while trials are PAUSED, no trial is pending and a slot is free. It must end: when nothing can be resumed any
        more, what is still paused has to be stopped, or the engine stops it with the reason ``"idle"``.

        Args:
            trials: The paused trials, in the order they were paused.
            num_free_slots: How many more trials could run now, at least 1.
        """
        return ()

    @property
    def keeps_state(self) -> bool:
        """Whether `state_dict` tells all that the facts so far have led to.

        False, unless it is overridden: the scheduler is then brought back by telling it all facts again, from the beginning.
        """
        return type(self).state_dict is not Scheduler.state_dict

    def state_dict(self) -> dict[str, Any]:
        """Return all that the facts so far have led to, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    def debug_string(self) -> str:
        """Return one line about the scheduler's state for people who watch the experiment."""
        return type(self).__name__
