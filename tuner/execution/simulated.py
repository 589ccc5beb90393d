"""An executor whose trials are curves and whose time is virtual: hours of an experiment in a second, the same each time."""

from __future__ import annotations

import contextlib
import copy
import functools
import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never, final

from tuner.core.commands import AnswerReport, KillWorker, StartWorker, WorkerCommand
from tuner.core.events import CheckpointSaved, Event, Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.trial import CheckpointRecord, Failure, Verdict

from .autofill import AutoFill, Place, counters_of
from .failures import describe
from .values import Converter, as_metrics

Curves = Callable[[dict[str, Any]], Iterable[Any]]
"""Yields, for a configuration, the metrics of one iteration after the other: dictionaries or numbers."""
Duration = float | Callable[[dict[str, Any], int], float]
"""Seconds that an iteration takes, or a function of configuration and ``training_iteration``."""

_NOWHERE = Place(pid=0, hostname="simulated", node_ip="127.0.0.1")


@final
class SimulatedExecutor:
    """Replays learning curves in virtual time, without threads, files or chance of its own.

    Time passes only in `wait`, which jumps to the next event. Trials save when they are asked to, in no time and without files, and
    continue from a checkpoint by running their curve up to its iteration. A curve that raises is a failed trial.

    Args:
        curves: See `Curves`; called once for each start of a trial.
        capacity: Total resources, e.g. ``{"cpu": 4.0}``.
        duration_s: See `Duration`; at least 0.

    Example:
        >>> def halving(config):
        ...     loss = config["start"]
        ...     while loss > 1:
        ...         loss /= 2
        ...         yield {"loss": loss}
        >>> executor = SimulatedExecutor(halving, capacity={"cpu": 1.0}, duration_s=60.0)
        >>> executor.carry_out([StartWorker("t00000", 1, {"start": 8.0}, {"cpu": 1.0}, (), None, 0)])
        >>> [type(event).__name__ for event in executor.wait(None)]
        ['WorkerStarted']
        >>> [event.metrics["loss"] for event in executor.wait(None)], executor.clock()
        ([4.0], 60.0)
    """

    def __init__(self, curves: Curves, *, capacity: Mapping[str, float], duration_s: Duration = 1.0) -> None:
        self._curves = curves
        self._capacity = dict(capacity)
        self._duration_s = duration_s
        self._now_s = 0.0
        self._is_awake = False
        self._workers: dict[tuple[str, int], _Worker] = {}
        self._due: list[tuple[float, int, _Worker]] = []
        self._sequence = itertools.count()
        self._events: list[Event] = []

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
            self._now_s, _, worker = heapq.heappop(self._due)
            if worker.is_over:
                continue
            self._happen(worker)
            # What falls on the same moment belongs to the same turn.
            until_s = self._now_s
        if self._events:
            return
        if until_s == math.inf:
            raise RuntimeError("no simulated trial is running, so that waiting would never end; start or answer one, or pass a timeout")
        self._now_s = until_s

    def _start(self, command: StartWorker) -> None:
        autofill = AutoFill(command.trial_id, _NOWHERE, clock=self.clock, wall_clock=self.clock, date=_utc_date)
        worker = _Worker(command, autofill)
        self._workers[command.trial_id, command.attempt] = worker
        self._events.append(WorkerStarted(command.trial_id, command.attempt, _NOWHERE.pid))
        self._train(worker, self._curves)

    def _answer(self, command: AnswerReport) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker is None or not worker.is_waiting:
            return
        worker.is_waiting = False
        if command.save:
            self._events.append(CheckpointSaved(command.trial_id, command.attempt, worker.save()))
        if command.verdict is Verdict.CONTINUE:
            self._train(worker)
        else:
            self._exit(worker, Outcome.STOPPED)

    def _kill(self, command: KillWorker) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker:
            self._exit(worker, Outcome.KILLED, Failure("killed", command.reason))

    def _train(self, worker: _Worker, curves: Curves | None = None) -> None:
        """Compute the next iteration now; it is reported when its time has passed."""
        took_s = 0.0
        try:
            if curves:
                worker.begin(curves)
            took_s = self._duration_of(worker)
            has_more = worker.advance(took_s)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (curves are the user's code, and may raise anything)
            worker.failure, has_more = describe(error), True
        if has_more:
            heapq.heappush(self._due, (self._now_s + took_s, next(self._sequence), worker))
        else:
            self._exit(worker, Outcome.COMPLETED)

    def _duration_of(self, worker: _Worker) -> float:
        duration_s = self._duration_s
        if callable(duration_s):
            duration_s = duration_s(dict(worker.command.config), worker.autofill.iteration + 1)
        if not 0 <= duration_s < math.inf:
            raise ValueError(f"duration_s must be a finite number of at least 0, got {duration_s!r}")
        return duration_s

    def _happen(self, worker: _Worker) -> None:
        if worker.failure:
            self._exit(worker, Outcome.FAILED, worker.failure)
            return
        worker.is_waiting = True
        self._events.append(ResultReported(worker.command.trial_id, worker.command.attempt, worker.report()))

    def _exit(self, worker: _Worker, outcome: Outcome, failure: Failure | None = None) -> None:
        trial_id, attempt = worker.command.trial_id, worker.command.attempt
        del self._workers[trial_id, attempt]
        worker.end()
        self._events.append(WorkerExited(trial_id, attempt, outcome, failure))


class _Worker:
    """One attempt: its curve and how far it has come."""

    __slots__ = (
        "_converter", "_curve", "_elapsed_s", "_metrics", "_next_checkpoint", "_result", "autofill", "command", "failure", "is_over",
        "is_waiting",
    )  # fmt: skip

    def __init__(self, command: StartWorker, autofill: AutoFill) -> None:
        self.command = command
        self.autofill = autofill
        self.failure: Failure | None = None
        self.is_waiting = False
        self.is_over = False
        self._converter = Converter()
        self._next_checkpoint = command.next_checkpoint
        self._curve: Iterator[Any] = iter(())
        self._metrics: dict[str, Any] = {}
        self._elapsed_s = 0.0
        self._result: dict[str, Any] = {}
        if checkpoint := command.checkpoint:
            autofill.restore(checkpoint.iteration, checkpoint.time_total_s, checkpoint.counters)

    def begin(self, curves: Curves) -> None:
        """Run the curve up to the iteration to continue from."""
        self._curve = iter(curves(copy.deepcopy(dict(self.command.config))))
        for _ in itertools.islice(self._curve, self.autofill.iteration):
            pass

    def advance(self, elapsed_s: float) -> bool:
        """Compute the next iteration; return whether there is one."""
        for value in self._curve:
            self._metrics = self._converter.convert(as_metrics(value))
            self._elapsed_s = elapsed_s
            return True
        return False

    def report(self) -> dict[str, Any]:
        """Return the result of the iteration computed last."""
        self._result = self.autofill.fill(self._metrics, self._elapsed_s)
        self.autofill.count(self._result)
        return self._result

    def save(self) -> CheckpointRecord:
        """Return a record of a checkpoint at the latest result."""
        index = self._next_checkpoint
        self._next_checkpoint += 1
        return CheckpointRecord(index, self.autofill.iteration, self.autofill.time_total_s, counters_of(self._result))

    def end(self) -> None:
        """Let go of the curve."""
        self.is_over = True
        close = getattr(self._curve, "close", None)
        if close:
            with contextlib.suppress(Exception):  # the clean-up of a generator is the user's code, and nobody waits for it any more
                close()
        self._curve = iter(())


@functools.lru_cache(maxsize=4096)
def _utc_date(timestamp: int) -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(timestamp))
