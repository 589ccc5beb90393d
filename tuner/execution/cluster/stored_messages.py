"""Messages between the driver and a node that runs trials and stores what they make.

Those about the node itself are in `node_messages`. A host sends::

    {"kind": "event", "body": {...}, "replaced": [...], "rank_metrics": [...]}
    {"kind": "unloadable", "why"}                              before the exit of the first attempt
                                                               for which that is so
    {"kind": "packages", "versions": {...}}
    {"kind": "output", "trial_id", "stream", "data"}           of trials

and the driver::

    {"kind": "start", ...}, {"kind": "answer", ...}, {"kind": "kill", ...},
    {"kind": "start_validation", ...}, {"kind": "kill_validation", ...},
    {"kind": "grant", ...}, {"kind": "refuse", ...}, {"kind": "list", ...}
    {"kind": "journal_stored"}                                 uploads may begin

Both send messages about the ranks of groups over several nodes, see `rank_messages`.

An event's body is its record in the journal. What a host sends has passed through processes that
run the user's code, so every field is checked, and nothing of it is unpickled. A host trusts its
driver. Pickled configurations travel as base64, and a host passes them on without loading them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast, final

from tuner.core.commands import (
    AnswerReport,
    GrantLease,
    Interruption,
    KillValidation,
    KillWorker,
    ListCheckpoints,
    RefuseLease,
    StartValidation,
    StartWorker,
    WorkerCommand,
)
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointLost,
    CheckpointSaved,
    Event,
    LeaseOwner,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
)
from tuner.core.trial import (
    CheckpointRecord,
    Failure,
    ReportReply,
    ValidationRequest,
    WorkerGroup,
)
from tuner.execution.worker_protocol import failure_of, lease_event, to_event
from tuner.journal import records
from tuner.storage import layout, strict_json
from tuner.storage.object_checkpoints import is_remote_name
from tuner.wire.declared import decode, encode

from .service_messages import PickledConfig

_MAX_TEXT: Final = 4_000
_MAX_PACKAGES: Final = 1_000
_MAX_RANKS: Final = 10_000
_STREAM: Final = re.compile(
    rf"({layout.STDOUT}|{layout.STDERR})(\.rank[1-9]\d{{0,8}})?|validation_\d{{6,18}}\.log"
)
_EXIT_OUTCOMES: Final = frozenset(Outcome)
_VALIDATION_OUTCOMES: Final = frozenset(
    {Outcome.COMPLETED, Outcome.FAILED, Outcome.KILLED, Outcome.LOST}
)


# What a host tells.


@final
@dataclass(frozen=True, slots=True)
class Unloadable:
    """The trainable cannot be loaded on the node.

    Attributes:
        why: The exception.
    """

    why: str


@final
@dataclass(frozen=True, slots=True)
class Packages:
    """A worker has imported packages.

    Attributes:
        versions: Their versions, by name.
    """

    versions: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True)
class Output:
    """A worker or a validator has written something.

    Attributes:
        trial_id: The trial.
        stream: Name of the file in the trial's directory.
        data: What is to be added to it, or to take its place, see `is_whole`.
    """

    trial_id: str
    stream: str
    data: str

    @property
    def is_whole(self) -> bool:
        """Whether it takes the place of what there is."""
        return self.stream == layout.RETURN_VALUE

    @property
    def message(self) -> dict[str, Any]:
        """The message."""
        fields = {"trial_id": self.trial_id, "stream": self.stream, "data": self.data}
        return {"kind": "output", **fields}


@final
@dataclass(frozen=True, slots=True)
class RankMessage:
    """A message of one of the node's ranks, for `rank_messages.read_news`.

    Attributes:
        message: The message, of which nothing is checked yet.
    """

    message: Mapping[str, Any]


HostMessage = Unloadable | Packages | Output | RankMessage | Event


def read_host_message(message: Mapping[str, Any]) -> HostMessage:
    """Return what a host tells.

    Whether it may tell of this trial and attempt, which are in the message, the caller has to know.

    Raises:
        ValueError: If the message is malformed.
    """
    kind = message.get("kind")
    match kind:
        case "event":
            return read_event(message)
        case str() if kind.startswith("rank_"):
            return RankMessage(message)
        case _:
            return _told(message)


def _told(message: Mapping[str, Any]) -> HostMessage:
    match message.get("kind"):
        case "unloadable":
            return Unloadable(_text(message, "why"))
        case "packages":
            versions = _strings(message, "versions")
            return Packages(dict(list(versions.items())[:_MAX_PACKAGES]))
        case "output":
            return _output(message)
        case kind:
            raise ValueError(f"a host must send a message of a known kind, got {kind!r:.80}")


def is_output(name: str) -> bool:
    """Return whether a file of this name in a trial's directory has output of its processes."""
    return _STREAM.fullmatch(name) is not None


