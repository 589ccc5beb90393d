"""Fills an experiment tracker from the journal of an experiment, as its callback would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tuner.analysis.open_experiment import OpenedExperiment, read_directory
from tuner.callbacks import TBXLoggerCallback
from tuner.callbacks.trackers.comet_logger import CometLoggerCallback
from tuner.callbacks.trackers.mlflow_logger import MLflowLoggerCallback
from tuner.callbacks.trackers.tracker import ExperimentFacts, TrackerCallback
from tuner.callbacks.trackers.wandb_logger import WandbLoggerCallback
from tuner.core.trial import Trial
from tuner.errors import ExperimentLocked
from tuner.storage.declaration import is_experiment, read_declaration
from tuner.storage.lock import driver_of
from tuner.storage.origin import address_of


def _comet(project: str | None = None, mode: str | None = None, **rest: Any) -> TrackerCallback:
    names = {"project_name": project, "offline_directory": rest.pop("dir", None)}
    given = {name: value for name, value in names.items() if value is not None}
    return CometLoggerCallback(mode != "offline", **given, **rest)


CALLBACKS: Final[Mapping[str, Callable[..., TrackerCallback]]] = {
    "mlflow": MLflowLoggerCallback,
    "wandb": WandbLoggerCallback,
    "comet": _comet,
}
"""Makers of callbacks, by the names of trackers."""


def fill_tracker(directory: Path, callback: TrackerCallback) -> Iterator[Trial]:
    """Deliver all that a tracker lacks of an experiment, and yield each trial when it is there.

    What the tracker has, from a callback or from an earlier call, is not delivered again.

    Args:
        directory: The experiment's directory, of which nothing is changed.
        callback: The tracker's callback, which is used by nothing else.

    Raises:
        StorageError: If the experiment cannot be read.
        Exception: Whatever the tracker's client raises.
    """
    opened = read_directory(directory)
    name = PurePosixPath(address_of(directory)).name
    is_ours = is_experiment(directory)
    facts = ExperimentFacts(
        name,
        directory,
        str(read_declaration(directory)["id"]) if is_ours else name,
        opened.metric,
        is_running=is_ours and driver_of(directory) is not None,
    )
    yield from callback.deliver(facts, opened.trials, opened.rows.of)


def fill_event_files(directory: Path, target: Path | None = None) -> list[Trial]:
    """Write the event files of TensorBoard that are missing or incomplete; return their trials.

    Args:
        directory: The experiment's directory.
        target: The directory for the event files, with a folder for each trial; None for those of
            the experiment's own trials.

    Raises:
        StorageError: If the experiment cannot be read.
        ExperimentLocked: If it is running, and its driver writes these files itself.
        ImportError: If tensorboardX is not installed.
    """
    opened = read_directory(directory)
    if target is None and is_experiment(directory) and driver_of(directory) is not None:
        raise ExperimentLocked(
            f"{directory} is running, and writes its event files itself; give another directory"
        )
    if target is not None:
        for trial in opened.trials:
            trial.local_path = str(target / trial.trial_id)
            Path(trial.local_path).mkdir(parents=True, exist_ok=True)
    return _rewritten(opened)


def _rewritten(opened: OpenedExperiment) -> list[Trial]:
    logger = TBXLoggerCallback()
    _ = logger.encoder
    logger.setup(metric=opened.metric)
    lacking = [trial for trial in opened.trials if trial.attempt and not logger.is_complete(trial)]
    for trial in lacking:
        logger.rewrite(trial, opened.rows.of(trial.trial_id))
    logger.on_experiment_end(opened.trials)
    return lacking
