"""The zygote: one single-threaded process per experiment that loads the trainable once and gives birth to the workers.

It is a fresh interpreter, never a fork of the user's own process. Because torch and the user's modules are imported and data bound with
``with_parameters`` is loaded *before* it forks, a worker costs one fork, and what has been loaded is shared until it is written to. It
executes none of the training code, so there is nothing in it that could hang.

It is also the undertaker. As *child subreaper* it inherits what a dead worker leaves behind: it kills the rest of the worker's group,
and whatever of its descendants has left the group, and reports the worker gone when all of the group are buried. When its life line to
the driver ends it buries everybody and leaves.

A process with threads cannot be forked safely: a lock that another thread holds stays locked in the child for ever. Nor can one that
has initialized an accelerator. If loading the trainable led to that, or failed, the zygote says so, replaces itself by a fresh
interpreter that loads nothing, and has the workers spawned (`spawning`), where each loads the trainable for itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

from tuner.execution import preload
from tuner.execution.devices import device_in_use

from . import process_groups, termination_signals, worker
from .fork_pool import ForkedWorkers
from .oom_counter import OutOfMemoryKills
from .spawn_pool import SpareWorkers
from .standby_workers import await_trial
from .trainable_blob import Parcel, command
from .zygote_protocol import Kill, Learn, Start, encoded, receive_request

_POLL_S: Final = 0.005
"""How often a group that takes its time to die is looked at."""
_RETRY_S: Final = 1.0
"""How long to wait after the system has refused another process."""
_LAST_RITES_S: Final = 1.0


class Starter(Protocol):
    """A way to bring workers into the world: ahead of their time, so that a trial finds one that is ready."""

    def start(self, descriptor: int) -> int | None:
        """Give a ready worker a trial's descriptor and return its process id; None if none is ready.

        Raises:
            OSError: If the system has no process to spare.
        """

    def prepare(self, num_running: int) -> socket.socket | None:
        """Make workers ready; return None here and, in one that was forked, the socket through which its trial's descriptor will come.

        Raises:
            OSError: If the system has no process to spare.
        """

    @property
    def spares(self) -> AbstractSet[int]:
        """Children that are no workers yet."""

    def bury(self, pid: int) -> None:
        """Forget a spare that has died."""

    def learn(self, module: str) -> None:
        """Have a module ready for workers to come, where they share what is loaded here."""


@dataclass(slots=True)
class _Dying:
    worker: int
    body: process_groups.Dead
    is_oom: bool | None
    deadline: float


@final
class Zygote:
    """The loop: requests in, workers out, reports of their deaths back."""

    def __init__(
        self, control: socket.socket, knell: int, starter: Starter, grace_s: float
    ) -> None:
        """Watch the sockets and the children.

        Args:
            control: The socket to the driver.
            knell: Its writing end's only holder is the driver.
            starter: How workers are started.
            grace_s: How long a killed group may take to vanish before its worker is reported gone nevertheless.
        """
        self._control = control
        self._knell = knell
        self._starter = starter
        self._grace_s = grace_s
        self._pids: dict[int, int] = {}
        self._workers: dict[int, int] = {}
        self._dying: dict[int, _Dying] = {}
        self._memory = OutOfMemoryKills()
        self._unborn: deque[Start] = deque()
        self._retry_at = 0.0
        # Helpers that the user's modules have started while they were imported belong to all workers.
        self._household = process_groups.children()
        self._bell, self._clapper = (
            os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _pipe()
        )
        signal.set_wakeup_fd(self._clapper, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._selector = selectors.DefaultSelector()
        for descriptor in (control, knell, self._bell):
            self._selector.register(descriptor, selectors.EVENT_READ)

    def serve(self) -> socket.socket | None:
        """Serve the driver until it is gone: then return None, in the zygote. Return in each forked worker, with its hatch."""
        while True:
            ready = {key.fd for key, _ in self._selector.select(self._patience())}
            if self._knell in ready or (
                self._control.fileno() in ready and not self._take_requests()
            ):
                self._bury_everybody()
                return None
            if self._bell in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bell, 4096)
                self._reap()
            hatch = self._start_unborn()
            if hatch is not None:
                self._forget()
                return hatch
            self._report_gone()

    def _patience(self) -> float | None:
        if self._dying:
            return _POLL_S
        return max(0.0, self._retry_at - time.monotonic()) if self._unborn else None

    def _take_requests(self) -> bool:
        """Take what the driver wants; return False if it is gone."""
        with contextlib.suppress(BlockingIOError):
            while request := receive_request(self._control):
                match request:
                    case Start():
                        self._unborn.append(request)
                    case Kill(number, is_gentle):
                        self._kill(number, is_gentle=is_gentle)
                    case Learn(place):
                        self._starter.learn(preload.MODULES[place])
            return False
        return True

    def _kill(self, number: int, *, is_gentle: bool) -> None:
        if number in self._pids:
            end = (
                process_groups.ask_child_and_group
                if is_gentle
                else process_groups.kill_child_and_group
            )
            end(self._pids[number])
            return
        for request in [request for request in self._unborn if request.worker == number]:
            self._unborn.remove(request)
            os.close(request.descriptor)
            self._report(
                {
                    "kind": "gone",
                    "worker": number,
                    "code": -signal.SIGKILL,
                    "peak_bytes": 0,
                    "is_oom": False,
                }
            )

    def _start_unborn(self) -> socket.socket | None:
        """Start the workers asked for; return None here and, in a forked worker, its hatch."""
        while self._unborn and time.monotonic() >= self._retry_at:
            request = self._unborn[0]
            try:
                pid = self._starter.start(request.descriptor)
                if pid is None and (hatch := self._starter.prepare(len(self._pids) + 1)):
                    return hatch
            except OSError as error:
                self._retry_at = time.monotonic() + _RETRY_S
                self._report(
                    {
                        "kind": "warning",
                        "text": f"no process can be started for a trial ({error}); trying again",
                    }
                )
                return None
            if pid is None:
                continue
            self._unborn.popleft()
            os.close(request.descriptor)
            self._pids[request.worker] = pid
            self._workers[pid] = request.worker
            with contextlib.suppress(OSError):
                if hatch := self._starter.prepare(len(self._pids)):
                    return hatch
        return None

    def _forget(self) -> None:
        """Let a newborn worker have nothing of the zygote's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        self._control.close()
        os.close(self._bell)
        os.close(self._clapper)
        for request in self._unborn:
            os.close(request.descriptor)

    def _reap(self) -> None:
        while dead := process_groups.reap(leaders=self._workers):
            self._starter.bury(dead.pid)
            self._household.discard(dead.pid)
            if dead.pid in self._workers:
                number = self._workers.pop(dead.pid)
                del self._pids[number]
                is_oom = self._memory.claim() if dead.code == -signal.SIGKILL else False
                self._dying[dead.pid] = _Dying(
                    number, dead, is_oom, time.monotonic() + self._grace_s
                )
        self._kill_strays()

    def _kill_strays(self) -> None:
        """Kill descendants of dead workers that have left the group: those of living ones are these workers' children."""
        for pid in (
            process_groups.children()
            - self._workers.keys()
            - self._starter.spares
            - self._household
        ):
            process_groups.kill_child_and_group(pid)

    def _report_gone(self) -> None:
        for pid, dying in list(self._dying.items()):
            is_late = time.monotonic() > dying.deadline
            if process_groups.is_group_alive(pid) and not is_late:
                continue
            if is_late:
                self._report(
                    {
                        "kind": "warning",
                        "text": f"process group {pid} of a dead trial cannot be killed; it may hold memory",
                    }
                )
            del self._dying[pid]
            body, number = dying.body, dying.worker
            self._report(
                {
                    "kind": "gone",
                    "worker": number,
                    "code": body.code,
                    "peak_bytes": body.peak_bytes,
                    "is_oom": dying.is_oom,
                }
            )

    def _report(self, report: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the driver is gone; the life line will say so
            self._control.sendall(encoded(report))

    def _bury_everybody(self) -> None:
        deadline = time.monotonic() + _LAST_RITES_S
        everybody = {*self._workers, *self._starter.spares}
        while time.monotonic() < deadline:
            for pid in everybody | process_groups.children():
                process_groups.kill_child_and_group(pid)
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            everybody.discard(pid)
            if pid == 0:
                time.sleep(_POLL_S)


def main(method: str, control: str, knell: str, parcel: str) -> None:
    """Be the zygote, and in the end one of its workers.

    Args:
        method: ``fork`` or ``spawn``.
        control: Descriptor of the socket to the driver, like the following.
        knell: Reading end of the driver's knell.
        parcel: The parcel with the trainable.
    """
    inherited = [int(control), int(knell), int(parcel)]
    for descriptor in inherited:
        os.set_inheritable(descriptor, False)
    termination_signals.let_pass()
    worker.write_stack_when_killed()
    process_groups.adopt_orphans()
    _give_way()
    channel = socket.socket(fileno=inherited[0])
    if method == "fork":
        _fork_workers(channel, inherited[1], Parcel(inherited[2]), inherited)
    else:
        _spawn_workers(channel, inherited[1], Parcel(inherited[2]))


def _give_way() -> None:
    """Have the kernel take this process, and all that come from it, for batch work, which training is.

    What is batch work waits until whatever runs has come to an end of its own or of its time. Otherwise a trial that gets its answer
    interrupts the driver in the middle of the turn for which all other trials wait; every other turn was. Where the driver has been given
    another policy, that one holds for all.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _fork_workers(control: socket.socket, knell: int, parcel: Parcel, inherited: list[int]) -> None:
    # While user code is being imported nobody looks at the life line.
    alarm = process_groups.die_with_owner(knell)
    trainable, obstacle = _load(parcel)
    if obstacle:
        control.sendall(encoded({"kind": "spawning", "reason": obstacle}))
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        os.execv(sys.executable, command("tuner.execution.local.zygote", "spawn", *inherited))  # noqa: S606  (our own interpreter)
    if alarm != knell:
        os.close(alarm)
    grace_s = parcel["kill_grace_s"]
    parcel.close()
    gc.collect()
    gc.freeze()
    own_knell, holder = os.pipe()
    zygote = Zygote(control, knell, ForkedWorkers(), grace_s)
    control.sendall(encoded({"kind": "ready"}))
    me = os.getpid()
    hatch = zygote.serve()
    if hatch is None:
        os._exit(0)
    os.close(holder)
    worker.enter_life(me, (knell, own_knell))
    connection = await_trial(hatch)
    if connection is None:
        os._exit(0)
    worker.live(connection, lambda: trainable)


def _load(parcel: Parcel) -> tuple[Any, str | None]:
    """Return the trainable, and what keeps this process from being forked with it."""
    try:
        trainable = parcel.load()
        worker.warm_up(trainable)
    except BaseException as error:  # noqa: BLE001  (the user's modules may even exit)
        return None, f"it cannot be loaded there ({type(error).__name__}: {error})"
    return trainable, _why_not_fork()


def _why_not_fork() -> str | None:
    names = [
        thread.name for thread in threading.enumerate() if thread is not threading.main_thread()
    ]
    if names:
        return f"loading it starts threads ({', '.join(names)})"
    if process_groups.num_threads() > 1:
        return f"loading it starts {process_groups.num_threads() - 1} threads outside Python"
    device = device_in_use()
    return f"loading it initializes a device ({device})" if device else None


def _spawn_workers(control: socket.socket, knell: int, parcel: Parcel) -> None:
    own_knell, _holder = os.pipe()
    starter = SpareWorkers((knell, own_knell), parcel.descriptor)
    zygote = Zygote(control, knell, starter, parcel["kill_grace_s"])
    control.sendall(encoded({"kind": "ready"}))
    starter.prepare(0)
    zygote.serve()
    os._exit(0)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends
