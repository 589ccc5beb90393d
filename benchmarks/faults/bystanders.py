"""Finds and kills the processes of an experiment by a mark that all of them inherit in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

MARK = "FAULTS_MARK"
"""Environment variable that is another one for each experiment; the bench itself does not have
it."""
LEAVER = "FAULTS_LEAVER"
"""Environment variable of processes that a trial has put into a session of their own."""
_ZYGOTE = b"tuner.execution.local.zygote"
_LOOK_S = 0.002


def marked(mark: str, *, leavers: bool = False) -> list[int]:
    """Return the process ids with the mark; those that have left for a session of their own only if `leavers`. Zombies do not count."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (path / "environ").read_bytes().split(b"\0")
            if (
                f"{MARK}={mark}".encode() in environment
                and (f"{LEAVER}=1".encode() in environment) <= leavers
            ):
                found.append(int(path.name))
    return found


def gone_after_s(mark: str, deadline_s: float) -> float | None:
    """Return how many seconds pass until no marked process is left, None if that takes longer than the deadline."""
    begun_s = time.monotonic()
    while marked(mark):
        if time.monotonic() - begun_s > deadline_s:
            return None
        time.sleep(_LOOK_S)
    return time.monotonic() - begun_s


def described(mark: str) -> list[str]:
    """Return what the processes with the mark are that have not left for a session of their own."""
    return [
        f"{pid}: {_command(pid).replace(bytes(1), b' ').decode(errors='replace')}(child of "
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
    """Kill the driver and the process that forks its workers, which is stopped first so that it can do nothing in between."""
    zygote = [pid for pid in marked(mark) if _parent(pid) == driver and _ZYGOTE in _command(pid)]
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
    """Kill all processes of the experiment, the oldest first, and those just being born: the end of a container spares none."""
    _kill(driver)
    while alive := marked(mark, leavers=True):
        _kill(*sorted(alive))


KILLS: dict[str, Callable[[int, str], None]] = {
    "driver": kill_driver,
    "driver+zygote": kill_driver_and_zygote,
    "group": kill_group,
    "container": kill_everything,
}
"""Who is killed, by the name of the option."""


def clean_up(mark: str) -> None:
    """Kill all processes with the mark."""
    _kill(*marked(mark, leavers=True))


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
        )
    return 0


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
