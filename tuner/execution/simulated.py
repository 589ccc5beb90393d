"""An executor whose trials are curves and whose time is virtual: hours of an experiment in a second, the same each time."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

from tuner.core.commands import StartWorker
from tuner.core.trial import CheckpointRecord

from .metric_conversion import Converter, as_metrics
from .result_fields import AutoFill, Place, counters_of, next_iteration
from .virtual import VirtualExecutor, VirtualWorker

Curves = Callable[[dict[str, Any]], Iterable[Any]]
"""Yields, for a configuration, the metrics of one iteration after the other: dictionaries or numbers."""
Duration = float | Callable[[dict[str, Any], int], float]
"""Seconds that an iteration takes, or a function of configuration and ``training_iteration``."""

_NOWHERE = Place(pid=0, hostname="simulated", node_ip="127.0.0.1")


@final
class SimulatedExecutor(VirtualExecutor):
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

    def __init__(
        self, curves: Curves, *, capacity: Mapping[str, float], duration_s: Duration = 1.0
    ) -> None:
        super().__init__(capacity)
        self._curves = curves
        self._duration_s = duration_s

    def _employ(self, command: StartWorker) -> VirtualWorker:
        autofill = AutoFill(
            command.trial_id, _NOWHERE, clock=self.clock, wall_clock=self.clock, date=_utc_date
        )
        return _Worker(command, autofill, self._curves, self._duration_s)


@final
class _Worker(VirtualWorker):
    """One attempt: its curve and how far it has come."""

    def __init__(
        self, command: StartWorker, autofill: AutoFill, curves: Curves, duration_s: Duration
    ) -> None:
        super().__init__(command)
        self._autofill = autofill
        self._curves = curves
        self._duration_s = duration_s
        self._converter = Converter()
        self._next_checkpoint = command.next_checkpoint
        self._curve: Iterator[Any] = iter(())
        self._metrics: dict[str, Any] = {}
        self._elapsed_s = 0.0
        self._result: dict[str, Any] = {}
        if checkpoint := command.checkpoint:
            autofill.restore(checkpoint.iteration, checkpoint.time_total_s, checkpoint.counters)

    def begin(self) -> None:
        """Run the curve up to the iteration to continue from."""
        self._curve = iter(self._curves(copy.deepcopy(dict(self.command.config))))
        iteration = 0
        while iteration < self._autofill.iteration:
            value = as_metrics(next(self._curve, {}))
            iteration = next_iteration(value if isinstance(value, Mapping) else {}, iteration)

    def duration_s(self) -> float:
        """Return what was given, or what the function says that was given."""
        duration_s = self._duration_s
        if callable(duration_s):
            duration_s = duration_s(dict(self.command.config), self._autofill.iteration + 1)
        if not 0 <= duration_s < math.inf:
            raise ValueError(
                f"duration_s must be a finite number of at least 0, got {duration_s!r}"
            )
        return duration_s

    def advance(self, elapsed_s: float) -> bool:
        """Compute the next iteration; return whether there is one."""
        for value in self._curve:
            self._metrics = self._converter.convert(as_metrics(value))
            self._elapsed_s = elapsed_s
            return True
        return False

    def report(self) -> tuple[dict[str, Any], CheckpointRecord | None]:
        """Return the result of the iteration computed last."""
        self._result = self._autofill.fill(self._metrics, self._elapsed_s)
        self._autofill.count(self._result)
        return self._result, None

    def save(self) -> CheckpointRecord:
        """Return a record of a checkpoint at the latest result."""
        index = self._next_checkpoint
        self._next_checkpoint += 1
        return CheckpointRecord(
            index, self._autofill.iteration, self._autofill.time_total_s, counters_of(self._result)
        )

    def end(self) -> None:
        """Let go of the curve."""
        super().end()
        close = getattr(self._curve, "close", None)
        if close:
            with contextlib.suppress(
                Exception
            ):  # the clean-up of a generator is the user's code, and nobody waits for it any more
                close()
        self._curve = iter(())


@functools.lru_cache(maxsize=4096)
def _utc_date(timestamp: int) -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(timestamp))
