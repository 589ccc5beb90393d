"""The ``Trainer`` of Transformers in the workers of a `TorchTrainer`: a callback that reports.

A worker looks like a process of torchrun, so that the ``Trainer`` finds the others by itself.
`tuner.integration.transformers` has a callback with more choices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

from tuner.execution.attempt import StopTraining
from tuner.execution.session import checkpoint_dir
from tuner.integration.reporting import (
    explain_missing,
    must_report,
    wait_for_workers,
    warn_if_alone,
)
from tuner.integration.transformers import NOT_CONNECTED
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.trees import copy_tree
from tuner.train.api import report
from tuner.train.data import BatchIterable, DataShard

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    explain_missing(error, "transformers", "Transformers")
    raise

__all__ = ["RayTrainReportCallback", "prepare_trainer"]

CHECKPOINT: Final = "checkpoint"


class RayTrainReportCallback(TrainerCallback):
    """Reports each checkpoint that a ``Trainer`` saves, with the latest of each logged metric.

    A checkpoint holds the directory ``checkpoint``, as the ``Trainer`` has written it; a later
    attempt continues with ``trainer.train(resume_from_checkpoint=...)``. Set ``save_strategy`` and
    ``eval_strategy`` alike, so that metrics and checkpoint belong together. To stop the trial, the
    callback lets the ``Trainer`` finish its step and call ``on_train_end`` of all callbacks before
    this one.

    Raises:
        ImportError: On import of this module, if Transformers is not installed.

    Departures:
        In Ray Train every worker copies the checkpoint, and the copies are merged.
    """

    CHECKPOINT_NAME: ClassVar[str] = CHECKPOINT

    def __init__(self) -> None:
        super().__init__()
        self._stop: StopTraining | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forget an earlier training."""
        warn_if_alone(args.world_size, NOT_CONNECTED)
        self._stop = None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the checkpoint that the trainer has saved."""
        if self._stop or not must_report(state.is_world_process_zero):
            return
        wait_for_workers()  # each writes a file with the state of its random generators
        metrics = {name: value for log in state.log_history for name, value in log.items()}
        saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
        try:
            if not state.is_world_process_zero:
                report(metrics)
                return
            # Copied, because the trainer deletes its own by ``save_total_limit``.
            with checkpoint_dir() as directory:
                copy_tree(saved, Path(directory, self.CHECKPOINT_NAME))
                report(metrics, Checkpoint.from_directory(directory))
        except StopTraining as stop:
            # Raised in `on_train_end`, so that other callbacks can finish, e.g. close their runs.
            self._stop = stop
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep a stopped trainer from evaluating and saving once more."""
        if self._stop:
            control.should_evaluate = control.should_save = control.should_log = False

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the trial if it is to stop."""
        if self._stop:
            raise self._stop


def prepare_trainer(trainer: Any) -> Any:
    """Return the ``Trainer``, which then accepts iterables of batches as its datasets.

    ``train_dataset`` and ``eval_dataset`` may be what ``get_dataset_shard(...).iter_torch_batches``
    returns, or a shard itself, whose rows then are the batches: each item is one batch, and the
    ``Trainer`` does not distribute it among the workers again. Datasets of PyTorch and of the
    library Datasets are treated as ever.
    """
    trainer.__class__ = _accepting_batches(type(trainer))
    return trainer


def _accepting_batches(trainer_class: Any) -> Any:
    class BatchTrainer(trainer_class):
        def get_train_dataloader(self) -> Any:
            own = _batch_loader(self.train_dataset)
            return super().get_train_dataloader() if own is None else own

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            dataset = self.eval_dataset if eval_dataset is None else eval_dataset
            if isinstance(dataset, str) and isinstance(self.eval_dataset, dict):
                dataset = self.eval_dataset[dataset]
            own = _batch_loader(dataset)
            return super().get_eval_dataloader(eval_dataset) if own is None else own

    BatchTrainer.__name__ = trainer_class.__name__
    BatchTrainer.__qualname__ = trainer_class.__qualname__
    return BatchTrainer


def _batch_loader(dataset: Any) -> Any:
    """Return a loader of ready batches, None if the dataset is an ordinary one."""
    from torch.utils.data import DataLoader, IterableDataset  # noqa: PLC0415  (slow to import)

    is_ours = isinstance(dataset, DataShard | BatchIterable)
    is_iterator = hasattr(dataset, "__next__") or type(dataset).__module__.startswith("ray.data")
    if not (is_ours or is_iterator):
        return None

    class Batches(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(dataset)

        def __len__(self) -> int:
            # With it, the `Trainer` counts in epochs; a TypeError tells it that there is none.
            return len(dataset)

    return DataLoader(Batches(), batch_size=1, collate_fn=lambda batches: batches[0])
