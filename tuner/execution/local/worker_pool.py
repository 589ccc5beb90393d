"""Pools of standby workers: processes started before a trial needs them.

A standby worker waits on a socket pair for the descriptor of its trial's connection to the driver.
`ForkPool` forks standby workers from the zygote. `SpawnPool` starts fresh interpreters, for
trainables with which a process cannot be forked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, NoReturn, Protocol, final

from tuner.execution import preload

from . import process_groups, process_setup, worker
from .interpreter import command
from .trainable_blob import TrainableBlob, UserCode
from .zygote_protocol import blocking_pair, receive_with_descriptor

# 3n - 2 standby workers for n running ones, but no more than 8: one for the first trial, which is
# waiting for it, and several at a time once trials run side by side.
_STANDBY_PER_WORKER: Final = 3
_MAX_STANDBY: Final = 8


class WorkerPool(Protocol):
    """How the zygote starts workers."""

    def start(self, descriptor: int) -> int | None:
        """Give a standby worker the descriptor of a trial's connection; return its process id.

        Returns None if no worker is standing by.

        Raises:
            OSError: If the system cannot start another process.
        """

    def prepare(self, num_running: int) -> socket.socket | None:
        """Start standby workers, given the number of running ones.

        Returns None in the zygote; in a forked worker, its end of the standby socket.

        Raises:
            OSError: If the system cannot start another process.
        """

    @property
    def standby_pids(self) -> AbstractSet[int]:
        """Process ids of the workers standing by."""

    def forget(self, pid: int) -> None:
        """Forget a standby worker that has died; other process ids are ignored."""

    def preload_module(self, module: str) -> None:
        """Import a module into the process that future workers are forked from."""


@final
class StandbyWorkers:
    """The zygote's ends of the sockets on which standby workers wait, by process id."""

    def __init__(self) -> None:
        self._ends: dict[int, socket.socket] = {}

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def pids(self) -> AbstractSet[int]:
        """Process ids of the standby workers."""
        return self._ends.keys()

    def add(self, pid: int, end: socket.socket) -> None:
        """Add a worker with the zygote's end of its standby socket."""
        self._ends[pid] = end

    def hand_over(self, descriptor: int) -> int | None:
        """Send a descriptor to the oldest living worker; return its process id, None if none."""
        while self._ends:
            pid = next(iter(self._ends))
            # A broken pipe: it has died since, and the next one is tried.
            with self._ends.pop(pid) as end, contextlib.suppress(BrokenPipeError):
                socket.send_fds(end, [b"."], [descriptor])
                return pid
        return None

    def close(self, pid: int) -> None:
        """Forget a worker that has died; other process ids are ignored."""
        if end := self._ends.pop(pid, None):
            end.close()

    def close_all(self) -> None:
        """Close all ends, in a worker that has inherited them."""
        while self._ends:
            self._ends.popitem()[1].close()


def await_trial(standby_end: socket.socket) -> int | None:
    """Wait for a trial; return the descriptor of its connection, None if the zygote is gone."""
    # Modules of the user's may have set a default timeout.
    standby_end.settimeout(None)
    with standby_end:
        return receive_with_descriptor(standby_end, 1)[1]


@final
class ForkPool:
    """Forks standby workers, so that the next trial does not wait for the fork.

    A fork costs more than the rest of an empty trial, mostly for copying pages that are written to
    for the first time; standby workers do that while other trials run. They are forked several at
    a time when the last one has been used, because each fork makes the zygote copy pages, too.
    """

    def __init__(self) -> None:
        self._standby = StandbyWorkers()

    @property
    def standby_pids(self) -> AbstractSet[int]:
        return self._standby.pids

    def start(self, descriptor: int) -> int | None:
        return self._standby.hand_over(descriptor)

    def prepare(self, num_running: int) -> socket.socket | None:
        if self._standby:
            return None
        for _ in range(min(_STANDBY_PER_WORKER * num_running - 2, _MAX_STANDBY)):
            ours, theirs = blocking_pair()
            pid = os.fork()
            if pid == 0:
                # The zygote's ends of all standby sockets: while this process held copies, its own
                # end and those of the others would not see the zygote die.
                ours.close()
                self._standby.close_all()
                return theirs
            theirs.close()
            self._standby.add(pid, ours)
        return None

    def forget(self, pid: int) -> None:
        self._standby.close(pid)

    def preload_module(self, module: str) -> None:
        preload.import_module(module)


