"""Signals and the time limit of the job, which end an experiment early; exit codes of scripts."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, Self

from tuner.core.events import TIME_LIMIT, USER_STOP, StopRequested
from tuner.core.failure_causes import COMMON_FAILURE
from tuner.core.trial import TerminationReason, Trial
from tuner.execution.local.process_setup import TERMINATION_SIGNALS

SIGNAL_PREFIX: Final = "signal."
"""Beginning of the rule for which trials are interrupted by a signal; its name follows."""
TIME_LIMIT_EXIT_CODE: Final = 124
"""Exit code of a script that has reached its time limit, as that of ``timeout``."""
_EXIT_CODE_OF_SIGNAL_0: Final = 128
"""A shell adds this to the number of the signal that has ended a program."""
INTERRUPTED_EXIT_CODE: Final = _EXIT_CODE_OF_SIGNAL_0 + signal.SIGINT
"""Exit code of a script that was interrupted by Ctrl-C."""
FAILED_EXIT_CODE: Final = 1
"""Exit code of a script whose experiment has failed, see `has_failed`."""
CODES_AT_THE_END: Final = frozenset({INTERRUPTED_EXIT_CODE, FAILED_EXIT_CODE})
"""Exit codes that take effect at the end of a script, and not at once."""
_SUCCESSES: Final = frozenset({TerminationReason.COMPLETED, TerminationReason.STOPPED_EARLY})
_CAUSES: Final = {TIME_LIMIT: "the time limit", USER_STOP: "request"}
_ECHO_S: Final = 0.1
"""A signal that follows this soon is the same request: ``timeout`` and some shells signal the
program first, and then its process group."""
_MAX_REQUESTS: Final = 2
_plain_exit: Final = sys.exit


class Interrupts:
    """While entered, turns signals into stop requests.

    The first signal lets trials save and leave; a second one kills them. A third SIGINT raises
    `KeyboardInterrupt`, in case even that does not help. Signals that are ignored stay ignored, as
    SIGHUP under ``nohup``, and the user's own handler of a signal other than SIGINT and SIGTERM
    stays in place. Outside the main thread, where Python handles no signals, this does nothing.

    Args:
        request_stop: Takes each request; called from the signal handler.
        takes_signals: Whether to do so at all.

    Attributes:
        received: The first signal that came, None for none.
    """

    def __init__(
        self, request_stop: Callable[[StopRequested], None], *, takes_signals: bool = True
    ) -> None:
        self._request_stop = request_stop
        self._takes_signals = takes_signals
        self._num_requests = 0
        self._last_at = float("-inf")
        self._before: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None

    def __enter__(self) -> Self:
        """Install the handlers."""
        if self._takes_signals and threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._handle)
                for number in TERMINATION_SIGNALS
                if _may_take(number)
            }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put back the handlers that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        is_echo, self._last_at = now < self._last_at + _ECHO_S, now
        if is_echo:
            return
        self._num_requests += 1
        name = signal.Signals(number)
        self.received = self.received or name
        if self._num_requests > _MAX_REQUESTS and name is signal.SIGINT:
            raise KeyboardInterrupt
        self._request_stop(
            StopRequested(f"{SIGNAL_PREFIX}{name.name}", is_urgent=self._num_requests > 1)
        )


def cause_of_interruption(rule: str) -> str:
    """Return what interrupted an experiment that stops by this rule; empty for other rules."""
    if rule in _CAUSES:
        return _CAUSES[rule]
    return rule.removeprefix(SIGNAL_PREFIX) if rule.startswith(SIGNAL_PREFIX) else ""


def exit_code(rule: str, received: signal.Signals | None, *, has_failed: bool) -> int | None:
    """Return the exit code with which the script has to end, None if it continues.

    Args:
        rule: Of the reason for which the experiment stopped, empty for none.
        received: The first signal that came.
        has_failed: Whether the experiment counts as failed.
    """
    if rule == TIME_LIMIT:
        return TIME_LIMIT_EXIT_CODE
    if received is not None and rule != COMMON_FAILURE:
        return _EXIT_CODE_OF_SIGNAL_0 + received
    return FAILED_EXIT_CODE if has_failed else None


def has_failed(trials: Sequence[Trial], rule: str) -> bool:
    """Return whether a trial has failed for good and none has succeeded.

    A trial succeeds that completes or is stopped early. So does one that has reported results and
    waits for a next session, unless a failure has ended this one.

    Args:
        trials: All trials of the experiment.
        rule: Of the reason for which it stopped, empty for none.
    """
    endings = {trial.ending for trial in trials}
    if TerminationReason.FAILED not in endings or endings & _SUCCESSES:
        return False
    is_stopped_by_failure = rule in {"fail_fast", COMMON_FAILURE}
    return is_stopped_by_failure or not any(
        trial.last_result for trial in trials if trial.ending is not TerminationReason.FAILED
    )


def is_script() -> bool:
    """Return whether this is a script, as against a notebook or an interactive interpreter.

    Outside the main thread this is False, since the process cannot be ended from there.
    """
    is_interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return not is_interactive and threading.current_thread() is threading.main_thread()


def end_script_with(code: int) -> None:
    """Let the script run on, and end the process with this exit code when the script has ended.

    The script decides about failures: where the code is `FAILED_EXIT_CODE`, a code that the script
    passes to `sys.exit` wins.
    """
    atexit.unregister(_leave)
    atexit.register(_leave, code)
    sys.exit = _exit if code == FAILED_EXIT_CODE else _plain_exit


def withdraw_failure() -> None:
    """Withdraw the exit code of a failure, since a later experiment of the script has succeeded."""
    if sys.exit is _exit:
        atexit.unregister(_leave)
        sys.exit = _plain_exit


def _exit(status: Any = None, /) -> NoReturn:
    """End the script with the code that it passes; ``sys.exit(None)`` passes none."""
    if status is not None and threading.current_thread() is threading.main_thread():
        end_script_with(status if isinstance(status, int) else 1)  # Python turns a text into 1, too
    _plain_exit(status)


def _leave(code: int) -> None:
    # Python has no other way to choose the exit code of a script that ends normally. Functions that
    # others have registered with atexit are called first.
    atexit.unregister(_leave)
    atexit._run_exitfuncs()  # noqa: SLF001  (os._exit would leave it out)
    for stream in (sys.stdout, sys.stderr):
        # Closed, or its reader has gone.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _may_take(number: signal.Signals) -> bool:
    handler = signal.getsignal(number)
    if number in (signal.SIGINT, signal.SIGTERM):
        # None is a handler that C code has installed, which could not be put back.
        return handler not in (
            signal.SIG_IGN,
            None,
        )
    return handler is signal.SIG_DFL
