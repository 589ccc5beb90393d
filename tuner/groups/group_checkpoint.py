"""The checkpoint of a group of workers, from their parts to its record."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, final

from tuner.core.events import ResultReported
from tuner.core.result import (
    TIME_TOTAL_S,
    TRAINING_ITERATION,
)
from tuner.core.worker_records import CheckpointRecord, checkpoint_directory_name
from tuner.errors import CheckpointError
from tuner.execution.checkpoint_part import Part, PartKind
from tuner.execution.group_protocol import with_directory
from tuner.execution.result_fields import counters_of
from tuner.storage.checkpoint_names import is_in_common
from tuner.storage.checkpoint_parts import commit_in_place, commit_parts
from tuner.storage.manifest import Provenance

_log = logging.getLogger("tuner")


class NodeLost(CheckpointError):
    """A node has left that had a part of the checkpoint."""


@dataclass(slots=True)
class GroupCheckpoint:
    """A checkpoint that the ranks have reported and that is not committed yet.

    Attributes:
        index: Its index.
        result: The result that it belongs to, rank 0's.
        parts: What each rank that has reported one has prepared of it.
        name: Name that the ranks have given to its directory, empty for the numbered one.
        warned: What the group was warned of before, which is not repeated.
    """

    index: int
    result: ResultReported
    parts: dict[int, Part]
    name: str
    warned: set[str] = field(default_factory=set)

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
            return self.record(directory, is_placeholder=False)
        place = self.place
        is_placeholder = not (trial_dir / place).is_dir()
        if not is_placeholder:
            provenance = self.provenance(place)
            commit_in_place(place, trial_dir, provenance, world_size=world_size, sync=sync)
        return self.record(place, is_placeholder=is_placeholder)

    @property
    def directory(self) -> str:
        """Name that its directory gets if the engine makes it."""
        return self.name or checkpoint_directory_name(self.index)

    @property
    def place(self) -> str:
        """Name of the directory in which training code has placed it; empty if it has not.

        Raises:
            CheckpointError: If the ranks have stored their parts in different directories.
        """
        kinds = {part.kind for part in self.parts.values()}
        if kinds == {PartKind.STAGED}:
            return ""
        places = {part.name for part in self.parts.values()}
        if PartKind.STAGED in kinds or len(places) > 1:
            raise CheckpointError(
                "all ranks must store their parts of a checkpoint in the same directory, got "
                + ", ".join(f"rank {rank}: {part.name}" for rank, part in self.parts.items())
            )
        return places.pop()

    def _commit_staged(self, trial_dir: Path, world_size: int, *, sync: bool) -> str:
        directory = self.directory
        _, conflicts = commit_parts(
            [(rank, self.parts[rank].name) for rank in sorted(self.parts)],
            trial_dir,
            self.provenance(directory),
            world_size=world_size,
            sync=sync,
            name=self.name,
        )
        new = [conflict for conflict in conflicts if conflict not in self.warned]
        self.warned.update(new)
        for conflict in new:
            _log.warning("trial %s: %s", self.result.trial_id, conflict)
        return directory

    def provenance(self, directory: str) -> Provenance:
        """Return of which result it is, where its directory has this name."""
        result = with_directory(self.result, directory)
        return Provenance(
            result.trial_id,
            result.attempt,
            self.index,
            result.metrics[TRAINING_ITERATION],
            result.metrics,
        )

    def record(self, directory: str, *, is_placeholder: bool) -> CheckpointRecord:
        """Return its record, where its directory has this name."""
        metrics = self.result.metrics
        return CheckpointRecord(
            index=self.index,
            iteration=metrics[TRAINING_ITERATION],
            time_total_s=metrics[TIME_TOTAL_S],
            counters=counters_of(metrics),
            name="" if directory == checkpoint_directory_name(self.index) else directory,
            is_placeholder=is_placeholder,
        )


Committed = Callable[[CheckpointRecord | BaseException], None]
"""Takes the record of a checkpoint that was committed, or why it was not."""


class GroupStorage(Protocol):
    """Where the checkpoints of a group are committed, of which ranks have prepared their parts."""

    @property
    def is_async(self) -> bool:
        """Whether the ranks train on while a checkpoint is committed that is complete.

        They have stored their parts before they reported.
        """

    def commit(self, checkpoint: GroupCheckpoint, world_size: int, then: Committed, /) -> None:
        """Begin to commit a checkpoint, one at a time.

        Args:
            checkpoint: The checkpoint, which is complete.
            world_size: How many workers the group has.
            then: Called later, in the executor's thread.
        """

    def give_up(self, why: str, /) -> None:
        """Wait no more for a checkpoint that may take long, nor for later ones."""

    def discard(self, parts: Mapping[int, Part], /) -> None:
        """Begin to delete what ranks have staged for a checkpoint that does not come about."""


@final
class DirectoryStorage:
    """Commits the checkpoints of a group in the trial's directory.

    Args:
        trial_dir: The directory.
        submit: Runs a job in a thread, see `CommitPool.submit`.
        sync: Whether checkpoints are flushed to the disk before they count.
    """

    is_async: Final = False

    def __init__(
        self,
        trial_dir: Path,
        submit: Callable[[Callable[[], Any], Callable[[Any], None], str], None],
        *,
        sync: bool,
    ) -> None:
        self._trial_dir = trial_dir
        self._submit = submit
        self._sync = sync

    def commit(self, checkpoint: GroupCheckpoint, world_size: int, then: Committed) -> None:
        job = partial(checkpoint.commit, self._trial_dir, world_size=world_size, sync=self._sync)
        self._submit(job, then, str(self._trial_dir / checkpoint.directory))

    def give_up(self, why: str) -> None:
        """See `GroupStorage`; a directory takes it soon."""

    def discard(self, parts: Mapping[int, Part]) -> None:
        job = partial(discard, self._trial_dir, tuple(parts.values()))
        self._submit(job, lambda _: None, str(self._trial_dir))


def discard(trial_dir: Path, parts: Iterable[Part]) -> None:
    """Delete what ranks have staged for a checkpoint that does not come about.

    What they have in common stays: they may still write to it, and delete it themselves.
    """
    for part in parts:
        if part.kind is PartKind.STAGED and not is_in_common(part.name):
            shutil.rmtree(trial_dir / part.name, ignore_errors=True)
