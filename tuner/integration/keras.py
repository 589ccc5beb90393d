"""Keras 3, on any backend: a callback that reports and saves, and `resume`."""

from __future__ import annotations

import functools
import importlib.util
import json
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from tuner.execution.attempt import current_attempt
from tuner.execution.session import StopTraining, report
from tuner.storage.checkpoints import Checkpoint

from .learning_rates import ratio
from .reporting import (
    Metrics,
    Selection,
    check_filename,
    file_in,
    latest_directory,
    report_saved,
    saved_file,
)

_BACKENDS: Final = ("torch", "jax", "tensorflow")

try:
    import keras
except ImportError as error:
    if error.name == "keras":
        raise ImportError(
            "tuner.integration.keras needs Keras 3, which is not installed; pip install "
            '"tuner-hpo[keras]"'
        ) from error
    # Keras imports its backend, TensorFlow by default, even if another one is installed.
    if str(error.name).partition(".")[0] not in _BACKENDS:
        raise
    installed = [name for name in _BACKENDS if importlib.util.find_spec(name)]
    remedy = (
        f"set the environment variable KERAS_BACKEND={installed[0]} before Keras is imported, "
        "by the shell or at the top of the script"
        if installed
        else 'install one, e.g. by pip install "tuner-hpo[torch]", and set the environment '
        "variable KERAS_BACKEND=torch"
    )
    raise ImportError(
        f"Keras is installed, but cannot be imported with its backend ({error}); {remedy}",
        name=error.name,
    ) from error

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback", "resume"]

MODEL = "model.keras"
PROGRESS: Final = "progress.json"
"""How many epochs the model was trained for, and the configured learning rate."""
_PHASES: Final = [
    (phase, edge) for phase in ("train", "test", "predict") for edge in ("begin", "end")
]
_WHOLE: Final = ("epoch_begin", "epoch_end", *(f"{phase}_{edge}" for phase, edge in _PHASES))
_BATCHES: Final = tuple(f"{phase}_batch_{edge}" for phase, edge in _PHASES)

Logs = Mapping[str, Any] | None
"""Keras's metrics at a hook."""

_configured_rates: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
"""Learning rates of optimizers before they loaded the state of a checkpoint."""


