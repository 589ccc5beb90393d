"""Keras in the workers of a `TensorflowTrainer`: a callback that reports and saves."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.integration.keras import TuneReportCheckpointCallback
from tuner.integration.reporting import Metrics

__all__ = ["RayReportCallback", "ReportCheckpointCallback"]


class ReportCheckpointCallback(TuneReportCheckpointCallback):
    """Reports Keras's metrics and saves the model, by default after each epoch.

    Worker 0 saves ``model.keras``, and the others report with it. To continue from a checkpoint,
    use ``initial_epoch=tuner.integration.keras.resume(model)``.

    Args:
        checkpoint_on: When to save: a hook of Keras's callbacks without ``on_``, or several.
        report_metrics_on: When to report, likewise; each save is also a report.
        metrics: Which metrics to report: names, or Keras's names by those to report; None, the
            default, for all.

    Raises:
        ImportError: On import of this module, if Keras is not installed.
        TypeError: If `metrics` are no names.
        ValueError: If there is no such hook.

    Departures:
        Ray Train saves a directory of TensorFlow's own format, and cannot resume.
    """

    def __init__(
        self,
        checkpoint_on: str | Iterable[str] = "epoch_end",
        report_metrics_on: str | Iterable[str] = "epoch_end",
        metrics: Metrics = None,
    ) -> None:
        super().__init__(checkpoint_on, report_metrics_on, metrics)


RayReportCallback = ReportCheckpointCallback
"""The name in Ray Train of the base class of `ReportCheckpointCallback`."""
