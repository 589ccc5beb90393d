"""Why a worker process ended when it could not report it: exit code, signal, out of memory."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tuner.core.trial import Failure
from tuner.storage.reading import open_file

_TAIL_BYTES: Final = 1 << 13
_UNKNOWN_SENDER: Final = "a signal that tuner did not send ended the process"

_OOM_KILL_COUNT: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_CGROUPS: Final = Path("/proc/self/cgroup")
_CGROUP_MOUNT: Final = Path("/sys/fs/cgroup")
_VMSTAT: Final = Path("/proc/vmstat")


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How a worker whose process group is gone ended, as seen by the zygote.

    Attributes:
        code: Exit code, or minus the number of the signal that killed it.
        peak_bytes: Peak resident memory of it or one of its children; 0 if unknown.
        is_oom: Whether the kernel killed it because memory ran out; None if unknown.
    """

    code: int
    peak_bytes: int = 0
    is_oom: bool | None = None


def diagnose_exit(exit_info: ExitInfo, stderr: Path, start: int) -> Failure:
    """Return the failure of a worker that ended without reporting how.

    Args:
        exit_info: What the zygote observed.
        stderr: File with its standard error.
        start: Offset in that file at which this attempt's part begins.
    """
    code, lines = exit_info.code, last_lines(stderr, start)
    if code >= 0:
        message = "the process ended before the training code did"
        return Failure(f"exited with code {code}", message, lines)
    message = _sigkill_message(exit_info.is_oom) if -code == signal.SIGKILL else _UNKNOWN_SENDER
    if exit_info.peak_bytes:
        message += f"; its peak memory was {exit_info.peak_bytes / 2**20:,.0f} MiB"
    return Failure(f"killed by {_signal_name(-code)}", message, lines)


def _sigkill_message(is_oom: bool | None) -> str:
    match is_oom:
        case True:
            return (
                "the kernel ended the process because memory ran out; "
                "run fewer trials at once, or smaller ones"
            )
        case False:
            return (
                f"{_UNKNOWN_SENDER}, and the kernel reports no lack of memory; "
                "another guard of the machine's memory may have sent it"
            )
        case None:
            return f"{_UNKNOWN_SENDER}; the kernel sends it when memory runs out"


def last_lines(path: Path, start: int, num_lines: int = 20) -> str:
    """Return the last lines of a text file, from `start` on and at most 8 KiB.

    Empty if the file cannot be read.
    """
    try:
        with open_file(path) as file:
            # From near the end: a trial may have written gigabytes.
            file.seek(max(start, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(text.splitlines(keepends=True)[-num_lines:])


def size(path: Path) -> int:
    """Return a file's size in bytes, 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@final
class OomKillCounter:
    """The kernel's count of processes killed for lack of memory, and how many are accounted for.

    Args:
        files: Where to look for a line ``oom_kill <count>``; the first file that has one is used.
            None looks at the control group of this process, then at the whole machine.
    """

    def __init__(self, files: Sequence[Path] | None = None) -> None:
        self._files = _counter_files() if files is None else files
        self._num_claimed = self._count()

    def claim(self) -> bool | None:
        """Account for one killed process; return whether the kernel has counted one more.

        None if the kernel does not say.
        """
        # The kernel counts the processes without naming them. So each worker that died of SIGKILL
        # takes one of the count, in the order in which they are reaped.
        count = self._count()
        if count is None or self._num_claimed is None:
            return None
        has_another = count > self._num_claimed
        self._num_claimed += has_another
        return has_another

    def _count(self) -> int | None:
        for file in self._files:
            try:
                found = _OOM_KILL_COUNT.search(file.read_bytes())
            except OSError:
                continue
            if found:
                return int(found[1])
        return None


def _counter_files() -> list[Path]:
    try:
        memberships = [line.split(":", 2) for line in _CGROUPS.read_text().splitlines()]
    except OSError:
        return [_VMSTAT]
    groups = {controllers: path.lstrip("/") for _, controllers, path in memberships}
    files = []
    if "" in groups:  # cgroup v2; inside a container its own group may be mounted at the root
        files += [_CGROUP_MOUNT / groups[""] / "memory.events", _CGROUP_MOUNT / "memory.events"]
    if "memory" in groups:  # cgroup v1
        files.append(_CGROUP_MOUNT / "memory" / groups["memory"] / "memory.oom_control")
    return [*files, _VMSTAT]
