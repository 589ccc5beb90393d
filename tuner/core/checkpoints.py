"""Checkpoints of trials: when one is due, which are kept, and which are leased."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from tuner.wire.record import record

from .result import SHOULD_CHECKPOINT, TRAINING_ITERATION
from .trial import OpenUpload, TerminationReason, Trial
from .worker_records import CheckpointRecord, ReportReply


@record
class RetentionPolicy:
    """How many checkpoints of a trial are kept, and which.

    Attributes:
        num_to_keep: How many; None keeps all.
        score_attribute: Metric (flattened) by which the best are kept; None keeps the most recent.
        score_order: ``"max"`` if a larger score is better, ``"min"`` if a smaller one is.
    """

    num_to_keep: int | None = None
    score_attribute: str | None = None
    score_order: str = "max"


@record
class CheckpointPolicy:
    """When the engine asks a trial for a checkpoint, and which ones it keeps.

    Attributes:
        can_save_on_demand: Whether the trainable saves when asked (class trainables); functions
            report checkpoints themselves.
        frequency: Save at every `frequency`-th iteration; 0 for never.
        at_end: Save at a trial's last result.
        retention: What is kept.
    """

    can_save_on_demand: bool = False
    frequency: int = 0
    at_end: bool = False
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)


class CheckpointManager:
    """Applies a `CheckpointPolicy` to all trials of an experiment."""

    def __init__(self, policy: CheckpointPolicy) -> None:
        """Create a manager for one session."""
        self._policy = policy

    @property
    def can_save_on_demand(self) -> bool:
        """Whether a worker saves when it is asked to."""
        return self._policy.can_save_on_demand

    def add(
        self, trial: Trial, checkpoint: CheckpointRecord, flat: Mapping[str, Any]
    ) -> tuple[CheckpointRecord, list[CheckpointRecord]]:
        """Record a committed checkpoint with the flattened result that it belongs to.

        Returns:
            The checkpoint with its score, and those that may be deleted now.
        """
        self.announce(trial, checkpoint.index, flat)
        return self.add_announced(trial, checkpoint)

    def announce(self, trial: Trial, index: int, flat: Mapping[str, Any]) -> None:
        """Note that the checkpoint of the newest result, flattened here, is being stored."""
        trial.uploads[index] = OpenUpload(self._score(flat), trial.num_rows)
        trial.objective.mark(index)
        trial.next_checkpoint = max(trial.next_checkpoint, index + 1)

    def add_announced(
        self, trial: Trial, checkpoint: CheckpointRecord
    ) -> tuple[CheckpointRecord, list[CheckpointRecord]]:
        """Record a committed checkpoint that was announced; see `add`."""
        upload = trial.uploads.pop(checkpoint.index)
        scored = dataclasses.replace(checkpoint, score=upload.score, num_rows=upload.num_rows)
        # One that was reported earlier may be stored later.
        bisect.insort(trial.checkpoints, scored, key=lambda kept: kept.index)
        return scored, self.drop_superseded(trial)

    def replaced_by(self, trial: Trial, checkpoint: CheckpointRecord) -> list[CheckpointRecord]:
        """Return the checkpoints of which a new one with a name has taken the directory."""
        return [
            kept
            for kept in trial.checkpoints
            if checkpoint.name and kept.directory == checkpoint.directory
        ]

    def forget_uploads(self, trial: Trial) -> None:
        """Forget what was being stored, since the processes that did are gone."""
        trial.objective.unmark(trial.uploads)
        trial.uploads.clear()

    def rescore(
        self, trial: Trial, checkpoint: CheckpointRecord, flat: Mapping[str, Any]
    ) -> CheckpointRecord:
        """Return a checkpoint with the score that it has in its corrected, flattened result.

        Where the trial still has it, that is corrected as well.
        """
        for position, kept in enumerate(trial.checkpoints):
            if kept.index == checkpoint.index:
                rescored = dataclasses.replace(kept, score=self._score(flat))
                trial.checkpoints[position] = rescored
                return rescored
        return dataclasses.replace(checkpoint, score=self._score(flat))

    def lease_start(self, trial: Trial) -> CheckpointRecord | None:
        """Return the checkpoint to start from, None for the beginning.

        One of the trial's own is leased until the first result shows that it has been loaded.
        """
        source = trial.source
        # A donor's checkpoint has been leased by the exploit already, in the donor.
        if trial.graft is None and source is not None:
            trial.leases[""] = source.index
        return source

    def release(self, trial: Trial) -> list[CheckpointRecord]:
        """End the lease of the checkpoint the trial started from; return what may be deleted."""
        is_leased = trial.leases.pop("", None) is not None
        return self.drop_superseded(trial) if is_leased else []

    def lose(self, trial: Trial, index: int) -> None:
        """Forget a checkpoint that is damaged or gone, or was announced and cannot be stored."""
        trial.uploads.pop(index, None)
        trial.checkpoints[:] = [kept for kept in trial.checkpoints if kept.index != index]
        trial.forget_checkpoints([index])
        if trial.leases.get("") == index:
            del trial.leases[""]

    def is_due(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        """Return whether the worker that waits after this flattened result has to save.

        There is at most one checkpoint per result.
        """
        if not self._policy.can_save_on_demand or self._has_checkpoint_at(trial, flat):
            return False
        if trial.owes_save or flat.get(SHOULD_CHECKPOINT) is True or self._is_periodic(flat):
            return True
        intention = trial.intention
        if intention is None or intention.reply is ReportReply.EXPLOIT:
            return False  # an exploit replaces what it has trained
        is_interrupted = intention.ending is TerminationReason.INTERRUPTED
        if intention.reply is ReportReply.PAUSE or is_interrupted:
            return True
        return self._policy.at_end

    def drop_superseded(self, trial: Trial) -> list[CheckpointRecord]:
        """Apply retention to a trial's checkpoints and return those that may be deleted."""
        dropped = superseded(trial.checkpoints, self._policy.retention, trial.leased)
        if dropped:
            gone = {checkpoint.index for checkpoint in dropped}
            trial.checkpoints[:] = [kept for kept in trial.checkpoints if kept.index not in gone]
            trial.forget_checkpoints(gone)
        return dropped

    def _has_checkpoint_at(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        latest = trial.latest_checkpoint
        if latest is None:
            return False
        if trial.grafts and latest.index < trial.grafts[-1].first_checkpoint:
            return False  # it was saved before an exploit, which has replaced that training
        return latest.iteration == flat.get(TRAINING_ITERATION)

    def _is_periodic(self, flat: Mapping[str, Any]) -> bool:
        frequency = self._policy.frequency
        return frequency > 0 and flat.get(TRAINING_ITERATION, 0) % frequency == 0

    def _score(self, flat: Mapping[str, Any]) -> float | None:
        attribute = self._policy.retention.score_attribute
        value = flat.get(attribute) if attribute else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)


