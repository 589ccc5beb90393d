"""The checkpoint of a group of workers, from their parts to its record."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.core.events import ResultReported
from tuner.core.result import (
    CHECKPOINT_DIR_NAME,
    SHOULD_CHECKPOINT,
    TIME_TOTAL_S,
    TRAINING_ITERATION,
)
from tuner.core.trial import CheckpointRecord, checkpoint_directory_name
from tuner.errors import CheckpointError
from tuner.execution.group_protocol import Part, PartKind
from tuner.execution.result_fields import counters_of
from tuner.storage.checkpoint_parts import commit_in_place, commit_parts, is_in_common
from tuner.storage.checkpoints import Provenance

_log = logging.getLogger("tuner")


@dataclass(slots=True)
class GroupCheckpoint:
    """A checkpoint that the ranks have reported and that is not committed yet.

    Attributes:
        index: Its index.
        result: The result that it belongs to, rank 0's.
        parts: What each rank that has reported one has prepared of it.
        name: Name that the ranks have given to its directory, empty for the numbered one.
    """

    index: int
    result: ResultReported
    parts: dict[int, Part]
    name: str

    @property
    def is_complete(self) -> bool:
        """Whether no rank is still storing its part."""
        return all(part.kind is not PartKind.PENDING for part in self.parts.values())

    def commit(self, trial_dir: Path, *, world_size: int, sync: bool) -> CheckpointRecord:
        """Make one checkpoint of the parts and return its record; runs in a thread.

        Args:
            trial_dir: The trial's directory.
            world_size: How many workers the group has.
            sync: Return only when all of it is on disk.

        Raises:
            CheckpointError: If it could not be written, or the parts do not fit together.
        """
        kinds = {part.kind for part in self.parts.values()}
        if kinds == {PartKind.STAGED}:
            directory = self._commit_staged(trial_dir, world_size, sync=sync)
            return self._record(directory, is_placeholder=False)
        places = {part.name for part in self.parts.values()}
        if PartKind.STAGED in kinds or len(places) > 1:
            raise CheckpointError(
                "all ranks must store their parts of a checkpoint in the same directory, got "
                + ", ".join(f"rank {rank}: {part.name}" for rank, part in self.parts.items())
            )
        (place,) = places
        is_placeholder = not (trial_dir / place).is_dir()
        if not is_placeholder:
            provenance = self._provenance(place)
            commit_in_place(place, trial_dir, provenance, world_size=world_size, sync=sync)
        return self._record(place, is_placeholder=is_placeholder)

    def _commit_staged(self, trial_dir: Path, world_size: int, *, sync: bool) -> str:
        directory = self.name or checkpoint_directory_name(self.index)
        _, conflicts = commit_parts(
            [(rank, self.parts[rank].name) for rank in sorted(self.parts)],
            trial_dir,
            self._provenance(directory),
            world_size=world_size,
            sync=sync,
            name=self.name,
        )
        for conflict in conflicts:
            _log.warning("trial %s: %s", self.result.trial_id, conflict)
        return directory

    def _provenance(self, directory: str) -> Provenance:
        result = with_directory(self.result, directory)
        return Provenance(
            result.trial_id,
            result.attempt,
            self.index,
            result.metrics[TRAINING_ITERATION],
            result.metrics,
        )

    def _record(self, directory: str, *, is_placeholder: bool) -> CheckpointRecord:
        metrics = self.result.metrics
        return CheckpointRecord(
            index=self.index,
            iteration=metrics[TRAINING_ITERATION],
            time_total_s=metrics[TIME_TOTAL_S],
            counters=counters_of(metrics),
            name="" if directory == checkpoint_directory_name(self.index) else directory,
            is_placeholder=is_placeholder,
        )


def with_directory(result: ResultReported, directory: str | None) -> ResultReported:
    """Return rank 0's result with the directory of the checkpoint that all have reported.

    Rank 0 knows only of its own part, which need not be there.
    """
    if result.metrics.get(CHECKPOINT_DIR_NAME) == directory:
        return result
    fields = {CHECKPOINT_DIR_NAME: directory, SHOULD_CHECKPOINT: directory is not None}
    return replace(result, metrics={**result.metrics, **fields})


def discard(trial_dir: Path, parts: Iterable[Part]) -> None:
    """Delete what ranks have staged for a checkpoint that does not come about.

    What they have in common stays: they may still write to it, and delete it themselves.
    """
    for part in parts:
        if part.kind is PartKind.STAGED and not is_in_common(part.name):
            shutil.rmtree(trial_dir / part.name, ignore_errors=True)
