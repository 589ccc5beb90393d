"""One simulated world: disk, checkpoints, time, and the bystander who writes down what happens in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

from tuner.core.events import StopRequested
from tuner.core.experiment import Experiment
from tuner.journal.completeness import Mark
from tuner.journal.writer import Journal
from tuner.storage.layout import journal_directory

from .acknowledgement_log import Ledger, Transcript
from .fault_injection import DriverDied, Fate, Fault, Occasion
from .scenario import Scenario
from .virtual_checkpoints import VirtualCheckpoints
from .virtual_disk import VirtualDisk
from .virtual_log_files import Logs

_NOWHERE: Final = Path("/virtual/experiment")
TICK_S: Final = 0.005
"""Time passes in such steps, so that things happen at the same moment now and then."""
_SYNC_TICKS: Final = 10
_NUM_WISHES: Final = 12
_MISCHIEFS_BETWEEN: Final = 8
"""Occasions for mischief while no driver lives."""
_POWERFUL: Final = frozenset({Fault.SIGNAL, Fault.URGENT_SIGNAL})


@final
class World:
    """Everything around the engine, and what is known about the engine from outside.

    Args:
        scenario: What is simulated.
        check_every: At every how many turns all that costs time is checked.

    Attributes:
        scenario: What is simulated.
        check_every: See above.
        chance: The generator of all that happens by chance.
        fate: What goes wrong.
        disk: Where the journal lies.
        checkpoints: Where the checkpoints lie.
        logs: The log files, None where nobody writes any.
        directory: The experiment's; only log files lie there on a real disk.
        ledger: The bystander's book.
        seen: What has occurred, for the counters.
        now: Ticks since the beginning.
        wall_offset_s: How far the wall clock is off.
        session: Number of the driver that lives, from 1.
        active: Ticks in which a driver has lived.
        declared: The mark that the newest driver to begin a segment has left in the declaration.
        noted: Epoch and first record of the newest segment, as the lock tells.
        num_power_cuts: How often the machine has been started anew.
        lost: Ticks of those that no driver can know of, since nothing was written down in them.
        num_turns: How often drivers have waited.
        is_dirty: Whether something was folded from which something follows, and it is not written yet.
        experiment: The living driver's.
        journal: The living driver's.
        request_stop: The living driver's.
        whims: The generator of what the user wants.
        num_wishes_left: How often the user will still want something.
    """

    def __init__(self, scenario: Scenario, check_every: int = 8) -> None:
        """Create a world in which nothing has happened yet."""
        self.scenario = scenario
        self.check_every = check_every
        self.chance = scenario.chance("world")
        self.fate = Fate(self.chance, scenario.mean_gaps, scenario.without, scenario.num_strikes)
        self.ledger = Ledger()
        self.disk = VirtualDisk(self.fate, self.chance, self.step, self.ledger.take_written)
        self.checkpoints = VirtualCheckpoints(self.chance)
        self.seen: Counter[str] = Counter()
        self.logs = Logs(scenario.chance("logs"), self.seen) if scenario.has_logs else None
        self.directory = self.logs.directory if self.logs else _NOWHERE
        self._journal_directory = journal_directory(self.directory)
        self.now = 0
        self.wall_offset_s = 0.0
        self.session = self.session_began = 0
        self.active = self.lost = self.num_turns = 0
        self.experiment: Experiment | None = None
        self.journal: Journal | None = None
        self.request_stop: Callable[[StopRequested], None] | None = None
        self.is_dirty = False
        self.whims = scenario.chance("whims")
        self.num_wishes_left = _NUM_WISHES
        self.declared = Mark()
        self.noted = (0, 0)
        self.num_power_cuts = 0
        self._noted_before = (0, 0)
        self._synced_at = 0

    def step(self) -> None:
        """Let the driver die, or hear a signal, here; called wherever something leaves it.

        Raises:
            DriverDied: If it dies, or has died before.
        """
        if self.fate.is_dead:
            raise DriverDied
        fault = self.fate.strike(Occasion.STEP)
        if fault is None:
            return
        if fault not in _POWERFUL:
            raise self.fate.die(is_power_out=fault is Fault.POWER_CUT)
        if self.request_stop:
            self.request_stop(
                StopRequested(f"signal.{fault}", is_urgent=fault is Fault.URGENT_SIGNAL)
            )

    def rest(self) -> None:
        """Let happen what happens while a driver waits: a sync in time, a deletion, somebody's mischief."""
        if (
            self.journal
            and self.scenario.durability == "group"
            and self.now - self._synced_at >= _SYNC_TICKS
        ):
            self._sync(self.journal)
        if self.checkpoints.doomed:
            self.checkpoints.delete_doomed()
        if self.logs:
            self.logs.rest(self.now)
        self._suffer_mischief()

    def _suffer_mischief(self) -> None:
        match self.fate.strike(Occasion.REST):
            case None:
                pass
            case Fault.JOURNAL_MOVED:
                if self.experiment:
                    self.disk.move_away(self._journal_directory)
            case Fault.CLOCK_JUMP:
                self.wall_offset_s += self.chance.choice((-86400.0, -3600.0, 3600.0, 86400.0))
            case fault:
                live = self.experiment.trial_table.live.values() if self.experiment else ()
                spared = {name for trial in live for name in (trial.trial_id, trial.source_id)}
                self.checkpoints.harm(spared, delete=fault is Fault.CHECKPOINT_DELETED)

    def _sync(self, journal: Journal) -> None:
        self._synced_at = self.now
        journal.sync_in_background()
        # After a sync has failed none is tried before the driver has mended that, at its next write, in a segment beside the doubtful one.
        if (
            self.disk.is_safe(self._journal_directory)
            or self.read_platter().records == self.read_journal().records
        ):
            self.ledger.num_safe = len(self.ledger.acknowledged)

    def sleep(self, seconds: float) -> None:
        """Let time pass while the storage refuses."""
        self.step()
        self.now += max(round(seconds / TICK_S), 1)

    def begin_session(self) -> None:
        """Let another driver live."""
        self.fate.live_again()
        self.disk.put_back()
        self.session += 1
        self.session_began = self.now
        self._synced_at = self.now
        self.experiment = self.journal = self.request_stop = None
        self.is_dirty = False
        self.ledger.paused = {}

    def note_segment(self, epoch: int, segment: int) -> None:
        """Take down in the lock that a segment has been begun."""
        self.step()
        self._noted_before, self.noted = self.noted, (epoch, segment)

    def declare(self, epoch: int) -> None:
        """Take down in the declaration that a driver has begun its first segment."""
        self.step()
        self.declared = Mark(epoch, 0, self.boot_id, self.scenario.durability)

    @property
    def boot_id(self) -> str:
        """What tells this start of the machine from all others."""
        return f"start {self.num_power_cuts}"

    def mark(self) -> Mark:
        """Return what is noted of the journal outside of it."""
        epoch, segment = self.noted
        return replace(self.declared, epoch=max(self.declared.epoch, epoch), segment=segment)

    def end_session(self) -> Transcript:
        """Take note that no driver lives any more, and return what it has left."""
        self.active += self.now - self.session_began
        if self.fate.is_power_out:
            self.disk.lose_power()
            self.num_power_cuts += 1
            self.noted = self._noted_before  # nobody syncs the lock
        else:
            self.disk.crash()
        if self.logs and self.fate.is_dead:
            self.logs.die(is_power_out=self.fate.is_power_out)
        if not self.fate.is_dead:  # who ends in good order deletes what it may
            self.checkpoints.delete_doomed()
        self.checkpoints.doomed = []
        self.experiment = None
        for _ in range(_MISCHIEFS_BETWEEN):
            self._suffer_mischief()
        left = self.read_journal()
        self.lost = (
            self.active - round(left.records[-1]["t"] / TICK_S) if left.records else self.active
        )
        self.now += self.chance.randint(0, 1000)
        return left

    def read_journal(self) -> Transcript:
        """Return what the journal holds, as a bystander reads it."""
        return self.ledger.reader.transcript(self.journal_files())

    def journal_files(self) -> dict[str, bytes]:
        """Return the journal's files, as a bystander sees them."""
        return self.disk.contents(self._journal_directory)

    def read_platter(self) -> Transcript:
        """Return what the journal would hold if the power failed in the worst way."""
        return self.ledger.reader.transcript(self.disk.safe_contents(self._journal_directory))

    def close(self) -> None:
        """Leave nothing of it on the real disk."""
        if self.logs:
            self.logs.remove()

    def budget_used_s(self) -> float:
        """Return how long drivers have lived, as far as the living one can know."""
        return (self.active - self.lost + self.now - self.session_began) * TICK_S

    def value_of(self, trial_id: str, config: Mapping[str, Any], num_steps: int) -> float:
        """Return what a trial's training comes to after so many steps; nothing else plays a part."""
        return (
            float(config["x"]) / num_steps
            + (sum(trial_id.encode()) * num_steps * 7919 % 1000) / 10_000
        )
