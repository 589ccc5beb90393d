"""How no process outlives its owner, however the owner dies.

There are three bells, since each alone fails somewhere:

1. *Knells.* A knell is a pipe on which nothing is ever written; its owner alone holds the writing end. Whoever wants to die with the
   owner opens the reading end anew and asks the kernel to kill its whole process group when the pipe is hung up. No code of ours has
   to run, so a trial stuck in C cannot escape, and its loader processes go with it. Linux only.
2. *Parent-death signal.* Follows the parent, not the owner, and reaches one process, not its group. Linux only.
3. *The life line.* The zygote sees the end of file of its socket to the driver, kills all of its descendants, those included that
   have left their group, and leaves. Works everywhere, but needs the zygote alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import sys
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

IS_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)
WHERE_ARE_YOU = getattr(signal, "SIGRTMAX", signal.SIGQUIT)
"""Has a worker write its stack to the standard error. Of two signals the kernel delivers the lower first, and only if that is SIGTERM does
a handler of the user's get its turn where the main thread waits for a lock: what `faulthandler` installs does not end such waits."""
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit in which the system tells how much memory a process has used."""
_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int, *, is_signalled: bool = True) -> None:
    """Be killed at once if the parent process is no longer `parent`, and, if `is_signalled`, when it dies."""
    if IS_LINUX and is_signalled:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies, so that they can be found, killed and reaped."""
    if IS_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_owner(knell: int) -> int:
    """Let the kernel kill the caller's process group when the knell's writing end is closed.

    Args:
        knell: Descriptor of the reading end. It may be shared with other processes: the setting belongs to an open file, so the pipe
            is opened anew.

    Returns:
        The descriptor that carries the setting; as long as it is open, the knell can ring.
    """
    if not IS_LINUX:
        return knell
    try:
        own = os.open(f"/proc/self/fd/{knell}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # no /proc: the other bells have to do
        return knell
    fcntl.fcntl(own, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    if is_hung_up(own):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    return own


def is_hung_up(knell: int) -> bool:
    """Return whether nobody holds the knell's writing end any more."""
    poll = select.poll()
    poll.register(knell, select.POLLIN)
    return any(mask & select.POLLHUP for _, mask in poll.poll(0))


def children() -> set[int]:
    """Return the process ids of the caller's children, dead ones not yet reaped included; empty where the system cannot tell."""
    try:
        file = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        parts = []
        while part := os.read(
            file, _READ_BYTES
        ):  # a file object would touch many more of the pages that a forked process still shares
            parts.append(part)
    finally:
        os.close(file)
    return {int(pid) for pid in b"".join(parts).split()}


def kill_descendants() -> None:
    """Kill the caller's children with their groups, and whatever those leave to the caller, until nobody is left."""
    while alive := children():
        for pid in alive:
            kill_child_and_group(pid)
        for pid in alive:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def kill_child_and_group(pid: int) -> None:
    """Kill a child that has not been reaped, and the group that it leads, if it has come to that."""
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def ask_child_and_group(pid: int) -> None:
    """Ask a child that has not been reaped, and the group that it leads, to end; if it is a worker it also writes down where it is."""
    for tell, number in ((os.killpg, signal.SIGTERM), (os.kill, WHERE_ARE_YOU)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            tell(pid, number)


def is_group_alive(leader: int) -> bool:
    """Return whether the process group has members, dead ones not yet reaped included."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class Dead:
    """A child that has been reaped.

    Attributes:
        pid: Its process id.
        code: Its exit code, or minus the signal that killed it.
        peak_bytes: How much memory it, or one of its own children, has used at most.
    """

    pid: int
    code: int
    peak_bytes: int


def reap(leaders: Container[int]) -> Dead | None:
    """Reap a dead child and return it; if it is one of the leaders, kill what is left of its group first. None if no child is dead."""
    try:
        pid = _dead_child()
        if pid in leaders:
            kill_child_and_group(pid)  # until it is reaped, its number cannot name another group
        if pid == 0:
            return None
        pid, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return (
        Dead(pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss * _MAXRSS_BYTES)
        if pid
        else None
    )


def _dead_child() -> int:
    """Return a child that can be reaped, 0 if there is none, and -1, which stands for any, where the system cannot tell."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return -1
    info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return info.si_pid if info else 0


def num_threads() -> int:
    """Return how many threads the process has, those included that Python does not know; 1 where the system cannot tell."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 1


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
