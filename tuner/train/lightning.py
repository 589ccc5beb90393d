"""PyTorch Lightning in the workers of a `TorchTrainer`: a callback that reports, and strategies.

The strategies and the environment are only needed where a script has them: a worker looks like a
process of torchrun, so that ``Trainer(strategy="ddp", devices=world_size)`` works by itself.
`tuner.integration.pytorch_lightning` has a callback with more choices.

Lightning is published in two namespaces, ``lightning.pytorch`` and ``pytorch_lightning``, with
different classes. What is constructed here derives from those of the namespace that is imported:
where both are, from those of ``lightning.pytorch``.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any, ClassVar, Self

from tuner.execution.report_options import CheckpointUploadMode
from tuner.execution.session import checkpoint_dir, get_context
from tuner.integration.pytorch_lightning import (
    CHECKPOINT,
    TuneReportCheckpointCallback,
    import_one,
)
from tuner.spec.training_config import ValidationTaskConfig
from tuner.storage.checkpoints import Checkpoint

from .api import report
from .torch import get_device

__all__ = [
    "RayDDPStrategy",
    "RayDeepSpeedStrategy",
    "RayFSDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "prepare_trainer",
]


class RayTrainReportCallback(TuneReportCheckpointCallback):
    """Reports Lightning's metrics and the training state at the end of each training epoch.

    The metrics are all that the module has logged, with ``epoch`` and ``step``. A checkpoint holds
    the file, or with a sharded strategy the directory, ``checkpoint.ckpt``; a later attempt
    continues with ``trainer.fit(model, ckpt_path=...)``. If the trial is stopped, Lightning closes
    its loops and loggers as after a successful training.

    Args:
        checkpoint_upload_mode: When the checkpoint is stored, see `report`; None, the default, for
            SYNC.
        validation: Whether the checkpoint is validated beside the training, see `report`.

    Raises:
        ImportError: If Lightning is not installed.

    Departures:
        In Ray Train every worker writes a copy of the state of DDP, and the copies are merged.
    """

    CHECKPOINT_NAME: ClassVar[str] = CHECKPOINT

    def __init__(
        self,
        checkpoint_upload_mode: CheckpointUploadMode | None = None,
        validation: bool | ValidationTaskConfig = False,
    ) -> None:
        super().__init__(on="train_epoch_end")
        self._upload_mode = checkpoint_upload_mode or CheckpointUploadMode.SYNC
        self._validation = validation

    def _report(self, trainer: Any) -> None:
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics |= {"epoch": trainer.current_epoch, "step": trainer.global_step}
        with checkpoint_dir() as directory:
            saved = Path(directory, self.CHECKPOINT_NAME)
            # All ranks have to take part, although often only the first one writes.
            trainer.save_checkpoint(saved, weights_only=False)
            if not (trainer.is_global_zero or saved.is_dir()):
                report(metrics)
                return
            report(
                metrics,
                Checkpoint.from_directory(directory),
                checkpoint_upload_mode=self._upload_mode,
                validation=self._validation,
            )


class _InNamespace:
    """Base of classes that derive from one of Lightning's when they are constructed."""

    _base: ClassVar[str]
    """Name of that class in Lightning's namespace."""

    def __new__(cls, *_arguments: Any, **_options: Any) -> Self:
        wanted: Any = cls
        module, _, name = cls._base.rpartition(".")
        base = getattr(importlib.import_module(f"{import_one(__name__)}.{module}"), name)
        made: Self = object.__new__(_derived(wanted, base))
        return made


class _WorkerStrategy(_InNamespace):
    """What the strategies have in common: rank and device are those of the worker."""

    @property
    def root_device(self) -> Any:
        """The device of the worker."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Which part of the data the worker gets."""
        context = get_context()
        return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}


class RayDDPStrategy(_WorkerStrategy):
    """Lightning's ``DDPStrategy``, with rank and device of the worker.

    The process group is that of the `TorchTrainer`; see `TorchConfig` for its backend and timeout.
    ``trainer.save_checkpoint`` may be called by rank 0 alone, which has all of the state: the
    workers wait for each other when they report.

    Raises:
        ImportError: If Lightning is not installed.

    Departures:
        In Ray Train a callback that saves on rank 0 alone waits forever for the others.
    """

    _base = "strategies.DDPStrategy"

    def barrier(self, name: str | None = None) -> None:
        """Wait for all workers, except at the end of ``trainer.save_checkpoint``."""
        if name != "Trainer.save_checkpoint":
            base: Any = super()  # Lightning's class, from which the derived one inherits too
            base.barrier(name)


class RayFSDPStrategy(_WorkerStrategy):
    """Lightning's ``FSDPStrategy``, with rank and device of the worker.

    Raises:
        ImportError: If Lightning is not installed.
    """

    _base = "strategies.FSDPStrategy"


class RayDeepSpeedStrategy(_WorkerStrategy):
    """Lightning's ``DeepSpeedStrategy``, with rank and device of the worker.

    Raises:
        ImportError: If Lightning is not installed, or DeepSpeed.
    """

    _base = "strategies.DeepSpeedStrategy"


class RayLightningEnvironment(_InNamespace):
    """Lightning's ``LightningEnvironment``, with the ranks of the worker.

    Raises:
        ImportError: If Lightning is not installed.
    """

    _base = "plugins.environments.LightningEnvironment"

    @property
    def creates_processes_externally(self) -> bool:
        """True: the workers exist."""
        return True

    def world_size(self) -> int:
        """Return the number of workers."""
        return get_context().get_world_size()

    def global_rank(self) -> int:
        """Return the rank of the worker."""
        return get_context().get_world_rank()

    def local_rank(self) -> int:
        """Return its rank on this machine."""
        return get_context().get_local_rank()

    def node_rank(self) -> int:
        """Return the number of this machine."""
        return get_context().get_node_rank()

    def set_world_size(self, size: int) -> None:
        """Do nothing: the trainer has decided."""

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: the trainer has decided."""

    def teardown(self) -> None:
        """Do nothing: the process group is the trainer's."""


def prepare_trainer(trainer: Any) -> Any:
    """Return Lightning's ``Trainer`` after a check that it can work with several workers.

    Raises:
        RuntimeError: If it has a strategy that launches processes itself, or another number of
            processes than there are workers.

    Departures:
        Ray Train refuses all strategies and environments but its own.
    """
    wanted = get_context().get_world_size()
    found = int(getattr(trainer, "world_size", 1))
    if found != wanted:
        raise RuntimeError(
            f"the Trainer is set up for {found} processes, and there are {wanted} workers; pass "
            "strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()] and devices='auto', or "
            f"strategy='ddp' and devices={wanted}"
        )
    return trainer


@functools.cache
def _derived(cls: Any, base: type) -> Any:
    """Return a subclass that also derives from one of Lightning's classes."""
    if issubclass(cls, base):
        return cls
    named = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(cls.__name__, (cls, base), named)
