"""What goes wrong, and when: every misfortune of a simulated world is drawn here, from one seed."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Mapping
from random import Random
from typing import Final, final


class DriverDied(BaseException):
    """The driver's process is gone: nothing that it does afterwards, in a ``finally`` say, has any effect."""


class PluginBroke(Exception):
    """A scheduler or a searcher has raised."""


class Fault(enum.StrEnum):
    """Everything that can go wrong."""

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


class Occasion(enum.IntEnum):
    """When something can go wrong."""

    STEP = 0
    """Any call that leaves the driver: a command, a write, a wait, a word to an observer."""
    WRITE = 1
    SYNC = 2
    RENAME = 3
    REPORT = 4
    START = 5
    SAVE = 6
    LEAVE = 7
    REST = 8
    """The driver waits."""
    NOTICE = 9
    JUDGEMENT = 10
    SUGGESTION = 11


FAULTS_AT: Final[Mapping[Occasion, tuple[Fault, ...]]] = {
    Occasion.STEP: (Fault.DRIVER_DIES, Fault.DRIVER_DIES, Fault.POWER_CUT, Fault.SIGNAL, Fault.URGENT_SIGNAL),
    Occasion.WRITE: (Fault.DISK_FULL, Fault.WRITE_ERROR),
    Occasion.SYNC: (Fault.SYNC_ERROR, Fault.POWER_CUT_IN_SYNC),
    Occasion.RENAME: (Fault.RENAME_ERROR,),
    Occasion.REPORT: (
        Fault.WORKER_CRASHES, Fault.WORKER_CRASHES_BEHIND_REPORT, Fault.WORKER_CRASHES_IN_CHECKPOINT, Fault.WORKER_CRASHES_BEHIND_RENAME,
        Fault.WORKER_LOST, Fault.WORKER_HANGS, Fault.WORKER_SLOW, Fault.STALE_MESSAGE, Fault.MALFORMED_FRAME,
    ),
    Occasion.START: (Fault.START_FAILS, Fault.START_HANGS),
    Occasion.SAVE: (Fault.SAVE_FAILS, Fault.SAVE_HANGS, Fault.SAVE_RAISES),
    Occasion.LEAVE: (Fault.STOP_IGNORED, Fault.CRASH_WHILE_STOPPING),
    Occasion.REST: (Fault.CHECKPOINT_CUT, Fault.CHECKPOINT_DELETED, Fault.CLOCK_JUMP, Fault.JOURNAL_MOVED),
    Occasion.NOTICE: (Fault.CALLBACK_RAISES, Fault.CALLBACK_WANTS_CHECKPOINT, Fault.CALLBACK_WANTS_CHECKPOINT),
    Occasion.JUDGEMENT: (Fault.SCHEDULER_RAISES,),
    Occasion.SUGGESTION: (Fault.SEARCHER_RAISES,),
}  # fmt: skip
"""Which faults each occasion can bring; one that is named twice is twice as likely."""

MEAN_GAPS: Final[Mapping[Occasion, tuple[int, int]]] = {
    Occasion.STEP: (250, 60),
    Occasion.WRITE: (200, 40),
    Occasion.SYNC: (80, 15),
    Occasion.RENAME: (30, 8),
    Occasion.REPORT: (50, 10),
    Occasion.START: (20, 5),
    Occasion.SAVE: (8, 3),
    Occasion.LEAVE: (10, 3),
    Occasion.REST: (80, 20),
    Occasion.NOTICE: (80, 15),
    Occasion.JUDGEMENT: (150, 40),
    Occasion.SUGGESTION: (40, 10),
}
"""After how many occasions something goes wrong on average, where that is rare and where it is often."""

_NEVER: Final = 1 << 60


@final
class Fate:
    """Counts occasions down to the next misfortune.

    Args:
        chance: The world's generator.
        mean_gaps: After how many occasions of each kind something goes wrong on average; those that are left out are safe.
        without: Faults that never occur.
        num_strikes: How many misfortunes there may be in all, so that every story comes to an end.

    Attributes:
        struck: How often each fault has occurred.
        is_dead: Whether the driver's process is gone.
        is_power_out: Whether it went with the power.
    """

    def __init__(
        self,
        chance: Random,
        mean_gaps: Mapping[Occasion, int],
        without: Collection[Fault],
        num_strikes: int,
    ) -> None:
        """Draw when something first goes wrong."""
        self._chance = chance
        self._mean_gaps = mean_gaps
        self._faults = {
            occasion: [fault for fault in FAULTS_AT[occasion] if fault not in without]
            for occasion in mean_gaps
        }
        self._left = [_NEVER] * len(Occasion)
        self._num_left = num_strikes
        self.struck: Counter[Fault] = Counter()
        self.is_dead = self.is_power_out = False
        for occasion in sorted(mean_gaps):
            self._rearm(occasion)

    def _rearm(self, occasion: Occasion) -> None:
        if self._faults[occasion]:
            self._left[occasion] = 1 + int(self._chance.expovariate(1 / self._mean_gaps[occasion]))

    @property
    def is_calm(self) -> bool:
        """Whether nothing will go wrong any more."""
        return self._num_left <= 0

    def strike(self, occasion: Occasion) -> Fault | None:
        """Return what goes wrong at this occasion; None, mostly, for nothing."""
        left = self._left[occasion] = self._left[occasion] - 1
        if left or self._num_left <= 0:
            return None
        self._rearm(occasion)
        self._num_left -= 1
        fault = self._chance.choice(self._faults[occasion])
        self.struck[fault] += 1
        return fault

    def die(self, *, is_power_out: bool) -> DriverDied:
        """Let the driver die here and now; the caller raises what is returned."""
        self.is_dead, self.is_power_out = True, is_power_out
        return DriverDied("power cut" if is_power_out else "killed")

    def live_again(self) -> None:
        """Let another driver live."""
        self.is_dead = self.is_power_out = False
