"""The zygote: a single-threaded process that loads the trainable once and forks the workers.

There is one per experiment, or for several of a process, see `zygote_supervisor`. It is a fresh
interpreter, never a fork of the user's process. Because torch, the user's modules and the data
bound with ``with_parameters`` are loaded *before* it forks, a worker costs one fork, and what has
been loaded is shared until it is written to. The zygote runs no training code, so nothing in it can
hang.

It also reaps the workers. As *child subreaper* it becomes the parent of what a dead worker leaves
behind. It kills the rest of the worker's process group and all descendants that have left the
group, and reports the worker gone when the whole group is. When its connections to the driver
close, it kills all its descendants and exits.

A process with threads cannot be forked safely: a lock that another thread holds stays locked in the
child for ever. Nor can one that has initialized an accelerator. If loading the trainable did either
or failed, the zygote reports ``spawning``, replaces itself with a fresh interpreter that loads
nothing, and spawns workers, each of which loads the trainable itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, final

from tuner.execution import preload
from tuner.execution.resources import device_in_use
from tuner.execution.trainable import forget_signatures

from . import orphans, process_groups, process_setup, worker
from .interpreter import command
from .loaded_files import LoadedFiles
from .oom_kills import OomKillCounter
from .trainable_blob import TrainableBlob, UserCode
from .worker_pool import ForkPool, SpawnPool, WorkerPool, await_trial
from .zygote_protocol import (
    DumpStack,
    Kill,
    Load,
    LostStart,
    Park,
    Preload,
    Start,
    encoded,
    receive_request,
)

_POLL_S: Final = 0.005
"""How often to check whether a killed process group is gone."""
_RETRY_S: Final = 1.0
"""How long to wait after the system has refused to start a process."""
MAX_IDLE_S: Final = 600.0
"""How long a parked zygote waits for another trainable before it exits."""
_SHUTDOWN_S: Final = 1.0
"""How long to keep killing descendants before the zygote exits."""


@dataclass(slots=True)
class _ExitedWorker:
    """A reaped worker whose process group may still have members."""

    number: int
    process: process_groups.ReapedChild
    is_oom: bool | None
    deadline: float


@final
class Zygote:
    """The loop that starts, kills and reaps workers."""

    def __init__(
        self,
        control: socket.socket,
        liveness: int,
        pool: WorkerPool,
        grace_s: float,
    ) -> None:
        """Watch the connections to the driver, and the children.

        Args:
            control: The socket to the driver.
            liveness: Read end of the driver's liveness pipe.
            pool: Starts workers.
            grace_s: How long to wait for a killed group to vanish before its worker is reported
                gone all the same.
        """
        self._idle_until_s: float | None = None
        self._asked: Park | Load | None = None
        self._control = control
        self._liveness = liveness
        self._pool = pool
        self._grace_s = grace_s
        self._pids: dict[int, int] = {}  # by the driver's number
        self._workers: dict[int, int] = {}  # the driver's numbers by process id
        self._exited: dict[int, _ExitedWorker] = {}  # by process id
        self._oom_kills = OomKillCounter()
        self._pending_starts: deque[Start] = deque()
        self._retry_at = 0.0
        # Helper processes that the user's modules start on import serve all workers: not strays.
        self._helper_pids = process_groups.children()
        self._wakeup_pipe = process_setup.WakeupPipe()
        # A full pipe is readable, and one byte says as much as a thousand: reaping takes all.
        signal.set_wakeup_fd(self._wakeup_pipe.write_end, warn_on_full_buffer=False)
        # Python writes to the pipe only for signals that have a handler in Python.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._selector = selectors.DefaultSelector()
        for source in (control, liveness, self._wakeup_pipe):
            self._selector.register(source, selectors.EVENT_READ)

    def serve(self) -> socket.socket | Park | Load | None:
        """Serve the driver until it is gone, or the zygote is to be parked or to load anew.

        Returns:
            None in the zygote when the driver is gone, or has had no use for it for long; the
            request that ends the serving; in each forked worker, its end of the standby socket.
        """
        while True:
            ready = {key.fd for key, _ in self._selector.select(self._select_timeout_s())}
            is_requested = self._control.fileno() in ready
            is_over = self._idle_until_s is not None and time.monotonic() >= self._idle_until_s
            is_gone = self._liveness in ready or (is_requested and not self._take_requests())
            if is_gone or (is_over and not self._asked):
                self._kill_all()
                return None
            if self._asked:
                asked, self._asked = self._asked, None
                return asked
            if self._wakeup_pipe.fileno() in ready:
                self._wakeup_pipe.clear()
                self._reap()
            standby_end = self._start_pending()
            if standby_end is not None:
                self._release_in_child()
                return standby_end
            self._report_gone()

    def _select_timeout_s(self) -> float | None:
        if self._idle_until_s is not None:
            return max(0.0, self._idle_until_s - time.monotonic())
        if self._exited:
            return _POLL_S  # the system notifies of the end of a process, not of that of its group
        return max(0.0, self._retry_at - time.monotonic()) if self._pending_starts else None

    def _take_requests(self) -> bool:
        """Carry out what the driver requests; return False if it is gone."""
        with contextlib.suppress(BlockingIOError):
            while request := receive_request(self._control):
                match request:
                    case Start():
                        self._pending_starts.append(request)
                    case LostStart(number):
                        self._report({"kind": "unstarted", "worker": number})
                    case Kill(number, is_graceful):
                        self._kill(number, is_graceful=is_graceful)
                    case DumpStack(number):
                        if number in self._pids:
                            process_groups.dump_stack(self._pids[number])
                    case Preload(index):
                        self._pool.preload_module(preload.MODULES[index])
                    case Park() | Load():
                        self._asked = request
                        return True
            return False
        return True

    def park(self) -> bool:
        """End all workers; return whether another trainable can be loaded later."""
        # Helper processes of the user's modules would be killed, too.
        if self._helper_pids & process_groups.children():
            return False
        for start in self._pending_starts:
            os.close(start.descriptor)
        self._pending_starts.clear()
        self._kill_all()
        for pid in list(self._pool.standby_pids):
            self._pool.forget(pid)
        for known in (self._pids, self._workers, self._exited):
            known.clear()
        self._idle_until_s = time.monotonic() + MAX_IDLE_S
        return not process_groups.children()

    def resume(self) -> None:
        """Start workers again, now that another trainable is loaded."""
        self._idle_until_s = None
        self._retry_at = 0.0
        self._oom_kills = OomKillCounter()
        self._helper_pids = process_groups.children()

    def _kill(self, number: int, *, is_graceful: bool) -> None:
        if number in self._pids:
            end = (
                process_groups.terminate_child_and_group
                if is_graceful
                else process_groups.kill_child_and_group
            )
            end(self._pids[number])
            return
        for start in [start for start in self._pending_starts if start.worker == number]:
            self._pending_starts.remove(start)
            os.close(start.descriptor)
            self._report(
                {
                    "kind": "gone",
                    "worker": number,
                    "code": -signal.SIGKILL,
                    "peak_bytes": 0,
                    "is_oom": False,
                }
            )

    def _start_pending(self) -> socket.socket | None:
        """Start requested workers; return as `serve` does."""
        while self._pending_starts and time.monotonic() >= self._retry_at:
            start = self._pending_starts[0]
            try:
                pid = self._pool.start(start.descriptor)
                if pid is None and (standby_end := self._pool.prepare(len(self._pids) + 1)):
                    return standby_end
            except OSError as error:
                self._retry_at = time.monotonic() + _RETRY_S
                self._warn(f"no process can be started for a trial ({error}); trying again")
                return None
            if pid is None:
                continue  # now that workers stand by
            self._pending_starts.popleft()
            # While a copy is open anywhere else, the driver does not see the worker's end of file.
            os.close(start.descriptor)
            self._pids[start.worker] = pid
            self._workers[pid] = start.worker
            with contextlib.suppress(OSError):
                if standby_end := self._pool.prepare(len(self._pids)):
                    return standby_end
        return None

    def _release_in_child(self) -> None:
        """Close all that a forked worker has inherited from the zygote."""
        # Before the pipe is closed: a child of the training code that dies in between would
        # otherwise make Python write into a file that got the same descriptor.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        self._control.close()
        self._wakeup_pipe.close()
        for start in self._pending_starts:
            os.close(start.descriptor)

    def _reap(self) -> None:
        while child := process_groups.reap(leaders=self._workers):
            self._pool.forget(child.pid)
            self._helper_pids.discard(child.pid)
            if child.pid in self._workers:
                number = self._workers.pop(child.pid)
                # From here on the kernel may give its id to another process: never signal it again.
                del self._pids[number]
                is_oom = self._oom_kills.claim() if child.code == -signal.SIGKILL else False
                deadline = time.monotonic() + self._grace_s
                self._exited[child.pid] = _ExitedWorker(number, child, is_oom, deadline)
        self._kill_strays()

    def _kill_strays(self) -> None:
        """Kill descendants of dead workers that have left the group.

        Those of living workers are children of these workers, not of the zygote.
        """
        known = self._workers.keys() | self._pool.standby_pids | self._helper_pids
        for pid in process_groups.children() - known:
            process_groups.kill_child_and_group(pid)

    def _report_gone(self) -> None:
        for pid, exited in list(self._exited.items()):
            is_late = time.monotonic() > exited.deadline
            if process_groups.is_group_alive(pid) and not is_late:
                continue
            if is_late:
                self._warn(
                    f"process group {pid} of a dead trial cannot be killed; it may hold memory"
                )
            del self._exited[pid]
            self._report(
                {
                    "kind": "gone",
                    "worker": exited.number,
                    "code": exited.process.code,
                    "peak_bytes": exited.process.peak_bytes,
                    "is_oom": exited.is_oom,
                }
            )

    def _warn(self, text: str) -> None:
        self._report({"kind": "warning", "text": text})

    def _report(self, report: dict[str, Any]) -> None:
        # Blocks while the socket is full: the driver reads whenever it waits for events, and never
        # blocks on the zygote in turn. An error means that the driver is gone, which the liveness
        # pipe will show.
        with contextlib.suppress(OSError):
            self._control.sendall(encoded(report))

    def _kill_all(self) -> None:
        # Repeated, because a descendant may fork while it is being killed, and because the children
        # of each one that dies become the zygote's.
        deadline = time.monotonic() + _SHUTDOWN_S
        pids = {*self._workers, *self._pool.standby_pids}
        while time.monotonic() < deadline:
            for pid in pids | process_groups.children():
                process_groups.kill_child_and_group(pid)
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            pids.discard(pid)
            if pid == 0:
                time.sleep(_POLL_S)


def main(method: str, control: str, liveness: str, blob: str) -> None:
    """Run the zygote, and in its forks the workers.

    Args:
        method: ``fork`` or ``spawn``.
        control: Descriptor of the socket to the driver.
        liveness: Descriptor of the read end of the driver's liveness pipe.
        blob: Descriptor of the blob with the trainable.
    """
    inherited = [int(control), int(liveness), int(blob)]
    # They had to be inheritable to get here. Programs that training code starts must not hold them:
    # a copy of the liveness pipe or of the sockets in a process that survives would hide an end.
    for descriptor in inherited:
        os.set_inheritable(descriptor, False)
    process_setup.ignore_termination_signals()
    process_groups.dump_stack_when_killed()
    process_groups.adopt_orphans()
    process_groups.use_batch_scheduling()
    channel = socket.socket(fileno=inherited[0])
    if method == "fork":
        _fork_workers(channel, inherited[1], TrainableBlob(inherited[2]), inherited)
    else:
        _spawn_workers(channel, inherited[1], TrainableBlob(inherited[2]))


def _fork_workers(
    control: socket.socket, liveness: int, blob: TrainableBlob, inherited: list[int]
) -> None:
    files, directory = LoadedFiles(time.time()), os.getcwd()  # noqa: PTH109  (compared only)
    grace_s = blob["kill_grace_s"]
    code, obstacle = _load_watched(blob, liveness)
    if code is None or obstacle:
        control.sendall(encoded({"kind": "spawning", "reason": obstacle}))
        # exec keeps process id, parent and sockets, and rids the process of threads and devices.
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        arguments = command("tuner.execution.local.zygote", "spawn", *inherited)
        os.execv(sys.executable, arguments)  # noqa: S606  (our own interpreter)
    blob.close()
    files.note_new()
    _share_with_workers()
    # After the trainable is loaded, so that no helper process of the user's modules has got a copy.
    own_liveness, liveness_writer = os.pipe()
    zygote = Zygote(control, liveness, ForkPool(), grace_s)
    _say_ready(control)
    zygote_pid = os.getpid()  # in a worker, which returns from `serve` as well, it is the parent's
    while isinstance(request := zygote.serve(), Park | Load):
        if isinstance(request, Park):
            can_load = zygote.park() and directory == os.getcwd()  # noqa: PTH109
            control.sendall(encoded({"kind": "parked", "can_load": can_load}))
            code = None
            _forget_trainable()
            continue
        code = _load_another(request, liveness, files)
        if code is None:
            os._exit(0)  # the driver starts a new one
        _share_with_workers()
        zygote.resume()
        _say_ready(control)
    if request is None:
        os._exit(0)  # without the exit handlers of the user's modules, which might hang
    # From here on in a worker. With a write end of its own it would keep itself alive.
    os.close(liveness_writer)
    process_groups.setup_process(zygote_pid, (liveness, own_liveness))
    connection = await_trial(request)
    if connection is None or code is None:
        os._exit(0)
    loaded = code
    worker.run_worker(connection, lambda: loaded)


def _load_watched(blob: TrainableBlob, liveness: int) -> tuple[UserCode | None, str | None]:
    """Load as `_load` does, while the kernel watches the pipe: the loop does not run."""
    armed = process_groups.die_with_pipe(liveness)
    code, obstacle = _load(blob)
    if armed != liveness and not (code is None or obstacle):
        os.close(armed)
    return code, obstacle


def _say_ready(control: socket.socket) -> None:
    try:
        control.sendall(encoded({"kind": "ready"}))
    except BrokenPipeError:  # there was nothing to run, and the driver has ended meanwhile
        os._exit(0)


def _share_with_workers() -> None:
    # A garbage collection in a worker would write to every object, and so copy every shared page.
    # First collected, because garbage would be frozen, too.
    gc.collect()
    gc.freeze()


def _forget_trainable() -> None:
    """Free what was bound to the trainable, which may be large, once nothing refers to it."""
    forget_signatures()
    gc.unfreeze()
    _share_with_workers()  # now, so that the next experiment does not wait for it


def _load_another(request: Load, liveness: int, files: LoadedFiles) -> UserCode | None:
    """Return another trainable; None if a new process has to load it, which may do better."""
    if not files.are_unchanged() or not orphans.adopt_identity(request.identity):
        return None
    importlib.invalidate_caches()
    blob = TrainableBlob(request.descriptor)
    code, obstacle = _load_watched(blob, liveness)
    blob.close()
    files.note_new()
    return None if obstacle else code


def _load(blob: TrainableBlob) -> tuple[UserCode | None, str | None]:
    """Return the trainable, and the reason why this process cannot be forked with it, if any."""
    try:
        code = blob.load()
        worker.warm_up(code.trainable)
    except BaseException as error:  # noqa: BLE001  (the user's modules may even exit)
        return None, f"it cannot be loaded there ({type(error).__name__}: {error})"
    return code, _why_not_fork()


def _why_not_fork() -> str | None:
    main_thread = threading.main_thread()
    names = [thread.name for thread in threading.enumerate() if thread is not main_thread]
    if names:
        return f"loading it starts threads ({', '.join(names)})"
    # Threads of native libraries are unknown to `threading`.
    if process_groups.num_threads() > 1:
        return f"loading it starts {process_groups.num_threads() - 1} threads outside Python"
    device = device_in_use()
    return f"loading it initializes a device ({device})" if device else None


def _spawn_workers(control: socket.socket, liveness: int, blob: TrainableBlob) -> None:
    own_liveness, _liveness_writer = os.pipe()
    pool = SpawnPool((liveness, own_liveness), blob.descriptor)
    zygote = Zygote(control, liveness, pool, blob["kill_grace_s"])
    _say_ready(control)
    pool.prepare(0)
    zygote.serve()
    os._exit(0)
