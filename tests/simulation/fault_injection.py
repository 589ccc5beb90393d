"""Fault injection: draws from one seed which fault occurs when."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Mapping
from random import Random
from typing import Final, final


class DriverKilled(BaseException):
    """The driver was killed; what it does afterwards, e.g. in a ``finally``, has no effect."""


class PluginError(Exception):
    """Raised by a scheduler or a searcher."""


class Fault(enum.StrEnum):
    """Every fault that can be injected."""

    DRIVER_DIES = "driver-dies"
    POWER_CUT = "power-cut"
    SIGNAL = "signal"
    URGENT_SIGNAL = "urgent-signal"
    DISK_FULL = "disk-full"
    WRITE_ERROR = "write-error"
    SYNC_ERROR = "sync-error"
    POWER_CUT_IN_SYNC = "power-cut-in-sync"
    RENAME_ERROR = "rename-error"
    WORKER_CRASHES = "worker-crashes"
    WORKER_CRASHES_BEHIND_REPORT = "worker-crashes-behind-report"
    WORKER_CRASHES_IN_CHECKPOINT = "worker-crashes-in-checkpoint"
    WORKER_CRASHES_BEHIND_RENAME = "worker-crashes-behind-rename"
    WORKER_LOST = "worker-lost"
    WORKER_HANGS = "worker-hangs"
    WORKER_SLOW = "worker-slow"
    STALE_MESSAGE = "stale-message"
    MALFORMED_FRAME = "malformed-frame"
    START_FAILS = "start-fails"
    START_HANGS = "start-hangs"
    SAVE_FAILS = "save-fails"
    SAVE_HANGS = "save-hangs"
    SAVE_RAISES = "save-raises"
    STOP_IGNORED = "stop-ignored"
    CRASH_WHILE_STOPPING = "crash-while-stopping"
    CHECKPOINT_CUT = "checkpoint-cut"
    CHECKPOINT_DELETED = "checkpoint-deleted"
    CLOCK_JUMP = "clock-jump"
    JOURNAL_MOVED = "journal-moved"
    CALLBACK_RAISES = "callback-raises"
    CALLBACK_WANTS_CHECKPOINT = "callback-wants-checkpoint"
    SCHEDULER_RAISES = "scheduler-raises"
    SEARCHER_RAISES = "searcher-raises"


class FaultPoint(enum.IntEnum):
    """Points at which faults can be injected."""

    STEP = 0
    """Any call that leaves the driver: a command, a write, a wait, a callback."""
    WRITE = 1
    SYNC = 2
    RENAME = 3
    REPORT = 4
    START = 5
    SAVE = 6
    EXIT = 7
    WAIT = 8
    """The driver waits."""
    CALLBACK = 9
    SCHEDULER = 10
    SEARCHER = 11


FAULTS_AT: Final[Mapping[FaultPoint, tuple[Fault, ...]]] = {
    FaultPoint.STEP: (
        Fault.DRIVER_DIES, Fault.DRIVER_DIES, Fault.POWER_CUT, Fault.SIGNAL, Fault.URGENT_SIGNAL,
    ),
    FaultPoint.WRITE: (Fault.DISK_FULL, Fault.WRITE_ERROR),
    FaultPoint.SYNC: (Fault.SYNC_ERROR, Fault.POWER_CUT_IN_SYNC),
    FaultPoint.RENAME: (Fault.RENAME_ERROR,),
    FaultPoint.REPORT: (
        Fault.WORKER_CRASHES, Fault.WORKER_CRASHES_BEHIND_REPORT,
        Fault.WORKER_CRASHES_IN_CHECKPOINT, Fault.WORKER_CRASHES_BEHIND_RENAME,
        Fault.WORKER_LOST, Fault.WORKER_HANGS, Fault.WORKER_SLOW, Fault.STALE_MESSAGE,
        Fault.MALFORMED_FRAME,
    ),
    FaultPoint.START: (Fault.START_FAILS, Fault.START_HANGS),
    FaultPoint.SAVE: (Fault.SAVE_FAILS, Fault.SAVE_HANGS, Fault.SAVE_RAISES),
    FaultPoint.EXIT: (Fault.STOP_IGNORED, Fault.CRASH_WHILE_STOPPING),
    FaultPoint.WAIT: (
        Fault.CHECKPOINT_CUT, Fault.CHECKPOINT_DELETED, Fault.CLOCK_JUMP, Fault.JOURNAL_MOVED,
    ),
    FaultPoint.CALLBACK: (
        Fault.CALLBACK_RAISES, Fault.CALLBACK_WANTS_CHECKPOINT, Fault.CALLBACK_WANTS_CHECKPOINT,
    ),
    FaultPoint.SCHEDULER: (Fault.SCHEDULER_RAISES,),
    FaultPoint.SEARCHER: (Fault.SEARCHER_RAISES,),
}  # fmt: skip
"""Faults of each point; one that is named twice is twice as likely."""

MEAN_GAPS: Final[Mapping[FaultPoint, tuple[int, int]]] = {
    FaultPoint.STEP: (250, 60),
    FaultPoint.WRITE: (200, 40),
    FaultPoint.SYNC: (80, 15),
    FaultPoint.RENAME: (30, 8),
    FaultPoint.REPORT: (50, 10),
    FaultPoint.START: (20, 5),
    FaultPoint.SAVE: (8, 3),
    FaultPoint.EXIT: (10, 3),
    FaultPoint.WAIT: (80, 20),
    FaultPoint.CALLBACK: (80, 15),
    FaultPoint.SCHEDULER: (150, 40),
    FaultPoint.SEARCHER: (40, 10),
}
"""Mean number of passes between two faults, for rare and for frequent faults."""

_NEVER: Final = 1 << 60


@final
class FaultInjector:
    """Counts down to the next fault at each point.

    Args:
        rng: The environment's generator.
        mean_gaps: Mean number of passes between two faults at each point; points left out are safe.
        without: Faults that never occur.
        num_faults: Largest number of faults, so that every experiment ends.

    Attributes:
        injected: How often each fault has occurred.
        is_dead: Whether the driver was killed.
        is_power_out: Whether that was a power cut.
    """

    def __init__(
        self,
        rng: Random,
        mean_gaps: Mapping[FaultPoint, int],
        without: Collection[Fault],
        num_faults: int,
    ) -> None:
        """Draw when the first fault occurs at each point."""
        self._rng = rng
        self._mean_gaps = mean_gaps
        self._faults = {
            point: [fault for fault in FAULTS_AT[point] if fault not in without]
            for point in mean_gaps
        }
        self._left = [_NEVER] * len(FaultPoint)
        self._num_left = num_faults
        self.injected: Counter[Fault] = Counter()
        self.is_dead = self.is_power_out = False
        for point in sorted(mean_gaps):
            self._rearm(point)

    def _rearm(self, point: FaultPoint) -> None:
        if self._faults[point]:
            self._left[point] = 1 + int(self._rng.expovariate(1 / self._mean_gaps[point]))

    @property
    def is_calm(self) -> bool:
        """True once no more faults will occur."""
        return self._num_left <= 0

    def draw(self, point: FaultPoint) -> Fault | None:
        """Return the fault that occurs at this point, None for none."""
        left = self._left[point] = self._left[point] - 1
        if left or self._num_left <= 0:
            return None
        self._rearm(point)
        self._num_left -= 1
        fault = self._rng.choice(self._faults[point])
        self.injected[fault] += 1
        return fault

    def kill(self, *, is_power_out: bool) -> DriverKilled:
        """Kill the driver; the caller raises what is returned."""
        self.is_dead, self.is_power_out = True, is_power_out
        return DriverKilled("power cut" if is_power_out else "killed")

    def revive(self) -> None:
        """Begin another driver."""
        self.is_dead = self.is_power_out = False