def _output(message: Mapping[str, Any]) -> Output:
    stream, data = message.get("stream"), message.get("data")
    if not (isinstance(stream, str) and (is_output(stream) or stream == layout.RETURN_VALUE)):
        raise ValueError(f"stream must be the name of a file with output, got {stream!r:.80}")
    if not isinstance(data, str):
        raise ValueError(f"data must be a text, got {data!r:.80}")  # noqa: TRY004  (as all others)
    return Output(_trial_id(message, "trial_id"), stream, data)


# Events.


def event_message(event: Event) -> dict[str, Any]:
    """Return the message about an event."""
    message: dict[str, Any] = {"kind": "event", "body": records.encode(event, 0.0)}
    if isinstance(event, ResultReported):
        if event.replaced:
            message["replaced"] = list(event.replaced)
        if event.rank_metrics:
            message["rank_metrics"] = list(event.rank_metrics)
        if event.ignored_checkpoint:
            message["ignored"] = event.ignored_checkpoint
    return message


def read_event(message: Mapping[str, Any]) -> Event:
    """Return the event that a message is about.

    Raises:
        ValueError: If it is malformed, or neither a worker nor a validator can cause it.
    """
    body = _mapping(message, "body")
    trial_id = _trial_id(body, "id")
    match body.get("k"):
        case "validation_ended":
            return _validation_ended(trial_id, body)
        case "checkpoint_lost":
            return CheckpointLost(trial_id, _count(body, "index"), _text(body, "why"))
        case "exited":
            return _exited(trial_id, body)
        case "lease_requested" | "lease_released" as kind:
            index = None if body.get("of") is None else _count(body, "of")
            owner = LeaseOwner(trial_id, _attempt(body), index)
            is_release = kind == "lease_released"
            return lease_event(owner, {**body, "kind": "release" if is_release else "lease"})
        case _:
            return _worker_event(trial_id, body, message)


def _worker_event(trial_id: str, body: Mapping[str, Any], message: Mapping[str, Any]) -> Event:
    """Return an event of which a worker has sent a message, by the same checks as that."""
    kind = body.get("k")
    if not isinstance(kind, str) or kind not in _SAID_BY_WORKERS:
        raise ValueError(
            f"k must be the kind of an event that a worker or a validator causes, got {kind!r:.80}"
        )
    said = {
        **body,
        "kind": _SAID_BY_WORKERS[kind],
        "metrics": body.get("m"),
        "checkpoint": body.get("c"),
        "validation": body.get("v"),
        "replaced": message.get("replaced", []),
        "ignored": message.get("ignored", ""),
        "reserved": None,
    }
    event = to_event(trial_id, _attempt(body), said)
    if isinstance(event, ResultReported):
        event = replace(event, rank_metrics=_rank_metrics(message))
    if isinstance(event, ResultReported | CheckpointSaved | CheckpointCommitted):
        record = event.checkpoint
        if record and (remote := _remote_name(body["c"])):
            event = replace(event, checkpoint=replace(record, remote=remote))
    return event


