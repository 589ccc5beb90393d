"""`TuneReportCallback`: lets a trial that constructs a trainer report the trainer's results."""

from __future__ import annotations

from typing import Any, Final

from tuner.callbacks.user_callback import TrainRunContext, UserCallback
from tuner.execution import session
from tuner.execution.attempt import current_attempt
from tuner.storage.checkpoints import Checkpoint

__all__ = ["TuneReportCallback"]

CHECKPOINT_PATH_KEY: Final = "checkpoint_path"
"""The metric with the path of the trainer's checkpoint."""


class TuneReportCallback(UserCallback):
    """Reports what a trainer's rank 0 reports as results of the trial that runs the trainer.

    The trial's function constructs the trainer with ``RunConfig(callbacks=[TuneReportCallback()])``
    and calls `fit`. Results have the metric ``checkpoint_path`` where there is a checkpoint, which
    stays with the trainer's run. When the trial is stopped, so is the trainer.

    ``Tuner(trainer)`` needs neither: a trial then *is* a run of the trainer, with its checkpoints.

    Raises:
        RuntimeError: If it is constructed outside a trial.
    """

    def __init__(self) -> None:
        if current_attempt() is None:
            raise RuntimeError(
                "TuneReportCallback was constructed outside a trial; construct it in the function "
                "that Tuner runs, beside the trainer"
            )

    def after_report(
        self,
        run_context: TrainRunContext,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Report the metrics of rank 0 as the trial's."""
        path = {CHECKPOINT_PATH_KEY: checkpoint.path} if checkpoint else {}
        session.report({**metrics[0], **path})
