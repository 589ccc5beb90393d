"""The zygote of an experiment that has ended, kept for the next one of the same process.

Loading PyTorch takes seconds; a second `fit` of a script or a notebook need not wait for it again.
A zygote is used again only where a new one would be the same: see `Surroundings`, and
`loaded_files` for the modules. It is idle in between, without the trainable, ends by itself after
`zygote.MAX_IDLE_S`, and dies with the process like any other. One is kept, and an experiment that
runs beside others starts its own.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from tuner.execution.leasing import lease_holder

from .launcher import Launcher
from .orphans import VARIABLE
from .trainable_blob import CURRENT_TEST

_IGNORED: Final = (VARIABLE, CURRENT_TEST, "CRC32C_SW_MODE")
"""Variables that may differ.

The first two are set when a zygote is used again; tensorboardX sets the third when our logger
imports it.
"""
_LIMITS: Final = tuple(
    getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)


@final
@dataclass(frozen=True)
class Surroundings:
    """What a process inherits or reads once that is to load and fork training code.

    Attributes:
        path: Where modules are found.
        argv: The script's arguments, which modules may read when they are imported.
        environ: Variables of the environment, without the driver's identity.
        directory: The working directory.
        output: Standard output and error, as device and inode.
        limits: Resource limits.
        scheduling: The processors that may be used, and the priority.
        ownership: User, group, and mask of new files.
        kill_grace_s: A setting of the zygote.
    """

    path: tuple[str, ...]
    argv: tuple[str, ...]
    environ: tuple[tuple[str, str], ...]
    directory: str
    output: tuple[tuple[int, int] | None, ...]
    limits: tuple[tuple[int, int], ...]
    scheduling: tuple[object, ...]
    ownership: tuple[object, ...]
    kill_grace_s: float

    @classmethod
    def of_this_process(cls, environ: Mapping[str, str], kill_grace_s: float) -> Self | None:
        """Return the surroundings, None where no zygote is kept: in trials, and without Linux.

        Args:
            environ: Variables that the experiment adds.
            kill_grace_s: A setting of the zygote.
        """
        # In a trial, one that is idle would take memory beside the training.
        if sys.platform != "linux" or lease_holder() is not None:
            return None
        try:
            variables = {**os.environ, **environ}
            for name in _IGNORED:
                variables.pop(name, None)
            return cls(
                path=tuple(map(str, sys.path)),
                argv=tuple(sys.argv),
                environ=tuple(sorted(variables.items())),
                directory=str(Path.cwd()),
                output=(_file(1), _file(2), _stream(sys.__stdout__), _stream(sys.__stderr__)),
                limits=tuple(map(resource.getrlimit, _LIMITS)),
                scheduling=(
                    frozenset(os.sched_getaffinity(0)),
                    os.getpriority(os.PRIO_PROCESS, 0),
                    os.sched_getscheduler(0),
                ),
                ownership=(os.getresuid(), os.getresgid(), tuple(os.getgroups()), _umask()),
                kill_grace_s=kill_grace_s,
            )
        except OSError:
            return None


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _stream(stream: object) -> tuple[int, int] | None:
    return None if stream is None else (0, 0)


def _umask() -> str:
    # There is no call that only reads it.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return line
    return ""


_lock = threading.Lock()
_kept: tuple[Surroundings, Launcher] | None = None


def take(surroundings: Surroundings | None) -> Launcher | None:
    """Return the kept zygote, which the caller then owns, if it has the same surroundings.

    One with others is ended.
    """
    global _kept
    if surroundings is None:
        return None
    with _lock:
        found, _kept = _kept, None
    if found is None:
        return None
    if found[0] == surroundings:
        return found[1]
    found[1].close(0.0)
    return None


def keep(surroundings: Surroundings, launcher: Launcher) -> None:
    """Keep a parked zygote in the place of the one that is kept."""
    global _kept
    with _lock:
        earlier, _kept = _kept, (surroundings, launcher)
    if earlier:
        earlier[1].close(0.0)


def _forget_in_fork() -> None:
    global _kept, _lock
    # It is the parent's; `Launcher` closes the connections.
    _kept, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_fork)
