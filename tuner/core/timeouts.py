"""Timeouts of workers: overdue reports, overdue exits, and workers that may hang.

`Deadlines` is the priority queue underneath, which the ready queue uses as well.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from tuner.wire.record import record

TERM_GRACE_S: Final = 0.5
"""How long a worker that is to be killed may take to clean up, unless it is urgent."""

REMNANT_S: Final = 120.0
"""How long what is left of a group may take to be gone that has lost workers with their node:
longer than another node of it may be silent, where it may run on meanwhile."""

_USUAL_INTERVALS: Final = 10.0
"""A worker may hang when it has been silent for this many of its median intervals."""
_MIN_SILENCE_S: Final = 60.0
"""A shorter silence is never suspicious."""
_MAX_SETUP_S: Final = 600.0
"""Silence before the first report, for which there is no median, is suspicious after this long."""
_NUM_REMEMBERED: Final = 31

_MAX_START_S: Final = 600.0
"""How long a process may load the training code, at least, where there is a report timeout."""


def earliest(*times: float | None) -> float | None:
    """Return the earliest of some times, of which None stands for never.

    Example:
        >>> earliest(3.0, None, 2.0)
        2.0
    """
    first = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first


class Deadlines:
    """Due times by key: a heap with one entry per key.

    A deadline that moves later, as that of a worker does with every report, leaves its old heap
    entry in place; the entry is put back when it comes up. Moving a deadline later therefore costs
    nothing, and a key never has more than a few entries.

    Attributes:
        none_before_s: Nothing is due before this time; infinity where nothing will ever be.
    """

    def __init__(self) -> None:
        """Create an empty schedule."""
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._earliest_entry: dict[str, float] = {}
        self.none_before_s = math.inf

    def set(self, key: str, due_s: float) -> None:
        """Set or move a deadline."""
        self._due[key] = due_s
        # An entry that is too early is harmless: `next_s` puts it back when it comes up.
        entry = self._earliest_entry.get(key)
        if entry is None or due_s < entry:
            self._push(key, due_s)

    def cancel(self, key: str) -> None:
        """Remove a deadline, if there is one."""
        self._due.pop(key, None)

    def due_s(self, key: str) -> float | None:
        """Return when a key is due, None for never."""
        return self._due.get(key)

    @property
    def due(self) -> dict[str, float]:
        """When each key is due; a copy."""
        return dict(self._due)

    def take_due(self, now_s: float) -> list[str]:
        """Remove and return the keys whose deadline is `now_s` or earlier, earliest first."""
        taken: list[str] = []
        while (next_s := self.next_s()) is not None and next_s <= now_s:
            key = self._pop()
            del self._due[key]
            taken.append(key)
        return taken

    def next_s(self) -> float | None:
        """Return the earliest deadline, None if there is none."""
        while self._heap:
            entry_s, key = self._heap[0]
            due_s = self._due.get(key)
            if due_s == entry_s:
                return due_s
            self._pop()
            # The deadline was cancelled, or has moved later and has no entry there yet.
            if due_s is not None and key not in self._earliest_entry:
                self._push(key, due_s)
        return None

    def _push(self, key: str, due_s: float) -> None:
        heapq.heappush(self._heap, (due_s, key))
        self._earliest_entry[key] = due_s
        self.none_before_s = self._heap[0][0]

    def _pop(self) -> str:
        entry_s, key = heapq.heappop(self._heap)
        self.none_before_s = self._heap[0][0] if self._heap else math.inf
        if self._earliest_entry.get(key) == entry_s:
            del self._earliest_entry[key]
        return key


@record
class SuspectedHang:
    """A worker that has not reported for unusually long.

    Attributes:
        trial_id: The trial.
        silent_s: For how many seconds.
        usual_s: The median of its latest intervals, None before its first report.
    """

    trial_id: str
    silent_s: float
    usual_s: float | None


class HangDetector:
    """Detects workers that are silent for ten times their median interval, and at least a minute.

    Each worker is reported once. This costs little per result, since a worker is looked at once a
    minute or less often.

    Attributes:
        looks: When to look at each of them next.
    """

    def __init__(self) -> None:
        """Create a detector that watches no worker."""
        self.looks = Deadlines()
        self._since: dict[str, float] = {}
        self._intervals: dict[str, deque[float]] = {}

    def expect(self, trial_id: str, now_s: float) -> None:
        """Begin to wait for a report."""
        self._since[trial_id] = now_s
        # The next look stays where it is. Moving it with every report would cost more than looking
        # once a minute at a worker that is well.
        if trial_id not in self._intervals:
            self._intervals[trial_id] = deque(maxlen=_NUM_REMEMBERED)
            self.looks.set(trial_id, now_s + _MAX_SETUP_S)

    def on_report(self, trial_id: str, now_s: float) -> None:
        """Record a report."""
        since_s = self._since.pop(trial_id, None)
        if since_s is None:
            return
        intervals = self._intervals[trial_id]
        if not intervals:
            self.looks.set(trial_id, now_s + _MIN_SILENCE_S)
        intervals.append(now_s - since_s)

    def suspend(self, trial_id: str) -> None:
        """Wait for no report until `expect` is called again, and record no interval."""
        self._since.pop(trial_id, None)

    def forget(self, trial_id: str) -> None:
        """Stop watching a worker that is gone or about to leave."""
        self.looks.cancel(trial_id)
        self._since.pop(trial_id, None)
        self._intervals.pop(trial_id, None)

    def take_silent(self, now_s: float) -> list[SuspectedHang]:
        """Return the workers that have become suspicious, each once."""
        looked_at = [self._look(trial_id, now_s) for trial_id in self.looks.take_due(now_s)]
        return [hang for hang in looked_at if hang]

    def state_dict(self) -> dict[str, Any]:
        """Return the watched workers as JSON values."""
        intervals = {trial_id: list(latest) for trial_id, latest in self._intervals.items()}
        return {"looks": self.looks.due, "since": dict(self._since), "intervals": intervals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._since = dict(state["since"])
        self._intervals = {
            trial_id: deque(latest, maxlen=_NUM_REMEMBERED)
            for trial_id, latest in state["intervals"].items()
        }
        for trial_id, due_s in state["looks"].items():
            self.looks.set(trial_id, due_s)

    def _look(self, trial_id: str, now_s: float) -> SuspectedHang | None:
        # A worker that waits for our answer has no start of silence, and is not silent.
        since_s = self._since.get(trial_id, now_s)
        intervals = self._intervals[trial_id]
        usual_s = statistics.median(intervals) if intervals else None
        allowed_s = (
            _MAX_SETUP_S if usual_s is None else max(_USUAL_INTERVALS * usual_s, _MIN_SILENCE_S)
        )
        if now_s < since_s + allowed_s:
            self.looks.set(trial_id, since_s + allowed_s)
            return None
        return SuspectedHang(trial_id, now_s - since_s, usual_s)


@record
class Overdue:
    """A worker whose time is over.

    Attributes:
        trial_id: The trial.
        reason: Why it is to be killed.
        term_grace_s: How long it may take to clean up before that.
        is_silent: Whether it had to report, and not to leave.
    """

    trial_id: str
    reason: str
    term_grace_s: float
    is_silent: bool = False


class Timeouts:
    """One deadline for each worker: to start, to report, or to leave once it was asked to.

    Without a report timeout, workers that may hang are only reported.

    Args:
        report_timeout_s: How long a worker may be silent while it trains or saves; None for no
            limit.
        stop_grace_s: How long it may take to leave.
    """

    def __init__(self, report_timeout_s: float | None, stop_grace_s: float) -> None:
        self._report_timeout_s = report_timeout_s
        self._stop_grace_s = stop_grace_s
        self._deadlines = Deadlines()
        self._starting: set[str] = set()
        """Workers that load the training code, which is no silence of theirs."""
        self._leaving: set[str] = set()
        self._evacuations = Deadlines()
        """Until when workers have to be gone whose node is going to leave."""
        self._evacuated: set[str] = set()
        """Workers that were killed since they were not."""
        self._remnants = Deadlines()
        """Until when the groups have to be gone that have lost workers with their node."""
        self._hang_detector = HangDetector()
        self._schedules = (
            self._deadlines, self._evacuations, self._remnants, self._hang_detector.looks,
        )  # fmt: skip
        self._interrupt_grace_s = 0.0
        self._term_grace_s = TERM_GRACE_S
        self._exit_deadline_s: float | None = None
        """When all workers have to be gone, once the experiment is interrupted."""

    @property
    def next_s(self) -> float | None:
        """When the next worker is overdue or becomes suspicious; None if none will."""
        used = [each for each in self._schedules if each.none_before_s < math.inf]
        return earliest(*(each.next_s() for each in used))

    @property
    def _start_limit_s(self) -> float:
        return max(_MAX_START_S, self._report_timeout_s or 0.0)

    def expect_start(self, trial_id: str, now_s: float) -> None:
        """Wait until a worker has loaded the training code; its report timeout begins after that.

        Importing the script and its libraries may take longer than a report. Without any limit, a
        process that hangs in an import would never be found where there is a report timeout.
        """
        if self._report_timeout_s is None:
            self._hang_detector.expect(trial_id, now_s)
        else:
            self._starting.add(trial_id)
            self._deadlines.set(trial_id, now_s + self._start_limit_s)

    def expect_report(self, trial_id: str, now_s: float) -> None:
        """Start the report timeout; a worker that was asked to leave gets no more time for that."""
        if trial_id in self._leaving:
            return
        self._starting.discard(trial_id)
        if self._report_timeout_s is None:
            self._hang_detector.expect(trial_id, now_s)
        else:
            self._deadlines.set(trial_id, now_s + self._report_timeout_s)

    def expect_exit(self, trial_id: str, now_s: float) -> None:
        """Start the time within which a worker has to leave."""
        self._leaving.add(trial_id)
        self._starting.discard(trial_id)
        self._hang_detector.forget(trial_id)
        due_s = self._exit_deadline_s
        self._deadlines.set(trial_id, now_s + self._stop_grace_s if due_s is None else due_s)

    def expect_evacuation(self, trial_id: str, due_s: float) -> None:
        """Let a worker be gone at a time, however it leaves, since its node is going to leave."""
        self._evacuations.set(trial_id, due_s)

    def is_evacuated(self, trial_id: str) -> bool:
        """Return whether a worker was killed since its node is going to leave."""
        return trial_id in self._evacuated

    def expect_remnant_gone(self, trial_id: str, now_s: float) -> None:
        """Wait for the end of a group that is being killed, as some of it is lost; not for ever."""
        self._forget_deadlines(trial_id)
        self._remnants.set(trial_id, now_s + REMNANT_S)

    def is_remnant(self, trial_id: str) -> bool:
        """Return whether a group has lost workers with their node, and is being killed."""
        return self._remnants.due_s(trial_id) is not None

    def take_overdue_remnants(self, now_s: float) -> list[str]:
        """Return the groups that count as gone now, although their end was not heard of."""
        return self._remnants.take_due(now_s)

    def left_s(self, trial_id: str, now_s: float) -> float:
        """Return how much of the time is left within which a worker has to leave."""
        due_s = earliest(self._deadlines.due_s(trial_id), self._evacuations.due_s(trial_id))
        return 0.0 if due_s is None else max(0.0, due_s - now_s)

    def interrupt(self, now_s: float, grace_s: float, *, is_urgent: bool = False) -> None:
        """Let all workers that are or will be told to leave be gone `grace_s` from now.

        An urgent interruption lets them be gone at once. Of several that are not, the first counts.
        """
        if is_urgent:
            self._exit_deadline_s, self._term_grace_s = now_s, 0.0
        elif self._exit_deadline_s is None:
            self._exit_deadline_s, self._interrupt_grace_s = now_s + grace_s, grace_s
        else:
            return
        # Workers that are already leaving get the same deadline, be it earlier or later.
        for trial_id in self._leaving:
            self._deadlines.set(trial_id, self._exit_deadline_s)

    def on_report(self, trial_id: str, now_s: float) -> None:
        """End the report timeout of a worker that has reported, or is about to."""
        if trial_id in self._leaving:
            return
        self._deadlines.cancel(trial_id)
        self._hang_detector.on_report(trial_id, now_s)

    def suspend(self, trial_id: str) -> None:
        """End the report timeout of a worker that has not reported, e.g. while it saves."""
        if trial_id in self._leaving:
            return
        self._deadlines.cancel(trial_id)
        self._hang_detector.suspend(trial_id)

    def forget(self, trial_id: str) -> None:
        """Forget a worker that is gone."""
        self._forget_deadlines(trial_id)
        self._leaving.discard(trial_id)
        self._evacuated.discard(trial_id)
        self._remnants.cancel(trial_id)

    def _forget_deadlines(self, trial_id: str) -> None:
        self._deadlines.cancel(trial_id)
        self._starting.discard(trial_id)
        self._hang_detector.forget(trial_id)
        self._evacuations.cancel(trial_id)

    def may_be_due(self, now_s: float) -> bool:
        """Return whether there may be overdue or suspicious workers, which is hardly ever."""
        return now_s >= min([each.none_before_s for each in self._schedules])

    def take_overdue(self, now_s: float) -> list[Overdue]:
        """Return the workers whose time is over, each once."""
        evacuated = self._evacuations.take_due(now_s)
        for trial_id in evacuated:
            self._deadlines.cancel(trial_id)
            self._hang_detector.forget(trial_id)
            self._evacuated.add(trial_id)
        reason = "its node is going to leave, and it did not leave in time"
        kills = [Overdue(trial_id, reason, self._term_grace_s) for trial_id in evacuated]
        return kills + [
            Overdue(
                trial_id,
                self._reason(trial_id),
                self._term_grace_s,
                is_silent=trial_id not in self._leaving | self._starting,
            )
            for trial_id in self._deadlines.take_due(now_s)
        ]

    def take_suspected_hangs(self, now_s: float) -> list[SuspectedHang]:
        """Return the workers that have become silent for unusually long, each once."""
        return self._hang_detector.take_silent(now_s)

    def state_dict(self) -> dict[str, Any]:
        """Return the deadlines as JSON values."""
        state: dict[str, Any] = {
            "due": self._deadlines.due,
            "leaving": sorted(self._leaving),
            "watch": self._hang_detector.state_dict(),
            "interrupt_grace_s": self._interrupt_grace_s,
            "last_words_s": self._term_grace_s,
            "all_gone_s": self._exit_deadline_s,
        }
        if self._starting:
            state["starting"] = sorted(self._starting)
        if evacuations := self._evacuations.due:
            state["evacuations"] = evacuations
        if self._evacuated:
            state["evacuated"] = sorted(self._evacuated)
        if remnants := self._remnants.due:
            state["remnants"] = remnants
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._leaving = set(state["leaving"])
        self._starting = set(state.get("starting", ()))
        self._hang_detector.load_state_dict(state["watch"])
        self._interrupt_grace_s = state["interrupt_grace_s"]
        self._term_grace_s = state["last_words_s"]
        self._exit_deadline_s = state["all_gone_s"]
        for trial_id, due_s in state["due"].items():
            self._deadlines.set(trial_id, due_s)
        for trial_id, due_s in state.get("evacuations", {}).items():
            self._evacuations.set(trial_id, due_s)
        self._evacuated = set(state.get("evacuated", ()))
        for trial_id, due_s in state.get("remnants", {}).items():
            self._remnants.set(trial_id, due_s)

    def _reason(self, trial_id: str) -> str:
        if trial_id in self._starting:
            return (
                f"its process has not loaded the training code within {self._start_limit_s:g} s; "
                "the script or a module that it imports takes this long, or waits for something"
            )
        if trial_id not in self._leaving:
            return f"no report for more than report_timeout_s={self._report_timeout_s}"
        if self._term_grace_s == 0:
            return "the experiment was interrupted again, and waited for nobody"
        if self._exit_deadline_s is not None:
            return (
                f"it did not leave within interrupt_grace_s={self._interrupt_grace_s} "
                "after the experiment was interrupted"
            )
        return (
            f"it did not leave within stop_grace_s={self._stop_grace_s} after it was told to stop"
        )
