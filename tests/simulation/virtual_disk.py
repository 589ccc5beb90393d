"""Disk in memory that keeps of a crash and a power cut what a real disk may keep."""

from __future__ import annotations

import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import final

from tuner.storage.disk import Whereabouts

from .fault_injection import DriverKilled, Fault, FaultInjector, FaultPoint

_FULL_FOR = 4
"""Largest number of further writes that fail until there is space again."""


class _File:
    """A file: its content in the page cache, and how much of it is durable.

    Attributes:
        content: What every process reads.
        num_safe: How many of its bytes were synced.
        holes: Ranges that a failed sync has dropped: the kernel calls them clean, and no later sync
            writes them.
        cut_off: What stood behind the end before the file was cut, which a power cut may bring back
            until the next sync.
    """

    __slots__ = ("content", "cut_off", "holes", "num_safe")

    def __init__(self) -> None:
        self.content = bytearray()
        self.num_safe = 0
        self.holes: list[tuple[int, int]] = []
        self.cut_off = b""

    def sync(self) -> None:
        self.num_safe = len(self.content)
        self.cut_off = b""

    @property
    def is_safe(self) -> bool:
        return self.num_safe == len(self.content) and not self.holes

    def drop_dirty(self) -> None:
        self.holes.append((self.num_safe, len(self.content)))

    def truncate(self, size: int) -> None:
        if size < self.num_safe:
            self.cut_off = bytes(self.content[size : self.num_safe])
        self.holes = [(start, min(end, size)) for start, end in self.holes if start < size]
        del self.content[size:]
        self.num_safe = min(self.num_safe, size)

    def lose_power(self, rng: Random) -> None:
        """Keep what was synced and any part of the rest, the end of it perhaps zeros."""
        if self.cut_off and rng.random() < 0.5:
            self.content[self.num_safe :] = self.cut_off
        for start, end in self.holes:
            self.content[start:end] = bytes(len(self.content[start:end]))
        rest = len(self.content) - self.num_safe
        size = self.num_safe + rng.choice((0, rest, rng.randint(0, rest)))
        num_zeros = rng.choice((0, rng.randint(0, size - self.num_safe)))
        self.content[size - num_zeros :] = bytes(num_zeros)
        self.holes = []
        self.sync()


