"""Trials that run in the driver's process, for debuggers, notebooks and tests."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import logging
import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, final

from tuner.core.worker_records import ReportReply
from tuner.storage import strict_json

from .assignment import Assignment
from .failures import ExitInfo
from .process_service import Gone, HasFileno, Said, ServiceEvent, Woken
from .session import run_attempt
from .validation import run_validation
from .validation_assignment import DeclaredValidator, ValidationAssignment, Validator, own_validator

_STOP: Final = {"verdict": ReportReply.STOP, "save": False}
_ENDED: Final = ExitInfo(0)
_KILL_GRACE_S: Final = 5.0
"""How long a trial that is killed in its turn may take to report, before the others go on."""

_log = logging.getLogger("tuner")


@final
class InlineProcesses:
    """Runs what would be processes in this one, one at a time, each in its own thread.

    A thread runs until it waits for a message or ends; then the next one takes its turn, in the
    order in which they were started and got their messages. Several may be under way at once, as
    schedulers need. But they advance only while the driver is in `wait`: the order of events is the
    same in every run, and a breakpoint stops all of them.

    There is no process to kill: a killed trial is stopped at its next report. One that does not
    report soon counts as gone, and the others go on, but its thread lives until it does. Trials
    share the modules, the environment, standard output and the global random generators of the
    process.

    Args:
        trainable: A function of the configuration, or a subclass of `Trainable`.
        validator: The declared validation function, None for none or that of the trainable.
    """

    isolates: Final = False

    def __init__(self, trainable: Any, validator: Validator | None = None) -> None:
        self._trainable = trainable
        self._declared = DeclaredValidator(own_validator(trainable) or validator)
        self._changed = threading.Condition()
        self._threads: dict[int, _Thread] = {}
        self._queue: deque[_Thread] = deque()
        self._running: _Thread | None = None
        self._said: list[ServiceEvent] = []
        self._is_woken = self._is_closed = False

    # The ProcessService protocol.

    def listen(self, key: int, node: str = "", *, is_local: bool = True) -> None:
        raise NotImplementedError("a trial of the driver's process is no rank of a group")

    def start(self, key: int, assignment: Assignment | ValidationAssignment) -> None:
        """See `ProcessService`; it begins at its turn."""
        with self._changed:
            self._threads[key] = thread = _Thread(key, assignment)
            self._queue.append(thread)

    def reassign(self, key: int, assignment: Assignment) -> None:
        raise NotImplementedError("a thread runs one attempt")

    def send(self, key: int, line: bytes) -> None:
        """See `ProcessService`; it is read at the next turn."""
        with self._changed:
            thread = self._threads.get(key)
            if thread and not thread.is_killed:
                thread.inbox.append(strict_json.loads(line))
                self._queue.append(thread)

    def kill(self, key: int, grace_s: float = 0.0) -> None:
        with self._changed:
            thread = self._threads.get(key)
            if thread is None or thread.is_killed:
                return
            thread.is_killed = True
            if not thread.has_started:
                self._queue.remove(thread)
                self._end(thread)
            elif thread.is_waiting and not thread.inbox:
                self._queue.append(thread)  # its next turn raises StopTraining in `report`
            elif thread is self._running:
                thread.gone_at_s = time.monotonic() + max(grace_s, _KILL_GRACE_S)

    def expect_exit(self, key: int) -> None:
        """See `ProcessService`; nothing can be done."""

    def dump_stack(self, key: int) -> None:
        """See `ProcessService`; nothing asks for it."""

    def preload(self, modules: Iterable[str]) -> None:
        """See `ProcessService`; all share their modules."""

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        raise NotImplementedError("nothing but threads is waited for")

    def wait(self, timeout_s: float | None) -> Sequence[ServiceEvent]:
        """See `ProcessService`. A trial whose turn is not over at the timeout keeps it."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if not self._said:
                self._begin_turn()
            while not (self._is_woken or (self._said and self._running is None)):
                now_s, thread = time.monotonic(), self._running
                gone_at_s = thread.gone_at_s if thread else math.inf
                if thread and now_s >= gone_at_s:
                    self._leave_behind(thread)
                elif self._changed.wait(_left_s(now_s, min(end_s, gone_at_s))):
                    if not self._said:
                        self._begin_turn()
                elif now_s >= end_s:
                    break
            said, self._said = self._said, []
            if self._is_woken:
                self._is_woken = False
                said.append(Woken())
            return said

    def wake(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def close(self, deadline_s: float) -> None:
        """See `ProcessService`; a trial that does not report in time is left in its thread."""
        end_s = time.monotonic() + deadline_s
        with self._changed:
            for key in list(self._threads):
                self.kill(key)
            while self._threads and (left_s := end_s - time.monotonic()) > 0:
                self._begin_turn()
                self._changed.wait(left_s)
            self._is_closed = True
            self._threads.clear()
            self._queue.clear()
            self._said.clear()
            self._changed.notify_all()

    # Turns. All of these hold the condition.

    def _begin_turn(self) -> None:
        while self._queue and self._queue[0].key not in self._threads:
            self._queue.popleft()  # it has ended without having read its last message
        if self._running or not self._queue:
            return
        thread = self._running = self._queue.popleft()
        if thread.has_started:
            thread.has_turn = True
            self._changed.notify_all()
            return
        thread.has_started = True
        threading.Thread(
            target=self._run, args=(thread,), name=_name(thread.assignment), daemon=True
        ).start()

    def _end_turn(self, thread: _Thread) -> None:
        if self._running is thread:
            self._running = None
        self._changed.notify_all()

    def _end(self, thread: _Thread, stack: str = "") -> None:
        if self._threads.pop(thread.key, None):
            self._said.append(Gone(thread.key, _ENDED, stack))
        self._end_turn(thread)

    def _leave_behind(self, thread: _Thread) -> None:
        _log.warning(
            "%s was killed, but its code runs on in this process until it reports; only with "
            "executor='process' can trials be killed at any time",
            _name(thread.assignment),
        )
        frame = sys._current_frames().get(thread.ident)  # noqa: SLF001  (documented)
        self._end(thread, "".join(traceback.format_stack(frame)) if frame else "")

    # In the threads.

    def _run(self, thread: _Thread) -> None:
        thread.ident = threading.get_ident()
        try:
            if isinstance(thread.assignment, ValidationAssignment):
                assignment = thread.assignment
                self._send(thread, run_validation(self._trainable, self._declared, assignment))
            else:
                send = functools.partial(self._send, thread)
                channel = _Channel(send, functools.partial(self._receive, thread))
                assigned = _with_own_config(thread.assignment)
                run_attempt(self._trainable, assigned, channel, self._declared)
        finally:
            with self._changed:
                self._end(thread)

    def _send(self, thread: _Thread, message: Mapping[str, Any]) -> None:
        with self._changed:
            if message["kind"] == "checkpoints":
                thread.listing = message["token"]
            if thread.key in self._threads:
                self._said.append(Said(thread.key, [message]))

    def _receive(self, thread: _Thread, timeout_s: float | None = None) -> Mapping[str, Any]:
        """Wait for a message and the thread's turn; one that is killed is answered at once."""
        with self._changed:
            if not (thread.is_killed or thread.has_turn):
                self._end_turn(thread)
                thread.is_waiting = True
                has_come = self._changed.wait_for(
                    lambda: thread.has_turn or self._is_closed, timeout_s
                )
                thread.is_waiting = False
                if not has_come:
                    raise TimeoutError
            thread.has_turn = False
            if thread.is_killed or self._is_closed:
                return thread.last_answer()
            message = thread.inbox.popleft()
            if "checkpoints" in message:
                thread.listing = None
            return message


@dataclasses.dataclass(slots=True, eq=False)
class _Thread:
    """What would be a process.

    Attributes:
        key: Identifies it.
        assignment: What it is to do.
        inbox: Messages that it has not read.
        has_started: Whether its first turn has begun.
        ident: Identifies it in the interpreter, once it runs.
        has_turn: Whether a turn has begun for which it has waited, or is to read a message.
        is_waiting: Whether it waits for a message.
        is_killed: Whether it is to end.
        gone_at_s: When it counts as gone, even if it has not ended its turn.
        listing: The token of its latest request for checkpoints, until it is answered.
    """

    key: int
    assignment: Assignment | ValidationAssignment
    inbox: deque[Mapping[str, Any]] = dataclasses.field(default_factory=deque)
    has_started: bool = False
    ident: int = 0
    has_turn: bool = False
    is_waiting: bool = False
    is_killed: bool = False
    gone_at_s: float = math.inf
    listing: str | None = None

    def last_answer(self) -> Mapping[str, Any]:
        """Return what it is told when it is to end: there are no checkpoints, and to stop."""
        if self.listing is None:
            return _STOP
        token, self.listing = self.listing, None
        return {"checkpoints": token, "list": []}


@dataclasses.dataclass(frozen=True, slots=True)
class _Channel:
    """A trial's connection to the driver."""

    send: Callable[[dict[str, Any]], None]
    receive: Callable[..., Any]


def _name(assignment: Assignment | ValidationAssignment) -> str:
    if isinstance(assignment, ValidationAssignment):
        return f"{assignment.trial_id}-validation-{assignment.index}"
    return f"{assignment.trial_id}-{assignment.attempt}"


def _with_own_config(assignment: Assignment) -> Assignment:
    # Training code must not change the driver's copy. Objects that cannot be copied are shared.
    with contextlib.suppress(Exception):
        return dataclasses.replace(assignment, config=copy.deepcopy(dict(assignment.config)))
    return assignment


def _left_s(now_s: float, end_s: float) -> float | None:
    return None if end_s == math.inf else max(0.0, end_s - now_s)
