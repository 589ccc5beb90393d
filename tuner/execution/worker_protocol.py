"""Messages between a worker and its executor, and their translation into events of the core.

A worker sends JSON objects with the key ``kind``::

    {"kind": "started", "pid": 4711}
    {"kind": "result", "metrics": {...},
     "checkpoint": null | {"index", "iteration", "time_total_s", "counters",
                           "name", "is_placeholder"},
     "upload": 3, "replaced": ["pid", ...], "reserved": {"pid": 7, ...}, "ignored": "/a/path",
     "validation": null | {"fn", "kwargs", "timeout", "payload", "takes_config"}}
    {"kind": "committed", "checkpoint": {...}}
    {"kind": "saving"}
    {"kind": "saved", "checkpoint": {...}}
    {"kind": "save_failed", "failure": {"kind", "message", "traceback", "bases", "place"}}
    {"kind": "exited", "outcome": "completed" | "stopped" | "failed" | "unsaved",
     "failure": null | {...}, "stays": bool, "late_imports": [...],
     "packages": {"torch": "2.9.0"}, "is_unloadable": bool}
    {"kind": "unfit"}
    {"kind": "checkpoints", "token": "1", "waits": bool, "stored": bool}
    {"kind": "lease", "token": "2", "group": {"num_workers", ...}}
    {"kind": "release", "token": "2"}

A process that validates a checkpoint sends leases like a worker, and ends with one of::

    {"kind": "validated", "metrics": {...}}
    {"kind": "failed", "failure": {...}}

The executor sends an `assignment.Assignment` first, then one answer for each ``result``:
``{"verdict": "continue" | "pause" | "exploit" | "stop", "save": bool, "stay": bool,
"interruption": {"rule": "signal.SIGTERM", "deadline_ms": int}}``, the last one only for a worker
that is paused or interrupted. It answers
``checkpoints`` by ``{"checkpoints": "1", "list": [[record, metrics, status], ...]}``, and ``lease``
by ``{"lease": "2", "num_workers": int, "devices": ["0", ...]}`` or
``{"refused": "2", "reason": "...", "deadlock": bool}``; these may take long, and come between other
answers.

- A worker sends ``saving`` before it stores a checkpoint, whether it was asked to save or reports a
  checkpoint itself; if storing a reported one fails, it sends ``save_failed``.
- A worker that is asked to save sends ``saved`` before it continues or exits. It sends
  ``save_failed`` if the storage was at fault, and exits with the outcome ``unsaved`` if the user's
  code was.
- An answer with ``stay`` permits the worker to wait for the next attempt of its trial. If it does,
  it says ``stays`` in ``exited`` and waits for another `Assignment`, which it answers like the
  first, or with ``unfit`` if the trainable cannot be reset; then it ends.
- ``upload`` is the index of a checkpoint that a thread of the worker stores while training goes on;
  ``committed`` follows once it is stored, in the order of the reports and before ``exited``.
- An answer may carry ``error``, an object with ``kind`` and ``message``, in the place of
  ``verdict``: `report` raises it, and nothing has been reported.
- What the workers of a group send besides: see `group_protocol`.
- ``replaced`` lists reported names that the engine fills in, each once per attempt.
- ``ignored`` is the checkpoint to continue from, in the first result of an attempt whose training
  code has not asked for it.
- ``reserved`` has what was reported under names of the engine, for `UserCallback`.
- ``late_imports`` and ``packages``: see `preload`. ``is_unloadable``: whether the trainable, or the
  configuration, could not be loaded at all.
- ``validation`` is written as in the journal, see `ValidationRequest`.

Workers may run any code, so `to_event` checks every field. Which trial and attempt a message
belongs to follows from the connection, never from the message.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tuner.core.commands import AnswerReport, GrantLease, ListCheckpoints, RefuseLease
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointSaved,
    CheckpointsRequested,
    CheckpointStarted,
    Event,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.result import AUTO_FILLED, TRAINING_ITERATION
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest, WorkerGroup
from tuner.storage.checkpoint_names import check_directory_name
from tuner.wire.declared import Malformed, decode, encode

from .failures import with_notebook_source
from .resources import gpu_names
from .validation_assignment import payload_digest

_T = TypeVar("_T")
_MAX_TOKEN_LENGTH = 100
_WORKER_OUTCOMES = (Outcome.COMPLETED, Outcome.STOPPED, Outcome.FAILED, Outcome.UNSAVED)


def to_event(trial_id: str, attempt: int, message: Mapping[str, Any]) -> Event:
    """Return the event for a worker's message.

    Args:
        trial_id: The worker's trial.
        attempt: The worker's attempt.
        message: The message, as `strict_json.loads` decodes it.

    Raises:
        ValueError: If the message is malformed.

    Example:
        >>> to_event("t00001", 1, {"kind": "started", "pid": 4711})
        WorkerStarted(trial_id='t00001', attempt=1, pid=4711)
    """
    if not isinstance(message, Mapping):
        raise _malformed("a message", "an object", message)
    match message.get("kind"):
        case "result":
            return _result(trial_id, attempt, message)
        case "started":
            return WorkerStarted(trial_id, attempt, _count(message, "pid"))
        case "saving" | "saved" | "committed" | "save_failed":
            return _storing(trial_id, attempt, message)
        case "exited":
            return _exited(trial_id, attempt, message)
        case _:
            return _request(trial_id, attempt, message)


def _storing(trial_id: str, attempt: int, message: Mapping[str, Any]) -> Event:
    """Return the event for a message about a checkpoint that is being stored."""
    match message["kind"]:
        case "saved":
            return CheckpointSaved(trial_id, attempt, _checkpoint(message))
        case "committed":
            return CheckpointCommitted(trial_id, attempt, _checkpoint(message))
        case "save_failed":
            return CheckpointFailed(trial_id, attempt, failure_of(message))
        case _:
            return CheckpointStarted(trial_id, attempt)


def _request(trial_id: str, attempt: int, message: Mapping[str, Any]) -> Event:
    """Return the event for a message in which a worker asks for something beside its reports."""
    match message.get("kind"):
        case "checkpoints":
            waits, stored = (message.get(name) is not False for name in ("waits", "stored"))
            return CheckpointsRequested(trial_id, attempt, _token(message), waits, stored)
        case "lease" | "release":
            return lease_event(LeaseOwner(trial_id, attempt), message)
        case kind:
            raise _malformed(
                "kind",
                "one of started, result, saving, saved, committed, save_failed, exited, "
                "checkpoints, lease, release",
                kind,
            )


def lease_event(owner: LeaseOwner, message: Mapping[str, Any]) -> LeaseRequested | LeaseReleased:
    """Return the event for a message about a lease.

    Raises:
        ValueError: If the message is malformed.
    """
    if message.get("kind") == "release":
        return LeaseReleased(owner, _token(message))
    asked = record_in(message, "group", WorkerGroup)
    fewest, num, most = asked.min_workers, asked.num_workers, asked.max_workers
    if not 1 <= fewest <= num <= most:
        names = "min_workers, num_workers, max_workers"
        raise _malformed(names, "at least 1 and in this order", (fewest, num, most))
    amounts = asked.resources_per_worker
    resources = {name: _amount(amounts, name) for name in amounts}
    group = replace(asked, resources_per_worker=resources, labels={}, is_decided=False)
    return LeaseRequested(owner, _token(message), group)


def report_answer(command: AnswerReport) -> dict[str, Any]:
    """Return the message that answers a report, without what a worker may do afterwards."""
    answer: dict[str, Any] = {"verdict": command.reply.value, "save": command.save}
    if interruption := command.interruption:
        deadline_s = time.time() + interruption.within_s
        answer["interruption"] = {
            "rule": interruption.rule,
            "deadline_ms": round(deadline_s * 1000),
        }
    return answer


def lease_answer(command: GrantLease | RefuseLease) -> dict[str, Any]:
    """Return the message that tells the owner of a lease what it has got."""
    if isinstance(command, RefuseLease):
        return {
            "refused": command.token,
            "reason": command.reason,
            "deadlock": command.is_deadlock,
        }
    devices = list(gpu_names(command.gpu_ids))
    return {"lease": command.token, "num_workers": command.num_workers, "devices": devices}


def checkpoints_answer(command: ListCheckpoints) -> dict[str, Any]:
    """Return the message with the trial's checkpoints."""
    listed = [
        [encode(record), dict(metrics), status] for record, metrics, status in command.checkpoints
    ]
    return {"checkpoints": command.token, "list": listed}


