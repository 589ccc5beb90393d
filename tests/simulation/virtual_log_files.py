"""Log files of a simulated experiment, and what crashes leave of them.

There is no writer thread; when it would have written is drawn from the seed. A crash of the driver
loses what waits to be written, and may tear a write. Log files are not synced, so a power cut may
remove any end of them.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, final

from tuner.callbacks import (
    BatchWriter,
    CSVLoggerCallback,
    JsonLoggerCallback,
    TBXLoggerCallback,
    TrialFileLogger,
)
from tuner.storage.disk import LocalDisk
from tuner.storage.layout import PARAMS, STAGING_PREFIX

from .fault_injection import DriverKilled

RECENT_S: Final = 0.5
"""A restore rewrites the log files of trials with events so shortly before a crash."""
_MAX_WAIT_TICKS: Final = 20
"""Longest time that an entry waits, well below `RECENT_S`."""
_MAX_BATCHES: Final = (1, 3, 2_000)
_WRITE_RATES: Final = (0.05, 0.3, 1.0)
_REFUSAL_RATES: Final = (0.0, 0.0, 0.1, 0.4)
_MOST_CALLS: Final = 12
"""A crash of the writer occurs within this number of calls."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  (a folder of one's own is made in it)
"""Where files cost least, on the platforms that have it."""


@final
class _FaultyDisk:
    """A disk that fails writes of log files, and kills the writer when asked to.

    Args:
        rng: Generator of the faults of log files.
        refusal_rate: How many writes fail.

    Attributes:
        num_calls_left: Calls until the writer is killed; None for never.
        is_generous: Whether no write fails.
        num_refusals: How many have failed.
    """

    def __init__(self, rng: Random, refusal_rate: float) -> None:
        self._rng = rng
        self._refusal_rate = refusal_rate
        self._disk = LocalDisk()
        self.num_calls_left: int | None = None
        self.is_generous = False
        self.num_refusals = 0

    def __getattr__(self, name: str) -> Any:
        """Delegate every operation that changes nothing."""
        return getattr(self._disk, name)

    def write(self, descriptor: int, data: bytes) -> int:
        """Write all of it, or a part of it and fail or be killed."""
        try:
            self._step()
        except DriverKilled:
            os.write(descriptor, data[: self._rng.randint(0, len(data))])
            raise
        if not self.is_generous and self._refusal_rate and self._rng.random() < self._refusal_rate:
            self.num_refusals += 1
            os.write(descriptor, data[: self._rng.randint(0, len(data) - 1)])
            raise OSError(errno.ENOSPC, "injected")
        return os.write(descriptor, data)

    def rename(self, source: Path, target: Path) -> None:
        """See `Disk.rename`."""
        self._step()
        self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        """See `Disk.remove`; a killed writer removes nothing."""
        if self.num_calls_left == 0:
            raise OSError(errno.EIO, "dead")
        self._disk.remove(path)

    def _step(self) -> None:
        """Kill the writer if it is time."""
        if self.num_calls_left is not None:
            if self.num_calls_left <= 0:
                raise DriverKilled
            self.num_calls_left -= 1


@final
class VirtualLogFiles:
    """The log files of one experiment, in a separate directory.

    Args:
        rng: Generator of their faults; nothing else depends on it.
        seen: What has occurred, for the counters.

    Attributes:
        directory: Where the trials' directories lie.
        loggers: The present driver's.
    """

    def __init__(self, rng: Random, seen: Counter[str]) -> None:
        """Create an empty directory, in memory where possible."""
        self._rng = rng
        self._seen = seen
        self.directory = Path(
            tempfile.mkdtemp(prefix="tuner-faults-", dir=_MEMORY if _MEMORY.is_dir() else None)
        )
        self.loggers: list[TrialFileLogger] = []
        self._disk = _FaultyDisk(rng, rng.choice(_REFUSAL_RATES))
        self._writer = BatchWriter(disk=self._disk, has_thread=False)
        self._write_rate = rng.choice(_WRITE_RATES)
        self._max_batch = rng.choice(_MAX_BATCHES)
        self._waiting_since: int | None = None

    def start_driver(self) -> Sequence[TrialFileLogger]:
        """Return new loggers for another driver."""
        self._writer = BatchWriter(max_batch=self._max_batch, disk=self._disk, has_thread=False)
        self._disk.num_calls_left, self._disk.is_generous = None, False
        self.loggers = [
            JsonLoggerCallback(self._writer),
            CSVLoggerCallback(self._writer),
            TBXLoggerCallback(self._writer),
        ]
        return self.loggers

    def mend(self, *restored: Any) -> None:
        """Let the loggers rewrite incomplete files; see `catch_up_with_journal`."""
        before = self._writer.num_waiting
        for logger in self.loggers:
            logger.catch_up_with_journal(self.directory, *restored)
        self._seen["log files looked at by the next driver"] += self._writer.num_waiting > before

    @property
    def has_tensorboard(self) -> bool:
        """True if files for TensorBoard are written, which needs tensorboardX."""
        return importlib.util.find_spec("tensorboardX") is not None

    def rest(self, now: int) -> None:
        """Perhaps write some of what waits; all of it when it has waited long enough.

        Args:
            now: Ticks since the beginning.
        """
        if not self._writer.num_waiting:
            self._waiting_since = None
            return
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        is_overdue = now - self._waiting_since >= _MAX_WAIT_TICKS
        if not is_overdue and self._rng.random() >= self._write_rate:
            return
        self._disk.is_generous = is_overdue
        with self._counted_refusals():
            if is_overdue:
                self._writer.flush()
            elif self._rng.random() < 0.5:
                self._writer.write_due()
            else:
                self._writer.write_batch()

    def close(self) -> None:
        """Write everything that waits, as a driver that ends normally does."""
        self._disk.is_generous = True
        with self._counted_refusals():
            for logger in self.loggers:
                logger.on_experiment_end([])

    def crash(self, *, is_power_out: bool) -> None:
        """Leave of the files what a crash of their writer, or a power cut, leaves."""
        if self.loggers and self._rng.random() < 0.5:
            self._disk.num_calls_left, self._disk.is_generous = (
                self._rng.randrange(_MOST_CALLS),
                True,
            )
            with contextlib.suppress(DriverKilled), self._counted_refusals():
                while self._writer.write_batch():
                    pass
            self._seen["log file torn by a crash"] += self._disk.num_calls_left == 0
        self.loggers = []
        if is_power_out:
            for path in sorted(self.directory.glob("*/*")):
                self._lose_power(path)

    def _lose_power(self, path: Path) -> None:
        """Truncate a file, its end perhaps zeros; a file that was replaced may be empty."""
        if self._rng.random() < 0.5:
            return
        if path.name.startswith(STAGING_PREFIX) or path.name == PARAMS:
            path.write_bytes(b"")
            return
        data = path.read_bytes()
        kept = data[: self._rng.choice((0, self._rng.randint(0, len(data)), len(data)))]
        num_zeros = self._rng.choice((0, self._rng.randint(0, len(kept))))
        path.write_bytes(kept[: len(kept) - num_zeros] + bytes(num_zeros))
        self._seen["log file cut by a power cut"] += 1

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextlib.contextmanager
    def _counted_refusals(self) -> Iterator[None]:
        before = self._disk.num_refusals
        yield
        self._seen["log file refused by a full disk"] += self._disk.num_refusals > before
