"""Errors of training over several processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.core.failure_causes import errors_by_rank
from tuner.core.worker_records import Failure
from tuner.errors import TunerError


@dataclass(frozen=True, slots=True)
class PreemptionInfo:
    """An interruption that is about to happen.

    Attributes:
        deadline_ms: When the workers will be killed, in milliseconds of the UNIX time; None where
            that is not known.
        preempted_node_to_ranks: Which workers, by the name of their machine.
        reason: Why, as the rule of the decision: ``"signal.SIGTERM"``, ``"time_limit"``,
            ``"user.pause"`` and so on; empty where that is not known.

    Departures:
        Ray has no `reason`.
    """

    deadline_ms: int | None = None
    preempted_node_to_ranks: Mapping[str, list[int]] = field(default_factory=dict)
    reason: str = ""

    @property
    def preempted_node_ids(self) -> list[str]:
        """Names of the machines concerned, sorted."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """Ranks of the workers concerned, in ascending order."""
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})


class TrainingFailedError(TunerError):
    """Training has failed: raised by ``TorchTrainer.fit``.

    Its ``__cause__`` is the error of the worker that failed first, or what kept the training from
    being supervised.
    """


class WorkerGroupError(TrainingFailedError):
    """Workers raised an exception or died, and no retry was left.

    Args:
        error_message: What happened.
        worker_failures: The error of each worker that failed, by its rank. The worker that failed
            first comes first; what the others raised may only follow from that. Where a worker
            raised one of Python's built-in exceptions, its error is an instance of that too.
    """

    def __init__(self, error_message: str, worker_failures: Mapping[int, Exception]) -> None:
        super().__init__(f"training failed because of errors of its workers: {error_message}")
        self._error_message = error_message
        self.worker_failures = dict(worker_failures)
        self.__cause__ = next(iter(self.worker_failures.values()), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._error_message, self.worker_failures)


class NCCLHangError(WorkerGroupError):
    """Workers hang in a collective operation of NCCL.

    Never raised: a group that is silent for too long is ended as `FailureConfig` says, with the
    stack of each worker, and `WorkerGroupError` tells so. The name is here for scripts that catch
    it.
    """


class ControllerError(TrainingFailedError):
    """Training could not be started or supervised.

    Args:
        controller_failure: What was raised.
    """

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"training could not be supervised: {controller_failure}")
        self.controller_failure = controller_failure
        self.__cause__ = controller_failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.controller_failure,)


class PreemptionError(TrainingFailedError):
    """Training was interrupted, e.g. by Ctrl-C, before it was complete; it can be continued.

    Args:
        preemption_info: What is known of the interruption.
        drain_timed_out: Whether workers had to be killed.
    """

    def __init__(self, preemption_info: PreemptionInfo, drain_timed_out: bool = False) -> None:
        super().__init__(
            "training was interrupted before it was complete; start it again under the same name "
            "to continue"
        )
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.preemption_info, self.drain_timed_out)


def group_error(failure: Failure) -> WorkerGroupError:
    """Return the error for the failure of a trial's last attempt."""
    error = WorkerGroupError(str(failure), errors_by_rank(failure))
    if failure.traceback:
        error.add_note(failure.traceback)
    return error
