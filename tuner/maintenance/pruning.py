"""Disk usage of an experiment, and deletion of its superseded checkpoints.

A deletion is recorded in the journal first, as the loss of a checkpoint is during a run, and
synced; then the checkpoints are deleted. An interruption in between leaves checkpoints that the
journal no longer lists, which the next prune or restore removes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shlex
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tuner.analysis.open_experiment import StoredExperiment, read_stored
from tuner.analysis.ranking import Mode, is_number, rank, step_rank
from tuner.analysis.result import is_over
from tuner.core.checkpoints import ranked
from tuner.core.events import CheckpointLost
from tuner.core.feasibility import is_feasible
from tuner.core.pareto import best_trials
from tuner.core.result import flatten, merged
from tuner.core.trial import Status, Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.errors import CheckpointError, ExperimentLocked
from tuner.journal import completeness, records
from tuner.journal.reader import recover
from tuner.journal.writer import Journal, SyncPolicy
from tuner.restore.takeover import remove_unfinished
from tuner.spec.config import RunConfig
from tuner.storage import checkpoint_directories, layout
from tuner.storage.directories import inspect_folder
from tuner.storage.layout import trial_directory
from tuner.storage.lock import ExperimentLock
from tuner.storage.manifest import read_manifest
from tuner.storage.origin import Origin, origin_of
from tuner.storage.urls import split_url
from tuner.stores.remote_lock import present_driver
from tuner.stores.remote_session import RemoteSession
from tuner.stores.stored_location import StoredLocation

from .store_inventory import StoreInventory, inventory_of

_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class KeepRules:
    """Rules for keeping checkpoints of trials that have ended; one matching rule is enough.

    What an unfinished or failed trial continues from, and what another trial is about to read, is
    kept in any case.

    Attributes:
        best: The best checkpoints of so many of the best trials; None for no such rule.
        last: The latest checkpoint of every trial. Without any rule it is the latest and the best
            one of every trial.
    """

    best: int | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint on the disk.

    Attributes:
        trial_id: The trial that wrote it.
        record: Its record in the experiment.
        path: Its directory.
        size_bytes: Its size on disk.
    """

    trial_id: str
    record: CheckpointRecord
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Disk usage of an experiment.

    Attributes:
        kept: Checkpoints that are needed, or wanted.
        superseded: Checkpoints that are not.
        leftovers: Unfinished files and unrecorded checkpoints, with what they take.
        state_bytes: Journal, snapshots, stored objects and the declaration.
        other_bytes: All the rest: log files, output, and what training code has written.
    """

    kept: Sequence[StoredCheckpoint] = ()
    superseded: Sequence[StoredCheckpoint] = ()
    leftovers: Mapping[Path, int] = field(default_factory=dict)
    state_bytes: int = 0
    other_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return total_size(self.kept) + self.freed_bytes + self.state_bytes + self.other_bytes

    @property
    def freed_bytes(self) -> int:
        """What is superseded or left over."""
        return total_size(self.superseded) + sum(self.leftovers.values())


def total_size(checkpoints: Iterable[StoredCheckpoint]) -> int:
    """Return what checkpoints take together, in bytes."""
    return sum(one.size_bytes for one in checkpoints)


def usage_of(
    stored: StoredExperiment,
    keep: KeepRules,
    *,
    is_driven: bool,
    inventory: StoreInventory | None = None,
) -> Usage:
    """Return what an experiment takes on the disk, or in its object store.

    Args:
        stored: The experiment.
        keep: Which checkpoints are kept.
        is_driven: Whether a driver is at work: what is unfinished is then no leftover.
        inventory: What its object store holds; None if it is in none.

    Raises:
        ValueError: If the best trials are to be kept and the experiment does not say what is
            optimised.
    """
    wanted = _wanted(stored, keep)
    kept: list[StoredCheckpoint] = []
    superseded: list[StoredCheckpoint] = []
    for trial in stored.experiment.trials:
        for record in _deletable(trial):
            path = trial_directory(stored.path, trial.trial_id) / record.directory
            in_store = inventory is not None and bool(record.remote)
            size_bytes = (
                inventory.size_of(trial.trial_id, record)
                if inventory and in_store
                else size_of(path)
            )
            one = StoredCheckpoint(trial.trial_id, record, path, size_bytes)
            (kept if (trial.trial_id, record.index) in wanted else superseded).append(one)
    left = {} if is_driven else {path: size_of(path) for path in _leftovers(stored)}
    if inventory:
        left |= {
            trial_directory(stored.path, trial_id) / name: size_bytes
            for (trial_id, name), size_bytes in inventory.orphans(stored).items()
        }
    state = sum(
        map(
            size_of,
            (
                stored.path / name
                for name in (layout.JOURNAL, layout.SNAPSHOT, layout.OBJECTS, layout.DECLARATION)
            ),
        )
    )
    other = (
        (inventory.total_bytes if inventory else size_of(stored.path))
        - state
        - total_size(kept)
        - total_size(superseded)
        - sum(left.values())
    )
    return Usage(kept, superseded, left, state, max(0, other))


def _leftovers(stored: StoredExperiment) -> list[Path]:
    folders: dict[Path, Collection[str] | None] = {
        stored.path / name: None for name in ("", *layout.FOLDERS_WITH_STAGING)
    }
    for trial in stored.experiment.trials:
        folders[trial_directory(stored.path, trial.trial_id)] = {
            record.directory for record in trial.checkpoints
        }
    return [
        folder / name
        for folder, recorded in folders.items()
        for name in checkpoint_directories.leftovers(folder, recorded)
    ]


def _wanted(stored: StoredExperiment, keep: KeepRules) -> set[tuple[str, int]]:
    """Return trial and index of each checkpoint that is needed or wanted."""
    trials = stored.experiment.trials
    wanted = {(trial.trial_id, index) for trial in trials for index in needed_checkpoints(trial)}
    if keep.last or keep.best is None:
        wanted |= {
            (trial.trial_id, trial.latest_checkpoint.index)
            for trial in trials
            if trial.latest_checkpoint
        }
    leaders = trials if keep.best is None else _best_trials(stored, keep.best)
    if keep.best is not None or not keep.last:
        wanted |= {
            (trial.trial_id, record.index)
            for trial in leaders
            if trial.latest_checkpoint
            for record in _best(trial, stored)
        }
    return wanted


def needed_checkpoints(trial: Trial) -> set[int]:
    """Return the indices of a trial's checkpoints that are still to be read.

    The trial or another one may start from them, or they are to be validated.
    """
    indices = set(trial.leased) | set(trial.open_validations)
    if trial.latest_checkpoint and (not is_over(trial) or trial.status is Status.ERROR):
        indices.add(trial.latest_checkpoint.index)
        if trial.source and trial.source_id == trial.trial_id:
            indices.add(trial.source.index)
    return indices


def _best_trials(stored: StoredExperiment, number: int) -> list[Trial]:
    settings = stored.experiment.settings
    metric, mode = settings.metric, settings.mode
    with_checkpoint = [trial for trial in stored.experiment.trials if trial.latest_checkpoint]
    if settings.several_objectives and metric is None:
        return best_trials(
            with_checkpoint, settings.several_objectives, constraints=settings.constraints
        )[:number]
    if metric is None or mode not in ("min", "max"):
        raise ValueError(
            "the experiment does not say what is optimised, so there are no best trials; keep "
            "the latest checkpoints instead"
        )
    direction: Mode = "min" if mode == "min" else "max"
    # Those that miss a constraint come last, so that something is kept where none is feasible.
    scored = [
        ((is_feasible(trial, settings.constraints), *rank(one.value, direction)), trial)
        for trial in with_checkpoint
        if (one := trial.objective.last)
    ]
    ordered = sorted(scored, key=lambda pair: pair[0], reverse=True)
    return [trial for _, trial in ordered[:number]]


def _deletable(trial: Trial) -> list[CheckpointRecord]:
    """Return a trial's checkpoints that may be deleted if they are not wanted.

    A directory that need not exist, or that the training code has placed itself, is not ours.
    """
    return [record for record in trial.checkpoints if not record.is_placeholder]


def _best(trial: Trial, stored: StoredExperiment) -> list[CheckpointRecord]:
    """Return a trial's best checkpoints: by the metric, and by score if checkpoints have one."""
    settings = stored.experiment.settings
    retention = settings.checkpoints.retention
    kept = _deletable(trial)
    by_score = (
        ranked(kept, retention)[-1:]
        if retention.score_attribute is not None or settings.metric is None
        else []
    )
    if settings.metric is None or len(kept) == 1:
        return by_score or kept[-1:]
    mode: Mode = "max" if settings.mode == "max" else "min"
    scored = []
    for record in kept:
        with suppress(CheckpointError):
            directory = trial_directory(stored.path, trial.trial_id) / record.directory
            metrics, validation = (
                read_manifest(directory).metrics,
                trial.validations.get(record.index),
            )
            if validation and validation.metrics:
                metrics = merged(metrics, validation.metrics)
            value = flatten(metrics).get(settings.metric)
            if is_number(value):
                scored.append((step_rank(value, mode), record.index, record))
    return [*by_score, max(scored)[2] if scored else kept[-1]]


