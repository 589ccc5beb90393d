"""Which checkpoints of a trial may go."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .trial import CheckpointRecord


@dataclass(frozen=True, slots=True)
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


def superseded(
    checkpoints: Sequence[CheckpointRecord], policy: RetentionPolicy, leased: Collection[int] = ()
) -> list[CheckpointRecord]:
    """Return the checkpoints that may be deleted.

    The best `num_to_keep` stay, the latest stays even if it is none of them (so one more than `num_to_keep` can exist), and so does
    whatever somebody is going to read.

    Args:
        checkpoints: All of a trial's, oldest first.
        policy: How many to keep.
        leased: Indices of checkpoints that have a reader.

    Returns:
        Those that may go, oldest first.
    """
    if policy.num_to_keep is None or len(checkpoints) <= policy.num_to_keep:
        return []
    best = ranked(checkpoints, policy)[-policy.num_to_keep :]
    kept = {checkpoint.index for checkpoint in best} | {checkpoints[-1].index} | set(leased)
    return [checkpoint for checkpoint in checkpoints if checkpoint.index not in kept]


def ranked(
    checkpoints: Sequence[CheckpointRecord], policy: RetentionPolicy
) -> list[CheckpointRecord]:
    """Return the checkpoints from worst to best; of equal scores the newer one is better.

    A checkpoint without the score attribute ranks lowest, one whose score is not finite just above it.
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
