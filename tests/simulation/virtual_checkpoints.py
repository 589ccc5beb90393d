"""The checkpoints of simulated trials: what workers have renamed into place, and what became of it behind everybody's back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, final

from tuner.core.trial import CheckpointRecord, Trial, checkpoint_directory_name
from tuner.journal.completeness import Witness

STEP_S: Final = 0.1
"""Training time of one step, in seconds."""


@dataclass(slots=True)
class SavedCheckpoint:
    """A checkpoint that lies under its final name.

    Attributes:
        attempt: Which attempt has written it.
        num_steps: How many training steps are in it.
        damage: What somebody has done to it, empty for nothing.
    """

    attempt: int
    num_steps: int
    damage: str = ""


@final
class VirtualCheckpoints:
    """Every checkpoint of every trial, by the name of its directory.

    Workers sync a checkpoint before they report it, so a power cut takes none.

    Args:
        rng: The world's generator.

    Attributes:
        to_delete: Directories that the engine has given to be deleted, and that are still there.
        tampered: Names of checkpoints that were damaged or deleted behind the engine's back.
    """

    def __init__(self, rng: Random) -> None:
        """Create an empty store."""
        self._rng = rng
        self._saved: dict[tuple[str, str], SavedCheckpoint] = {}
        self.to_delete: list[Path] = []
        self.tampered: set[tuple[str, str]] = set()

    def commit(self, trial_id: str, index: int, saved: SavedCheckpoint) -> None:
        """Rename a finished checkpoint into its place; an orphan of an earlier attempt that lies there goes."""
        key = (trial_id, checkpoint_directory_name(index))
        self._saved[key] = saved
        self.tampered.discard(key)

    def find(self, trial_id: str, checkpoint: CheckpointRecord) -> SavedCheckpoint | None:
        """Return a checkpoint, None where there is none."""
        return self._saved.get((trial_id, checkpoint.directory))

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        """Return what is wrong with a checkpoint, empty for nothing, as `CheckpointStore.find_damage` does."""
        saved = self.find(trial_id, checkpoint)
        return "there is no such directory" if saved is None else saved.damage

    def witnesses(self) -> Iterator[Witness]:
        """Yield what the checkpoints tell of their trials."""
        for (trial_id, name), saved in self._saved.items():
            index = int(name.rpartition("_")[2])
            yield Witness(
                trial_id, f"{trial_id}/{name}", saved.num_steps, saved.num_steps * STEP_S, index
            )

    def is_tampered(self, trial_id: str, checkpoint: CheckpointRecord) -> bool:
        """Return whether the checkpoint was damaged or deleted behind the engine's back."""
        return (trial_id, checkpoint.directory) in self.tampered

    def delete_superseded(self) -> list[tuple[str, str]]:
        """Delete what the engine has given to be deleted, and return its names."""
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
        name = max(
            name for name in names if name[0] == victim
        )  # the latest is the one that is going to be missed
        self.tampered.add(name)
        if delete:
            del self._saved[name]
        else:
            self._saved[name].damage = "it was cut"

    def sweep(self, trials: Iterable[Trial]) -> None:
        """Delete what no trial counts on, as an opening driver does."""
        recorded = {
            (trial.trial_id, checkpoint.directory)
            for trial in trials
            for checkpoint in trial.checkpoints
        }
        self._saved = {key: saved for key, saved in self._saved.items() if key in recorded}

    def intact(self, trial_id: str) -> list[str]:
        """Return the names of a trial's checkpoints that are whole and that nobody has given to be deleted, oldest first."""
        to_delete = {path.parts[-1] for path in self.to_delete if path.parts[-2] == trial_id}
        return sorted(
            name
            for (owner, name), saved in self._saved.items()
            if owner == trial_id and not saved.damage and name not in to_delete
        )
