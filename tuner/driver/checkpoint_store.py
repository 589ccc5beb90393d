"""Verification and deletion of checkpoints, by the records that the core keeps of them."""

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

from .checkpoint_deleter import CheckpointDeleter

_log = logging.getLogger("tuner")


@final
class CheckpointStore:
    """Finds damage in checkpoints before they are used, and deletes those that are superseded.

    Args:
        experiment: The experiment's directory.
        deleter: Deletes them once that is safe.
        earlier: Trial and index of each checkpoint that an earlier session has written. Times of
            files would not do, since clocks are set back.
    """

    def __init__(
        self, experiment: Path, deleter: CheckpointDeleter, earlier: Iterable[tuple[str, int]] = ()
    ) -> None:
        self._experiment = experiment
        self._deleter = deleter
        self._earlier = frozenset(earlier)

    def path(self, trial_id: str, checkpoint: CheckpointRecord) -> Path:
        """Return the directory of a checkpoint."""
        return trial_directory(self._experiment, trial_id) / checkpoint.directory

    def delete(self, trial_id: str, checkpoint: CheckpointRecord) -> None:
        """Delete a checkpoint as soon as that is safe."""
        self._deleter.delete(self.path(trial_id, checkpoint))

    def discard_unfinished(self, trial_id: str, attempt: int) -> None:
        """Delete what an attempt that has ended left unfinished in its staging directories."""
        for path in unfinished(trial_directory(self._experiment, trial_id), attempt):
            self._deleter.delete(path)

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        """Return what is wrong with a checkpoint, empty for nothing.

        The contents of a checkpoint of an earlier session are read and compared with the manifest;
        of one of this session only names and sizes are, so that resuming a trial stays cheap.
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
