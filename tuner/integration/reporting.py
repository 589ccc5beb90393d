"""Metrics, checkpoints and resuming, for the callbacks of all frameworks."""

from __future__ import annotations

import atexit
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, final

from tuner.execution.attempt import current_attempt
from tuner.execution.session import checkpoint_dir, get_checkpoint, report
from tuner.storage.checkpoints import Checkpoint

Metrics = str | Sequence[str] | Mapping[str, str] | None
"""A metric's name, several names, or the framework's names by those to report; None for all."""

# Open until the process ends: frameworks may read a checkpoint lazily, long after `resume`.
_opened = contextlib.ExitStack()
atexit.register(_opened.close)


@final
class Selection:
    """Chooses and renames the metrics that a framework offers.

    Args:
        metrics: See `Metrics`.

    Raises:
        TypeError: If that is anything else.

    Example:
        >>> offered = {"val_loss": 0.5, "val_acc": 0.9}
        >>> Selection({"loss": "val_loss"}).of(offered), Selection("val_acc").of(offered)
        ({'loss': 0.5}, {'val_acc': 0.9})
        >>> Selection(None).of(offered) == offered
        True
    """

    __slots__ = ("_names", "_warned")

    def __init__(self, metrics: Metrics) -> None:
        self._names = _names(metrics)
        self._warned: set[str] = set()

    def of(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chosen metrics that are offered; warns once about each that is not."""
        # No error: with a validation every second epoch, for instance, some metrics are missing in
        # every other epoch.
        if self._names is None:
            return dict(offered)
        for source in self._missing(offered).difference(self._warned):
            self._warned.add(source)
            warnings.warn(
                f"{_no_such(source, offered)} It is left out of results until it is there",
                stacklevel=3,
            )
        return {name: offered[source] for name, source in self._names.items() if source in offered}

    def all_of(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chosen metrics of a framework that always offers the same ones.

        Raises:
            ValueError: If one is not offered; says which are.
        """
        for source in sorted(self._missing(offered)):
            raise ValueError(f"{_no_such(source, offered)} Choose one of these in metrics")
        return self.of(offered)

    def _missing(self, offered: Mapping[str, Any]) -> set[str]:
        return set(self._names.values()).difference(offered) if self._names else set()


def _no_such(source: str, offered: Mapping[str, Any]) -> str:
    known = ", ".join(map(repr, offered)) or "none at all"
    return f"there is no metric {source!r} here, only {known}."


def _names(metrics: Metrics) -> dict[str, str] | None:
    match metrics:
        case None:
            return None
        case str():
            return {metrics: metrics}
        case Mapping():
            names = dict(metrics)
        case _:
            names = {name: name for name in metrics} if isinstance(metrics, Sequence) else {"": ""}
    if not all(isinstance(text, str) and text for pair in names.items() for text in pair):
        raise TypeError(
            f"metrics must be names of metrics, or names by names, got {metrics!r}; e.g. "
            f"{{'loss': 'val_loss'}}, or None for all"
        )
    return names or None


def explain_missing(error: ModuleNotFoundError, module: str, name: str) -> None:
    """Raise an error with a remedy if a framework is not installed.

    Args:
        error: The error of the import, which may also be due to a dependency of the framework.
        module: The framework's module, which is also the name of our extra.
        name: The framework's name.

    Raises:
        ImportError: If it is the framework that is missing.
    """
    if (error.name or "").partition(".")[0] == module:
        raise ImportError(
            f"tuner.integration.{module} needs {name}, which is not installed; "
            f'pip install "tuner-hpo[{module}]"'
        ) from error


def check_filename(filename: str) -> str:
    """Return the name of a file within the checkpoint.

    Raises:
        ValueError: If it is empty, or contains a directory.
    """
    if not filename or PurePath(filename).name != filename:
        raise ValueError(
            f"filename must name a file within the checkpoint's directory, got {filename!r}; "
            "leave directories out"
        )
    return filename


def report_saved(metrics: Mapping[str, Any], write: Callable[[Path], object]) -> None:
    """Report metrics with a checkpoint.

    Args:
        metrics: The metrics.
        write: Writes the state into an empty directory.

    Raises:
        StopTraining: If the trial is to stop.
    """
    # In the trial's directory, so that the checkpoint is renamed, not copied.
    with checkpoint_dir() as directory:
        write(Path(directory))
        report(dict(metrics), checkpoint=Checkpoint.from_directory(directory))


def must_report(is_global_zero: bool) -> bool:
    """Return whether a process calls `report`: rank zero, and every worker of a trial's group.

    Args:
        is_global_zero: Whether the framework takes this process for rank zero.
    """
    # `report` is a barrier in a group. Processes that the training code has launched itself are no
    # workers of the trial, and cannot report.
    attempt = current_attempt()
    rank = attempt.assignment.rank if attempt else None
    return is_global_zero or (rank is not None and rank.world_size > 1)


def warn_if_alone(num_processes: int, remedy: str) -> None:
    """Warn if the framework trains in this process alone, although the trial has several workers.

    Each worker would then train a model of its own, on all of the data.

    Args:
        num_processes: Over how many processes the framework trains.
        remedy: What to write instead.
    """
    attempt = current_attempt()
    rank = attempt.assignment.rank if attempt else None
    if rank is not None and num_processes < rank.world_size and rank.world_rank == 0:
        warnings.warn(
            f"each of the {rank.world_size} workers trains alone, a model of its own on all of the "
            f"data; {remedy}",
            stacklevel=2,
        )


def wait_for_workers() -> None:
    """Wait until all processes of PyTorch's process group are here; at once without one."""
    torch: Any = sys.modules.get("torch")
    distributed = torch.distributed if torch is not None else None
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


def latest_directory() -> Path | None:
    """Return the directory of the checkpoint to continue from, None if training starts over.

    It must not be changed. It exists until the process ends, even if it is a download.
    """
    checkpoint = get_checkpoint()
    return None if checkpoint is None else Path(_opened.enter_context(checkpoint.as_directory()))


def latest_file(filename: str) -> Path | None:
    """Return a file in the checkpoint to continue from, None if training starts over.

    Args:
        filename: Its name.

    Raises:
        FileNotFoundError: If the checkpoint holds no such file.
    """
    directory = latest_directory()
    return None if directory is None else file_in(directory, filename)


def file_in(directory: Path, filename: str) -> Path:
    """Return a file or folder in a checkpoint.

    Args:
        directory: The checkpoint's directory.
        filename: Its name.

    Raises:
        FileNotFoundError: If there is none of that name.
    """
    path = directory / filename
    if not path.exists():
        raise FileNotFoundError(
            f"checkpoint {directory} holds no {filename!r}; give the filename that was given to "
            "the callback"
        )
    return path


@contextlib.contextmanager
def saved_file(checkpoint: Checkpoint, filename: str) -> Iterator[Path]:
    """Provide a file or folder in a checkpoint, to load a model from; see `file_in`.

    Raises:
        TypeError: If `checkpoint` is none, e.g. because the trial has saved none.
        FileNotFoundError: If the checkpoint holds no such file.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"checkpoint must be a Checkpoint, got {checkpoint!r}; best_checkpoint is None "
            "if a trial has saved nothing"
        )
    with checkpoint.as_directory() as directory:
        yield file_in(Path(directory), filename)
