"""What a driver has left behind that died together with its zygote.

All processes of an experiment die with either of the two, but for one kind: a process that training code has started and that has begun
a session of its own, where driver and zygote are killed at the same moment. So the driver's name is written into the environment of
the zygote, from which all processes of trials have it, and which the system shows. Whatever carries the name of a driver that is dead
is left over, and whoever takes up the experiment next ends it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

VARIABLE: Final = "TUNER_DRIVER"
_PROC: Final = Path("/proc")
_START_TIME: Final = 19
"""Place of the start time among the fields of ``/proc/<pid>/stat`` that follow the program's name."""
_ENTRY: Final = VARIABLE.encode() + b"="
_NUM_PARTS: Final = 4


@final
@dataclass(frozen=True, slots=True)
class DriverName:
    """What tells a driver from every other process on the machine, and what it drives.

    Attributes:
        pid: Its process id.
        started: When it was started, in the kernel's ticks since boot: process ids are used again.
        device: Device of the experiment's directory; it and `inode` stay the same where the directory is moved.
        inode: Number of the directory on that device.
    """

    pid: int
    started: int
    device: int
    inode: int

    @classmethod
    def mine(cls, experiment: str | os.PathLike[str]) -> Self:
        """Return the name of this process as the driver of an experiment whose directory exists."""
        status = Path(experiment).stat()
        return cls(os.getpid(), _started(os.getpid()) or 0, status.st_dev, status.st_ino)

    @classmethod
    def parse(cls, text: bytes) -> Self | None:
        """Return what ``str`` has written; None if it is something else."""
        parts = text.split(b":")
        return (
            cls(*map(int, parts))
            if len(parts) == _NUM_PARTS and all(part.isdigit() for part in parts)
            else None
        )

    def __str__(self) -> str:
        """Return it as the value of an environment variable."""
        return f"{self.pid}:{self.started}:{self.device}:{self.inode}"

    @property
    def is_alive(self) -> bool:
        """Whether the driver lives."""
        return _started(self.pid) == self.started

    def drives_the_same(self, other: DriverName) -> bool:
        """Return whether both drive, or drove, the same experiment."""
        return (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that has outlived its driver.

    Attributes:
        pid: Its process id.
        command: Its command line, at most 200 characters of it.
    """

    pid: int
    command: str

    def __str__(self) -> str:
        """Return both in one phrase."""
        return f"process {self.pid} ({self.command})"


def end_leftovers(experiment: str | os.PathLike[str], within_s: float = 2.0) -> list[Leftover]:
    """Kill what dead drivers of an experiment have left running, and wait until it is gone.

    To be called by whoever holds the experiment's lock. Finds nothing where there is no ``/proc``.

    Args:
        experiment: Its directory.
        within_s: How long to wait at most.

    Returns:
        What was found.
    """
    me = DriverName.mine(experiment)
    ended = []
    with contextlib.ExitStack() as stack:
        for pid in _pids():
            if pid != me.pid and _is_left_over(pid, me) and (handle := _handle(pid)) is not None:
                stack.callback(os.close, handle)
                # With the handle in hand the process cannot turn into another; it was the right one before, and is it still?
                if _is_left_over(pid, me):
                    ended.append((handle, Leftover(pid, _command(pid))))
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        _await_end([handle for handle, _ in ended], within_s)
    return [leftover for _, leftover in ended]


def _is_left_over(pid: int, me: DriverName) -> bool:
    name = _driver_of(pid)
    return name is not None and name.drives_the_same(me) and not name.is_alive


def _driver_of(pid: int) -> DriverName | None:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone, or somebody else's
        return None
    for entry in environment.split(b"\0") if _ENTRY in environment else ():
        if entry.startswith(_ENTRY):
            return DriverName.parse(entry.removeprefix(_ENTRY))
    return None


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.glob("[1-9]*"))


def _started(pid: int) -> int | None:
    """Return when a process was started; None if it is gone or dead and not yet reaped, or the system does not tell."""
    try:
        status = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = status.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[_START_TIME])


def _handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "already gone"
    return b" ".join(words).decode(errors="backslashreplace")[:200]


def _await_end(handles: list[int], within_s: float) -> None:
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    deadline, waiting = time.monotonic() + within_s, set(handles)
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(left_s * 1000):
            poll.unregister(handle)
            waiting.discard(handle)