def to_validation_end(
    trial_id: str, index: int, num_try: int, message: Mapping[str, Any]
) -> ValidationEnded:
    """Return the event for the last message of a process that validates.

    Args:
        trial_id: Whose checkpoint.
        index: Index of the checkpoint.
        num_try: Which try.
        message: The message, as `strict_json.loads` decodes it.

    Raises:
        ValueError: If the message is malformed.
    """
    kind = message.get("kind") if isinstance(message, Mapping) else None
    if kind == "validated":
        metrics = _mapping(message, "metrics")
        return ValidationEnded(trial_id, index, num_try, Outcome.COMPLETED, metrics)
    # A process whose code cannot be loaded does not know yet what it was started for.
    if kind in ("failed", "exited"):
        return ValidationEnded(
            trial_id, index, num_try, Outcome.FAILED, failure=failure_of(message)
        )
    raise _malformed("kind", "one of validated, failed, lease, release", kind)


def _exited(trial_id: str, attempt: int, message: Mapping[str, Any]) -> WorkerExited:
    outcome = message.get("outcome")
    if outcome not in _WORKER_OUTCOMES:
        raise _malformed("outcome", "one of completed, stopped, failed, unsaved", outcome)
    failure = None if message.get("failure") is None else failure_of(message)
    if (outcome in (Outcome.FAILED, Outcome.UNSAVED)) != (failure is not None):
        raise ValueError(
            "the outcomes failed and unsaved must have a failure, and the others must not, "
            f"got outcome {outcome!r} and failure {failure}"
        )
    return WorkerExited(trial_id, attempt, Outcome(outcome), failure)


