"""The checkpoints of an experiment's trials, by the records that the core keeps of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import final

from tuner.core.trial import CheckpointRecord
from tuner.errors import CheckpointError
from tuner.storage.checkpoints import unfinished
from tuner.storage.layout import trial_directory
from tuner.storage.manifest import verify

from .checkpoint_deleter import CheckpointCleaner

_log = logging.getLogger("tuner")


@final
class CheckpointStore:
    """Finds damage in checkpoints before they are used, and deletes them when they are not needed any more.

    Args:
        experiment: The experiment's directory.
        cleaner: Who deletes.
        earlier: Trial and index of each checkpoint that an earlier session has left. No clock could tell: clocks are set back.
    """

    def __init__(
        self, experiment: Path, cleaner: CheckpointCleaner, earlier: Iterable[tuple[str, int]] = ()
    ) -> None:
        self._experiment = experiment
        self._cleaner = cleaner
        self._earlier = frozenset(earlier)

    def path(self, trial_id: str, checkpoint: CheckpointRecord) -> Path:
        """Return the directory of a checkpoint."""
        return trial_directory(self._experiment, trial_id) / checkpoint.directory

    def delete(self, trial_id: str, checkpoint: CheckpointRecord) -> None:
        """Delete a checkpoint as soon as that is safe."""
        self._cleaner.delete(self.path(trial_id, checkpoint))

    def discard_unfinished(self, trial_id: str, attempt: int) -> None:
        """Delete what an attempt that is over has begun to save and has not finished."""
        for path in unfinished(trial_directory(self._experiment, trial_id), attempt):
            self._cleaner.delete(path)

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        """Return what is wrong with a checkpoint, empty for nothing.

        The contents of one that an earlier session has written are read and compared; of one of this session only names and sizes are,
        so that resuming a trial stays cheap.
        """
        path = self.path(trial_id, checkpoint)
        try:
            verify(path, with_hashes=(trial_id, checkpoint.index) in self._earlier)
        except (CheckpointError, OSError) as error:
            _log.warning(
                "trial %s cannot go on from its latest checkpoint and takes the one before it: %s",
                trial_id,
                error,
            )
            return str(error)
        return ""
