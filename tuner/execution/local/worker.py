"""The life of a worker process: one attempt of one trial.

A worker leads a session and a process group of its own, so that a Ctrl-C in the terminal does not reach it and all that it starts
can be killed with it. It dies with the zygote and with the driver. Its standard output and error go to files in the trial's directory;
its working directory is the driver's, unless the experiment asks for the trial's own.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import io
import logging
import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from tuner.execution.devices import limit_threads
from tuner.execution.failures import as_message, describe
from tuner.execution.result_fields import host
from tuner.execution.session import run_again, run_attempt
from tuner.execution.trainable_call import with_config
from tuner.storage import strict_json
from tuner.storage.directories import make_folder
from tuner.storage.disk import FILE_MODE
from tuner.storage.layout import STDERR, STDOUT

from . import process_groups, termination_signals
from .standard_streams import open_standard_descriptors
from .wire import Birth, WorkerEnd

_OOM_SCORE: Final = b"300"
"""Out of 1000: when memory runs out, the kernel is to take a trial and neither the driver nor the zygote."""

_USED_IN_TRIALS: Final = (
    "Checkpoint",
    "Trainable",
    "checkpoint_dir",
    "get_checkpoint",
    "get_context",
    "report",
)
"""Names of the face that training code uses; the face looks each of them up when it is first used."""

_STREAMS: Final = {"stdout": (1, STDOUT), "stderr": (2, STDERR)}


def enter_life(zygote: int, knells: tuple[int, ...]) -> None:
    """Become a process group that dies with its owners.

    The worker adopts what its descendants leave behind, so that nothing of it reaches the zygote before the worker itself is dead.

    Args:
        zygote: Process id of the parent.
        knells: Reading ends of the owners' knells; they are closed.
    """
    os.setsid()
    termination_signals.hear_again_in_children()
    process_groups.adopt_orphans()
    alarms = tuple(process_groups.die_with_owner(knell) for knell in knells)
    for knell, alarm in zip(knells, alarms, strict=True):
        if alarm != knell:
            os.close(knell)
    # The signal of a dying parent kills the worker alone, and with the worker the knells fall silent. It may come before they have rung for
    # the whole group, since a worker that is just being forked holds the zygote's for a moment. So it is for where there are none.
    process_groups.die_with_parent(zygote, is_signalled=alarms == knells)
    _volunteer_for_oom()


def write_stack_when_killed() -> None:
    """Have the process, and those that it forks, write where it is to the standard error when it crashes or is about to be killed."""
    faulthandler.enable()
    faulthandler.register(process_groups.WHERE_ARE_YOU, all_threads=False)


def _volunteer_for_oom() -> None:
    with contextlib.suppress(OSError):
        # A text file object would cost more here than all the rest of a worker's start: it touches pages that are still shared.
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(file, _OOM_SCORE)
        os.close(file)


def warm_up(trainable: Any) -> None:
    """Do once, after the trainable is loaded, what each worker would otherwise do for itself."""
    host()
    with_config(trainable, {}, {})
    strict_json.dumps({})
    for name in _USED_IN_TRIALS:
        getattr(sys.modules["tuner"], name)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")
    open_standard_descriptors()  # the user's modules may have closed them, and the sockets of workers would get their descriptors
    for name, (descriptor, _) in _STREAMS.items():
        stream = getattr(sys, name)
        if stream is None:  # the user's modules have removed it
            setattr(sys, name, stream := open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115  (open for life)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
        stream.flush()


def live(descriptor: int, load: Callable[[], Any]) -> NoReturn:
    """Run one attempt and end the process.

    Args:
        descriptor: This worker's end of the socket pair to the driver.
        load: Returns the trainable, or raises what kept it from being loaded.
    """
    code = 1
    # What the zygote's modules have registered is not to be done once for each worker, but closing the log files is.
    atexit._clear()  # noqa: SLF001  (multiprocessing does the same in its children)
    atexit.register(logging.shutdown)
    try:
        channel = WorkerEnd(descriptor)
        _run(channel, load)
        code = 0
    except BaseException:  # noqa: BLE001  (the driver cannot be told any more: its end of the socket is closed)
        traceback.print_exc()
    finally:
        _leave(code)


def _run(channel: WorkerEnd, load: Callable[[], Any]) -> None:
    birth = channel.receive_birth()
    try:
        _settle(birth)
        trainable = load()
        assignment = pickle.loads(birth.assignment)  # noqa: S301  (from the driver, which also gave us our code)
    except BaseException as error:  # noqa: BLE001  (the user's reduction methods may raise anything)
        channel.send(
            {"kind": "exited", "outcome": "failed", "failure": as_message(describe(error))}
        )
        return
    if assignment.works_in_trial_dir:
        _enter(assignment.trial_dir)
    left = run_attempt(trainable, assignment, channel)
    while left is not None:
        left = run_again(left, pickle.loads(channel.receive_birth().assignment), channel)  # noqa: S301  (as above)


def _settle(birth: Birth) -> None:
    """Make the process the trial's own."""
    for name, value in birth.environ.items():
        if os.environ.get(name) != value:  # setting one copies pages that are still shared
            os.environ[name] = value
    for descriptor, name in _STREAMS.values():
        _append_to_file(descriptor, f"{birth.trial_dir}/{name}")
    random.seed(birth.seed)  # noqa: TID251  (the training code's, not ours)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(birth.seed % 2**32)
    limit_threads(birth.environ)


def _enter(trial_dir: str | os.PathLike[str]) -> None:
    """Make the trial's directory the working directory; modules are still found where they were."""
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100  (an empty entry stands for the directory that is left)
    os.chdir(trial_dir)


def _append_to_file(descriptor: int, path: str) -> None:
    """Have a file take what this process and its children write to the descriptor.

    The stream objects stay as they are: logging handlers may hold them since the trainable was loaded.
    """
    # Without O_NONBLOCK, to open a FIFO waits for its reader.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        make_folder(Path(path).parent)
        file = os.open(path, flags, FILE_MODE)
    os.set_blocking(file, True)
    os.dup2(file, descriptor)
    os.close(file)


def _leave(code: int) -> NoReturn:
    """End the process without waiting for its threads or undoing what the zygote did before it was born."""
    try:
        atexit._run_exitfuncs()  # noqa: SLF001  (os._exit would leave out those that the training code has registered)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        # The zygote would do it as well, but might die together with the driver before it comes to that; the knells ring for groups whose
        # leader is alive.
        process_groups.kill_descendants()
        os._exit(code)
