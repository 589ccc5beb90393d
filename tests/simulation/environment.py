"""The environment of a simulated experiment: disk, checkpoints, clocks, acknowledgement log."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

from tuner.core.events import StopRequested
from tuner.core.experiment import Experiment
from tuner.journal.mark import Mark
from tuner.journal.writer import Journal
from tuner.storage.layout import journal_directory

from .acknowledgement_log import AcknowledgementLog, Transcript
from .fault_injection import DriverKilled, Fault, FaultInjector, FaultPoint
from .scenario import Scenario
from .virtual_checkpoints import VirtualCheckpoints
from .virtual_disk import VirtualDisk
from .virtual_log_files import VirtualLogFiles

_DIRECTORY: Final = Path("/virtual/experiment")
TICK_S: Final = 0.005
"""Time passes in such steps, so that things happen at the same moment now and then."""
_SYNC_TICKS: Final = 10
_NUM_REQUESTS: Final = 12
_NUM_IDLE_POINTS: Final = 8
"""Points at which checkpoints may be tampered with while no driver runs."""
_SIGNALS: Final = frozenset({Fault.SIGNAL, Fault.URGENT_SIGNAL})


@final
class Environment:
    """Everything around the engine, and what is known about the engine from outside.

    Args:
        scenario: What is simulated.
        check_every: At every how many turns all that costs time is checked.

    Attributes:
        scenario: What is simulated.
        check_every: See above.
        rng: Generator of all random choices.
        faults: Injects the faults.
        disk: Where the journal lies.
        checkpoints: Where the checkpoints lie.
        logs: The log files, None where none are written.
        directory: The experiment's; only log files lie there on a real disk.
        ack_log: What was acknowledged and announced.
        seen: What has occurred, for the counters.
        now: Ticks since the beginning.
        wall_offset_s: How far the wall clock is off.
        driver_number: Number of the present driver, from 1.
        active: Ticks in which a driver was running.
        declared: The mark that the newest driver to begin a segment has left in the declaration.
        noted: Epoch and first record of the newest segment, as noted in the lock.
        num_power_cuts: Number of power cuts.
        lost: Ticks of those that no driver can know of, since nothing was journalled in them.
        num_turns: How often drivers have waited.
        is_dirty: Whether an event with effects was folded and is not written yet.
        experiment: The present driver's.
        journal: The present driver's.
        request_stop: The present driver's.
        user_rng: Generator of the simulated user's requests.
        num_requests_left: Number of requests that the user will still make.
        violations: What a callback has found, which cannot raise it itself.
        snapshots: Hash of all snapshots that were taken.
    """

    def __init__(self, scenario: Scenario, check_every: int = 8) -> None:
        """Create an environment with an empty disk."""
        self.scenario = scenario
        self.check_every = check_every
        self.rng = scenario.rng("world")
        self.faults = FaultInjector(
            self.rng, scenario.mean_gaps, scenario.without, scenario.num_faults
        )
        self.ack_log = AcknowledgementLog()
        self.disk = VirtualDisk(self.faults, self.rng, self.step, self.ack_log.take_written)
        self.checkpoints = VirtualCheckpoints(self.rng)
        self.seen: Counter[str] = Counter()
        self.logs = VirtualLogFiles(scenario.rng("logs"), self.seen) if scenario.has_logs else None
        self.directory = self.logs.directory if self.logs else _DIRECTORY
        self._journal_directory = journal_directory(self.directory)
        self.now = 0
        self.wall_offset_s = 0.0
        self.driver_number = self.driver_began = 0
        self.active = self.lost = self.num_turns = 0
        self.experiment: Experiment | None = None
        self.journal: Journal | None = None
        self.request_stop: Callable[[StopRequested], None] | None = None
        self.is_dirty = False
        self.user_rng = scenario.rng("whims")
        self.num_requests_left = _NUM_REQUESTS
        self.violations: list[AssertionError] = []
        self.declared = Mark()
        self.noted = (0, 0)
        self.num_power_cuts = 0
        self.snapshots = hashlib.sha256()
        self._noted_before = (0, 0)
        self._synced_at = 0

    def step(self) -> None:
        """Perhaps kill or signal the driver; called at every effect outside the driver.

        Raises:
            DriverKilled: If the driver is killed, or was killed before.
        """
        if self.faults.is_dead:
            raise DriverKilled
        fault = self.faults.draw(FaultPoint.STEP)
        if fault is None:
            return
        if fault not in _SIGNALS:
            raise self.faults.kill(is_power_out=fault is Fault.POWER_CUT)
        if self.request_stop:
            self.request_stop(
                StopRequested(f"signal.{fault}", is_urgent=fault is Fault.URGENT_SIGNAL)
            )

    def rest(self) -> None:
        """Do what happens while a driver waits: group syncs, deletions, tampering."""
        if (
            self.journal
            and self.scenario.durability == "group"
            and self.now - self._synced_at >= _SYNC_TICKS
        ):
            self._sync(self.journal)
        if self.checkpoints.to_delete:
            self.checkpoints.delete_superseded()
        if self.logs:
            self.logs.rest(self.now)
        self._tamper()

    def _tamper(self) -> None:
        match self.faults.draw(FaultPoint.WAIT):
            case None:
                pass
            case Fault.JOURNAL_MOVED:
                if self.experiment:
                    self.disk.move_away(self._journal_directory)
            case Fault.CLOCK_JUMP:
                self.wall_offset_s += self.rng.choice((-86400.0, -3600.0, 3600.0, 86400.0))
            case fault:
                live = self.experiment.trial_table.live.values() if self.experiment else ()
                spared = {name for trial in live for name in (trial.trial_id, trial.source_id)}
                self.checkpoints.tamper(spared, delete=fault is Fault.CHECKPOINT_DELETED)

    def _sync(self, journal: Journal) -> None:
        self._synced_at = self.now
        journal.sync_in_background()
        # After a sync has failed none is tried before the driver has mended that, at its next
        # write, in a segment beside the doubtful one.
        if (
            self.disk.is_safe(self._journal_directory)
            or self.read_platter().records == self.read_journal().records
        ):
            self.ack_log.num_safe = len(self.ack_log.acknowledged)

    def sleep(self, seconds: float) -> None:
        """Let time pass while the storage fails."""
        self.step()
        self.now += max(round(seconds / TICK_S), 1)

    def start_driver(self) -> None:
        """Begin another driver."""
        self.faults.revive()
        self.disk.put_back()
        self.driver_number += 1
        self.driver_began = self.now
        self._synced_at = self.now
        self.experiment = self.journal = self.request_stop = None
        self.is_dirty = False
        self.ack_log.paused = {}
        self.ack_log.lost_in_row.clear()
        self.ack_log.validations_lost_in_row.clear()

    def note_segment(self, epoch: int, segment: int) -> None:
        """Note in the lock that a segment has been begun."""
        self.step()
        self._noted_before, self.noted = self.noted, (epoch, segment)

    def declare(self, epoch: int) -> None:
        """Note in the declaration that a driver has begun its first segment."""
        self.step()
        self.declared = Mark(epoch, 0, self.boot_id, self.scenario.durability)

    @property
    def boot_id(self) -> str:
        """Identifier of this boot of the machine."""
        return f"start {self.num_power_cuts}"

    def mark(self) -> Mark:
        """Return what the lock and the declaration say about the journal."""
        epoch, segment = self.noted
        return replace(self.declared, epoch=max(self.declared.epoch, epoch), segment=segment)

    def end_driver(self) -> Transcript:
        """End the driver, and return the journal that it has left."""
        self.active += self.now - self.driver_began
        if self.faults.is_power_out:
            self.disk.lose_power()
            self.num_power_cuts += 1
            self.noted = self._noted_before  # the lock is not synced
        else:
            self.disk.crash()
        if self.logs and self.faults.is_dead:
            self.logs.crash(is_power_out=self.faults.is_power_out)
        if not self.faults.is_dead:  # a driver that ends normally deletes what it may
            self.checkpoints.delete_superseded()
        self.checkpoints.to_delete = []
        self.experiment = None
        for _ in range(_NUM_IDLE_POINTS):
            self._tamper()
        left = self.read_journal()
        self.lost = (
            self.active - round(left.records[-1]["t"] / TICK_S) if left.records else self.active
        )
        self.now += self.rng.randint(0, 1000)
        return left

    def read_journal(self) -> Transcript:
        """Return what the journal holds, read without the engine's code."""
        return self.ack_log.reader.transcript(self.journal_files())

    def journal_files(self) -> dict[str, bytes]:
        """Return the journal's files; nothing fails here."""
        return self.disk.contents(self._journal_directory)

    def read_platter(self) -> Transcript:
        """Return what the journal would hold if the power failed in the worst way."""
        return self.ack_log.reader.transcript(self.disk.safe_contents(self._journal_directory))

    def close(self) -> None:
        """Remove the log files from the real disk."""
        if self.logs:
            self.logs.remove()

    def budget_used_s(self) -> float:
        """Return how long drivers have run, as far as the present one can know."""
        return (self.active - self.lost + self.now - self.driver_began) * TICK_S

    def value_of(self, trial_id: str, config: Mapping[str, Any], num_steps: int) -> float:
        """Return a trial's value after a number of steps; it depends on nothing else."""
        return (
            float(config["x"]) / num_steps
            + (sum(trial_id.encode()) * num_steps * 7919 % 1000) / 10_000
        )
