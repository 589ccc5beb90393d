"""Base classes of callbacks, and the hooks that the driver calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tuner.core.trial import AppliedExploit, Trial
from tuner.core.worker_records import Failure

if TYPE_CHECKING:
    from tuner.storage.checkpoints import Checkpoint


class Callback:
    """Hooks that the driver process calls; each does nothing unless overridden.

    Hooks are called with keyword arguments, in this order: `setup` once; per trial
    `on_trial_start`, then for each result `on_trial_result`, with `on_checkpoint` and then
    `on_trial_save` after each committed checkpoint, and `on_checkpoint_validated` when one has been
    validated; on a failed attempt that is retried `on_trial_recover` and `on_trial_start`; at the
    end, when no validation of the trial is open, `on_trial_complete` or `on_trial_error`;
    `on_experiment_end` once. The scheduler is notified of each event before the callbacks; the
    searcher is notified in its own thread, after the suggestion that it may be computing.
    `iteration` is the number of the driver's turn, not the training iteration; `trials` is the live
    list of all trials and must not be modified.

    In `on_trial_result`, `trial.last_result` is the result just reported, and `result` is a copy of
    it. Setting ``result["should_checkpoint"] = True`` there requests a checkpoint of a class
    trainable at this result; other changes to `result` reach later callbacks and loggers only,
    not the scheduler, the searcher, or what the experiment returns.

    If a hook raises, its callback is switched off, with one warning and the traceback; the
    experiment continues.

    Departures:
        In `on_trial_result` of Ray Tune, `trial.last_result` is the result before.
    """

    takes_rank_metrics: ClassVar[bool] = False
    """Whether `on_trial_result` is given what each worker of a group has reported."""

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Prepare, before the first trial.

        Args:
            stop: The stop criterion of the experiment, as given by the user.
            num_samples: ``TuneConfig.num_samples``.
            total_num_samples: How many trials there will be, None if unknown.
            **info: ``experiment_path`` (Path), ``metric``, ``mode``, ``space`` (the search space),
                ``experiment_id`` (unique; a restore keeps it), ``trainable``.
        """

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Called at the beginning of each turn of the driver."""

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Called at the end of each turn of the driver."""

    def on_trial_start(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial starts, also after a pause or a failed attempt."""

    def on_trial_restore(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called after `on_trial_start` where the trial continues from a checkpoint."""

    def on_trial_save(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called after `on_checkpoint`."""

    def on_trial_result(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Called with each result, nested as reported, with the auto-filled keys and ``config``."""

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial is TERMINATED."""

    def on_trial_recover(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when an attempt has failed and the trial will be retried.

        Results after ``trial.resumed_iteration`` will be reported again.
        """

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial is in ERROR."""

    def on_checkpoint(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        checkpoint: Checkpoint,
        **info: Any,
    ) -> None:
        """Called with each committed checkpoint."""

    def on_checkpoint_validated(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        *,
        checkpoint: Checkpoint,
        status: str,
        metrics: Mapping[str, Any],
        result: Mapping[str, Any],
        failure: Failure | None = None,
        **info: Any,
    ) -> None:
        """Called when the validation of a checkpoint has ended, also if it failed.

        Args:
            iteration: As in the other hooks.
            trials: As in the other hooks.
            trial: The trial.
            checkpoint: The checkpoint.
            status: ``"VALIDATED"``, ``"VALIDATION_FAILED"`` or ``"VALIDATION_TIMEOUT"``.
            metrics: What the validation function returned, nested; empty unless it completed.
            result: The checkpoint's result with these metrics, nested, with ``config``.
            failure: What went wrong, None for nothing.
            **info: More in later releases.
        """

    def on_trial_exploit(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        graft: AppliedExploit,
        **info: Any,
    ) -> None:
        """Called before `on_trial_start` when a trial continues from another trial's checkpoint.

        `graft` names that trial and holds the former configuration; ``trial.config`` is the new
        one.
        """

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Called once, after the last trial has ended."""

    def end_waits_at_stop(self) -> None:
        """Called when the experiment is asked to stop, even by a signal handler: wait no longer.

        For the engine's own callbacks, like `catch_up_with_journal`; both must not raise.
        """

    def catch_up_with_journal(
        self,
        experiment_path: Path,
        trials: Sequence[Trial],
        recent: Collection[str],
        results_of: Callable[[str], Iterable[Mapping[str, Any]]],
    ) -> None:
        """Called after `setup` at a restore: add what was recorded and has not been logged.

        Args:
            experiment_path: The experiment's directory.
            trials: The trials as the journal leaves them.
            recent: Ids of trials whose files may lack last results, even if they look complete.
            results_of: Returns all valid results of the trial with an id, oldest first.
        """

    def get_state(self) -> dict[str, Any] | None:
        """Return the state that a restore needs, as JSON values; None for none."""
        return None

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""


class LoggerCallback(Callback):
    """A callback that logs trials, with five methods instead of a dozen hooks.

    The hooks may be overridden as well.
    """

    def log_trial_start(self, trial: Trial) -> None:
        """A trial starts, also after a pause or a failed attempt, see ``trial.attempt``.

        Results after ``trial.resumed_iteration`` that were logged before will be reported again.
        """

    def log_trial_restore(self, trial: Trial) -> None:
        """A trial continues from a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """A trial has committed a checkpoint."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """A trial has ended, or an attempt of it has failed."""

    def on_trial_start(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forward to `log_trial_start`."""
        self.log_trial_start(trial)

    def on_trial_restore(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forward to `log_trial_restore`."""
        self.log_trial_restore(trial)

    def on_trial_save(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forward to `log_trial_save`."""
        self.log_trial_save(trial)

    def on_trial_result(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Forward to `log_trial_result`."""
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forward to `log_trial_end`."""
        self.log_trial_end(trial, failed=False)

    def on_trial_recover(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forward to `log_trial_end` with ``failed=True``."""
        self.log_trial_end(trial, failed=True)

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forward to `log_trial_end` with ``failed=True``."""
        self.log_trial_end(trial, failed=True)