_SAID_BY_WORKERS: Final = {
    records.RESULT: "result",
    "started": "started",
    "saving": "saving",
    records.SAVED: "saved",
    records.COMMITTED: "committed",
    "save_failed": "save_failed",
    "checkpoints_requested": "checkpoints",
}
"""Kinds of records, and the messages of workers that say the same."""


def _rank_metrics(message: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    listed = message.get("rank_metrics", [])
    if isinstance(listed, list) and all(isinstance(each, Mapping) for each in listed):
        return tuple(listed)
    raise ValueError(f"rank_metrics must be a list of objects, got {listed!r:.80}")


def _remote_name(fields: Mapping[str, Any]) -> str:
    remote = fields.get("remote", "")
    if not isinstance(remote, str) or (remote and not is_remote_name(remote)):
        raise ValueError(f"remote must name a checkpoint in a store, got {remote!r:.80}")
    return remote


def _exited(trial_id: str, body: Mapping[str, Any]) -> WorkerExited:
    outcome = _outcome(body, _EXIT_OUTCOMES)
    failure = _failure(body)
    if (failure is None) != (outcome in (Outcome.COMPLETED, Outcome.STOPPED)):
        raise ValueError(
            "all outcomes must have a failure but completed and stopped, which must not, got "
            f"outcome {outcome!r} and failure {failure}"
        )
    return WorkerExited(trial_id, _attempt(body), outcome, failure)


def _validation_ended(trial_id: str, body: Mapping[str, Any]) -> ValidationEnded:
    outcome = _outcome(body, _VALIDATION_OUTCOMES)
    has_metrics = outcome is Outcome.COMPLETED
    metrics = _mapping(body, "metrics") if has_metrics else None
    failure = None if has_metrics else _failure(body)
    if failure is None and outcome in (Outcome.FAILED, Outcome.KILLED):
        raise ValueError(f"a validation that has {outcome.value} must have a failure")
    return ValidationEnded(
        trial_id, _count(body, "index"), _count(body, "try"), outcome, metrics, failure
    )


def _outcome(body: Mapping[str, Any], accepted: frozenset[Outcome]) -> Outcome:
    outcome = body.get("outcome")
    if isinstance(outcome, str) and outcome in accepted:
        return Outcome(outcome)
    names = ", ".join(sorted(accepted))
    raise ValueError(f"outcome must be one of {names}, got {outcome!r:.80}")


def _failure(body: Mapping[str, Any]) -> Failure | None:
    """Return the failure of an exit, with those of a group's workers."""
    if body.get("failure") is None:
        return None
    failure, ranks = failure_of(body), body["failure"].get("ranks", [])
    if not isinstance(ranks, list) or len(ranks) > _MAX_RANKS:
        raise ValueError(f"ranks must be a list of failures, got {ranks!r:.80}")
    return replace(failure, ranks=tuple(map(_rank_failure, ranks))) if ranks else failure


def _rank_failure(pair: Any) -> tuple[int, Failure]:
    match pair:
        case [int(rank), {**fields}] if rank >= 0:
            return rank, failure_of({"failure": fields})
        case _:
            raise ValueError(f"ranks must hold pairs of a rank and a failure, got {pair!r:.80}")


def _trial_id(fields: Mapping[str, Any], name: str) -> str:
    trial_id = fields.get(name)
    if isinstance(trial_id, str) and layout.is_trial_id(trial_id):
        return trial_id
    raise ValueError(f"{name} must be the id of a trial, got {trial_id!r:.80}")


def _attempt(body: Mapping[str, Any]) -> int:
    if attempt := _count(body, "a"):
        return attempt
    raise ValueError("a must be the number of an attempt, from 1, got 0")


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is int and value >= 0:
        return value
    raise ValueError(f"{name} must be an integer of at least 0, got {value!r:.80}")


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    raise ValueError(f"{name} must be a text, got {value!r:.80}")


def _mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{name} must be an object, got {value!r:.80}")


def _strings(fields: Mapping[str, Any], name: str) -> dict[str, str]:
    pairs = _mapping(fields, name)
    if all(isinstance(value, str) for value in pairs.values()):
        return {key: value[:_MAX_TEXT] for key, value in pairs.items()}
    raise ValueError(f"the values of {name} must be texts, got {pairs!r:.80}")


# What the driver says: commands.


def start_message(command: StartWorker, config: bytes, seed: int) -> dict[str, Any]:
    """Return the message that has a worker started; its fields also have ranks started.

    Args:
        command: The command, whose configuration is not looked at.
        config: The configuration, see `worker_connection.pickled`.
        seed: Seed of the trial's random numbers.
    """
    checkpoint, group = command.checkpoint, command.group
    return {
        "kind": "start",
        "trial_id": command.trial_id,
        "attempt": command.attempt,
        "config": _as_text(config),
        "resources": dict(command.resources),
        "gpu_ids": list(command.gpu_ids),
        "checkpoint": encode(checkpoint) if checkpoint else None,
        "source_id": command.source_id,
        "next_checkpoint": command.next_checkpoint,
        "experiment_tag": command.experiment_tag,
        "seed": seed,
        "group": encode(group) if group else None,
    }


def validation_message(
    command: StartValidation, config: bytes, seed: int, *, has_payload: bool
) -> dict[str, Any]:
    """Return the message that has a checkpoint validated.

    Args:
        command: The command, whose configuration is not looked at.
        config: The configuration, see `worker_connection.pickled`.
        seed: Seed of the trial's random numbers.
        has_payload: Whether the request's payload was written in this session of the driver.
    """
    return {
        "kind": "start_validation",
        "trial_id": command.trial_id,
        "checkpoint": encode(command.checkpoint),
        "num_try": command.num_try,
        "request": encode(command.request),
        "resources": dict(command.resources),
        "gpu_ids": list(command.gpu_ids),
        "config": _as_text(config),
        "is_last_try": command.is_last_try,
        "seed": seed,
        "has_payload": has_payload,
    }


CommandWithoutConfig = (
    AnswerReport | KillWorker | KillValidation | GrantLease | RefuseLease | ListCheckpoints
)


def command_message(command: CommandWithoutConfig) -> dict[str, Any]:
    """Return the message that has a command carried out, for all that carry no configuration."""
    match command:
        case AnswerReport(trial_id, attempt):
            message = {"kind": "answer", "trial_id": trial_id, "attempt": attempt}
            return message | _answer_fields(command)
        case KillWorker(trial_id, attempt, reason, term_grace_s, is_silent):
            return {
                "kind": "kill",
                "trial_id": trial_id,
                "attempt": attempt,
                "reason": reason,
                "term_grace_s": term_grace_s,
                "is_silent": is_silent,
            }
        case KillValidation(trial_id, index, num_try, reason):
            return {
                "kind": "kill_validation",
                "trial_id": trial_id,
                "index": index,
                "num_try": num_try,
                "reason": reason,
            }
        case GrantLease(owner, token, num_workers, gpu_ids):
            fields = {"token": token, "num_workers": num_workers, "gpu_ids": list(gpu_ids)}
            return {"kind": "grant", **_owner_fields(owner), **fields}
        case RefuseLease(owner, token, reason, is_deadlock):
            refusal = {"token": token, "reason": reason, "is_deadlock": is_deadlock}
            return {"kind": "refuse", **_owner_fields(owner), **refusal}
        case ListCheckpoints(trial_id, attempt, token, checkpoints):
            listed = [
                # A configuration among the metrics may hold what JSON cannot.
                [encode(record), _plain(metrics), status]
                for record, metrics, status in checkpoints
            ]
            about = {"trial_id": trial_id, "attempt": attempt, "token": token}
            return {"kind": "list", **about, "checkpoints": listed}


def _answer_fields(command: AnswerReport) -> dict[str, Any]:
    interruption = command.interruption
    return {
        "reply": command.reply.value,
        "save": command.save,
        "stay": command.stay,
        "interruption": [interruption.rule, interruption.within_s] if interruption else None,
    }


def _owner_fields(owner: LeaseOwner) -> dict[str, Any]:
    return {"trial_id": owner.trial_id, "attempt": owner.attempt, "index": owner.index}


def _plain(metrics: Mapping[str, Any]) -> Any:
    return strict_json.loads(strict_json.dumps(dict(metrics), strict_json.opaque))


def read_command(message: Mapping[str, Any]) -> WorkerCommand:
    """Return the command of a message; its configuration is a `PickledConfig`.

    Raises:
        KeyError, TypeError, ValueError: If the message is malformed.
    """
    match message["kind"]:
        case "answer":
            interruption = message["interruption"]
            return AnswerReport(
                message["trial_id"],
                message["attempt"],
                ReportReply(message["reply"]),
                message["save"],
                message["stay"],
                Interruption(*interruption) if interruption else None,
            )
        case "start" | "rank_start":
            return read_start_worker(message)
        case "start_validation":
            return _start_validation(message)
        case "kill" | "kill_validation":
            return _kill(message)
        case _:
            return _answer_to_request(message)


def read_start_worker(message: Mapping[str, Any]) -> StartWorker:
    """Return the command of a message that has a worker or ranks started.

    Raises:
        KeyError, TypeError: If the message is malformed.
    """
    checkpoint = message["checkpoint"]
    return StartWorker(
        message["trial_id"],
        message["attempt"],
        _config(message),
        message["resources"],
        tuple(message["gpu_ids"]),
        CheckpointRecord(**checkpoint) if checkpoint else None,
        message["next_checkpoint"],
        message["experiment_tag"],
        message["source_id"],
        decode(WorkerGroup, message["group"]) if message["group"] else None,
    )


def _start_validation(message: Mapping[str, Any]) -> StartValidation:
    return StartValidation(
        message["trial_id"],
        CheckpointRecord(**message["checkpoint"]),
        message["num_try"],
        decode(ValidationRequest, message["request"]),
        message["resources"],
        tuple(message["gpu_ids"]),
        _config(message),
        message["is_last_try"],
    )


def _config(message: Mapping[str, Any]) -> Mapping[str, Any]:
    # No mapping, but all that is done with it is to pickle it for the worker, where it is one.
    return cast("Mapping[str, Any]", PickledConfig(_as_bytes(message["config"])))


def _kill(message: Mapping[str, Any]) -> KillWorker | KillValidation:
    if message["kind"] == "kill":
        return KillWorker(
            message["trial_id"],
            message["attempt"],
            message["reason"],
            message["term_grace_s"],
            message["is_silent"],
        )
    return KillValidation(
        message["trial_id"], message["index"], message["num_try"], message["reason"]
    )


def _answer_to_request(message: Mapping[str, Any]) -> GrantLease | RefuseLease | ListCheckpoints:
    token = message["token"]
    match message["kind"]:
        case "grant":
            gpu_ids = tuple(message["gpu_ids"])
            return GrantLease(_owner(message), token, message["num_workers"], gpu_ids)
        case "refuse":
            return RefuseLease(_owner(message), token, message["reason"], message["is_deadlock"])
        case "list":
            listed = [
                (CheckpointRecord(**record), metrics, status)
                for record, metrics, status in message["checkpoints"]
            ]
            return ListCheckpoints(message["trial_id"], message["attempt"], token, listed)
        case kind:
            raise ValueError(f"the driver must send a command of a known kind, got {kind!r:.80}")


def _owner(message: Mapping[str, Any]) -> LeaseOwner:
    return LeaseOwner(message["trial_id"], message["attempt"], message["index"])


def _as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _as_bytes(text: str) -> bytes:
    return base64.b64decode(text)
