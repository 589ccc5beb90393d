"""The signals by which people and batch systems ask an experiment to end, and how the processes of its trials let them pass.

They are meant for the driver, which has the trials save and leave. But many batch systems, and service managers like systemd, send
them to every process of a job. A trial that died of one would have no time to save, and a zygote would take all trials with it.

So zygote and workers handle them by doing nothing. They are handled and not ignored, since an ignored signal would stay ignored in the
programs that training code starts, which could then not be terminated. Processes that training code forks hear them again.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Final

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")

POLITE_SIGNALS: Final = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
"""Ctrl-C, the usual request to end, a terminal that was closed, and what batch systems send some time before they kill."""


def let_pass() -> None:
    """Have this process, and those that it forks, go on as if they had not come."""
    for number in POLITE_SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else _do_nothing)


def hear_again_in_children() -> None:
    """Let what is forked from now on end by them, as a library expects that terminates its own processes.

    One that comes at once waits until the child is ready for it.
    """
    os.register_at_fork(before=_hold_back, after_in_parent=_release, after_in_child=_hear_again)


_forking = threading.local()
"""What the thread that forks had blocked before."""


def _hold_back() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, POLITE_SIGNALS)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _hear_again() -> None:
    for number in POLITE_SIGNALS:
        if signal.getsignal(number) is _do_nothing:
            signal.signal(number, signal.SIG_DFL)
    _release()


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass
