"""The kernel's count of processes that it has killed because memory ran out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

_OOM_KILL_COUNT: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_CGROUPS: Final = Path("/proc/self/cgroup")
_CGROUP_MOUNT: Final = Path("/sys/fs/cgroup")
_VMSTAT: Final = Path("/proc/vmstat")


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
