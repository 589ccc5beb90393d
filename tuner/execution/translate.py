"""From what a worker says to what the core hears.

Workers may run any code, so nothing in a message is believed before it is looked at; only the identity of the speaker is
certain, because it comes from the connection and not from the message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuner.core.events import (
    CheckpointFailed,
    CheckpointSaved,
    CheckpointStarted,
    Event,
    Outcome,
    ResultReported,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import CheckpointRecord, Failure

from .failures import with_notebook_source

_WORKER_OUTCOMES = (Outcome.COMPLETED, Outcome.STOPPED, Outcome.FAILED, Outcome.UNSAVED)


def to_event(trial_id: str, attempt: int, message: Mapping[str, Any]) -> Event:
    """Return the event that a worker's message stands for.

    Args:
        trial_id: Whose worker spoke.
        attempt: In which attempt.
        message: One message, see `messages`, as `strict_json.loads` decodes it.

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
        case "saving":
            return CheckpointStarted(trial_id, attempt)
        case "saved":
            return CheckpointSaved(trial_id, attempt, _checkpoint(message))
        case "save_failed":
            return CheckpointFailed(trial_id, attempt, _failure(message))
        case "exited":
            return _exited(trial_id, attempt, message)
        case kind:
            raise _malformed(
                "kind", "one of started, result, saving, saved, save_failed, exited", kind
            )


def _exited(trial_id: str, attempt: int, message: Mapping[str, Any]) -> WorkerExited:
    outcome = message.get("outcome")
    if outcome not in _WORKER_OUTCOMES:
        raise _malformed("outcome", "one of completed, stopped, failed, unsaved", outcome)
    failure = None if message.get("failure") is None else _failure(message)
    if (outcome in (Outcome.FAILED, Outcome.UNSAVED)) != (failure is not None):
        raise ValueError(
            f"a failure belongs to the outcomes failed and unsaved and to no other, got outcome {outcome!r} and failure {failure}"
        )
    return WorkerExited(trial_id, attempt, Outcome(outcome), failure)


def _result(trial_id: str, attempt: int, message: Mapping[str, Any]) -> ResultReported:
    metrics = _mapping(message, "metrics")
    if not _count(metrics, TRAINING_ITERATION):
        raise _malformed(TRAINING_ITERATION, "at least 1", 0)
    checkpoint = None if message.get("checkpoint") is None else _checkpoint(message)
    text = message.get("text")
    replaced = (
        tuple(map(str, message["replaced"])) if _is_list_of_strings(message.get("replaced")) else ()
    )
    return ResultReported(
        trial_id, attempt, metrics, checkpoint, text if type(text) is bytes else b"", replaced
    )


def _checkpoint(message: Mapping[str, Any]) -> CheckpointRecord:
    fields = _mapping(message, "checkpoint")
    counters = _mapping(fields, "counters")
    return CheckpointRecord(
        index=_count(fields, "index"),
        iteration=_count(fields, "iteration"),
        time_total_s=_seconds(fields, "time_total_s"),
        counters={name: _count(counters, name) for name in counters},
    )


def _failure(message: Mapping[str, Any]) -> Failure:
    fields = _mapping(message, "failure")
    kind, text, traceback = (fields.get(name) for name in ("kind", "message", "traceback"))
    bases, place = fields.get("bases", []), fields.get("place", "")
    if all(
        isinstance(part, str) for part in (kind, text, traceback, place)
    ) and _is_list_of_strings(bases):
        return Failure(
            str(kind), str(text), with_notebook_source(str(traceback)), tuple(bases), str(place)
        )
    raise _malformed(
        "failure",
        "an object with the strings kind, message, traceback and place, and the list of strings bases",
        fields,
    )


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if isinstance(value, Mapping):
        return value
    raise _malformed(name, "an object", value)


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is int and value >= 0:
        return value
    raise _malformed(name, "an integer of at least 0", value)


def _seconds(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise _malformed(name, "a finite number of seconds of at least 0", value)


def _malformed(name: str, accepted: str, value: object) -> ValueError:
    return ValueError(f"{name} must be {accepted}, got {value!r:.80}")
