"""Checkpoints of trials: when one is due, which are kept, who still needs one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .result import SHOULD_CHECKPOINT, TRAINING_ITERATION
from .retention import superseded
from .settings import CheckpointPolicy
from .trial import CheckpointRecord, ReportReply, TerminationReason, Trial


class CheckpointManager:
    """Applies a `CheckpointPolicy` to trials."""

    def __init__(self, policy: CheckpointPolicy) -> None:
        """Create a keeper for all trials of an experiment."""
        self._policy = policy

    @property
    def can_save_on_demand(self) -> bool:
        """Whether a worker saves when it is asked to."""
        return self._policy.can_save_on_demand

    def add(
        self, trial: Trial, checkpoint: CheckpointRecord, flat: Mapping[str, Any]
    ) -> tuple[CheckpointRecord, list[CheckpointRecord]]:
        """Take in a committed checkpoint with the flattened result it belongs to.

        Returns:
            The checkpoint with its score, and those that may be deleted now.
        """
        scored = dataclasses.replace(checkpoint, score=self._score(flat), num_rows=trial.num_rows)
        trial.checkpoints.append(scored)
        trial.objective.mark(checkpoint.index)
        trial.next_checkpoint = checkpoint.index + 1
        return scored, self.drop_superseded(trial)

    def lease_start(self, trial: Trial) -> CheckpointRecord | None:
        """Return the checkpoint to start from; its own is kept until the first result shows that it has been loaded."""
        source = trial.source
        if trial.graft is None and source is not None:
            trial.leases[""] = source.index
        return source

    def release(self, trial: Trial) -> list[CheckpointRecord]:
        """End the lease of the checkpoint the trial started from and return what may be deleted for that."""
        return [] if trial.leases.pop("", None) is None else self.drop_superseded(trial)

    def lose(self, trial: Trial, index: int) -> None:
        """Forget a checkpoint that is no longer there."""
        trial.checkpoints[:] = [
            checkpoint for checkpoint in trial.checkpoints if checkpoint.index != index
        ]
        trial.objective.unmark([index])
        if trial.leases.get("") == index:
            del trial.leases[""]

    def is_due(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        """Return whether the worker that waits after this flattened result has to save; at most one checkpoint per result."""
        if not self._policy.can_save_on_demand or self._has_checkpoint_at(trial, flat):
            return False
        if trial.owes_save or flat.get(SHOULD_CHECKPOINT) is True or self._is_periodic(flat):
            return True
        match trial.intention:
            case None:
                return False
            case intention if intention.reply is ReportReply.EXPLOIT:
                return False
            case intention if (
                intention.reply is ReportReply.PAUSE
                or intention.ending is TerminationReason.INTERRUPTED
            ):
                return True
            case _:
                return self._policy.at_end

    def drop_superseded(self, trial: Trial) -> list[CheckpointRecord]:
        """Apply retention to a trial's checkpoints and return those that may be deleted."""
        dropped = superseded(trial.checkpoints, self._policy.retention, trial.leased)
        if dropped:
            gone = {checkpoint.index for checkpoint in dropped}
            trial.checkpoints[:] = [
                checkpoint for checkpoint in trial.checkpoints if checkpoint.index not in gone
            ]
            trial.objective.unmark(gone)
        return dropped

    def _has_checkpoint_at(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        latest = trial.latest_checkpoint
        if latest is None or (trial.grafts and latest.index < trial.grafts[-1].first_checkpoint):
            return False  # what it saved before an exploit counts for a path that it has left
        return latest.iteration == flat.get(TRAINING_ITERATION)

    def _is_periodic(self, flat: Mapping[str, Any]) -> bool:
        return (
            self._policy.frequency > 0
            and flat.get(TRAINING_ITERATION, 0) % self._policy.frequency == 0
        )

    def _score(self, flat: Mapping[str, Any]) -> float | None:
        attribute = self._policy.retention.score_attribute
        value = flat.get(attribute) if attribute else None
        return (
            float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        )
