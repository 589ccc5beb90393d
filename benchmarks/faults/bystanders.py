"""Finds and kills the processes of an experiment by a mark that they inherit in the environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

MARK = "FAULTS_MARK"
"""Environment variable with a value unique to the experiment; it is not set in the bench itself."""
LEAVER = "FAULTS_LEAVER"
"""Environment variable of processes that a trial has started in a separate session."""
ENGINE = "FAULTS_ENGINE"
"""Environment variable of a cluster's own processes, with the mark of the experiment: those that
the experiment has had the cluster start inherit it."""
_OURS = (b"tuner.execution.", b"ray::AgentActor")
_ZYGOTE = b"tuner.execution.local.zygote"
_LOOK_S = 0.002


def marked(mark: str, *, leavers: bool = False) -> list[int]:
    """Return the ids of the processes with the mark, zombies excluded.

    Args:
        mark: The mark of the experiment.
        leavers: Whether processes in separate sessions are included.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (path / "environ").read_bytes().split(b"\0")
            is_marked = f"{MARK}={mark}".encode() in environment or (
                f"{ENGINE}={mark}".encode() in environment
                and any(ours in command_of(int(path.name)) for ours in _OURS)
            )
            if is_marked and (f"{LEAVER}=1".encode() in environment) <= leavers:
                found.append(int(path.name))
    return found


def gone_after_s(mark: str, deadline_s: float) -> float | None:
    """Return the seconds until no marked process is left, None if the deadline passes first."""
    begun_s = time.monotonic()
    while marked(mark):
        if time.monotonic() - begun_s > deadline_s:
            return None
        time.sleep(_LOOK_S)
    return time.monotonic() - begun_s


def described(mark: str) -> list[str]:
    """Return the command and parent of each process with the mark, separate sessions excluded."""
    return [
        f"{pid}: {command_of(pid).replace(bytes(1), b' ').decode(errors='replace')}(child of "
        f"{_parent(pid)})"
        for pid in marked(mark)
    ]


def _kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_driver(driver: int, mark: str) -> None:
    """Kill the driver alone."""
    del mark
    _kill(driver)


def kill_driver_and_zygote(driver: int, mark: str) -> None:
    """Kill the driver and the zygote, the process that forks its workers."""
    # The zygote is stopped first, so that it cannot react to the death of the driver.
    zygote = [pid for pid in marked(mark) if _parent(pid) == driver and _ZYGOTE in command_of(pid)]
    for pid in zygote:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    _kill(driver, *zygote)


def kill_group(driver: int, mark: str) -> None:
    """Kill the driver's whole process group, as a terminal or a batch system would."""
    del mark
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver, signal.SIGKILL)


def kill_everything(driver: int, mark: str) -> None:
    """Kill all processes of the experiment, oldest first, as the end of a container does."""
    _kill(driver)
    # Again until none is left: a process may have forked while the others were killed.
    while alive := marked(mark, leavers=True):
        _kill(*sorted(alive))


KILLS: dict[str, Callable[[int, str], None]] = {
    "driver": kill_driver,
    "driver+zygote": kill_driver_and_zygote,
    "group": kill_group,
    "container": kill_everything,
}
"""Functions that kill processes, by the value of ``--victim``."""


def clean_up(mark: str) -> None:
    """Kill all processes with the mark."""
    _kill(*marked(mark, leavers=True))


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
        )
    return 0


def command_of(pid: int) -> bytes:
    """Return the command line of a process, empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
