"""Ancestry of trials: the stretches of training of all trials that led to a result of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tuner.core.trial import AppliedExploit


class Stretch(NamedTuple):
    """A part of a trial's training, between two exploits or up to the checkpoint of a donor.

    Attributes:
        trial_id: Who trained it.
        num_exploits: How many exploits of this trial lay before it.
        last_iteration: ``training_iteration`` at which it ends.
    """

    trial_id: str
    num_exploits: int
    last_iteration: int


def ancestry(
    end: Stretch, grafts_of: Callable[[str], Sequence[AppliedExploit] | None]
) -> Iterator[Stretch]:
    """Yield the stretches that led to the end of one, that one first.

    Args:
        end: The last stretch.
        grafts_of: Returns the exploits of a trial, oldest first; None for an unknown trial, where
            the ancestry ends.
    """
    stretch = end
    while True:
        yield stretch
        own = (grafts_of(stretch.trial_id) or ())[: stretch.num_exploits]
        if not own:
            return
        graft = own[-1]
        donor_grafts = grafts_of(graft.donor_id)
        if donor_grafts is None:
            return
        num_exploits = num_exploits_at(donor_grafts, graft.checkpoint.index)
        stretch = Stretch(graft.donor_id, num_exploits, graft.from_iteration)


def num_exploits_at(grafts: Sequence[AppliedExploit], checkpoint_index: int) -> int:
    """Return how many exploits a trial had made when it saved a checkpoint."""
    return sum(graft.first_checkpoint <= checkpoint_index for graft in grafts)