def _result(trial_id: str, attempt: int, message: Mapping[str, Any]) -> ResultReported:
    metrics = _mapping(message, "metrics")
    if not _count(metrics, TRAINING_ITERATION):
        raise _malformed(TRAINING_ITERATION, "at least 1", 0)
    checkpoint = None if message.get("checkpoint") is None else _checkpoint(message)
    # Only for a warning, so that a malformed list is no reason to fail the trial.
    replaced = (
        tuple(map(str, message["replaced"])) if _is_list_of_strings(message.get("replaced")) else ()
    )
    reserved = _mapping(message, "reserved") if message.get("reserved") else None
    return ResultReported(
        trial_id,
        attempt,
        metrics,
        checkpoint,
        replaced,
        upload=None if message.get("upload") is None else _count(message, "upload"),
        validation=_validation(message),
        rank_metrics=({**_not_filled(metrics), **reserved},) if reserved else (),
        ignored_checkpoint=_text(message, "ignored", ""),
    )


def as_reported(result: ResultReported) -> Mapping[str, Any]:
    """Return what a worker has reported, without what the engine has filled in."""
    return result.rank_metrics[0] if result.rank_metrics else _not_filled(result.metrics)


def _not_filled(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name not in AUTO_FILLED}


def _validation(message: Mapping[str, Any]) -> ValidationRequest | None:
    if message.get("validation") is None:
        return None
    request = record_in(message, "validation", ValidationRequest)
    if request.payload and not payload_digest(request.payload):
        raise _malformed("payload", "the name of a validation's file", request.payload)
    if request.timeout_s is not None:
        _amount({"timeout": request.timeout_s}, "timeout")
    return request


def _checkpoint(message: Mapping[str, Any]) -> CheckpointRecord:
    # By hand: this is part of a report, and to decode all that a record may have takes longer.
    fields = _mapping(message, "checkpoint")
    counters = _mapping(fields, "counters")
    return CheckpointRecord(
        index=_count(fields, "index"),
        iteration=_count(fields, "iteration"),
        time_total_s=_amount(fields, "time_total_s"),
        counters={name: _count(counters, name) for name in counters},
        name=directory_name(fields),
        is_placeholder=fields.get("is_placeholder") is True,
    )


def directory_name(fields: Mapping[str, Any]) -> str:
    """Return the name that a worker has given to a checkpoint, empty for none.

    Raises:
        ValueError: If it leads out of the trial's directory, or is the engine's.
    """
    name = fields.get("name", "")
    if not isinstance(name, str):
        raise _malformed("name", "a string", name)
    return check_directory_name(name) if name else ""


def failure_of(message: Mapping[str, Any]) -> Failure:
    """Return the failure that a message carries, as `failures.as_message` has written it.

    Raises:
        ValueError: If it is malformed.
    """
    failure = record_in(message, "failure", Failure)
    return replace(failure, traceback=with_notebook_source(failure.traceback), ranks=())


def record_in(message: Mapping[str, Any], name: str, cls: type[_T]) -> _T:
    """Return the record in a field of a message.

    Raises:
        ValueError: If it is malformed.
    """
    try:
        return decode(cls, message.get(name), is_whole=False)
    except Malformed as flaw:
        raise flaw.inside(name) from None


def _text(fields: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if isinstance(value, str):
        return value
    raise _malformed(name, "a text", value)


def _token(message: Mapping[str, Any]) -> str:
    token = _text(message, "token")
    if 0 < len(token) <= _MAX_TOKEN_LENGTH:
        return token
    raise _malformed("token", f"1 to {_MAX_TOKEN_LENGTH} characters", token)


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if isinstance(value, Mapping):
        return value
    raise _malformed(name, "an object", value)


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is int and value >= 0:  # a bool is an instance of int, too
        return value
    raise _malformed(name, "an integer of at least 0", value)


def _amount(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise _malformed(name, "a finite number of at least 0", value)


def _malformed(name: str, accepted: str, value: object) -> ValueError:
    return ValueError(f"{name} must be {accepted}, got {value!r:.80}")
