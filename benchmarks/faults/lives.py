"""The lives of an experiment: its driver is started, killed, restored and killed again, until one comes to the end."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

from . import bystanders
from .ledger import DIRECTORY, LIFE, Entry, read_ledger
from .load import DURABILITY, LOADERS, NAME, PACE
from .readers import journal_bytes, reported_in

DEADLINE_S = 5.0
"""Until then every process has to be gone."""
_LONGEST_LIFE_S = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """What was seen right after a driver had been killed.

    Attributes:
        life: Which driver.
        num_acknowledged: Results that the ledger holds.
        lost: Those of them that the journal did not.
        gone_s: When the last process was gone, None if some were left.
        left: What was left after the deadline.
    """

    life: int
    num_acknowledged: int
    lost: Sequence[Entry]
    gone_s: float | None
    left: Sequence[str] = ()


def lost_from(segments: Iterable[bytes], acknowledged: Iterable[Entry]) -> list[Entry]:
    """Return those results of the ledger that a journal lacks.

    Args:
        segments: The content of its segments.
        acknowledged: The results.
    """
    recorded = reported_in(segments)
    return [
        entry
        for entry in acknowledged
        if (entry.trial, entry.iteration, entry.value) not in recorded
    ]


@final
class Lives:
    """An experiment under `load`, and the ledger beside it.

    Args:
        root: An empty directory.
        mark: What marks its processes.
        pace_s: Seconds that an iteration takes.
        has_loaders: Whether each trial has processes of its own.
        storage: Where the experiment lies, if it is not to be below `root`; it may be there
            already.
        durability: The experiment's.
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
    ) -> None:
        self.storage = storage or root / "storage"
        self.starts_s: list[float] = []
        self.output = root / "output"
        self._ledger = root / "ledger"
        for directory in (self.storage, self._ledger):
            directory.mkdir(parents=True, exist_ok=True)
        self._mark = mark
        common = {
            bystanders.MARK: mark,
            DIRECTORY: str(self._ledger),
            PACE: str(pace_s),
            DURABILITY: durability,
        }
        self._environment = common | ({LOADERS: "1"} if has_loaders else {})

    @property
    def experiment(self) -> Path:
        """The experiment's own directory."""
        return self.storage / NAME

    def entries(self) -> list[Entry]:
        """Return all of the ledger."""
        return read_ledger(self._ledger)

    def tables(self) -> tuple[bytes, bytes]:
        """Return both tables that the last driver has written; empty ones where it has not."""
        rows, trials = (self.storage / name for name in ("rows.csv", "trials.csv"))
        return (rows.read_bytes(), trials.read_bytes()) if trials.exists() else (b"", b"")

    def live(self, kill_after_s: float | None, victim: str = "driver") -> Kill | int:
        """Run a driver.

        Args:
            kill_after_s: Seconds after its start at which it is killed, None for never.
            victim: Who is killed with it, see `bystanders.KILLS`.

        Returns:
            What was seen after the kill, or the exit status of a driver that came to the end
            before.
        """
        life = len(self.starts_s)
        with self.output.open("ab") as output:
            self.starts_s.append(time.monotonic())
            process = self._start(life, output)
        try:
            return process.wait(_LONGEST_LIFE_S if kill_after_s is None else kill_after_s)
        except subprocess.TimeoutExpired:
            bystanders.KILLS[victim](process.pid, self._mark)
            process.wait()
            return self._look(life)

    def _start(self, life: int, output: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "benchmarks.faults.load", str(self.storage)]
        environment = {**os.environ, **self._environment, LIFE: str(life)}
        return subprocess.Popen(  # noqa: S603  (our own module)
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def _look(self, life: int) -> Kill:
        # At once: nothing may be saved by a process that lives on.
        segments = journal_bytes(self.experiment)
        gone_s = bystanders.gone_after_s(self._mark, DEADLINE_S)
        acknowledged = [entry for entry in self.entries() if entry.kind == "report"]
        return Kill(
            life,
            len(acknowledged),
            lost_from(segments, acknowledged),
            gone_s,
            bystanders.described(self._mark) if gone_s is None else (),
        )

    def leavers(self) -> int:
        """Return how many processes are left that had begun a session of their own."""
        return len(bystanders.marked(self._mark, leavers=True)) - len(bystanders.marked(self._mark))

    def close(self) -> None:
        """Kill all remaining processes."""
        bystanders.clean_up(self._mark)
