"""Keras 3, on any backend: a callback that reports and saves, and `resume`."""

from __future__ import annotations

import functools
import importlib.util
import json
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

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
"""How far training had come, and with which learning rate it was configured."""
_WHOLE: Final = (
    "epoch_begin",
    "epoch_end",
    *(f"{phase}_{edge}" for phase in ("train", "test", "predict") for edge in ("begin", "end")),
)
_BATCHES: Final = tuple(
    f"{phase}_batch_{edge}" for phase in ("train", "test", "predict") for edge in ("begin", "end")
)

_configured_rates: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
"""The learning rates that optimizers had before they took over the state of a checkpoint."""


class TuneReportCheckpointCallback(keras.callbacks.Callback):
    """Reports Keras's metrics and saves the model, with the state of its optimizer, after each epoch or when else it is told to.

    When the trial is to end, ``fit`` finishes its epoch, all callbacks in front of this one are
    told that training is over, and the trial ends: let this be the last in the list. At other hooks
    than ``"epoch_end"`` it ends at once.

    Args:
        checkpoint_on: When to save: a hook of Keras's callbacks without ``on_``, or several; an
            empty list for never. What is saved is reported, too.
        report_metrics_on: When to report, likewise.
        metrics: Which metrics to report: names, or Keras's names by those to report; None, the
            default, for all. Which direction is better is the metric's own.
        filename: File in the checkpoint that holds the model, which ends in ``.keras``.

    Raises:
        ImportError: On import of this module, if Keras is not installed.
        TypeError: If `metrics` are no names.
        ValueError: If there is no such hook, or `filename` cannot name a model.

    Departures:
        Beside the model, Ray Tune's callback does not save how many epochs it was trained for, and
        does not go on from it.
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
                f"filename must end in '.keras', got {filename!r}; it is by the ending that "
                "Keras knows what to write"
            )
        self._checkpoint_on = _hooks("checkpoint_on", checkpoint_on)
        self._report_on = _hooks("report_metrics_on", report_metrics_on) | self._checkpoint_on
        self._selection = Selection(metrics)
        self._filename = check_filename(filename)
        self._num_epochs = 0
        self._rate: float | None = None
        self._is_fitting = False
        self._stop: StopTraining | None = None
        # Keras makes the metrics ready for Python after each batch if anything listens to batches.
        for when in self._report_on.intersection(_BATCHES):
            setattr(self, f"on_{when}", functools.partial(self._hear, when))

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = MODEL, **options: Any) -> Any:
        """Return the model that the callback has saved in a checkpoint, compiled and with the state of its optimizer.

        Args:
            checkpoint: The checkpoint.
            filename: As it was given to the callback.
            **options: As ``keras.models.load_model`` takes them, e.g. ``custom_objects``.

        Raises:
            TypeError: If there is no checkpoint.
            FileNotFoundError: If it holds no such file.
        """
        with saved_file(checkpoint, filename) as path:
            return keras.models.load_model(path, **options)

    def _hear(self, when: str, *arguments: Any, logs: Mapping[str, Any] | None = None) -> None:
        """Do what is due at a hook, whose arguments are the number of epoch or batch, if it is one, and the metrics."""
        match when:
            case "train_begin":
                self._is_fitting, self._stop = True, None
                self._rate = _configured_rate(self.model)
            case "epoch_begin":
                self._num_epochs = arguments[0]
            case "epoch_end":
                self._num_epochs = arguments[0] + 1
            case "train_end":
                self._is_fitting = False
                if self._stop:
                    raise self._stop
        if when in self._report_on and not self._stop:
            self._report(when, (arguments[-1] if logs is None else logs) or {})

    def _report(self, when: str, logs: Mapping[str, Any]) -> None:
        metrics = self._selection.of(logs)
        try:
            if when in self._checkpoint_on:
                report_saved(metrics, self._save)
            elif metrics:
                report(metrics)
        except StopTraining as stop:
            if when != "epoch_end" or not self._is_fitting:
                raise
            self._stop = stop
            self.model.stop_training = True

    def _save(self, directory: Path) -> None:
        self.model.save(directory / self._filename)
        progress = {"epoch": self._num_epochs, "learning_rate": self._rate}
        (directory / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")


def _hook(when: str) -> Any:
    def hook(
        self: TuneReportCheckpointCallback, *arguments: Any, logs: Mapping[str, Any] | None = None
    ) -> None:
        self._hear(when, *arguments, logs=logs)

    hook.__doc__ = f"See Keras's ``on_{when}``."
    return hook


for _when in _WHOLE:
    setattr(TuneReportCheckpointCallback, f"on_{_when}", _hook(_when))


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports Keras's metrics, and saves nothing; see `TuneReportCheckpointCallback`.

    Args:
        metrics: Which metrics to report; None for all.
        on: When to report.

    Departures:
        Ray Tune has taken it away.
    """

    def __init__(self, metrics: Metrics = None, on: str | Iterable[str] = "epoch_end") -> None:
        super().__init__(checkpoint_on=(), report_metrics_on=on, metrics=metrics)


def resume(model: Any, filename: str = MODEL) -> int:
    """Let a model take over weights and optimizer state from the trial's checkpoint, if there is one.

    ``model.fit(..., epochs=20, initial_epoch=resume(model))`` trains for 20 epochs in all, however
    often the trial is interrupted. The learning rate is the checkpoint's, as callbacks may have
    changed it; where the model was compiled with another one than before, as in population based
    training, it changes in proportion.

    Args:
        model: A model of the same architecture, built and compiled.
        filename: As it is given to the callback.

    Returns:
        How many epochs the checkpoint was trained for, 0 without one: the ``initial_epoch``.

    Raises:
        ValueError: If the model is not built: its shapes are unknown before it knows its inputs'.
        FileNotFoundError: If the checkpoint holds no such file.
    """
    directory = latest_directory()
    if directory is None:
        return 0
    if not model.built:
        raise ValueError(
            f"{model.name!r} must be built to take over weights; begin it with "
            "keras.Input(shape), or call model.build(input_shape)"
        )
    progress = json.loads(file_in(directory, PROGRESS).read_text(encoding="utf-8"))
    optimizer: Any = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    now, then = _rate_of(optimizer), progress["learning_rate"]
    model.load_weights(file_in(directory, filename))
    if now is not None:
        _configured_rates[optimizer] = now
        if then is not None and then != now:
            optimizer.learning_rate = float(optimizer.learning_rate) * ratio(now, then)
    return int(progress["epoch"])


def _rate_of(optimizer: Any) -> float | None:
    """Return the learning rate, None where there is none to be changed: of a schedule it follows from the number of steps."""
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
