"""PyTorch Lightning 2: a callback that reports and saves, and `resume`.

Lightning is published in two namespaces, ``lightning.pytorch`` and ``pytorch_lightning``, with
different classes. The callbacks derive from the classes of those that are imported when they are
constructed. Importing this module does not import Lightning.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from tuner.execution.session import StopTraining, report
from tuner.storage.checkpoints import Checkpoint

from . import learning_rates
from .reporting import (
    Metrics,
    Selection,
    check_filename,
    latest_file,
    must_report,
    report_saved,
    saved_file,
    warn_if_alone,
)

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback", "resume"]

CHECKPOINT: Final = "checkpoint.ckpt"
_NAMESPACES: Final = ("lightning.pytorch", "pytorch_lightning")


class TuneReportCheckpointCallback:
    """Reports Lightning's metrics and saves the training state, by default after each validation.

    The metrics are those of ``trainer.callback_metrics``: what the module has logged. Lightning's
    sanity check does not count. The process of global rank zero saves; in a trial of several
    workers the others report with it, without a checkpoint. If the trial is stopped, Lightning
    closes its loops and loggers as after a successful training.

    With ``trainer.fit(model, ckpt_path=resume())`` a trial continues from its checkpoint. Learning
    rates are the checkpoint's, at the position of their schedules; if optimizers were configured
    with other rates than before, as in population based training, they are scaled in proportion.

    Args:
        metrics: Which metrics to report: names, or Lightning's names by those to report; None, the
            default, for all. Whether a smaller or larger value is better depends on the metric.
        filename: File in the checkpoint that holds the training state; Lightning expects it to end
            in ``.ckpt``.
        save_checkpoints: Whether to save, or only to report.
        on: When to report: a hook of Lightning's callbacks without ``on_``, or several. While none
            of the metrics exist, nothing is reported.

    Raises:
        ImportError: If Lightning is not installed.
        TypeError: If `metrics` are no names.
        ValueError: If there is no such hook, or `filename` leads out of the checkpoint.

    Departures:
        In Ray Tune the class belongs to one namespace, loggers mark a stopped trial as failed, and
        every rank reports.
    """

    # Lightning checks with isinstance that a callback is one of its namespace's.
    def __new__(cls, *_arguments: Any, **_options: Any) -> Self:
        """Construct an instance of a subclass that derives from Lightning's callbacks as well."""
        wanted: Any = cls
        made: Self = object.__new__(_derived(wanted, _callback_classes()))
        return made

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT,
        save_checkpoints: bool = True,
        on: str | Iterable[str] = "validation_end",
    ) -> None:
        self._selection = Selection(metrics)
        self._filename = check_filename(filename)
        self._save_checkpoints = save_checkpoints
        self._on = _hooks(on)
        self._rates: list[list[float]] = []
        self._rates_then: list[list[float]] = []

    @classmethod
    def get_model(
        cls, checkpoint: Checkpoint, module_class: Any, filename: str = CHECKPOINT, **options: Any
    ) -> Any:
        """Return the module from a checkpoint, with its weights.

        Args:
            checkpoint: The checkpoint.
            module_class: The class of the ``LightningModule``.
            filename: The callback's `filename`.
            **options: Passed on to ``load_from_checkpoint``: arguments of its constructor,
                unless it called ``save_hyperparameters``, and ``map_location``.

        Raises:
            TypeError: If there is no checkpoint.
            FileNotFoundError: If it holds no such file.
        """
        with saved_file(checkpoint, filename) as path:
            return module_class.load_from_checkpoint(path, **options)

    @property
    def state_key(self) -> str:
        """Identifies this callback's state in a checkpoint of Lightning."""
        options = f"on={sorted(self._on)}, save_checkpoints={self._save_checkpoints}"
        return f"{type(self).__qualname__}{{{options}}}"

    def state_dict(self) -> dict[str, Any]:
        """Return the learning rates that the optimizers were configured with."""
        return {"configured_rates": self._rates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the rates of a checkpoint until training starts."""
        self._rates_then = state_dict["configured_rates"]

    def handle_hook(self, hook: str, trainer: Any, *arguments: Any) -> None:
        """Handle one of Lightning's hooks, named without ``on_``."""
        match hook:
            case "fit_start":
                # The optimizers exist, but do not have their states from the checkpoint yet.
                self._rates = learning_rates.configured(trainer.optimizers)
                warn_if_alone(
                    trainer.world_size,
                    "pass strategy=RayDDPStrategy() and plugins=[RayLightningEnvironment()] from "
                    "tuner.train.lightning to the Trainer",
                )
            case "train_start":
                self._change_rates(trainer)
            case "exception" if any(isinstance(argument, StopTraining) for argument in arguments):
                _close_loggers(trainer)
        if hook in self._on and not trainer.sanity_checking:
            self._report(trainer)

    def _change_rates(self, trainer: Any) -> None:
        then, self._rates_then = self._rates_then, []
        # With other optimizers or groups than in the checkpoint, the rates do not correspond.
        if [len(groups) for groups in then] != [
            len(groups) for groups in self._rates
        ] or then == self._rates:
            return
        ratios = [
            [learning_rates.ratio(*pair) for pair in zip(*groups, strict=True)]
            for groups in zip(self._rates, then, strict=True)
        ]
        schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
        learning_rates.rescale(trainer.optimizers, schedules, ratios)

    def _report(self, trainer: Any) -> None:
        metrics = self._selection.of(
            {name: value.item() for name, value in trainer.callback_metrics.items()}
        )
        if not metrics:
            return
        if trainer.is_global_zero and self._save_checkpoints:
            report_saved(
                metrics, lambda directory: trainer.save_checkpoint(directory / self._filename)
            )
            return
        if self._save_checkpoints:
            # All ranks have to take part, although only the first one writes.
            trainer.save_checkpoint(self._filename)
        if must_report(trainer.is_global_zero):
            report(metrics)


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports Lightning's metrics, and saves nothing; see `TuneReportCheckpointCallback`.

    Args:
        metrics: Which metrics to report; None for all.
        on: When.
    """

    def __init__(self, metrics: Metrics = None, on: str | Iterable[str] = "validation_end") -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)


def resume(filename: str = CHECKPOINT) -> str | None:
    """Return the file to continue from, for ``trainer.fit(model, ckpt_path=resume())``.

    Args:
        filename: The callback's `filename`.

    Returns:
        The file, None at the first start of a trial and outside trials.

    Raises:
        FileNotFoundError: If the checkpoint holds no such file.

    Example:
        >>> resume() is None
        True
    """
    saved = latest_file(filename)
    return None if saved is None else str(saved)


def _close_loggers(trainer: Any) -> None:
    # Before Lightning does, which would report any exception to them as a failed training.
    for logger in trainer.loggers:
        logger.finalize("success")
    trainer.loggers = []


def _callback_classes() -> tuple[type, ...]:
    """Return ``Callback`` of each imported namespace, or else of the first that is installed."""
    in_use: list[str] = [name for name in _NAMESPACES if name in sys.modules]
    return tuple(sys.modules[name].Callback for name in in_use or [import_one(__name__)])


def import_one(needed_by: str) -> str:
    """Return the name of the namespace that is imported, or else the first that is installed.

    Args:
        needed_by: The module that needs it, for the message.

    Raises:
        ImportError: If none is installed.
    """
    for name in (*(name for name in _NAMESPACES if name in sys.modules), *_NAMESPACES):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
        else:
            return name
    raise ImportError(
        f'{needed_by} needs Lightning, which is not installed; pip install "tuner-hpo[lightning]"'
    )


@functools.cache
def _derived(cls: Any, bases: tuple[type, ...]) -> Any:
    """Return a subclass that derives from Lightning's callbacks, with all hooks connected."""
    if issubclass(cls, bases):
        return cls
    # Between `cls` and Lightning's classes: hooks that a user's subclass overrides take precedence.
    hooks = type("Hooks", (), {hook: _forwarded(hook) for hook in _hook_names(bases)})
    named = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(
        cls.__name__, (cls, hooks, *bases), named | {"__reduce__": _reduce, "_written": cls}
    )


def _forwarded(hook: str) -> Callable[..., None]:
    def forward(
        self: TuneReportCheckpointCallback, trainer: Any, *arguments: Any, **_options: Any
    ) -> None:
        self.handle_hook(hook.removeprefix("on_"), trainer, *arguments)

    return forward


def _hook_names(bases: Iterable[type]) -> list[str]:
    return sorted({name for base in bases for name in dir(base) if name.startswith("on_")})


def _reduce(self: Any) -> tuple[Any, ...]:
    # The derived class exists in this process only; another one derives its own.
    return _rebuilt, (self._written,), self.__dict__


def _rebuilt(cls: type[TuneReportCheckpointCallback]) -> TuneReportCheckpointCallback:
    return cls.__new__(cls)


def _hooks(on: str | Iterable[str]) -> frozenset[str]:
    hooks = frozenset([on] if isinstance(on, str) else on)
    known = {name.removeprefix("on_") for name in _hook_names(_callback_classes())}
    if unknown := sorted(map(repr, hooks.difference(known))):
        raise ValueError(
            "on must name hooks of Lightning's callbacks without on_, got "
            f"{', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    return hooks
