"""What the trials of a replay share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.core.resources import ResourcePool

from .recording import RecordedTrial, Recording


@dataclass(frozen=True, slots=True)
class Slots:
    """What the trials of a replay share.

    Attributes:
        capacity: Total resources.
        max_concurrent: How many trials may run at once at most; None for as many as fit.
        request: What most trials ask for.
        count: How many trials run at once, if they ask for that.
    """

    capacity: Mapping[str, float]
    max_concurrent: int | None
    request: Mapping[str, float]
    count: int


def slots_for(recording: Recording, num_slots: int | None) -> Slots:
    """Return what the trials of a replay share.

    Args:
        recording: The recording.
        num_slots: How many trials run at once, whatever they ask for; None for what the recorded ones shared.

    Raises:
        TypeError: If it is not a whole number.
        ValueError: If it is less than 1, or is not given where the recording does not tell.
    """
    request = _usual_request(recording.trials)
    if num_slots is None and recording.is_inline:
        num_slots = 1
    if num_slots is None:
        return _recorded(recording, request)
    if isinstance(num_slots, bool) or not isinstance(num_slots, int):
        raise TypeError(
            f"slots must be a whole number, got {num_slots!r}; it is how many trials run at once"
        )
    if num_slots < 1:
        raise ValueError(
            f"slots must be at least 1, got {num_slots}; it is how many trials run at once"
        )
    names = {name for trial in recording.trials for name in trial.resources}
    largest = {
        name: max(trial.resources.get(name, 0.0) for trial in recording.trials) for name in names
    }
    # Rounded up, since a fraction of a device has to lie on one.
    return Slots(
        {name: math.ceil(amount) * num_slots for name, amount in largest.items()},
        num_slots,
        request,
        num_slots,
    )


def _recorded(recording: Recording, request: Mapping[str, float]) -> Slots:
    if recording.settings is None:
        raise ValueError(
            f"slots must be given, got None: {recording.path!r} does not tell how many trials could run at once; pass slots=4"
        )
    capacity, limit = recording.settings.capacity, recording.max_concurrent
    count = ResourcePool(capacity).num_fitting(request, limit or len(recording.trials))
    return Slots(capacity, limit, request, count)


def _usual_request(trials: Sequence[RecordedTrial]) -> Mapping[str, float]:
    counted = Counter(tuple(sorted(trial.resources.items())) for trial in trials)
    return dict(counted.most_common(1)[0][0])
