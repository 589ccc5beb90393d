"""Find and kill processes that a dead driver and its zygote have left running.

All processes of an experiment die with the driver or the zygote, with one exception: a process that
training code has started in a new session, if driver and zygote are killed at the same
moment. So the zygote's environment, which all processes of trials inherit, identifies the driver.
The next driver of the experiment kills every process whose environment names a dead driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self, final

from tuner.wire.record import record

VARIABLE: Final = "TUNER_DRIVER"
_PROC: Final = Path("/proc")
_START_TIME: Final = 19
"""Index of the start time among the fields of ``/proc/<pid>/stat`` after the program's name."""
_ENVIRONMENT_START: Final = 47
"""Index of the address of the environment among the same fields."""
_ENTRY: Final = VARIABLE.encode() + b"="
_NUM_PARTS: Final = 4


@final
@record
class DriverIdentity:
    """Identifies a driver among all processes of the machine, and its experiment.

    Attributes:
        pid: Its process id.
        started: Start time in the kernel's ticks since boot, because process ids are reused.
        device: Device of the experiment's directory; 0 for the host of a node.
        inode: Inode of the directory; unlike its path it stays the same if the directory is moved.
            For the host of a node, a hash of path or URL.
    """

    pid: int
    started: int
    device: int
    inode: int

    @classmethod
    def current(cls, experiment: str | os.PathLike[str]) -> Self:
        """Return the identity of this process as the driver of an experiment that exists."""
        status = Path(experiment).stat()
        return cls(os.getpid(), _started(os.getpid()) or 0, status.st_dev, status.st_ino)

    @classmethod
    def of_host(cls, experiment: str) -> Self:
        """Return the identity of this process as the host of a node of an experiment.

        Args:
            experiment: Path or URL of the experiment, which need not be on this machine.
        """
        # Process ids of another namespace would look like those of dead hosts.
        try:
            namespace = (_PROC / "self" / "ns" / "pid").stat().st_ino
        except OSError:
            namespace = 0
        digest = hashlib.sha256(f"{namespace} {experiment}".encode()).digest()
        return cls(os.getpid(), _started(os.getpid()) or 0, 0, int.from_bytes(digest[:8]))

    @classmethod
    def parse(cls, text: bytes) -> Self | None:
        """Return the identity that ``str`` has written; None if the text is anything else."""
        parts = text.split(b":")
        return (
            cls(*map(int, parts))
            if len(parts) == _NUM_PARTS and all(part.isdigit() for part in parts)
            else None
        )

    def __str__(self) -> str:
        """Return the identity as the value of an environment variable, of equal length for all."""
        return f"{self.pid:010}:{self.started:020}:{self.device:020}:{self.inode:020}"

    @property
    def is_alive(self) -> bool:
        """Whether the driver is running."""
        return _started(self.pid) == self.started

    def has_same_experiment(self, other: DriverIdentity) -> bool:
        """Return whether both drive, or drove, the same experiment."""
        return (self.device, self.inode) == (other.device, other.inode)


@record
class OrphanProcess:
    """A process that has outlived its driver.

    Attributes:
        pid: Its process id.
        command: Its command line, at most 200 characters of it.
    """

    pid: int
    command: str

    def __str__(self) -> str:
        """Return a description for messages."""
        return f"process {self.pid} ({self.command})"


def kill_orphans(experiment: str | os.PathLike[str], within_s: float = 2.0) -> list[OrphanProcess]:
    """Kill processes that dead drivers of an experiment have left running, and wait for their end.

    The caller must hold the experiment's lock. Without ``/proc`` nothing is found.

    Args:
        experiment: The experiment's directory.
        within_s: How many seconds to wait at most.

    Returns:
        The processes that were killed.
    """
    return kill_orphans_of(DriverIdentity.current(experiment), within_s)


def kill_orphans_of(me: DriverIdentity, within_s: float = 2.0) -> list[OrphanProcess]:
    """Kill what dead drivers, or dead hosts, of the experiment of a process have left running.

    Args:
        me: The process.
        within_s: How many seconds to wait at most.

    Returns:
        The processes that were killed.
    """
    return kill_where(lambda pid: _is_orphan(pid, me), within_s)


def kill_where(is_meant: Callable[[int], bool], within_s: float) -> list[OrphanProcess]:
    """Kill processes of this machine, but for this one, and wait for their end.

    Without ``/proc`` nothing is found.

    Args:
        is_meant: Returns whether the process with an id is to be killed.
        within_s: How many seconds to wait at most.

    Returns:
        The processes that were killed.
    """
    ended = []
    # By handles (pidfd), not ids: while one is open, its process id cannot be given to another
    # process, so that the signal cannot hit a stranger.
    with contextlib.ExitStack() as stack:
        for pid in _pids():
            if pid != os.getpid() and is_meant(pid) and (handle := _handle(pid)) is not None:
                stack.callback(os.close, handle)
                # Check again: the id may have been reused before the handle was opened.
                if is_meant(pid):
                    ended.append((handle, OrphanProcess(pid, _command(pid))))
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        _await_end([handle for handle, _ in ended], within_s)
    return [orphan for _, orphan in ended]


def adopt_identity(identity: str) -> bool:
    """Give this process, and those that it starts from now on, another identity.

    Forks of it are found by the environment with which it was started, and not by what it has set
    since. So that is overwritten in place, in its full length.

    Returns:
        Whether that has worked.
    """
    os.environ[VARIABLE] = identity
    try:
        environment = (_PROC / "self" / "environ").read_bytes()
        status = (_PROC / "self" / "stat").read_bytes()
    except OSError:
        return False
    place = (b"\0" + environment).find(b"\0" + _ENTRY)
    old = environment[place:].split(b"\0", 1)[0]
    if place < 0 or len(old) != len(_ENTRY) + len(identity):
        return False
    begin = int(status.rpartition(b")")[2].split()[_ENVIRONMENT_START])
    ctypes.memmove(begin + place + len(_ENTRY), identity.encode(), len(identity))
    return str(_driver_of(os.getpid())) == identity


def _is_orphan(pid: int, me: DriverIdentity) -> bool:
    driver = _driver_of(pid)
    return driver is not None and driver.has_same_experiment(me) and not driver.is_alive


def environment_of(pid: int) -> list[bytes]:
    """Return the variables that a process was started with; none if it is gone, or not ours."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _driver_of(pid: int) -> DriverIdentity | None:
    for entry in environment_of(pid):
        if entry.startswith(_ENTRY):
            return DriverIdentity.parse(entry.removeprefix(_ENTRY))
    return None


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.glob("[1-9]*"))


def _started(pid: int) -> int | None:
    """Return a process's start time; None if it is gone, a zombie, or there is no ``/proc``."""
    try:
        status = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The second field is the program's name, which may hold spaces and parentheses itself.
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
        for handle, _ in poll.poll(left_s * 1000):  # readable: the process has ended
            poll.unregister(handle)
            waiting.discard(handle)