def superseded(
    checkpoints: Sequence[CheckpointRecord], policy: RetentionPolicy, leased: Collection[int] = ()
) -> list[CheckpointRecord]:
    """Return the checkpoints that may be deleted.

    The best `num_to_keep` stay, the latest stays even if it is none of them (so one more than
    `num_to_keep` can exist), and so do those that are leased. The latest is the one from which the
    trial would continue: no placeholder.

    Args:
        checkpoints: All of a trial's, oldest first.
        policy: How many to keep.
        leased: Indices of checkpoints that are about to be read.

    Returns:
        Those that may be deleted, oldest first.
    """
    if policy.num_to_keep is None or len(checkpoints) <= policy.num_to_keep:
        return []
    best = ranked(checkpoints, policy)[-policy.num_to_keep :]
    # The latest stays, since a retry or a restore continues from there.
    real = [checkpoint.index for checkpoint in checkpoints if not checkpoint.is_placeholder]
    kept = {checkpoint.index for checkpoint in best} | set(real[-1:]) | set(leased)
    return [checkpoint for checkpoint in checkpoints if checkpoint.index not in kept]


def ranked(
    checkpoints: Sequence[CheckpointRecord], policy: RetentionPolicy
) -> list[CheckpointRecord]:
    """Return the checkpoints from worst to best; of equal scores the newer one is better.

    A checkpoint without the score attribute ranks lowest, one whose score is not finite just above.
    """
    if policy.score_attribute is None:
        return sorted(checkpoints, key=lambda checkpoint: checkpoint.index)
    sign = 1.0 if policy.score_order == "max" else -1.0
    return sorted(
        checkpoints, key=lambda checkpoint: (*_rank(checkpoint.score, sign), checkpoint.index)
    )


def _rank(score: float | None, sign: float) -> tuple[int, float]:
    if score is None:
        return (0, 0.0)
    return (2, sign * score) if math.isfinite(score) else (1, 0.0)