@final
class VirtualDisk:
    """A `tuner.storage.disk.Disk` whose every call may fail or be the driver's last.

    A killed process loses nothing that was written. A power cut keeps of each file what was synced
    and any part of the rest, and of each directory's entries the synced or the latest ones, each on
    its own: so a rename may reach the platter before the data, and one file before another that was
    written earlier. After a failed sync the kernel takes the unsynced pages for clean, as Linux
    does.

    Args:
        faults: Injects the faults.
        rng: The environment's generator.
        step: Called before each call; may raise `DriverKilled`.
        on_write: Called with the bytes of each complete write, in however many calls.

    Attributes:
        num_refusals: How many calls have failed.
        seen: What has occurred, for the counters.
    """

    def __init__(
        self,
        faults: FaultInjector,
        rng: Random,
        step: Callable[[], None],
        on_write: Callable[[bytes], None],
    ) -> None:
        """Create an empty disk."""
        self._faults = faults
        self._rng = rng
        self._step = step
        self._on_write = on_write
        self._entries: dict[str, dict[str, _File]] = {}
        self._safe_entries: dict[str, dict[str, _File]] = {}
        self._unsafe_directories: set[str] = set()
        self._open: dict[int, _File] = {}
        self._begun: dict[int, bytes] = {}
        """What was taken of writes whose rest has not come yet, by descriptor."""
        self._numbers = itertools.count(1)
        self._full_for = 0
        self._moved: set[str] = set()
        self.num_refusals = 0
        self.seen: Counter[str] = Counter()

    def names(self, directory: Path) -> list[str]:
        """See `Disk.names`."""
        self._step()
        return list(self._entries.get(os.fspath(directory), ()))

    def read(self, path: Path) -> bytes:
        """See `Disk.read`."""
        self._step()
        return bytes(self._find(path).content)

    def create(self, path: Path) -> int:
        """See `Disk.create`."""
        self._step()
        directory, name = _place(path)
        entries = self._entries.setdefault(directory, {})
        if name in entries:
            raise FileExistsError(errno.EEXIST, "exists", os.fspath(path))
        entries[name] = _File()
        return self._descriptor_of(entries[name])

    def write(self, descriptor: int, data: bytes) -> int:
        """See `Disk.write`."""
        file, was_dead = self._open[descriptor], self._faults.is_dead
        try:
            self._step()
        except DriverKilled:
            # It was killed inside the call, which may have taken any part of the data.
            if not was_dead:
                file.content += data[: self._rng.choice((0, self._rng.randint(0, len(data))))]
            raise
        if self._full_for or (fault := self._faults.draw(FaultPoint.WRITE)) is Fault.DISK_FULL:
            return self._write_short(descriptor, data)
        file.content += data[: self._rng.randint(0, len(data))] if fault else data
        if fault:
            raise self._refusal(errno.EIO)
        self._on_write(self._begun.pop(descriptor, b"") + data)
        return len(data)

    def _write_short(self, descriptor: int, data: bytes) -> int:
        self._full_for = self._full_for - 1 if self._full_for else self._rng.randint(0, _FULL_FOR)
        taken = self._rng.choice((0, self._rng.randint(0, len(data) - 1)))
        error = self._refusal(errno.ENOSPC)
        if not taken:
            raise error
        self._open[descriptor].content += data[:taken]
        self._begun[descriptor] = self._begun.get(descriptor, b"") + data[:taken]
        return taken

    def _refusal(self, code: int) -> OSError:
        self.num_refusals += 1
        return OSError(code, "injected")

    def sync(self, descriptor: int) -> None:
        """See `Disk.sync`."""
        file = self._open[descriptor]
        self._step()
        match self._faults.draw(FaultPoint.SYNC):
            case Fault.SYNC_ERROR:
                file.drop_dirty()
                raise self._refusal(errno.EIO)
            case Fault.POWER_CUT_IN_SYNC:
                raise self._faults.kill(is_power_out=True)
            case _:
                file.sync()

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """See `Disk.truncate`."""
        self._step()
        self.seen["write cut back"] += 1
        self._open[descriptor].truncate(size_bytes)
        self._begun.pop(descriptor, None)

    def close(self, descriptor: int) -> None:
        """See `Disk.close`."""
        del self._open[descriptor]
        self._begun.pop(descriptor, None)

    def hold(self, descriptor: int) -> None:
        """See `Disk.hold`; there is no other process."""

    def whereabouts(self, descriptor: int, path: Path) -> Whereabouts:
        """See `Disk.whereabouts`."""
        directory, name = _place(path)
        is_in_place = (
            directory not in self._moved
            and self._entries[directory].get(name) is self._open[descriptor]
        )
        return Whereabouts(is_in_place)

    def rename(self, source: Path, target: Path) -> None:
        """See `Disk.rename`."""
        self._step()
        if self._faults.draw(FaultPoint.RENAME):
            raise self._refusal(errno.EIO)
        file = self._find(source)
        source_directory, source_name = _place(source)
        directory, name = _place(target)
        self._count_rename(name, file, is_new=name not in self._entries[directory])
        del self._entries[source_directory][source_name]
        self._entries[directory][name] = file

    def _count_rename(self, name: str, file: _File, *, is_new: bool) -> None:
        self.seen["torn end cut off"] += name.startswith("torn-")
        self.seen["lines written again after a failed sync"] += (
            is_new and name.endswith(".log") and file.content.count(b"\n") > 1
        )
        self.seen["several segments"] += name.endswith(".log") and not name.endswith("00001.log")

    def remove(self, path: Path) -> None:
        """See `Disk.remove`."""
        self._step()
        self._find(path)
        directory, name = _place(path)
        del self._entries[directory][name]

    def make_directory(self, path: Path) -> None:
        """See `Disk.make_directory`."""
        self._step()
        if os.fspath(path) not in self._entries:
            self._entries[os.fspath(path)] = {}
            self._unsafe_directories.add(os.fspath(path))

    def sync_directory(self, path: Path) -> None:
        """See `Disk.sync_directory`."""
        self._step()
        name = os.fspath(path)
        self._safe_entries[name] = dict(self._entries.get(name, {}))
        self._unsafe_directories = {
            inner for inner in self._unsafe_directories if _place(inner)[0] != name
        }

    def _find(self, path: Path) -> _File:
        try:
            directory, name = _place(path)
            return self._entries[directory][name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "not found", os.fspath(path)) from None

    def _descriptor_of(self, file: _File) -> int:
        number = next(self._numbers)
        self._open[number] = file
        return number

    def move_away(self, directory: Path) -> None:
        """Move a directory: until `put_back`, open files are not in their places."""
        self._moved.add(os.fspath(directory))

    @property
    def has_moved(self) -> bool:
        """True while a directory is not in its place."""
        return bool(self._moved)

    def put_back(self) -> bool:
        """Put back what was moved away, and return whether something was."""
        moved, self._moved = self._moved, set()
        return bool(moved)

    def crash(self) -> None:
        """Close the descriptors of a killed process; what it wrote stays."""
        self._open = {}
        self._full_for = 0

    def lose_power(self) -> None:
        """Cut the power: keep what was synced and any part of the rest."""
        rng = self._rng
        for name in [name for name in self._unsafe_directories if rng.random() < 0.5]:
            self.seen["journal vanished in a power cut"] += 1
            del self._entries[name]
            self._safe_entries.pop(name, None)
        for directory, latest in self._entries.items():
            safe = self._safe_entries.get(directory, {})
            kept = {
                name: rng.choice((safe.get(name), latest.get(name))) for name in {**safe, **latest}
            }
            self._entries[directory] = {
                name: file for name, file in kept.items() if file is not None
            }
        survivors = {
            id(file): file for entries in self._entries.values() for file in entries.values()
        }
        for file in survivors.values():
            file.lose_power(rng)
        self._safe_entries = {
            directory: dict(entries) for directory, entries in self._entries.items()
        }
        self._unsafe_directories = set()
        self.crash()

    def contents(self, directory: Path) -> dict[str, bytes]:
        """Return every file of a directory; nothing fails here."""
        return {
            name: bytes(file.content)
            for name, file in self._entries.get(os.fspath(directory), {}).items()
        }

    def is_safe(self, directory: Path) -> bool:
        """Return whether a directory's journal segments are entirely durable."""
        name = os.fspath(directory)
        latest, safe = self._entries.get(name, {}), self._safe_entries.get(name, {})
        return all(
            safe.get(entry) is file and file.is_safe
            for entry, file in latest.items()
            if entry.endswith(".log")
        )

    def safe_contents(self, directory: Path) -> dict[str, bytes]:
        """Return the durable part of every file of a directory."""
        safe = self._safe_entries.get(os.fspath(directory), {})
        return {
            name: bytes(file.content[: min([file.num_safe, *(start for start, _ in file.holes)])])
            for name, file in safe.items()
        }


def _place(path: Path | str) -> tuple[str, str]:
    """Return directory and name of an absolute path; `Path.parent` is much slower."""
    directory, _, name = os.fspath(path).rpartition(os.sep)
    return directory or os.sep, name
