"""Signals and standard streams of driver, zygotes and workers, and the driver's garbage collector.

Many batch systems, and service managers like systemd, send termination signals to every process of
a job. They are meant for the driver, which then has the trials save and stop. A worker that died of
the signal could not save, and a zygote would take all workers with it, so both handle the signals
by doing nothing. Children that training code forks get the default handlers back.

Daemons and cron jobs may start with closed standard streams. The system gives a closed descriptor
0, 1 or 2 to the next file or socket that is opened, which would then receive what is printed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, final

_MAX_STANDARD_DESCRIPTOR: Final = 2
_WAKEUP_BYTES: Final = 4096

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
TERMINATION_SIGNALS: Final = tuple(
    getattr(signal, name) for name in _NAMES if hasattr(signal, name)
)
"""Ctrl-C, ``kill``, a closed terminal, and what batch systems send some time before they kill."""


# Signals.


def ignore_termination_signals() -> None:
    """Make termination signals have no effect on this process and those it forks."""
    # A handler, because programs that training code starts would inherit an ignored signal, and
    # could not be terminated. SIGINT is ignored, by these programs as well: Ctrl-C would otherwise
    # end a trial's data loaders, and with them the trial.
    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else _do_nothing)


def restore_signals_in_children() -> None:
    """Let termination signals end processes forked from now on, as libraries expect.

    A signal that arrives during the fork stays pending until the child has its handlers back.
    """
    os.register_at_fork(
        before=_block_signals,
        after_in_parent=_unblock_signals,
        after_in_child=_restore_handlers,
    )


_forking = threading.local()
"""The forking thread's signal mask before the fork."""


def _block_signals() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATION_SIGNALS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _restore_handlers() -> None:
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) is _do_nothing:
            signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


@final
class WakeupPipe:
    """Pipe that wakes a selector from a signal handler or another thread.

    It is readable from the first `wake` until `clear`.

    Attributes:
        write_end: For `signal.set_wakeup_fd`.
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        for end in (self._read_end, self.write_end):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self._read_end

    def wake(self) -> None:
        """Make the selector return; may be called from signal handlers and other threads."""
        with contextlib.suppress(OSError):  # full, so it is readable already; or closed
            os.write(self.write_end, b".")

    def clear(self) -> None:
        """Discard the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_end, _WAKEUP_BYTES)

    def close(self) -> None:
        """Close the pipe; later calls of `wake` have no effect."""
        # -1 first: a signal handler that runs between the two lines must not write to a descriptor
        # that another file may have got by then.
        write_end, self.write_end = self.write_end, -1
        os.close(write_end)
        os.close(self._read_end)


# Standard streams.


def open_standard_descriptors() -> None:
    """Open the null device for each standard descriptor that is closed."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)  # always the lowest number that is free
        if descriptor > _MAX_STANDARD_DESCRIPTOR:
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)


def open_standard_streams() -> None:
    """Open the null device for closed standard descriptors and missing ``sys.std…`` streams."""
    open_standard_descriptors()
    # On a new descriptor, not on 0 to 2: if those were closed when Python started, a file of the
    # user's may have got the number since.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  (never closed)
            setattr(sys, name, stream)


def inherited_output() -> tuple[int | None, int | None]:
    """Return `subprocess.Popen`'s ``stdout`` and ``stderr`` for a child: ours if they are open."""
    out, err = (
        None if stream is not None else subprocess.DEVNULL
        for stream in (sys.__stdout__, sys.__stderr__)
    )
    return out, err


# The garbage collector.


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Run the garbage collector rarely, and not on objects that exist already.

    The driver makes no cycles, but many small objects: some 30,000 wait for their log files where a
    thousand reports come a second. For a process in which nothing is trained: garbage of a training
    may hold a device's memory.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
