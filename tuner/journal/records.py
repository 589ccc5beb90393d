"""Encoding and decoding of events and decisions as records of the journal.

A body is a flat dictionary of JSON values: ``t`` the stamp (seconds of experiment time), ``k`` the
kind, then the event's own fields, then ``d``, what was decided on it, if anything; ``on`` says
which of the questions that the event raised a decision answers, where it was not the first.
Frequent fields have short names: ``id`` trial, ``a`` attempt, ``m`` metrics, ``c`` checkpoint,
``n`` numbers. The journal puts sequence and epoch in front. Beside events there are *marks*, made
by the driver: ``open`` and ``close`` frame the life of one driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from schedulers.decisions import Decision, Exploit, Pause, Reason, Resize, Resume, Save, Stop
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointLost,
    CheckpointRequested,
    CheckpointSaved,
    CheckpointsRequested,
    CheckpointStarted,
    DriverRestarted,
    Event,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    PauseRequested,
    ResultReported,
    ResumeRequested,
    ResumeType,
    SearchEnded,
    StopRequested,
    SuggestionPostponed,
    TrialForked,
    TrialStopRequested,
    TrialSuggested,
    TurnEnded,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.policies import RecordedDecision, StopExperiment
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import CheckpointRecord, Failure, WorkerGroup
from tuner.core.trial_json import (
    Translate,
    checkpoint_fields,
    exploit_fields,
    exploit_from,
    failure_fields,
    failure_from,
    group_fields,
    group_from,
    request_fields,
    request_from,
)
from tuner.errors import StorageError

Body = dict[str, Any]
"""A record of the journal, decoded from JSON."""

OPEN: Final = "open"
CLOSE: Final = "close"
"""Kinds of records that are no events."""
_OPTIONAL_DICT: Final = (dict, type(None))
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "a": int,
    "c": _OPTIONAL_DICT,
    "config": dict,
    "changes": dict,
    "d": list,
    "declared": str,
    "donor": str,
    "failure": _OPTIONAL_DICT,
    "group": _OPTIONAL_DICT,
    "id": str,
    "index": int,
    "labels": dict,
    "left_out": list,
    "m": dict,
    "metrics": _OPTIONAL_DICT,
    "node": str,
    "of": (int, type(None)),
    "pid": int,
    "resources": dict,
    "row": (int, type(None)),
    "rule": str,
    "settings": dict,
    "stored": bool,
    "tag": str,
    "token": str,
    "try": int,
    "upload": (int, type(None)),
    "v": _OPTIONAL_DICT,
    "waits": bool,
    "why": str,
    "within": (int, float, type(None)),
}
"""The types of a record's fields."""
_REQUEST_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "fn": str,
    "kwargs": dict,
    "timeout": (int, float),
    "payload": str,
    "takes_config": bool,
}
"""The types of the fields of a request for a validation."""
RESULT: Final = "result"
SAVED: Final = "saved"
COMMITTED: Final = "checkpoint_committed"
VALIDATED: Final = "validation_ended"
ROUTINE_END: Final = "turn"
"""Field of a record before which a turn ended in routine, see `TurnEnded`: when it ended, in
seconds."""


def encode(
    event: Event,
    stamp: float,
    recorded: Sequence[RecordedDecision] = (),
    translate: Translate = dict,
) -> Body:
    """Return the record of an event.

    Args:
        event: What happened.
        stamp: When, in seconds of experiment time.
        recorded: What was decided on it.
        translate: Puts configurations into JSON values.
    """
    body = {"t": stamp, **_fields(event, translate)}
    if recorded:
        body["d"] = [_advice_fields(said, translate) for said in recorded]
    return body


def with_configs(
    event: Event, recorded: Sequence[RecordedDecision], translate: Translate
) -> tuple[Event, Sequence[RecordedDecision]]:
    """Return event and recorded with the configurations in them brought back from JSON values."""
    if isinstance(event, TrialSuggested):
        event = replace(event, config=translate(event.config))
    if recorded and any(isinstance(said.decision, Exploit) for said in recorded):
        recorded = tuple(_with_config(said, translate) for said in recorded)
    return event, recorded


def _with_config(said: RecordedDecision, translate: Translate) -> RecordedDecision:
    decision = said.decision
    return (
        replace(said, decision=replace(decision, config=translate(decision.config)))
        if isinstance(decision, Exploit)
        else said
    )


def mark(kind: str, stamp: float, **facts: Any) -> Body:
    """Return a record that is no event: `OPEN` or `CLOSE`, with facts for people."""
    return {"t": stamp, "k": kind, **facts}


def is_event(body: Mapping[str, Any]) -> bool:
    """Return whether the record is one that `decode` understands, and not a mark."""
    return body.get("k") not in (OPEN, CLOSE)


