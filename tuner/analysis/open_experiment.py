"""What can be learned of an experiment from its directory, whoever has written it and whatever is left of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.core.pareto import Objectives
from tuner.core.retention import RetentionPolicy
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.journal.rows import JournalRows, Rows, histories_of
from tuner.storage.declaration import is_experiment

from .ranking import Mode
from .stored import read_stored
from .trial_folders import read_trial_folders


@dataclass(frozen=True, slots=True)
class Found:
    """An experiment as it was found in a directory.

    Attributes:
        trials: Its trials.
        rows: Where their results are read when they are asked for.
        metric: The metric that it optimises, flattened; None where nothing tells.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None where nothing tells.
        retention: How its checkpoints are ranked.
        several: Metric and mode of each objective where it has several; else empty.
    """

    trials: Sequence[Trial]
    rows: Rows
    metric: str | None = None
    mode: Mode | None = None
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    several: Objectives = ()


def read_directory(directory: Path) -> Found:
    """Return what a directory tells: its journal, or, where there is none or it cannot be read, the files of its trials.

    Raises:
        FileNotFoundError: If there is no such directory, or no experiment in it.
        StorageError: If neither can be read.
    """
    if not is_experiment(directory):
        return _from_folders(directory)
    try:
        stored = read_stored(directory)
    except StorageError as damage:
        try:
            found = _from_folders(directory)
        except FileNotFoundError:
            raise damage from None
        told = (
            f"{damage}; the files of its trials are read instead, which may lack the latest results"
        )
        warnings.warn(told, RuntimeWarning, stacklevel=3)
        return found
    trials, settings = stored.experiment.trials, stored.experiment.settings
    mode: Any = settings.mode
    rows = JournalRows(directory, histories_of(trials))
    return Found(
        trials,
        rows,
        settings.metric,
        mode,
        settings.checkpoints.retention,
        settings.several_objectives,
    )


def _from_folders(directory: Path) -> Found:
    folders = read_trial_folders(directory)
    return Found(folders.trials, folders.rows, folders.metric)
