"""Deletes superseded checkpoints of an experiment that nobody drives, such that its journal stays true.

That they are gone is written down first, as the loss of a checkpoint is during a run, and synced; then they are deleted. Whoever is
interrupted in between leaves checkpoints that the journal does not know any more, which the next prune or restore removes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.analysis.stored import StoredExperiment, read_stored
from tuner.core.events import CheckpointLost
from tuner.journal import completeness, records, takeover_cleanup
from tuner.journal.writer import Journal, SyncPolicy, recover
from tuner.storage import checkpoints
from tuner.storage.lock import ExperimentLock
from tuner.storage.mkdir import inspect_folder

from .usage import Keep, Kept, Usage, usage_of


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted.

    Attributes:
        usage: What the experiment took before.
        removed: Directories of checkpoints, and leftovers, that are gone.
        kept: Those that could not be deleted, with the reason; the journal does not know them any more.
    """

    usage: Usage
    removed: Sequence[Path]
    kept: Sequence[str] = ()


def prune(experiment: Path, keep: Keep) -> Pruned:
    """Delete the checkpoints that are superseded, and leftovers.

    Args:
        experiment: Its directory.
        keep: Which checkpoints are kept.

    Raises:
        ExperimentLocked: If somebody drives it.
        DamagedJournal: If its journal does not verify, or lacks what was written to it.
        StorageError: If it cannot be read, or its journal not be written; nothing is deleted then.
        ValueError: If the best trials are to be kept and the experiment does not say what is optimised.
    """
    inspect_folder(experiment)
    with ExperimentLock(experiment) as lock:
        completeness.check(experiment)
        tail = recover(experiment)
        stored = read_stored(experiment)
        usage = usage_of(stored, keep, is_driven=False)
        with Journal(
            experiment, tail, sync=SyncPolicy.STRICT, on_segment=lock.note_segment
        ) as journal:
            _write_down(journal, stored, usage.superseded)
        return _delete(stored, usage)


def _write_down(journal: Journal, stored: StoredExperiment, superseded: Sequence[Kept]) -> None:
    today = dt.datetime.now().astimezone().date().isoformat()
    for one in superseded:
        event = CheckpointLost(one.trial_id, one.record.index, f"deleted by tuner prune on {today}")
        journal.append(records.encode(event, stored.elapsed_s))
    journal.append(records.mark(records.CLOSE, stored.elapsed_s))


def _delete(stored: StoredExperiment, usage: Usage) -> Pruned:
    removed: list[Path] = []
    refused: list[str] = []
    for one in usage.superseded:
        try:
            checkpoints.delete(one.path)
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
    return Pruned(usage, [*removed, *takeover_cleanup.sweep(stored.path, recorded)], refused)
