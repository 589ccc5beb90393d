"""Process groups that die with their owner, and that are killed and reaped whole.

Every worker leads its own session and process group. Three mechanisms end it with its owners
(the driver and the zygote), because each alone has a gap:

1. *Liveness pipes.* Nothing is ever written to them, and only the owner holds the write end. The
   kernel kills a worker's whole process group when the pipe hangs up. No code of ours has to run,
   so a trial that is stuck in C is ended as well, with its data loader processes. Linux only.
2. *Parent-death signal.* Follows the parent, not the owner, and reaches one process, not its group.
   Linux only.
3. *End of file at the zygote.* When the zygote's connections to the driver close, it kills all its
   descendants, those that have left their group included, and exits. Works everywhere, but only
   while the zygote is alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import os
import select
import signal
import sys
from collections.abc import Container
from pathlib import Path

from tuner.wire.record import record

from .process_setup import restore_signals_in_children

IS_LINUX = sys.platform == "linux"
# Of two pending signals the kernel delivers the lower number first. SIGTERM has to come first:
# while the main thread waits for a lock, only a signal that Python handles ends the wait, and the
# handler that faulthandler installs is not one of those.
DUMP_STACK_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGQUIT)
"""Makes a worker write its stack to its standard error."""
_libc = ctypes.CDLL(None, use_errno=True)
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss``."""
_READ_BYTES = 1 << 16
_OOM_SCORE = b"300"
"""Out of 1000: when memory runs out, the kernel is to kill a worker, not driver or zygote."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def setup_process(zygote: int, liveness_pipes: tuple[int, ...]) -> None:
    """Make a worker the leader of a session and process group that dies with its owners.

    Args:
        zygote: Process id of the parent.
        liveness_pipes: Read ends of the owners' liveness pipes; they are closed.
    """
    os.setsid()  # first: what follows arms signals for the process group
    restore_signals_in_children()
    # Orphans among the worker's descendants must not reach the zygote before the worker is dead.
    adopt_orphans()
    armed_pipes = tuple(die_with_pipe(liveness) for liveness in liveness_pipes)
    for liveness, armed in zip(liveness_pipes, armed_pipes, strict=True):
        if armed != liveness:
            os.close(liveness)
    # The parent-death signal kills the worker alone, and its armed pipes are closed with it. It may
    # come before a pipe has hung up and killed the whole group: another worker that is just being
    # forked holds the zygote's write end for a moment. So it is used only where pipes cannot be.
    die_with_parent(zygote, is_signalled=armed_pipes == liveness_pipes)
    _raise_oom_score()


def _raise_oom_score() -> None:
    with contextlib.suppress(OSError):
        # A text file object would write to shared pages, at more cost than the rest of the start.
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(file, _OOM_SCORE)
        os.close(file)


def dump_stack_when_killed() -> None:
    """Make this process and its forks dump the stack to stderr on a crash or before a kill."""
    faulthandler.enable()
    # Of the main thread only: a failure quotes the end of stderr, and libraries have many threads.
    faulthandler.register(DUMP_STACK_SIGNAL, all_threads=False)


def use_batch_scheduling() -> None:
    """Have the kernel schedule this process and its descendants as batch work.

    Otherwise, in every other driver step, a trial that gets its answer preempts the driver in the
    middle of the step for which all other trials wait. A scheduling policy that the user has chosen
    for the driver is kept.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def die_with_parent(parent: int, *, is_signalled: bool = True) -> None:
    """Kill this process now if its parent is no longer `parent`, and later when the parent dies.

    Args:
        parent: Process id of the expected parent.
        is_signalled: Whether to have the kernel signal the parent's death.
    """
    if IS_LINUX and is_signalled:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the line above: compare only afterwards.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be killed and reaped."""
    if IS_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_pipe(liveness: int) -> int:
    """Have the kernel kill the caller's process group when a liveness pipe hangs up.

    Args:
        liveness: Descriptor of the read end, which other processes may share.

    Returns:
        The descriptor that carries the setting and has to stay open; `liveness` itself where the
        system cannot do it.
    """
    if not IS_LINUX:
        return liveness
    # Owner and signal belong to the open file description, which is shared between processes: only
    # one that is opened anew is this process's own.
    try:
        armed = os.open(f"/proc/self/fd/{liveness}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # no /proc: the other two mechanisms have to do
        return liveness
    fcntl.fcntl(armed, fcntl.F_SETOWN, -os.getpgrp())  # negative: a process group
    fcntl.fcntl(armed, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(armed, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    # No signal is sent for a hang-up that came before O_ASYNC was set.
    if is_hung_up(armed):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    return armed


def is_hung_up(liveness: int) -> bool:
    """Return whether no process holds the write end of a pipe any more."""
    poll = select.poll()
    poll.register(liveness, select.POLLIN)
    return any(mask & select.POLLHUP for _, mask in poll.poll(0))


def children() -> set[int]:
    """Return the ids of the caller's child processes, zombies included; empty without ``/proc``."""
    try:
        file = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return set()
    # A file object would write to many more of the pages that a forked process shares.
    try:
        parts = []
        while part := os.read(file, _READ_BYTES):
            parts.append(part)
    finally:
        os.close(file)
    return {int(pid) for pid in b"".join(parts).split()}


def kill_descendants() -> None:
    """Kill the caller's children with their groups, and all that those leave to the caller."""
    # Repeated, because the children of each one that dies become the caller's.
    while alive := children():
        for pid in alive:
            kill_child_and_group(pid)
        for pid in alive:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def kill_child_and_group(pid: int) -> None:
    """Kill a child that has not been reaped, and the group that it leads."""
    # A child that was just forked may not lead a group yet.
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def terminate_child_and_group(pid: int) -> None:
    """Send SIGTERM to a child that has not been reaped, and to its group.

    If it is a worker, it also dumps its stack.
    """
    # Training code may handle SIGTERM, e.g. to save; workers alone handle the other signal, whose
    # default action would end the programs that they have started.
    for send, number in ((os.killpg, signal.SIGTERM), (os.kill, DUMP_STACK_SIGNAL)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def dump_stack(pid: int) -> None:
    """Have a worker that has not been reaped write its stack to its standard error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, DUMP_STACK_SIGNAL)


def is_group_alive(leader: int) -> bool:
    """Return whether the process group has members, zombies included."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member has changed its user
        return True
    return True


@record
class ReapedChild:
    """A child that has been reaped.

    Attributes:
        pid: Its process id.
        code: Its exit code, or minus the number of the signal that killed it.
        peak_bytes: Peak resident memory of it or one of its children.
    """

    pid: int
    code: int
    peak_bytes: int


def reap(leaders: Container[int]) -> ReapedChild | None:
    """Reap one dead child and return it, None if no child is dead.

    Args:
        leaders: Children that lead process groups; what is left of a reaped leader's group is
            killed.
    """
    try:
        pid = _dead_child()
        if pid in leaders:
            # Before it is reaped: until then its number cannot become that of another group.
            kill_child_and_group(pid)
        if pid == 0:
            return None
        pid, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if not pid:
        return None
    return ReapedChild(pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss * _MAXRSS_BYTES)


def _dead_child() -> int:
    """Return a child that can be reaped, 0 if there is none, -1 (any) if the system cannot tell."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return -1
    info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return info.si_pid if info else 0


def num_threads() -> int:
    """Return the number of threads of this process, those outside Python included; 1 if unknown."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 1


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
