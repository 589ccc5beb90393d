"""Checkpoints of simulated trials, some of which are damaged or deleted from outside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, final

from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord, checkpoint_directory_name

STEP_S: Final = 0.1
"""Training time of one step, in seconds."""


@dataclass(slots=True)
class SavedCheckpoint:
    """A committed checkpoint.

    Attributes:
        attempt: Which attempt has written it.
        num_steps: How many training steps are in it.
        damage: What is wrong with it, empty for nothing.
    """

    attempt: int
    num_steps: int
    damage: str = ""


@final
class VirtualCheckpoints:
    """Every checkpoint of every trial, by the name of its directory.

    Workers sync a checkpoint before they report it, so a power cut takes none.

    Args:
        rng: The environment's generator.

    Attributes:
        to_delete: Directories that the engine has released for deletion, and that still exist.
        tampered: Names of checkpoints that were damaged or deleted from outside.
    """

    def __init__(self, rng: Random) -> None:
        """Create an empty store."""
        self._rng = rng
        self._saved: dict[tuple[str, str], SavedCheckpoint] = {}
        self.to_delete: list[Path] = []
        self.tampered: set[tuple[str, str]] = set()

    def commit(self, trial_id: str, index: int, saved: SavedCheckpoint) -> None:
        """Rename a finished checkpoint into place, over one that an earlier attempt has left."""
        key = (trial_id, checkpoint_directory_name(index))
        self._saved[key] = saved
        self.tampered.discard(key)

    def find(self, trial_id: str, checkpoint: CheckpointRecord) -> SavedCheckpoint | None:
        """Return a checkpoint, None where there is none."""
        return self._saved.get((trial_id, checkpoint.directory))

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        """Return what is wrong with a checkpoint, empty for nothing."""
        saved = self.find(trial_id, checkpoint)
        return "there is no such directory" if saved is None else saved.damage

    def is_tampered(self, trial_id: str, checkpoint: CheckpointRecord) -> bool:
        """Return whether the checkpoint was damaged or deleted from outside."""
        return (trial_id, checkpoint.directory) in self.tampered

    def delete_superseded(self) -> list[tuple[str, str]]:
        """Delete what the engine has released for deletion, and return its names."""
        to_delete, self.to_delete = self.to_delete, []
        keys = [(path.parts[-2], path.parts[-1]) for path in to_delete]
        for key in keys:
            self._saved.pop(key, None)
        return keys

    def tamper(self, spared: set[str], *, delete: bool) -> None:
        """Damage or delete the latest checkpoint of any trial that is not spared."""
        if not (names := sorted(name for name in self._saved if name[0] not in spared)):
            return
        victim = self._rng.choice(names)[0]
        # The latest is the one that a retry needs.
        name = max(name for name in names if name[0] == victim)
        self.tampered.add(name)
        if delete:
            del self._saved[name]
        else:
            self._saved[name].damage = "it was cut"

    def sweep(self, trials: Iterable[Trial]) -> None:
        """Delete what no trial has recorded, as a driver does at a restore."""
        recorded = {
            (trial.trial_id, checkpoint.directory)
            for trial in trials
            for checkpoint in trial.checkpoints
        }
        self._saved = {key: saved for key, saved in self._saved.items() if key in recorded}

    def intact(self, trial_id: str) -> list[str]:
        """Return names of a trial's intact checkpoints that are not to be deleted, oldest first."""
        to_delete = {path.parts[-1] for path in self.to_delete if path.parts[-2] == trial_id}
        return sorted(
            name
            for (owner, name), saved in self._saved.items()
            if owner == trial_id and not saved.damage and name not in to_delete
        )
