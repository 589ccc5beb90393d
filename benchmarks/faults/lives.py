"""Runs an experiment whose driver is killed and restored repeatedly.

A life of an experiment is one run of its driver.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

from . import bystanders
from .ledger import DIRECTORY, LEDGER, LIFE, Entry, read_ledger
from .load import DURABILITY, LOADERS, NAME, PACE
from .readers import journal_bytes, reported_in

DEADLINE_S = 5.0
"""Seconds after a kill within which every process has to be gone."""
_LONGEST_LIFE_S = 120.0
_LOOK_S = 0.05
_LONGEST_SIEGE_S = 900.0


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """State of an experiment right after its driver was killed.

    Attributes:
        life: Number of the driver, from 0.
        num_acknowledged: Number of results in the ledger.
        lost: The results in the ledger that the journal lacks.
        gone_s: Seconds until the last process was gone, None if some were left.
        left: Descriptions of the processes left after the deadline.
    """

    life: int
    num_acknowledged: int
    lost: Sequence[Entry]
    gone_s: float | None
    left: Sequence[str] = ()


def lost_from(segments: Iterable[bytes], acknowledged: Iterable[Entry]) -> list[Entry]:
    """Return the acknowledged results that a journal lacks.

    Args:
        segments: The content of the journal's segments.
        acknowledged: The results in the ledger.
    """
    recorded = reported_in(segments)
    return [
        entry
        for entry in acknowledged
        if (entry.trial, entry.iteration, entry.value) not in recorded
    ]


@final
class Lives:
    """An experiment that runs `load`, and its ledger.

    Args:
        root: An empty directory.
        mark: Mark of its processes, see `bystanders.MARK`.
        pace_s: Seconds per iteration.
        has_loaders: Whether each trial starts loader processes.
        storage: Storage path of the experiment, by default below `root`; the experiment may exist
            already.
        durability: Durability of the experiment's journal.
        environment: More environment variables for the driver.
        deadline_s: Seconds after a kill within which every process has to be gone.
    """

    def __init__(
        self,
        root: Path,
        mark: str,
        pace_s: float,
        *,
        has_loaders: bool = False,
        storage: Path | None = None,
        durability: str = "group",
        environment: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.storage = storage or root / "storage"
        self.starts_s: list[float] = []
        self.output = root / "output"
        self._ledger = root / LEDGER
        for directory in (self.storage, self._ledger):
            directory.mkdir(parents=True, exist_ok=True)
        self._mark = mark
        self._deadline_s = deadline_s
        common = {
            **(environment or {}),
            bystanders.MARK: mark,
            DIRECTORY: str(self._ledger),
            PACE: str(pace_s),
            DURABILITY: durability,
        }
        self._environment = common | ({LOADERS: "1"} if has_loaders else {})

    @property
    def experiment(self) -> Path:
        """The directory of the experiment."""
        return self.storage / NAME

    def entries(self) -> list[Entry]:
        """Return all entries of the ledger."""
        return read_ledger(self._ledger)

    def tables(self) -> tuple[bytes, bytes]:
        """Return both tables that the last driver has written, empty if there are none."""
        rows, trials = (self.storage / name for name in ("rows.csv", "trials.csv"))
        return (rows.read_bytes(), trials.read_bytes()) if trials.exists() else (b"", b"")

    @property
    def num_reports(self) -> int:
        """How many results are acknowledged."""
        return sum(path.read_bytes().count(b'"report"') for path in self._ledger.glob("*.jsonl"))

    def live(
        self,
        kill_after_s: float | None,
        victim: str = "driver",
        *,
        has_begun: Callable[[], bool] = lambda: True,
    ) -> Kill | int:
        """Start a driver, and wait until it ends or kill it.

        Args:
            kill_after_s: Seconds after its start at which it is killed, None for never.
            victim: Which processes are killed, see `bystanders.KILLS`.
            has_begun: Whether the seconds begin to count.

        Returns:
            The state after the kill, or the exit status of a driver that ended before.
        """
        life = len(self.starts_s)
        process = self._start(life)
        while not has_begun() and process.poll() is None:
            time.sleep(_LOOK_S)
        try:
            return process.wait(_LONGEST_LIFE_S if kill_after_s is None else kill_after_s)
        except subprocess.TimeoutExpired:
            bystanders.KILLS[victim](process.pid, self._mark)
            process.wait()
            return self._look(life)

    def live_through(self, pauses_s: Iterator[float], inject: Callable[[], object]) -> int:
        """Start a driver, have faults happen beside it until it ends, and return its exit status.

        Args:
            pauses_s: Seconds before each fault.
            inject: Has a fault happen.
        """
        process = self._start(len(self.starts_s))
        end_s = self.starts_s[-1] + _LONGEST_SIEGE_S
        while (rest_s := end_s - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(next(pauses_s), rest_s))
            inject()
        process.kill()
        return process.wait()

    def _start(self, life: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "benchmarks.faults.load", str(self.storage)]
        environment = {**os.environ, **self._environment, LIFE: str(life)}
        (self._ledger / LIFE).write_text(str(life), encoding="utf-8")
        with self.output.open("ab") as output:
            self.starts_s.append(time.monotonic())
            return subprocess.Popen(  # noqa: S603  (our own module)
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _look(self, life: int) -> Kill:
        # Read the journal first: what a surviving process writes later must not count.
        segments = journal_bytes(self.experiment)
        gone_s = bystanders.gone_after_s(self._mark, self._deadline_s)
        acknowledged = [entry for entry in self.entries() if entry.kind == "report"]
        return Kill(
            life,
            len(acknowledged),
            lost_from(segments, acknowledged),
            gone_s,
            bystanders.described(self._mark) if gone_s is None else (),
        )

    def leavers(self) -> int:
        """Return the number of remaining processes in separate sessions."""
        return len(bystanders.marked(self._mark, leavers=True)) - len(bystanders.marked(self._mark))

    def close(self) -> None:
        """Kill all remaining processes."""
        bystanders.clean_up(self._mark)