# One case for each event, so that the records of all of them are read in one place.
def _fields(event: Event, translate: Translate) -> Body:  # noqa: C901, PLR0911, PLR0912
    match event:
        case ResultReported():
            return _result_fields(event)
        case TurnEnded(is_noop):
            return {"k": "turn", "is_routine": True} if is_noop else {"k": "turn"}
        case TrialSuggested():
            return _suggested_fields(event, translate)
        case WorkerStarted(trial_id, attempt, pid):
            return {"k": "started", "id": trial_id, "a": attempt, "pid": pid}
        case WorkerExited(trial_id, attempt, outcome, failure):
            return {
                "k": "exited",
                "id": trial_id,
                "a": attempt,
                "outcome": outcome.value,
                "failure": failure_fields(failure) if failure else None,
            }
        case SuggestionPostponed(trial_id):
            return {"k": "postponed", "id": trial_id}
        case SearchEnded(declaration):
            return {"k": "search_ended", **({"declared": declaration} if declaration else {})}
        case CheckpointRequested(trial_id):
            return {"k": "checkpoint_requested", "id": trial_id}
        case CheckpointStarted(trial_id, attempt):
            return {"k": "saving", "id": trial_id, "a": attempt}
        case CheckpointSaved(trial_id, attempt, checkpoint):
            return {"k": SAVED, "id": trial_id, "a": attempt, "c": checkpoint_fields(checkpoint)}
        case CheckpointCommitted(trial_id, attempt, checkpoint):
            return {
                "k": COMMITTED,
                "id": trial_id,
                "a": attempt,
                "c": checkpoint_fields(checkpoint),
            }
        case ValidationEnded():
            return {
                "k": VALIDATED,
                "id": event.trial_id,
                "index": event.index,
                "try": event.num_try,
                "outcome": event.outcome.value,
                "metrics": event.metrics,
                "failure": failure_fields(event.failure) if event.failure else None,
            }
        case CheckpointsRequested():
            return {
                "k": "checkpoints_requested",
                "id": event.trial_id,
                "a": event.attempt,
                "token": event.token,
                "waits": event.waits_for_validation,
                "stored": event.waits_for_uploads,
            }
        case LeaseRequested(owner, token, group):
            return {
                "k": "lease_requested",
                **_owner_fields(owner),
                "token": token,
                "group": group_fields(group),
            }
        case LeaseReleased(owner, token):
            return {"k": "lease_released", **_owner_fields(owner), "token": token}
        case NodeJoined(node, resources, labels):
            return {
                "k": "node_joined",
                "node": node,
                "resources": dict(resources),
                "labels": dict(labels),
            }
        case NodeDraining(node, deadline_s, is_cut_off):
            body = {"k": "node_draining", "node": node, "within": deadline_s}
            return body | ({"cut_off": True} if is_cut_off else {})
        case NodeLeft(node, reason):
            return {"k": "node_left", "node": node, "why": reason}
        case CheckpointFailed(trial_id, attempt, failure):
            return {
                "k": "save_failed",
                "id": trial_id,
                "a": attempt,
                "failure": failure_fields(failure),
            }
        case CheckpointLost(trial_id, index, why):
            return {"k": "checkpoint_lost", "id": trial_id, "index": index, "why": why}
        case StopRequested(rule, is_urgent):
            return {"k": "stop_requested", "rule": rule, "is_urgent": is_urgent}
        case TrialStopRequested(trial_id):
            return {"k": "trial_stop_requested", "id": trial_id}
        case PauseRequested(trial_id):
            return {"k": "pause_requested", "id": trial_id}
        case ResumeRequested(trial_id):
            return {"k": "resume_requested", "id": trial_id}
        case TrialForked():
            return _forked_fields(event)
        case DriverRestarted():
            return _restarted_fields(event)
        case _:
            assert_never(event)


def _restarted_fields(event: DriverRestarted) -> Body:
    fields: Body = {
        "k": "restarted",
        "settings": event.settings.as_fields(),
        "unfinished": event.unfinished.value,
        "errored": event.errored.value,
        "finished": event.finished.value,
    }
    if event.groups:
        fields["groups"] = {
            trial_id: group_fields(group) for trial_id, group in event.groups.items()
        }
    if event.left_out:
        fields["left_out"] = list(event.left_out)
    if event.declaration:
        fields["declared"] = event.declaration
    return fields


def _result_fields(event: ResultReported) -> Body:
    fields: Body = {
        "k": RESULT,
        "id": event.trial_id,
        "a": event.attempt,
        "m": event.metrics,
        "c": checkpoint_fields(event.checkpoint) if event.checkpoint else None,
    }
    if event.upload is not None:
        fields["upload"] = event.upload
    if event.validation:
        fields["v"] = request_fields(event.validation)
    if event.row is not None:
        fields["row"] = event.row
    return fields


