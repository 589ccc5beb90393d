"""Workers for trainables with which a process cannot be forked: fresh interpreters that load the trainable ahead of their time."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn, final

from . import termination_signals, worker
from .standby_workers import Hatches, await_trial
from .trainable_blob import Parcel, command


@final
class SpareWorkers:
    """Keeps as many workers ready as are running, so that each next trial finds one that has loaded the trainable."""

    def __init__(self, knells: tuple[int, int], parcel: int) -> None:
        """Start none yet.

        Args:
            knells: The driver's and the zygote's, reading ends.
            parcel: Descriptor of the parcel with the trainable.
        """
        self._inherited = (*knells, parcel)
        for descriptor in self._inherited:
            os.set_inheritable(descriptor, True)
        self._hatches = Hatches()

    @property
    def spares(self) -> AbstractSet[int]:
        """Process ids of those that wait for a trial."""
        return self._hatches.pids

    def start(self, descriptor: int) -> int:
        """Give the oldest spare that is alive a trial's descriptor; return its process id."""
        while (pid := self._hatches.hand_over(descriptor)) is None:
            self._spawn()
        return pid

    def prepare(self, num_running: int) -> None:
        """Spawn what is missing to one spare for each running worker, at least one."""
        with contextlib.suppress(OSError):
            while len(self._hatches) < max(1, num_running):
                self._spawn()

    def learn(self, module: str) -> None:
        """Do nothing: each worker imports for itself."""

    def bury(self, pid: int) -> None:
        """Forget a spare that has died; it is not replaced before a trial needs it, lest one that cannot live be spawned for ever."""
        self._hatches.close(pid)

    def _spawn(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.set_inheritable(True)
            arguments = command(
                "tuner.execution.local.spawn_pool", os.getpid(), theirs.fileno(), *self._inherited
            )
            pid = os.posix_spawn(arguments[0], arguments, os.environ)
        self._hatches.add(pid, ours)
        return pid


def main(zygote: str, hatch: str, driver_knell: str, zygote_knell: str, parcel: str) -> None:
    """Be a spare worker.

    Args:
        zygote: Process id of the parent.
        hatch: Descriptor through which the trial's will come, like the following.
        driver_knell: Reading end of the driver's knell.
        zygote_knell: Reading end of the zygote's.
        parcel: The parcel with the trainable.
    """
    termination_signals.let_pass()
    for descriptor in (hatch, driver_knell, zygote_knell, parcel):
        os.set_inheritable(int(descriptor), False)
    worker.write_stack_when_killed()
    worker.enter_life(int(zygote), (int(driver_knell), int(zygote_knell)))
    load = _loaded(Parcel(int(parcel)))
    connection = await_trial(socket.socket(fileno=int(hatch)))
    if connection is not None:
        worker.live(connection, load)


def _loaded(parcel: Parcel) -> Callable[[], Any]:
    """Load the trainable; if that fails, so will the trial, once there is one."""
    try:
        trainable = parcel.load()
        worker.warm_up(trainable)
    except BaseException as error:  # noqa: BLE001  (the user's modules may even exit)
        return functools.partial(_fail, error)
    return lambda: trainable


def _fail(error: BaseException) -> NoReturn:
    raise error