class TuneReportCheckpointCallback(keras.callbacks.Callback):
    """Reports Keras's metrics and saves the model with its optimizer, by default after each epoch.

    To stop the trial, the callback lets ``fit`` finish its epoch and call ``on_train_end`` of all
    callbacks before this one; so it should be the last in the list. At other hooks than
    ``"epoch_end"`` the trial stops at once.

    Args:
        checkpoint_on: When to save: a hook of Keras's callbacks without ``on_``, or several; an
            empty list for never. Each save is also a report.
        report_metrics_on: When to report, likewise.
        metrics: Which metrics to report: names, or Keras's names by those to report; None, the
            default, for all. Whether a smaller or larger value is better depends on the metric.
        filename: File in the checkpoint that holds the model; must end in ``.keras``.

    Raises:
        ImportError: On import of this module, if Keras is not installed.
        TypeError: If `metrics` are no names.
        ValueError: If there is no such hook, or `filename` has another ending.

    Departures:
        Ray Tune's callback saves the model without the number of epochs, and cannot resume.
    """

    CHECKPOINT_NAME: ClassVar[str] = MODEL

    def __init__(
        self,
        checkpoint_on: str | Iterable[str] = "epoch_end",
        report_metrics_on: str | Iterable[str] = "epoch_end",
        metrics: Metrics = None,
        *,
        filename: str = MODEL,
    ) -> None:
        super().__init__()
        if not filename.endswith(".keras"):
            raise ValueError(
                f"filename must end in '.keras', got {filename!r}; Keras chooses the format by "
                "the ending"
            )
        self._checkpoint_on = _hooks("checkpoint_on", checkpoint_on)
        self._report_on = _hooks("report_metrics_on", report_metrics_on) | self._checkpoint_on
        self._selection = Selection(metrics)
        self._filename = check_filename(filename)
        self._num_epochs = 0
        self._rate: float | None = None
        self._is_fitting = False
        self._stop: StopTraining | None = None
        # Only if needed: with a hook for batches, Keras converts the metrics after each batch.
        for when in self._report_on.intersection(_BATCHES):
            setattr(self, f"on_{when}", functools.partial(self._on_batch_hook, when))

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = MODEL, **options: Any) -> Any:
        """Return the model from a checkpoint, compiled and with the state of its optimizer.

        Args:
            checkpoint: The checkpoint.
            filename: The callback's `filename`.
            **options: As ``keras.models.load_model`` takes them, e.g. ``custom_objects``.

        Raises:
            TypeError: If there is no checkpoint.
            FileNotFoundError: If it holds no such file.
        """
        with saved_file(checkpoint, filename) as path:
            return keras.models.load_model(path, **options)

    # Keras's hooks. Those for single batches are set by the constructor.

    def on_train_begin(self, logs: Logs = None) -> None:
        """Prepare for a training."""
        self._is_fitting, self._stop = True, None
        self._rate = _configured_rate(self.model)
        self._on_hook("train_begin", logs)

    def on_train_end(self, logs: Logs = None) -> None:
        """Stop the trial if it is to stop."""
        self._is_fitting = False
        if self._stop:
            raise self._stop
        self._on_hook("train_end", logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Count the epochs before this one."""
        self._num_epochs = epoch
        self._on_hook("epoch_begin", logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Count the epoch, and report it by default."""
        self._num_epochs = epoch + 1
        self._on_hook("epoch_end", logs)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Report or save if the user has chosen this hook."""
        self._on_hook("test_begin", logs)

    def on_test_end(self, logs: Logs = None) -> None:
        """Report or save if the user has chosen this hook."""
        self._on_hook("test_end", logs)

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Report or save if the user has chosen this hook."""
        self._on_hook("predict_begin", logs)

    def on_predict_end(self, logs: Logs = None) -> None:
        """Report or save if the user has chosen this hook."""
        self._on_hook("predict_end", logs)

    def _on_batch_hook(self, when: str, _batch: int, logs: Logs = None) -> None:
        self._on_hook(when, logs)

    def _on_hook(self, when: str, logs: Logs) -> None:
        if when in self._report_on and not self._stop:
            self._report(when, logs or {})

    def _report(self, when: str, logs: Mapping[str, Any]) -> None:
        metrics = self._selection.of(logs)
        try:
            if when in self._checkpoint_on and _saves():
                report_saved(metrics, self._save)
            elif when in self._checkpoint_on:
                # TensorFlow's strategies need all workers to save; only the first one's counts.
                with tempfile.TemporaryDirectory() as discarded:
                    self._save(Path(discarded))
                report(metrics)
            elif metrics:
                report(metrics)
        except StopTraining as stop:
            if when != "epoch_end" or not self._is_fitting:
                raise
            # Raised at the end of training, so that other callbacks can finish, e.g. close files.
            self._stop = stop
            self.model.stop_training = True

    def _save(self, directory: Path) -> None:
        self.model.save(directory / self._filename)
        progress = {"epoch": self._num_epochs, "learning_rate": self._rate}
        (directory / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports Keras's metrics, and saves nothing; see `TuneReportCheckpointCallback`.

    Args:
        metrics: Which metrics to report; None for all.
        on: When to report.

    Departures:
        Ray Tune has removed this class.
    """

    def __init__(self, metrics: Metrics = None, on: str | Iterable[str] = "epoch_end") -> None:
        super().__init__(checkpoint_on=(), report_metrics_on=on, metrics=metrics)


def resume(model: Any, filename: str = MODEL) -> int:
    """Load weights and optimizer state from the trial's checkpoint, if there is one.

    ``model.fit(..., epochs=20, initial_epoch=resume(model))`` trains for 20 epochs in all, however
    often the trial is interrupted. The learning rate is the checkpoint's, as callbacks may have
    changed it; if the model was compiled with another rate than before, as in population based
    training, it is scaled in proportion.

    Args:
        model: A model of the same architecture, built and compiled.
        filename: The callback's `filename`.

    Returns:
        The ``initial_epoch``: how many epochs the checkpoint was trained for, 0 without one.

    Raises:
        ValueError: If the model is not built, so that the shapes of its weights are unknown.
        FileNotFoundError: If the checkpoint holds no such file.
    """
    directory = latest_directory()
    if directory is None:
        return 0
    if not model.built:
        raise ValueError(
            f"{model.name!r} must be built to load weights; begin it with "
            "keras.Input(shape), or call model.build(input_shape)"
        )
    progress = json.loads(file_in(directory, PROGRESS).read_text(encoding="utf-8"))
    optimizer: Any = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:  # load_weights skips variables not yet built
        optimizer.build(model.trainable_variables)
    # Before loading, which replaces the configured rate by the checkpoint's.
    now, then = _rate_of(optimizer), progress["learning_rate"]
    model.load_weights(file_in(directory, filename))
    if now is not None:
        _configured_rates[optimizer] = now
        if then is not None and then != now:
            optimizer.learning_rate = float(optimizer.learning_rate) * ratio(now, then)
    return int(progress["epoch"])


def _saves() -> bool:
    """Return whether this process is the worker of the trial whose checkpoints count."""
    attempt = current_attempt()
    rank = attempt.assignment.rank if attempt else None
    return rank is None or rank.world_rank == 0


def _rate_of(optimizer: Any) -> float | None:
    """Return the learning rate, None if it cannot be set."""
    # With a schedule, which computes it from the number of steps, there is no such variable.
    if any(variable.name == "learning_rate" for variable in getattr(optimizer, "variables", ())):
        return float(optimizer.learning_rate)
    return None


def _configured_rate(model: Any) -> float | None:
    optimizer = getattr(model, "optimizer", None)
    return _configured_rates.get(optimizer, _rate_of(optimizer)) if optimizer is not None else None


def _hooks(name: str, when: str | Iterable[str]) -> frozenset[str]:
    hooks = frozenset([when] if isinstance(when, str) else when)
    if unknown := sorted(map(repr, hooks.difference(_WHOLE, _BATCHES))):
        raise ValueError(
            f"{name} must name hooks of Keras's callbacks without on_, got "
            f"{', '.join(unknown)}; there are {', '.join(_WHOLE + _BATCHES)}"
        )
    return hooks