def _suggested_fields(event: TrialSuggested, translate: Translate) -> Body:
    fields: Body = {
        "k": "suggested",
        "id": event.trial_id,
        "config": translate(event.config),
        "resources": dict(event.resources),
        "tag": event.experiment_tag,
        "failure": failure_fields(event.failure) if event.failure else None,
    }
    if event.group:
        fields["group"] = group_fields(event.group)
    if event.labels:
        fields["labels"] = dict(event.labels)
    if event.why:
        fields["why"] = event.why
    return fields


def _forked_fields(event: TrialForked) -> Body:
    fields: Body = {
        "k": "forked",
        "id": event.trial_id,
        "donor": event.donor_id,
        "changes": dict(event.changes),
        "resources": dict(event.resources),
        "checkpoint": event.checkpoint,
    }
    if event.group:
        fields["group"] = group_fields(event.group)
    if event.labels:
        fields["labels"] = dict(event.labels)
    return fields


def _owner_fields(owner: LeaseOwner) -> Body:
    return {"id": owner.trial_id, "a": owner.attempt, "of": owner.index}


def _owner(body: Mapping[str, Any]) -> LeaseOwner:
    return LeaseOwner(body["id"], body["a"], body["of"])


def _advice_fields(recorded: RecordedDecision, translate: Translate) -> Body:
    decision = recorded.decision
    fields: Body = {"k": _kind_of(decision)}
    if isinstance(decision, Exploit):
        fields |= exploit_fields(decision, translate)
    else:
        fields |= {} if isinstance(decision, StopExperiment) else {"id": decision.trial_id}
        fields |= {"rule": decision.reason.rule, "n": dict(decision.reason.numbers)}
    if isinstance(decision, Stop) and decision.is_complete:
        fields["is_complete"] = True
    if isinstance(decision, Resize):
        fields["resources"] = dict(decision.resources)
    if recorded.question:
        fields["on"] = recorded.question
    return fields


def _kind_of(decision: Decision | StopExperiment) -> str:  # noqa: PLR0911  (a case each)
    match decision:
        case StopExperiment():
            return "stop_all"
        case Stop():
            return "stop"
        case Pause():
            return "pause"
        case Resume():
            return "resume"
        case Save():
            return "save"
        case Exploit():
            return "exploit"
        case Resize():
            return "resize"
        case _:
            assert_never(decision)