def size_of(path: Path) -> int:
    """Return the bytes that a file or a whole folder takes on disk; 0 if it does not exist."""
    try:
        size_bytes = path.lstat().st_blocks * _BLOCK_BYTES
        if not path.is_dir() or path.is_symlink():
            return size_bytes
        with os.scandir(path) as entries:
            return size_bytes + sum(
                size_of(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else _blocks(entry)
                for entry in entries
            )
    except OSError:
        return 0


def _blocks(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The result of a prune.

    Attributes:
        usage: What the experiment took before.
        removed: Directories of checkpoints, and leftovers, that were deleted.
        kept: Those that could not be deleted, with the reason; the journal does not know them any
            more.
    """

    usage: Usage
    removed: Sequence[Path]
    kept: Sequence[str] = ()


def prune(experiment: Path, keep: KeepRules) -> PruneResult:
    """Delete the checkpoints that are superseded, and leftovers.

    Args:
        experiment: Its directory.
        keep: Which checkpoints are kept.

    Raises:
        ExperimentLocked: If it is running.
        DamagedJournal: If its journal does not verify, or lacks what was written to it.
        StorageError: If it cannot be read, or its journal not be written; nothing is deleted then.
        ValueError: If the best trials are to be kept and the experiment does not say what is
            optimised.
    """
    if origin := origin_of(experiment):
        return _prune_stored(experiment, origin, keep)
    inspect_folder(experiment)
    with ExperimentLock(experiment) as lock:
        # First, since a journal that lacks records may not know checkpoints that are needed.
        completeness.check(experiment)
        tail = recover(experiment)
        stored = read_stored(experiment)
        usage = usage_of(stored, keep, is_driven=False)
        # Recorded and synced before anything is deleted: a crash in between leaves checkpoints that
        # the journal does not know, and never a journal that names missing ones.
        with Journal(
            experiment, tail, sync=SyncPolicy.STRICT, on_segment=lock.note_segment
        ) as journal:
            _record_deletions(journal, stored, usage.superseded)
        return _delete(stored, usage)


def _prune_stored(experiment: Path, origin: Origin, keep: KeepRules) -> PruneResult:
    """Prune an experiment in an object store, there and in its local directory."""
    inventory = inventory_of(experiment)
    if inventory is None:
        raise ValueError(f"{str(experiment)!r} is in no object store")
    with contextlib.ExitStack() as closing:
        directory = experiment
        if origin.is_copy:
            folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="tuner-prune-"))
            directory = Path(folder, experiment.name)
        above, _ = split_url(origin.url)
        session = RemoteSession(
            StoredLocation(directory, inventory.store), RunConfig(storage_path=above), steal=False
        )
        session.prepare()
        lock = closing.enter_context(ExperimentLock(directory))
        try:
            closing.enter_context(session)
        except ExperimentLocked as running:
            driver = present_driver(inventory.store) or "another driver"
            raise ExperimentLocked(
                f"experiment {origin.url} is driven by {driver}, and nothing is deleted while it "
                f"runs; wait for it, or end it with tuner stop {shlex.quote(origin.url)}"
            ) from running
        session.resume(lock, is_salvage=False)
        completeness.check(directory)
        tail = recover(directory)
        stored = read_stored(directory)
        usage = usage_of(stored, keep, is_driven=False, inventory=inventory)
        with Journal(
            directory,
            tail,
            sync=SyncPolicy.STRICT,
            on_segment=lock.note_segment,
            mirror=session.open_mirror(),
        ) as journal:
            session.start(journal, lambda: None)
            _record_deletions(journal, stored, usage.superseded)
            journal.flush()
            # In the store, too, before anything is deleted there.
            journal.push()
        orphans = inventory.orphans(stored)
        done = _delete(stored, usage)
        for one in usage.superseded:
            if one.record.remote:
                inventory.delete(one.trial_id, one.record.remote)
        for trial_id, name in orphans:
            inventory.delete(trial_id, name)
        return done


def _record_deletions(
    journal: Journal, stored: StoredExperiment, superseded: Sequence[StoredCheckpoint]
) -> None:
    today = dt.datetime.now().astimezone().date().isoformat()
    for one in superseded:
        event = CheckpointLost(one.trial_id, one.record.index, f"deleted by tuner prune on {today}")
        journal.append(records.encode(event, stored.elapsed_s))
    journal.append(records.mark(records.CLOSE, stored.elapsed_s))


def _delete(stored: StoredExperiment, usage: Usage) -> PruneResult:
    removed: list[Path] = []
    refused: list[str] = []
    for one in usage.superseded:
        try:
            checkpoint_directories.delete(one.path)
            removed.append(one.path)
        except OSError as refusal:
            refused.append(f"{one.path}: {refusal}")
    gone = {(one.trial_id, one.record.index) for one in usage.superseded}
    recorded = {
        trial.trial_id: {
            kept.directory for kept in trial.checkpoints if (trial.trial_id, kept.index) not in gone
        }
        for trial in stored.experiment.trials
    }
    return PruneResult(usage, [*removed, *remove_unfinished(stored.path, recorded)], refused)
