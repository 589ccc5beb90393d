"""Whether the kernel has killed a process because memory ran out, as far as it tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import final

_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


@final
class OutOfMemoryKills:
    """The kernel's count of processes that it has killed for lack of memory, and how many of them are known.

    Args:
        files: Where to look for a line ``oom_kill <count>``; the first that has one counts. None looks at the control group of this
            process, then at the whole machine.
    """

    def __init__(self, files: Sequence[Path] | None = None) -> None:
        self._files = _counters() if files is None else files
        self._num_known = self._count()

    def claim(self) -> bool | None:
        """Return whether there is one more than is known, which the caller then has found; None if the kernel does not tell."""
        count = self._count()
        if count is None or self._num_known is None:
            return None
        is_another = count > self._num_known
        self._num_known += is_another
        return is_another

    def _count(self) -> int | None:
        for file in self._files:
            try:
                found = _COUNT.search(file.read_bytes())
            except OSError:
                continue
            if found:
                return int(found[1])
        return None


def _counters() -> list[Path]:
    machine = Path("/proc/vmstat")
    try:
        memberships = [line.split(":", 2) for line in _GROUPS.read_text().splitlines()]
    except OSError:
        return [machine]
    groups = {controllers: path.lstrip("/") for _, controllers, path in memberships}
    return [
        *(
            [_MOUNT / groups[""] / "memory.events", _MOUNT / "memory.events"]
            if "" in groups
            else []
        ),
        *(
            [_MOUNT / "memory" / groups["memory"] / "memory.oom_control"]
            if "memory" in groups
            else []
        ),
        machine,
    ]
