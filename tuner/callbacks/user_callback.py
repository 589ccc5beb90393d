"""`UserCallback`: hooks of training over several processes, called with every worker's metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.core.failure_causes import errors_by_rank
from tuner.core.result import AUTO_FILLED, CHECKPOINT_DIR_NAME
from tuner.core.trial import Trial
from tuner.storage.checkpoints import Checkpoint

from .callback import Callback


@dataclass(frozen=True, slots=True)
class TrainRunContext:
    """What a trainer was given, for `UserCallback`.

    Attributes:
        run_config: Its `RunConfig`.
        train_loop_config: The configuration of its training function, as the trial has it.
        scaling_config: Its `ScalingConfig`, as the trial has it.
        backend_config: E.g. its `TorchConfig`.
        dataset_config: Its `DataConfig`.
        trial_id: The trial; empty where it is not known.
    """

    run_config: Any = None
    train_loop_config: Mapping[str, Any] = field(default_factory=dict)
    scaling_config: Any = None
    backend_config: Any = None
    dataset_config: Any = None
    trial_id: str = ""


class UserCallback(Callback):
    """A callback with the hooks of Ray Train, for ``RunConfig(callbacks=[...])``.

    The hooks run in the driver's process. The hooks of `Callback` may be overridden as well; those
    that are overridden here (`setup`, `on_trial_result`, `on_checkpoint`, `on_trial_recover`,
    `on_trial_error`) have to call this class's.

    Example:
        >>> class PrintLosses(UserCallback):
        ...     def after_report(self, run_context, metrics, checkpoint):
        ...         print([own["loss"] for own in metrics])
    """

    takes_rank_metrics = True

    _context_for: Callable[[Mapping[str, Any]], TrainRunContext] | None = None

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Called when all workers have reported, and the checkpoint, if any, is stored.

        Args:
            run_context: What the trainer was given.
            metrics: What each worker reported, by rank, and nothing else.
            checkpoint: The stored checkpoint, None if no worker reported one.
        """

    def after_exception(
        self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]
    ) -> None:
        """Called when an attempt has failed.

        Args:
            run_context: What the trainer was given.
            worker_exceptions: The error of each worker that raised one or died, by rank.
        """

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Prepare, before the first trial."""
        self._context_for = getattr(info.get("trainable"), "run_context_for", None)

    def on_trial_result(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Call `after_report` once the checkpoints of this report and earlier ones are stored."""
        own = {name: value for name, value in result.items() if name not in AUTO_FILLED}
        metrics = [dict(reported) for reported in info.get("rank_metrics", ())] or [own]
        waiting = self._waiting_for(trial)
        waiting.append(_Report(metrics, result.get(CHECKPOINT_DIR_NAME)))
        self._pass_on(trial, None)

    def on_checkpoint(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        checkpoint: Checkpoint,
        **info: Any,
    ) -> None:
        """Call `after_report` for the report of this checkpoint, which is now stored."""
        self._pass_on(trial, checkpoint)

    def on_trial_recover(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Call `after_exception` when the trial is retried."""
        self._on_failure(trial)

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Call `after_exception` when the trial has failed."""
        self._on_failure(trial)

    def _pass_on(self, trial: Trial, stored: Checkpoint | None) -> None:
        waiting = self._waiting_for(trial)
        while waiting and (waiting[0].checkpoint_name is None or stored is not None):
            report = waiting.popleft()
            checkpoint = stored if report.checkpoint_name is not None else None
            if checkpoint is not None:
                stored = None
            self.after_report(self._context(trial), report.metrics, checkpoint)

    def _on_failure(self, trial: Trial) -> None:
        self._waiting_for(trial).clear()  # what has not been stored by now never will be
        if trial.failures:
            self.after_exception(self._context(trial), errors_by_rank(trial.failures[-1]))

    def _waiting_for(self, trial: Trial) -> deque[_Report]:
        # Not in a constructor, which a user's class may replace.
        unstored: dict[str, deque[_Report]] = vars(self).setdefault("_unstored", {})
        return unstored.setdefault(trial.trial_id, deque())

    def _context(self, trial: Trial) -> TrainRunContext:
        if self._context_for is None:
            return TrainRunContext(train_loop_config=trial.config, trial_id=trial.trial_id)
        context = self._context_for(trial.config)
        return TrainRunContext(
            context.run_config,
            context.train_loop_config,
            context.scaling_config,
            context.backend_config,
            context.dataset_config,
            trial.trial_id,
        )


@dataclass(frozen=True, slots=True)
class _Report:
    """A report that `after_report` has not been called for.

    Attributes:
        metrics: What each worker reported, by rank.
        checkpoint_name: Name of its checkpoint's directory, None without one.
    """

    metrics: list[dict[str, Any]]
    checkpoint_name: str | None
