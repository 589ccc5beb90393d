"""A worker process: runs attempts of one trial, or one validation, and exits.

Its standard output and error go to files in the trial's directory. Its working directory is the
driver's, unless the experiment asks for the trial's directory.
"""

from __future__ import annotations

import atexit
import contextlib
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

from tuner.execution.answers import Answers
from tuner.execution.failures import as_message, describe
from tuner.execution.lease_holder import LeaseHolder
from tuner.execution.leasing import set_holder
from tuner.execution.resources import limit_threads
from tuner.execution.result_fields import host
from tuner.execution.session import give_master_socket, run_again, run_attempt
from tuner.execution.trainable import with_config
from tuner.execution.validation import run_validation
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.storage import strict_json
from tuner.storage.directories import make_folder
from tuner.storage.disk import FILE_MODE

from . import process_groups
from .process_setup import open_standard_descriptors
from .trainable_blob import UserCode
from .worker_connection import Bootstrap, WorkerEnd

_USED_IN_TRIALS: Final = (
    "Checkpoint",
    "Trainable",
    "checkpoint_dir",
    "get_checkpoint",
    "get_context",
    "report",
)
"""Names that training code takes from `tuner`, which imports each when it is first used."""

_DESCRIPTORS: Final = {"stdout": 1, "stderr": 2}


def warm_up(trainable: Any) -> None:
    """Do once, in the process that workers are forked from, what each would otherwise do itself."""
    host()  # cached, like the trainable's signature and the JSON encoder in the next lines
    with_config(trainable, {}, {})
    strict_json.dumps({})
    _print_warnings()
    for name in getattr(trainable, "preloaded_modules", ()):
        with contextlib.suppress(ImportError):  # training code that needs it will raise it
            importlib.import_module(name)
    for name in _USED_IN_TRIALS:
        getattr(sys.modules["tuner"], name)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # to be seeded in each worker
    # The user's modules may have closed or removed any of the standard streams.
    open_standard_descriptors()
    for name, descriptor in _DESCRIPTORS.items():
        stream = getattr(sys, name)
        if stream is None:
            stream = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
        stream.flush()


def run_worker(descriptor: int, load: Callable[[], UserCode]) -> NoReturn:
    """Run what the driver assigns, and end the process.

    Args:
        descriptor: This worker's end of the socket pair to the driver.
        load: Returns the user's code, or raises what kept it from being loaded.
    """
    code = 1
    # What the zygote's modules have registered must not run in every worker; closing the log files
    # must.
    atexit._clear()  # noqa: SLF001  (multiprocessing does the same in its children)
    atexit.register(logging.shutdown)
    try:
        channel = WorkerEnd(descriptor)
        _run(channel, load)
        code = 0
    except BaseException:  # noqa: BLE001  (the driver is gone; there is only stderr)
        traceback.print_exc()
    finally:
        # Never back into the zygote's stack, whose loop would go on in the fork.
        _exit(code)


def _run(channel: WorkerEnd, load: Callable[[], UserCode]) -> None:
    bootstrap = channel.receive_bootstrap()
    if bootstrap.has_master_socket:
        give_master_socket(channel.receive_descriptor())
    is_unloadable = False
    try:
        _prepare_process(bootstrap)
        is_unloadable = True
        code = load()
        assignment = pickle.loads(bootstrap.assignment)  # noqa: S301  (from the driver)
    except BaseException as error:  # noqa: BLE001  (unpickling runs the user's code)
        failure = as_message(describe(error))
        ended = {"kind": "exited", "outcome": "failed", "failure": failure}
        channel.send({**ended, "is_unloadable": is_unloadable})
        return
    answers = Answers(channel)
    set_holder(LeaseHolder(channel, answers, assignment.trial_dir, assignment.resources))
    if isinstance(assignment, ValidationAssignment):
        channel.send(run_validation(code.trainable, code.validator, assignment))
        return
    if assignment.works_in_trial_dir:
        _change_directory(assignment.trial_dir)
    reusable = run_attempt(code.trainable, assignment, channel, code.validator, answers)
    while reusable is not None:
        next_assignment = pickle.loads(channel.receive_bootstrap().assignment)  # noqa: S301
        reusable = run_again(reusable, next_assignment, channel, answers)


def _prepare_process(bootstrap: Bootstrap) -> None:
    """Set environment, output files, random seeds and threads for the trial."""
    for name, value in bootstrap.environ.items():
        # Setting a variable copies pages that are still shared.
        if os.environ.get(name) != value:
            os.environ[name] = value
    # By descriptor, so that native libraries and child processes write there, too.
    for descriptor, name in zip(_DESCRIPTORS.values(), bootstrap.streams, strict=True):
        _append_to_file(descriptor, f"{bootstrap.trial_dir}/{name}")
    random.seed(bootstrap.seed)  # noqa: TID251  (for the training code)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(bootstrap.seed % 2**32)
    limit_threads(bootstrap.environ)


def _print_warnings() -> None:
    """Let the engine's warnings reach the trial's ``stderr``, or handlers of the training code.

    In the driver the console shows them, so the package keeps Python from printing them as well. A
    worker has no console.
    """
    engine = logging.getLogger("tuner")
    for handler in [found for found in engine.handlers if isinstance(found, logging.NullHandler)]:
        engine.removeHandler(handler)


def _change_directory(trial_dir: str | os.PathLike[str]) -> None:
    """Make the trial's directory the working directory; modules are still found where they were."""
    # Not Path.resolve: an empty entry stands for the working directory, which is being left.
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100
    os.chdir(trial_dir)


def _append_to_file(descriptor: int, path: str) -> None:
    """Redirect a descriptor to the end of a file, for this process and its children.

    The stream objects stay as they are: logging handlers may have held them since the trainable
    was loaded.
    """
    # O_NONBLOCK: opening a FIFO would otherwise wait for a reader.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        make_folder(Path(path).parent)
        file = os.open(path, flags, FILE_MODE)
    os.set_blocking(file, True)
    os.dup2(file, descriptor)
    os.close(file)


def _exit(code: int) -> NoReturn:
    """End the process without waiting for threads or running the zygote's exit handlers."""
    try:
        # os._exit would not run what the training code has registered.
        atexit._run_exitfuncs()  # noqa: SLF001
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        # The zygote would do it, too, but it may die together with the driver before that; and the
        # liveness pipes kill only groups whose leader is alive.
        process_groups.kill_descendants()
        os._exit(code)
