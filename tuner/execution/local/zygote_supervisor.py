"""Keeps a zygote running for an experiment: another one when it dies, and which kind of one.

The zygote of an experiment that has ended is kept for the next one of the same process: loading
PyTorch takes seconds, and a second `fit` of a script or a notebook need not wait for it again. It
is used again only where a new one would be the same: see `Surroundings`, and `loaded_files` for the
modules. It is idle in between, without the trainable, ends by itself after `zygote.MAX_IDLE_S`, and
dies with the process like any other. One is kept, and an experiment that runs beside others starts
its own.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, final

from tuner.errors import TunerError
from tuner.execution.leasing import lease_holder

from .launcher import Launcher
from .orphans import VARIABLE
from .trainable_blob import CURRENT_TEST, TrainableBlob

_MAX_DEATHS: Final = 3
"""After this many deaths in a row, with no trial ending in between, there is no further zygote."""

_PARK_S: Final = 2.0
"""How long a zygote may take to end its workers and to forget the trainable."""

_log = logging.getLogger(__name__)


@final
class ZygoteSupervisor:
    """Starts zygotes, one after the other.

    Attributes:
        launcher: The current zygote.
    """

    def __init__(
        self,
        blob: TrainableBlob,
        method: str,
        environ: Mapping[str, str],
        *,
        is_kept: bool = False,
    ) -> None:
        """Start the first one, without waiting for it.

        Args:
            blob: The trainable.
            method: See `Launcher`.
            environ: See `Launcher`.
            is_kept: Whether one is kept for the next experiment of this process at the end, and
                one of an earlier experiment is used.
        """
        self._blob, self._method, self._environ = blob, method, environ
        self._num_deaths = self._exit_code = 0
        self._surroundings = (
            Surroundings.of_this_process(environ, blob["kill_grace_s"])
            if is_kept and method == "fork" and VARIABLE in environ
            else None
        )
        self.launcher = self._kept() or self._launch()

    def _kept(self) -> Launcher | None:
        launcher = _take(self._surroundings)
        if launcher and not launcher.load_again(self._blob, self._environ[VARIABLE]):
            launcher.close()
            return None
        return launcher

    def start_over(self) -> None:
        """Start a new zygote in the place of one that could not load another trainable."""
        earlier, self.launcher = self.launcher, self._launch()
        self.launcher.take_over(earlier)
        earlier.close()

    def close(self, deadline_s: float) -> None:
        """End the zygote with all its processes, or keep it for the next experiment without them.

        After an exception nothing is kept.
        """
        surroundings = self._surroundings
        if (
            surroundings
            and self._method == "fork"
            and deadline_s > 0
            and sys.exc_info()[0] is None
            and self.launcher.park(min(deadline_s, _PARK_S))
        ):
            _keep(surroundings, self.launcher)
        else:
            self.launcher.close(deadline_s)

    def _launch(self) -> Launcher:
        return Launcher(self._blob, self._method, self._environ)

    def note_progress(self) -> None:
        """Note that a process has ended as it should; earlier deaths of zygotes no longer count."""
        self._num_deaths = 0

    def spawn_from_now_on(self, reason: str) -> None:
        """Have further zygotes spawn workers, and say why if they have forked them so far."""
        if self._method == "fork":
            self._method = "spawn"
            _log.warning(
                "each trial loads the trainable anew, which takes longer, "
                "because a process cannot be forked with it: %s",
                reason,
            )

    def close_dead(self) -> None:
        """Reap a zygote that has died, and warn of its death."""
        self._exit_code = self.launcher.close()
        self._num_deaths += 1
        _log.warning(
            "the process that starts the trials died (exit code %d); "
            "running trials are lost, another is started",
            self._exit_code,
        )
        if not self.launcher.is_ready:
            # Forking again would load it again in the zygote, with the same result.
            self.spawn_from_now_on("loading it ends the process")

    def replace(self) -> None:
        """Start another zygote.

        Raises:
            TunerError: If several have died in a row.
        """
        if self._num_deaths >= _MAX_DEATHS:
            raise TunerError(
                f"the process that starts the trials died {self._num_deaths} times in a row, "
                f"at last with exit code {self._exit_code}"
            )
        self.launcher = self._launch()


# The one that is kept.

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


def _take(surroundings: Surroundings | None) -> Launcher | None:
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


def _keep(surroundings: Surroundings, launcher: Launcher) -> None:
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
