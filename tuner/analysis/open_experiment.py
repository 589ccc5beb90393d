"""Reads an experiment's directory: its journal, or else the files of its trials.

Neither training code nor search space is needed, nothing is unpickled and nothing is changed. The
journal holds every event and every decision, so replaying it restores the state of the experiment
without its scheduler and searcher. A running experiment can be read as well, up to its latest
record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schedulers.fifo import FIFOScheduler
from searchers.objectives.outcome_constraint import Constraints
from tuner.core.checkpoints import RetentionPolicy
from tuner.core.experiment import Experiment
from tuner.core.pareto import Objectives
from tuner.core.progress import Progress, look_at
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.journal.rows import JournalRows, Rows, histories_of
from tuner.journal.snapshot_files import load_newest
from tuner.restore.experiment import Observe, restore_experiment
from tuner.restore.snapshot_state import ExperimentState
from tuner.storage.array_store import ArrayStore
from tuner.storage.checkpoints import locate
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.declaration import is_experiment, read_declaration, refusal_of
from tuner.storage.layout import trial_directory
from tuner.storage.lock import Owner, driver_of
from tuner.storage.origin import origin_of
from tuner.storage.strict_json import Opaque

from .ranking import Mode
from .trial_files import read_trial_directories

Decode = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Returns a configuration for a recorded one."""


@dataclass(frozen=True, slots=True)
class StoredExperiment:
    """State of an experiment, read from its directory.

    Attributes:
        path: The directory, absolute.
        declaration: Content of ``experiment.json``.
        experiment: Its latest state; not to be changed.
        elapsed_s: Its running time in seconds, over all sessions.
        driver: Owner of its lock; None if it is not running.
    """

    path: Path
    declaration: Mapping[str, Any]
    experiment: Experiment
    elapsed_s: float
    driver: Owner | None

    def progress(self) -> Progress:
        """Return the experiment's progress."""
        return look_at(self.experiment, self.path.name, self.elapsed_s)


def read_stored(
    path: Path, decode: Decode | None = None, *, observe: Observe | None = None
) -> StoredExperiment:
    """Return the experiment in a directory.

    Objects in configurations are replaced by their descriptions; arrays are restored.

    Args:
        path: The experiment's directory; it may have been moved, and a driver may be writing in it.
        decode: Decodes configurations; None as above.
        observe: Called with each event since the experiment began, what followed from it, and when
            it happened; the journal is then replayed as a whole, without a snapshot.

    Raises:
        StorageError: If there is no experiment, or a later version wrote it.
        DamagedJournal: If its journal does not verify; a torn end is not damage.
    """
    if not is_experiment(path):
        raise StorageError(refusal_of(path))
    driver = driver_of(path)
    declaration = read_declaration(path)
    objects = ArrayStore(path)
    with warnings.catch_warnings():
        # A running driver may remove the older snapshot while it is read, and a restore will warn
        # of a damaged one: neither concerns a reader, who can replay more of the journal instead.
        warnings.simplefilter("ignore", RuntimeWarning)
        snapshot = None if observe else load_newest(path)
    restored = restore_experiment(
        path,
        _new_state(declaration, objects),
        snapshot,
        # Another release may have written a snapshot that cannot be loaded.
        fallback=lambda: _new_state(declaration, objects),
        decode=decode or (lambda config: _readable(config, objects)),
        observe=observe,
    )
    experiment = restored.state.experiment
    trainable_name = str((declaration.get("trainable") or {}).get("name") or "")
    for trial in experiment.trials:
        locate(trial, trial_directory(path, trial.trial_id), trainable_name)
    return StoredExperiment(path, declaration, experiment, restored.elapsed_s, driver)


def budgets_in(directory: Path) -> Mapping[str, tuple[float, float]]:
    """Return what is spent of each budget but that of time, and its limit, by its unit.

    Without budgets, and where no experiment can be read, it is empty.
    """
    try:
        declared = read_declaration(directory).get("tune_config")
        if not (isinstance(declared, dict) and declared.get("budget")):
            return {}
        stored = read_stored(directory)
    except StorageError:
        return {}
    return {
        use.unit: (use.spent_at(stored.elapsed_s), use.limit) for use in stored.progress().budgets
    }


def _new_state(declaration: Mapping[str, Any], objects: ArrayStore) -> ExperimentState:
    try:
        settings = ExperimentSettings.from_fields(declaration["settings"])
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise StorageError(
            f"the declaration is not in the format of this release ({cause!r}); without it the "
            "experiment cannot be read"
        ) from cause
    # Decisions are read from the journal, so any scheduler and stopper will do: their answers are
    # not used in a replay.
    experiment = Experiment(settings, FIFOScheduler(), NoopStopper())
    return ExperimentState(experiment, None, ConfigCodec({}, objects))


def _readable(config: Mapping[str, Any], objects: ArrayStore) -> dict[str, Any]:
    return {key: _shown(value, objects) for key, value in config.items()}


def _shown(value: Any, objects: ArrayStore) -> Any:
    match value:
        case Opaque(text, _, content):
            try:
                return objects.get(content) if content else text
            except StorageError:
                return text
        case dict():
            return {key: _shown(part, objects) for key, part in value.items()}
        case list():
            return [_shown(part, objects) for part in value]
        case tuple():
            return tuple(_shown(part, objects) for part in value)
        case _:
            return value


@dataclass(frozen=True, slots=True)
class OpenedExperiment:
    """Content of an experiment's directory, from its journal or from its trials' files.

    Attributes:
        trials: Its trials.
        rows: Source of their results, read on demand.
        metric: The metric that it optimises, flattened; None if unknown.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None if unknown.
        retention: How its checkpoints are ranked.
        several: Metric and mode of each objective if it has several; else empty.
        constraints: What its trials have to keep; empty if unknown.
    """

    trials: Sequence[Trial]
    rows: Rows
    metric: str | None = None
    mode: Mode | None = None
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    several: Objectives = ()
    constraints: Constraints = ()


def read_directory(directory: Path) -> OpenedExperiment:
    """Return the experiment in a directory, from its journal or else from its trials' files.

    Raises:
        FileNotFoundError: If there is no such directory, or no experiment in it.
        StorageError: If neither can be read.
    """
    if not is_experiment(directory):
        return _from_trial_files(directory)
    try:
        stored = read_stored(directory)
    except StorageError as damage:
        origin = origin_of(directory)
        if origin and origin.is_copy:
            # Files with results are not copied, and the path of the copy says nothing to the user.
            raise StorageError(str(damage).replace(str(directory), origin.url)) from damage
        try:
            found = _from_trial_files(directory)
        except FileNotFoundError:
            raise damage from None
        message = (
            f"{damage}; the files of its trials are read instead, which may lack the latest results"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)
        return found
    trials, settings = stored.experiment.trials, stored.experiment.settings
    mode: Any = settings.mode
    rows = JournalRows(directory, histories_of(trials))
    return OpenedExperiment(
        trials,
        rows,
        settings.metric,
        mode,
        settings.checkpoints.retention,
        settings.several_objectives,
        settings.constraints,
    )


def _from_trial_files(directory: Path) -> OpenedExperiment:
    folders = read_trial_directories(directory)
    return OpenedExperiment(folders.trials, folders.rows, folders.metric)
