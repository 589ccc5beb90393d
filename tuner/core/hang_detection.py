"""Which workers have been silent for much longer than they usually are, and so may hang."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .deadlines import Deadlines

_USUAL_INTERVALS: Final = 10.0
"""How many of its usual intervals a worker may be silent."""
_MIN_SILENCE_S: Final = 60.0
"""How long it may be silent in any case."""
_MAX_SETUP_S: Final = 600.0
"""How long its first report may take, for which nothing is usual yet."""
_NUM_REMEMBERED: Final = 31


@dataclass(frozen=True, slots=True)
class SuspectedHang:
    """A worker that has not reported for long.

    Attributes:
        trial_id: Whose.
        silent_s: For how many seconds.
        usual_s: The median of its latest intervals, None before its first report.
    """

    trial_id: str
    silent_s: float
    usual_s: float | None


class HangDetector:
    """Notices each worker once that has been silent for ten times its median interval, and for a minute at least.

    It costs little at a report, since it looks at a worker once a minute or more rarely.
    """

    def __init__(self) -> None:
        """Watch nobody yet."""
        self._looks = Deadlines()
        self._since: dict[str, float] = {}
        self._intervals: dict[str, deque[float]] = {}

    @property
    def next_s(self) -> float | None:
        """When to look at the next worker; None if nobody is watched."""
        return self._looks.next_s()

    def expect(self, trial_id: str, now_s: float) -> None:
        """Begin to wait for a report."""
        self._since[trial_id] = now_s
        if trial_id not in self._intervals:
            self._intervals[trial_id] = deque(maxlen=_NUM_REMEMBERED)
            self._looks.set(trial_id, now_s + _MAX_SETUP_S)

    def on_report(self, trial_id: str, now_s: float) -> None:
        """Take note of a report."""
        since_s = self._since.pop(trial_id, None)
        if since_s is None:
            return
        intervals = self._intervals[trial_id]
        if not intervals:
            self._looks.set(trial_id, now_s + _MIN_SILENCE_S)
        intervals.append(now_s - since_s)

    def suspend(self, trial_id: str) -> None:
        """Wait for no report until `expect` is called again, and take no note of how long it has been."""
        self._since.pop(trial_id, None)

    def forget(self, trial_id: str) -> None:
        """Forget a worker that is gone or about to go."""
        self._looks.cancel(trial_id)
        self._since.pop(trial_id, None)
        self._intervals.pop(trial_id, None)

    def may_be_due(self, now_s: float) -> bool:
        """Return whether it may be time to look at somebody."""
        return self._looks.may_be_due(now_s)

    def take_silent(self, now_s: float) -> list[SuspectedHang]:
        """Return those that have become suspicious, each once."""
        looked_at = [self._look(trial_id, now_s) for trial_id in self._looks.take_due(now_s)]
        return [silence for silence in looked_at if silence]

    def state_dict(self) -> dict[str, Any]:
        """Return who is watched as JSON values."""
        intervals = {trial_id: list(latest) for trial_id, latest in self._intervals.items()}
        return {"looks": self._looks.due, "since": dict(self._since), "intervals": intervals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._since = dict(state["since"])
        self._intervals = {
            trial_id: deque(latest, maxlen=_NUM_REMEMBERED)
            for trial_id, latest in state["intervals"].items()
        }
        for trial_id, due_s in state["looks"].items():
            self._looks.set(trial_id, due_s)

    def _look(self, trial_id: str, now_s: float) -> SuspectedHang | None:
        since_s = self._since.get(trial_id, now_s)  # it may be our turn to answer
        intervals = self._intervals[trial_id]
        usual_s = statistics.median(intervals) if intervals else None
        allowed_s = (
            _MAX_SETUP_S if usual_s is None else max(_USUAL_INTERVALS * usual_s, _MIN_SILENCE_S)
        )
        if now_s < since_s + allowed_s:
            self._looks.set(trial_id, since_s + allowed_s)
            return None
        return SuspectedHang(trial_id, now_s - since_s, usual_s)