def decode(body: Mapping[str, Any]) -> tuple[Event, float, tuple[RecordedDecision, ...]]:
    """Return event, stamp and what was decided of a record.

    Raises:
        StorageError: If the record is of a kind or shape that this version does not know.
    """
    kind = body.get("k")
    event_of = _EVENTS.get(kind) if isinstance(kind, str) else None
    if event_of is None:
        raise StorageError(
            f"record {body.get('q')} is of the unknown kind {kind!r:.80}, which a newer version "
            "can read"
        )
    try:
        _check_types(body)
        return (
            event_of(body),
            stamp_of(body),
            tuple(
                RecordedDecision(fields.get("on", 0), _decision(fields))
                for fields in body.get("d", ())
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
        raise StorageError(
            f"record {body.get('q')} of kind {kind!r} is not as this version writes it "
            f"({cause!r:.200}); a newer version wrote it, or it "
            "was changed on purpose, as its checksum is right"
        ) from cause


def stamp_of(body: Mapping[str, Any], name: str = "t") -> float:
    """Return when the record was written, or another time in it, in seconds of experiment time.

    Raises:
        StorageError: If it is no finite number.
    """
    stamp = body.get(name)
    try:
        if isinstance(stamp, int | float) and math.isfinite(stamp):
            return float(stamp)
    except OverflowError:  # an integer beyond all floats
        pass
    what = f"record {body.get('q')} of kind {body.get('k')!r:.80} is not as this version writes it"
    raise StorageError(f"{what}: {name!r} is {stamp!r:.80}; a newer version wrote it")


def _check_types(
    body: Mapping[str, Any], types: Mapping[str, type | tuple[type, ...]] = _TYPES
) -> None:
    """Raise TypeError where a field has another type than it is written with.

    What follows from it would fail far from here.
    """
    for name, value in body.items():
        if name in types and not isinstance(value, types[name]):
            raise TypeError(f"{name} is {value!r:.80}")


def _result(body: Mapping[str, Any]) -> Event:
    _check_types(body.get("v") or {}, _REQUEST_TYPES)
    return ResultReported(
        body["id"],
        body["a"],
        body["m"],
        _checkpoint(body["c"]),
        upload=body.get("upload"),
        validation=request_from(body.get("v")),
        row=body.get("row"),
    )


def _suggested(body: Mapping[str, Any]) -> Event:
    return TrialSuggested(
        body["id"],
        body["config"],
        body["resources"],
        body["tag"],
        _failure(body["failure"]),
        group_from(body.get("group")),
        body.get("labels", {}),
        body.get("why", ""),
    )


def _exited(body: Mapping[str, Any]) -> Event:
    return WorkerExited(body["id"], body["a"], Outcome(body["outcome"]), _failure(body["failure"]))


def _validation_ended(body: Mapping[str, Any]) -> Event:
    return ValidationEnded(
        body["id"],
        body["index"],
        body["try"],
        Outcome(body["outcome"]),
        body["metrics"],
        _failure(body["failure"]),
    )


def _lease_requested(body: Mapping[str, Any]) -> Event:
    return LeaseRequested(_owner(body), body["token"], WorkerGroup(**body["group"]))


def _checkpoint_failed(body: Mapping[str, Any]) -> Event:
    return CheckpointFailed(body["id"], body["a"], failure_from(body["failure"]))


def _failure(fields: Mapping[str, Any] | None) -> Failure | None:
    return None if fields is None else failure_from(fields)


def _checkpoint(fields: Mapping[str, Any] | None) -> CheckpointRecord | None:
    return None if fields is None else CheckpointRecord(**fields)


def _decision(fields: Mapping[str, Any]) -> Decision | StopExperiment:  # noqa: PLR0911
    reason = Reason(fields["rule"], fields["n"])
    if fields["k"] == "stop_all":
        return StopExperiment(reason)
    trial_id = fields["id"]
    match fields["k"]:
        case "stop":
            return Stop(trial_id, reason, fields.get("is_complete", False))
        case "pause":
            return Pause(trial_id, reason)
        case "resume":
            return Resume(trial_id, reason)
        case "save":
            return Save(trial_id, reason)
        case "exploit":
            return exploit_from(fields)
        case "resize":
            return Resize(trial_id, fields["resources"], reason)
        case kind:
            raise ValueError(f"unknown decision {kind!r}")


_EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Event]]] = {
    RESULT: _result,
    "turn": lambda body: TurnEnded(body.get("is_routine", False)),
    "suggested": _suggested,
    "postponed": lambda body: SuggestionPostponed(body["id"]),
    "search_ended": lambda body: SearchEnded(body.get("declared", "")),
    "started": lambda body: WorkerStarted(body["id"], body["a"], body["pid"]),
    "exited": _exited,
    "checkpoint_requested": lambda body: CheckpointRequested(body["id"]),
    "saving": lambda body: CheckpointStarted(body["id"], body["a"]),
    SAVED: lambda body: CheckpointSaved(body["id"], body["a"], CheckpointRecord(**body["c"])),
    COMMITTED: lambda body: CheckpointCommitted(
        body["id"], body["a"], CheckpointRecord(**body["c"])
    ),
    VALIDATED: _validation_ended,
    "checkpoints_requested": lambda body: CheckpointsRequested(
        body["id"], body["a"], body["token"], body["waits"], body["stored"]
    ),
    "lease_requested": _lease_requested,
    "lease_released": lambda body: LeaseReleased(_owner(body), body["token"]),
    "node_joined": lambda body: NodeJoined(body["node"], body["resources"], body["labels"]),
    "node_draining": lambda body: NodeDraining(
        body["node"], body["within"], body.get("cut_off", False)
    ),
    "node_left": lambda body: NodeLeft(body["node"], body["why"]),
    "save_failed": _checkpoint_failed,
    "checkpoint_lost": lambda body: CheckpointLost(body["id"], body["index"], body["why"]),
    "stop_requested": lambda body: StopRequested(body["rule"], body["is_urgent"]),
    "trial_stop_requested": lambda body: TrialStopRequested(body["id"]),
    "pause_requested": lambda body: PauseRequested(body["id"]),
    "resume_requested": lambda body: ResumeRequested(body["id"]),
    "forked": lambda body: TrialForked(
        body["id"],
        body["donor"],
        body["changes"],
        body["resources"],
        body["checkpoint"],
        group_from(body.get("group")),
        body.get("labels", {}),
    ),
    "restarted": lambda body: DriverRestarted(
        ExperimentSettings.from_fields(body["settings"]),
        ResumeType(body["unfinished"]),
        ResumeType(body["errored"]),
        ResumeType(body["finished"]),
        {trial_id: WorkerGroup(**fields) for trial_id, fields in body.get("groups", {}).items()},
        tuple(body.get("left_out", ())),
        body.get("declared", ""),
    ),
}
