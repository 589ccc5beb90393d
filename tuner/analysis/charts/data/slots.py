"""Which trial ran when: the runs of all trials, laid out over as many slots as ran at once."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .source import Source, state_of
from .timeline import Attempt

_STATES: Final[Mapping[str, str]] = {
    "stop": "stopped early",
    "pause": "paused",
    "exploit": "replaced",
    "resize": "resized",
}


@dataclass(frozen=True, slots=True)
class Span:
    """One run of a trial.

    Attributes:
        slot: Where it is drawn, counted from 0: the lowest one that was free. What else the trial occupied is not told by it.
        trial_id: Which trial.
        attempt: Which of its runs; counts from 1.
        start_s: When its worker was up, in seconds of experiment time.
        end_s: When its worker was gone.
        state: How it ended: ``"completed"``, ``"stopped early"``, ``"paused"``, ``"failed"``, ``"interrupted"``, ``"running"``,
            ``"replaced"`` where it gave way to another trial's checkpoint, ``"resized"`` where it went on with other resources.
    """

    slot: int
    trial_id: str
    attempt: int
    start_s: float
    end_s: float
    state: str


def spans(source: Source) -> list[Span]:
    """Return the runs of all trials, in the order of their beginnings; empty where there is no journal."""
    last = {attempt.trial_id: attempt.attempt for attempt in source.chronicle.attempts}
    ends = {trial.trial_id: state_of(trial) for trial in source.trials}
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    found = []
    for attempt in sorted(
        source.chronicle.attempts, key=lambda attempt: (attempt.start_s, attempt.trial_id)
    ):
        while busy and busy[0][0] <= attempt.start_s:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (attempt.end_s, slot))
        is_last = last[attempt.trial_id] == attempt.attempt
        state = _state_of(attempt, ends[attempt.trial_id] if is_last else "")
        found.append(
            Span(slot, attempt.trial_id, attempt.attempt, attempt.start_s, attempt.end_s, state)
        )
    return found


def _state_of(attempt: Attempt, end: str) -> str:
    """Return how a run ended; `end` is where the trial stands if it was its last one."""
    if attempt.outcome in ("failed", "unsaved", "killed", "lost"):
        return "failed"
    if attempt.outcome == "completed" or attempt.is_complete:
        return "completed"
    if attempt.outcome == "stopped" and attempt.verdict in _STATES:
        return _STATES[attempt.verdict]
    return end if end and end not in ("pending", "paused") else "interrupted"