@final
class SpawnPool:
    """Spawns standby workers that load the trainable; as many stand by as are running."""

    def __init__(self, liveness_pipes: tuple[int, int], blob: int) -> None:
        """Start no worker yet.

        Args:
            liveness_pipes: Read ends of the driver's and the zygote's.
            blob: Descriptor of the blob with the trainable.
        """
        self._inherited = (*liveness_pipes, blob)
        for descriptor in self._inherited:
            os.set_inheritable(descriptor, True)
        self._standby = StandbyWorkers()

    @property
    def standby_pids(self) -> AbstractSet[int]:
        return self._standby.pids

    def start(self, descriptor: int) -> int:
        """See `WorkerPool`; spawns a worker if none is standing by."""
        while (pid := self._standby.hand_over(descriptor)) is None:
            self._spawn()
        return pid

    def prepare(self, num_running: int) -> None:
        # Only in advance: `start` spawns one itself, and raises the error, if none stands by.
        with contextlib.suppress(OSError):
            while len(self._standby) < max(1, num_running):
                self._spawn()

    def forget(self, pid: int) -> None:
        # Not replaced before a trial needs it: a worker that always crashes while it loads the
        # trainable would otherwise be spawned for ever.
        self._standby.close(pid)

    def preload_module(self, module: str) -> None:
        """Do nothing: every worker imports for itself."""

    def _spawn(self) -> None:
        ours, theirs = blocking_pair()
        with theirs:
            # For no longer than the spawn: another worker must not inherit it, too.
            theirs.set_inheritable(True)
            arguments = command(
                "tuner.execution.local.worker_pool", os.getpid(), theirs.fileno(), *self._inherited
            )
            pid = os.posix_spawn(arguments[0], arguments, os.environ)
        self._standby.add(pid, ours)


def main(
    zygote: str, standby_end: str, driver_liveness: str, zygote_liveness: str, blob: str
) -> None:
    """Run a spawned worker, first on standby.

    Args:
        zygote: Process id of the parent.
        standby_end: Descriptor of the worker's end of the standby socket.
        driver_liveness: Descriptor of the read end of the driver's liveness pipe.
        zygote_liveness: Descriptor of the read end of the zygote's liveness pipe.
        blob: Descriptor of the blob with the trainable.
    """
    process_setup.ignore_termination_signals()
    # Training code's own child processes must not inherit them.
    for descriptor in (standby_end, driver_liveness, zygote_liveness, blob):
        os.set_inheritable(int(descriptor), False)
    process_groups.dump_stack_when_killed()
    process_groups.setup_process(int(zygote), (int(driver_liveness), int(zygote_liveness)))
    # Before there is a trial, so that the trial does not wait for it.
    load = _loaded(TrainableBlob(int(blob)))
    connection = await_trial(socket.socket(fileno=int(standby_end)))
    if connection is not None:
        worker.run_worker(connection, load)


def _loaded(blob: TrainableBlob) -> Callable[[], UserCode]:
    """Load the trainable; return a function that returns it, or raises the error of loading it."""
    try:
        code = blob.load()
        worker.warm_up(code.trainable)
    except BaseException as error:  # noqa: BLE001  (the user's modules may even exit)
        return functools.partial(_raise, error)
    return lambda: code


def _raise(error: BaseException) -> NoReturn:
    raise error
