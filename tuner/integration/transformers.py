"""Hugging Face Transformers: a callback for `Trainer` that reports and saves, and `resume`."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any, ClassVar, Final

from tuner.execution.session import StopTraining, get_context, report
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.trees import copy_tree

from . import learning_rates
from .reporting import (
    Metrics,
    Selection,
    explain_missing,
    file_in,
    latest_directory,
    must_report,
    report_saved,
    saved_file,
    wait_for_workers,
    warn_if_alone,
)

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    explain_missing(error, "transformers", "Transformers")
    raise

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback", "resume"]

CHECKPOINT: Final = "checkpoint"
NOT_CONNECTED: Final = (
    "run the training function with TorchTrainer, which connects the workers before the Trainer is "
    "constructed"
)
"""What to do where the trainer does not see the other workers."""
SETTINGS: Final = "settings.json"
"""File in a checkpoint with the configured learning rate."""


class TuneReportCheckpointCallback(TrainerCallback):
    """Reports the evaluations of a `Trainer`, with the checkpoints that it saves.

    The metrics are the latest of each that the trainer has logged, e.g. ``"eval_loss"``, and
    ``step``. Whether a smaller or larger value is better depends on the metric. An evaluation after
    which the trainer saves is reported with that checkpoint. A checkpoint without an evaluation is
    reported with the latest metrics; so make ``save_steps`` equal to ``eval_steps`` or a multiple,
    or use the strategy ``"epoch"`` for both.

    With ``trainer.train(resume_from_checkpoint=resume())`` a trial continues from its checkpoint,
    with the state of optimizer, schedule and random generators. If ``learning_rate`` has changed
    since, as in population based training, optimizer and schedule are scaled in proportion. The
    process of rank zero saves; in a trial of several workers the others report with it, without a
    checkpoint. To stop the trial, the callback lets the trainer finish its step and call
    ``on_train_end`` of all callbacks before this one, those of ``report_to`` among them.

    Give each trial its own ``output_dir``, e.g. ``tune.get_context().get_trial_dir()``, or they
    overwrite each other's checkpoints. Checkpoints there of later steps than the one from which the
    trial continues are deleted: they belong to an attempt whose results no longer count.

    Args:
        metrics: Which metrics to report: names, or the trainer's names by those to report; None,
            the default, for all.
        save_checkpoints: Whether to report checkpoints, or only metrics.

    Raises:
        ImportError: On import of this module, if Transformers is not installed.
        TypeError: If `metrics` are no names.

    Departures:
        Ray Tune's callback reports only when the trainer saves.
    """

    CHECKPOINT_NAME: ClassVar[str] = CHECKPOINT

    def __init__(self, metrics: Metrics = None, save_checkpoints: bool = True) -> None:
        super().__init__()
        self._selection = Selection(metrics)
        self._save_checkpoints = save_checkpoints
        self._is_unreported = False
        self._is_fitting = False
        self._stop: StopTraining | None = None

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, model_class: Any, **options: Any) -> Any:
        """Return the model from a checkpoint.

        Args:
            checkpoint: The checkpoint.
            model_class: The model's class, e.g. ``AutoModelForSequenceClassification``; or that of
                the trainer's tokenizer or processor, which is saved beside it.
            **options: Passed on to ``from_pretrained``.

        Raises:
            TypeError: If there is no checkpoint.
            FileNotFoundError: If it was not written by this callback.
        """
        with saved_file(checkpoint, CHECKPOINT) as path:
            return model_class.from_pretrained(path, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare the output directory, and apply the configured learning rate."""
        warn_if_alone(args.world_size, NOT_CONNECTED)
        self._is_fitting, self._stop, self._is_unreported = True, None, False
        if state.is_world_process_zero:
            _prepare(Path(args.output_dir), state.global_step)
        if state.global_step:
            _change_rates(args.learning_rate, kwargs.get("optimizer"), kwargs.get("lr_scheduler"))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the evaluation, unless a checkpoint may follow, with which it is reported."""
        self._is_unreported = True
        # With the strategy "best", the trainer decides only after this hook whether it saves.
        saves = self._save_checkpoints and (
            control.should_save
            or str(getattr(args.save_strategy, "value", args.save_strategy)) == "best"
        )
        if not (self._is_fitting and saves):
            self._report_rest(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report with the checkpoint that the trainer has saved."""
        if not self._save_checkpoints:
            return
        wait_for_workers()  # each writes a file with the state of its random generators
        if not state.is_world_process_zero:
            self._report(state, control, report)
            return
        # Copied, because the trainer deletes its own by ``save_total_limit``.
        saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
        settings = {"learning_rate": args.learning_rate}
        self._report(
            state,
            control,
            lambda metrics: report_saved(
                metrics, lambda directory: _copy(saved, directory, settings)
            ),
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report an evaluation after which the trainer has not saved."""
        self._report_rest(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep a stopped trainer from evaluating and saving once more."""
        self._report_rest(state, control)
        if self._stop:
            control.should_evaluate = control.should_save = control.should_log = False

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the trial if it is to stop, or report the last evaluation."""
        self._is_fitting = False
        if self._stop:
            raise self._stop
        self._report_rest(state, control)

    def _report_rest(self, state: Any, control: Any) -> None:
        if self._is_unreported:
            self._report(state, control, report)

    def _report(self, state: Any, control: Any, send: Any) -> None:
        self._is_unreported = False
        if self._stop or not must_report(state.is_world_process_zero):
            return
        offered = {name: value for log in state.log_history for name, value in log.items()} | {
            "step": state.global_step
        }
        try:
            send(self._selection.of(offered))
        except StopTraining as stop:
            if not self._is_fitting:
                raise
            # Raised in `on_train_end`, so that other callbacks can finish, e.g. close their runs.
            self._stop = stop
            control.should_training_stop, control.should_save = True, False


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports the evaluations of a `Trainer` only; see `TuneReportCheckpointCallback`.

    Args:
        metrics: Which metrics to report; None for all.
    """

    def __init__(self, metrics: Metrics = None) -> None:
        super().__init__(metrics, save_checkpoints=False)


def resume() -> str | None:
    """Return the directory for ``trainer.train(resume_from_checkpoint=resume())``.

    None at the first start of a trial and outside trials.

    Raises:
        FileNotFoundError: If the trial's checkpoint was not written by the callback.
    """
    directory = latest_directory()
    return None if directory is None else str(file_in(directory, CHECKPOINT))


def _copy(saved: Path, directory: Path, settings: dict[str, Any]) -> None:
    copy_tree(saved, directory / CHECKPOINT)
    (directory / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")


def _prepare(output_dir: Path, num_steps: int) -> None:
    """Remove checkpoints of later steps than `num_steps` from the trial's output directory.

    Warns instead if the directory may be shared by trials.
    """
    try:
        context = get_context()
    except RuntimeError:
        return  # outside a trial
    path = str(output_dir.absolute())
    if context.get_trial_dir() not in path and context.get_trial_id() not in path:
        warnings.warn(
            f"output_dir={str(output_dir)!r} may be other trials' as well, whose checkpoints "
            "overwrite this one's; "
            "give each trial its own, e.g. output_dir=tune.get_context().get_trial_dir()",
            stacklevel=2,
        )
        return
    # With ``save_total_limit`` the trainer would take them for the newest checkpoints, and delete
    # what it has just saved.
    for saved in output_dir.glob("checkpoint-*"):
        number = saved.name.removeprefix("checkpoint-")
        if number.isdecimal() and int(number) > num_steps:
            shutil.rmtree(saved)


def _change_rates(now: float, optimizer: Any, schedule: Any) -> None:
    directory = latest_directory()
    if directory is None or optimizer is None:
        return
    then = json.loads(file_in(directory, SETTINGS).read_text(encoding="utf-8"))["learning_rate"]
    if then != now:
        ratios = [[learning_rates.ratio(now, then)] * len(optimizer.param_groups)]
        learning_rates.rescale([optimizer], [getattr(schedule, "scheduler", schedule)], ratios)
