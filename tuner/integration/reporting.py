"""What the callbacks of all frameworks share: metrics, checkpoints, and where to resume from."""

from __future__ import annotations

import atexit
import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, final

from tuner.execution.session import checkpoint_dir, get_checkpoint, report
from tuner.storage.checkpoints import Checkpoint

Metrics = str | Sequence[str] | Mapping[str, str] | None
"""A metric's name, several of them, or the framework's names by those under which they are to be
reported; None for all."""

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
        >>> Selection({"loss": "val_loss"}).of(offered), Selection("val_acc").of(offered), Selection(None).of(offered) == offered
        ({'loss': 0.5}, {'val_acc': 0.9}, True)
    """

    __slots__ = ("_names", "_told")

    def __init__(self, metrics: Metrics) -> None:
        self._names = _names(metrics)
        self._told: set[str] = set()

    def of(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chosen metrics that are offered; of each that is not, a warning tells once.

        What is validated every second epoch only is not there at every epoch, so that a missing
        metric need not be a mistake.
        """
        if self._names is None:
            return dict(offered)
        for source in self._missing(offered).difference(self._told):
            self._told.add(source)
            warnings.warn(
                f"{_no_such(source, offered)} It is left out of results until it is there",
                stacklevel=3,
            )
        return {name: offered[source] for name, source in self._names.items() if source in offered}

    def all_of(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chosen metrics, of a framework that offers the same ones each time.

        Raises:
            ValueError: If one is not offered; says which are.
        """
        for source in sorted(self._missing(offered)):
            raise ValueError(f"{_no_such(source, offered)} Choose one of these in metrics")
        return self.of(offered)

    def _missing(self, offered: Mapping[str, Any]) -> set[str]:
        return set(self._names.values()).difference(offered) if self._names else set()


def _no_such(source: str, offered: Mapping[str, Any]) -> str:
    return f"there is no metric {source!r} here, only {', '.join(map(repr, offered)) or 'none at all'}."


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


def check_filename(filename: str) -> str:
    """Return the name of a file within the checkpoint.

    Raises:
        ValueError: If it is empty, or the path of another place.
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
        write: Writes the state into the empty directory that it is given.

    Raises:
        StopTraining: If the trial is to end.
    """
    with checkpoint_dir() as directory:
        write(Path(directory))
        report(dict(metrics), checkpoint=Checkpoint.from_directory(directory))


def latest_directory() -> Path | None:
    """Return the directory of the checkpoint to go on from, which must not be changed; None where training begins.

    It can be read until the process ends, also where it had to be downloaded.
    """
    checkpoint = get_checkpoint()
    return None if checkpoint is None else Path(_opened.enter_context(checkpoint.as_directory()))


def latest_file(filename: str, older: str | None = None) -> Path | None:
    """Return a file in the checkpoint to go on from; None where training begins.

    Args:
        filename: Its name.
        older: The name that an earlier release gave it.

    Raises:
        FileNotFoundError: If the checkpoint holds no such file.
    """
    directory = latest_directory()
    return None if directory is None else file_in(directory, filename, older)


def file_in(directory: Path, filename: str, older: str | None = None) -> Path:
    """Return a file, or folder, of a checkpoint's.

    Args:
        directory: The checkpoint's.
        filename: Its name.
        older: The name that an earlier release gave it.

    Raises:
        FileNotFoundError: If there is none of that name.
    """
    path = directory / filename
    if older is not None and not path.exists() and (directory / older).exists():
        return directory / older
    if not path.exists():
        raise FileNotFoundError(
            f"checkpoint {directory} holds no {filename!r}; name the filename that the "
            "callback was given"
        )
    return path


@contextlib.contextmanager
def saved_file(checkpoint: Checkpoint, filename: str, older: str | None = None) -> Iterator[Path]:
    """Lend a file, or folder, of a checkpoint, to load a model from; see `file_in`.

    Raises:
        TypeError: If there is no checkpoint, as of a trial that has saved none.
        FileNotFoundError: If the checkpoint holds no such file.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"checkpoint must be a Checkpoint, got {checkpoint!r}; best_checkpoint is None "
            "where a trial has saved nothing"
        )
    with checkpoint.as_directory() as directory:
        yield file_in(Path(directory), filename, older)
