"""What executors have in common whose time is virtual: nothing happens but what is due next, and it happens at once."""

from __future__ import annotations

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from tuner.core.commands import AnswerReport, KillWorker, StartWorker, WorkerCommand
from tuner.core.events import (
    CheckpointSaved,
    Event,
    Outcome,
    ResultReported,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import CheckpointRecord, Failure, ReportReply

from .failures import describe


class VirtualWorker(ABC):
    """One attempt of a trial, as far as one that is not really trained differs from another.

    Attributes:
        command: What started it.
        failure: With what the training that was computed last ends, instead of with a report; None for a report.
        is_waiting: Whether it has reported and waits for the answer.
        is_over: Whether nothing comes from it any more.
    """

    def __init__(self, command: StartWorker) -> None:
        self.command = command
        self.failure: Failure | None = None
        self.is_waiting = False
        self.is_over = False

    @property
    def start_s(self) -> float:
        """How long it takes until it trains, in seconds."""
        return 0.0

    @property
    def exit_s(self) -> float:
        """How long it takes from its last report until it is gone, where it ends by itself, in seconds."""
        return 0.0

    def leave_s(self, *, has_saved: bool) -> float:
        """Return how long it takes, in seconds, to save, if it does, and to be gone, where it is told to leave."""
        return 0.0

    @abstractmethod
    def begin(self) -> None:
        """Get ready to train; may raise anything, which is its failure."""

    @abstractmethod
    def duration_s(self) -> float:
        """Return how long the next iteration takes, in seconds; may raise anything, as `advance` may."""

    @abstractmethod
    def advance(self, elapsed_s: float) -> bool:
        """Compute the next iteration, which takes `elapsed_s`, and return whether there is one."""

    @abstractmethod
    def report(self) -> tuple[dict[str, Any], CheckpointRecord | None]:
        """Return the result of the iteration computed last, and the checkpoint that is reported with it, if any."""

    @abstractmethod
    def save(self) -> CheckpointRecord:
        """Return a record of a checkpoint at the latest result."""

    def end(self) -> None:
        """Let go of everything."""
        self.is_over = True


class VirtualExecutor(ABC):
    """Runs trials in virtual time, which passes only in `wait`: that jumps to the next moment at which anything happens.

    Args:
        capacity: Total resources, e.g. ``{"cpu": 4.0}``.
    """

    def __init__(self, capacity: Mapping[str, float]) -> None:
        self._capacity = dict(capacity)
        self._now_s = 0.0
        self._is_awake = False
        self._workers: dict[tuple[str, int], VirtualWorker] = {}
        self._due: list[tuple[float, int, VirtualWorker, Callable[[VirtualWorker], None]]] = []
        self._sequence = itertools.count()
        self._events: list[Event] = []

    @abstractmethod
    def _employ(self, command: StartWorker) -> VirtualWorker:
        """Return a worker for a trial."""

    def capacity(self) -> Mapping[str, float]:
        """See `Executor.capacity`."""
        return self._capacity

    def clock(self) -> float:
        """Return the virtual time, seconds since the beginning."""
        return self._now_s

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor.carry_out`."""
        for command in commands:
            match command:
                case AnswerReport():
                    self._answer(command)
                case StartWorker():
                    self._start(command)
                case KillWorker():
                    self._kill(command)
                case _:
                    assert_never(command)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return what happens at the next moment at which anything happens, at most `timeout_s` virtual seconds away.

        Raises:
            RuntimeError: If nothing will ever happen, and there is no `timeout_s`.
        """
        if not self._events and not self._is_awake:
            self._advance(math.inf if timeout_s is None else self._now_s + timeout_s)
        self._is_awake = False
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """See `Executor.wake`."""
        self._is_awake = True

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor.shutdown`."""
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()
        self._due.clear()
        self._events.clear()

    def _advance(self, until_s: float) -> None:
        while self._due and self._due[0][0] <= until_s:
            self._now_s, _, worker, happen = heapq.heappop(self._due)
            if worker.is_over:
                continue
            happen(worker)
            # What falls on the same moment belongs to the same turn.
            until_s = self._now_s
        if self._events:
            return
        if until_s == math.inf:
            raise RuntimeError(
                "no simulated trial is running, so that waiting would never end; start or answer one, or pass a timeout"
            )
        self._now_s = until_s

    def _after(
        self, delay_s: float, worker: VirtualWorker, happen: Callable[[VirtualWorker], None]
    ) -> None:
        heapq.heappush(self._due, (self._now_s + delay_s, next(self._sequence), worker, happen))

    def _start(self, command: StartWorker) -> None:
        worker = self._employ(command)
        self._workers[command.trial_id, command.attempt] = worker
        if worker.start_s:
            self._after(worker.start_s, worker, self._begin)
        else:
            self._begin(worker)

    def _begin(self, worker: VirtualWorker) -> None:
        self._events.append(WorkerStarted(worker.command.trial_id, worker.command.attempt, 0))
        self._train(worker, is_first=True)

    def _train(self, worker: VirtualWorker, *, is_first: bool = False) -> None:
        """Compute the next iteration now; it is reported when its time has passed."""
        took_s = 0.0
        try:
            if is_first:
                worker.begin()
            took_s = worker.duration_s()
            has_more = worker.advance(took_s)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (curves are the user's code, and may raise anything)
            worker.failure, has_more = describe(error), True
        if has_more:
            self._after(took_s, worker, self._happen)
        elif worker.exit_s:
            self._after(worker.exit_s, worker, self._complete)
        else:
            self._complete(worker)

    def _happen(self, worker: VirtualWorker) -> None:
        if worker.failure:
            self._exit(worker, Outcome.FAILED, worker.failure)
            return
        worker.is_waiting = True
        self._events.append(
            ResultReported(worker.command.trial_id, worker.command.attempt, *worker.report())
        )

    def _answer(self, command: AnswerReport) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker is None or not worker.is_waiting:
            return
        worker.is_waiting = False
        if command.save:
            self._events.append(CheckpointSaved(command.trial_id, command.attempt, worker.save()))
        if command.reply is ReportReply.CONTINUE:
            self._train(worker)
        elif leave_s := worker.leave_s(has_saved=command.save):
            self._after(leave_s, worker, self._leave)
        else:
            self._leave(worker)

    def _kill(self, command: KillWorker) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker:
            self._exit(worker, Outcome.KILLED, Failure("killed", command.reason))

    def _complete(self, worker: VirtualWorker) -> None:
        self._exit(worker, Outcome.COMPLETED)

    def _leave(self, worker: VirtualWorker) -> None:
        self._exit(worker, Outcome.STOPPED)

    def _exit(
        self, worker: VirtualWorker, outcome: Outcome, failure: Failure | None = None
    ) -> None:
        trial_id, attempt = worker.command.trial_id, worker.command.attempt
        del self._workers[trial_id, attempt]
        worker.end()
        self._events.append(WorkerExited(trial_id, attempt, outcome, failure))
