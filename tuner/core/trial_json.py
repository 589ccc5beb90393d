"""Conversion of trials to JSON values and back, for snapshots and the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schedulers.decisions import Exploit, Reason

from .result import CONFIG
from .trial import (
    AppliedExploit,
    CheckpointRecord,
    Failure,
    Intention,
    OpenUpload,
    ReportReply,
    Status,
    TerminationReason,
    Trial,
    Validation,
    ValidationRequest,
    ValidationState,
    WaitsFor,
    WorkerGroup,
    WorkerState,
)
from .trial_metrics import MetricSummary, TrackedMetric

Fields = dict[str, Any]
"""JSON values; floats need not be finite."""


Translate = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Puts a configuration into JSON values, or brings it back from them."""


def trial_fields(trial: Trial, encode: Translate = dict) -> Fields:
    """Return the state of a trial as JSON values, without the path of its directory.

    Args:
        trial: The trial.
        encode: Puts its configurations into JSON values.
    """
    fields: Fields = {
        "id": trial.trial_id,
        "config": encode(trial.config),
        "resources": dict(trial.resources),
        "tag": trial.experiment_tag,
        "status": trial.status.value,
        "worker": trial.worker.value,
        "ending": trial.ending.value if trial.ending else None,
        "reason": reason_fields(trial.reason),
        "intention": intention_fields(trial.intention),
        "owes_save": trial.owes_save,
        "attempt": trial.attempt,
        "num_failures": trial.num_failures,
        "num_vain_attempts": trial.num_vain_attempts,
        "farthest_iteration": trial.farthest_iteration,
        "gpu_ids": list(trial.gpu_ids),
        "start_time_s": trial.start_time_s,
        "last_result": {key: value for key, value in trial.last_result.items() if key != CONFIG},
        "summary": {name: summary.state() for name, summary in trial.summary.items()},
        "objective": trial.objective.state() if trial.objective.metric else None,
        "checkpoints": [checkpoint_fields(checkpoint) for checkpoint in trial.checkpoints],
        "leases": dict(trial.leases),
        "exploit": exploit_fields(trial.exploit, encode) if trial.exploit else None,
        "resize": dict(trial.resize) if trial.resize else None,
        "is_to_resume": _may_pause(trial) and WaitsFor.DECISION not in trial.waits_for,
        "grafts": [_graft_fields(graft, encode) for graft in trial.grafts],
        "num_rows": trial.num_rows,
        "next_checkpoint": trial.next_checkpoint,
        "resumed_iteration": trial.resumed_iteration,
        "resumed_row": trial.resumed_row,
        "reported_attempt": trial.reported_attempt,
        "superseded_attempt": trial.superseded_attempt,
        "failures": [failure_fields(failure) for failure in trial.failures],
    }
    if trial.group:
        fields["group"] = group_fields(trial.group)
    if trial.nodes:
        fields["nodes"] = list(trial.nodes)
    if trial.labels and not trial.group:
        fields["labels"] = dict(trial.labels)
    if trial.losses:
        fields["losses"] = [list(loss) for loss in trial.losses]
    if trial.uploads:
        fields["uploads"] = {
            str(index): [upload.score, upload.num_rows] for index, upload in trial.uploads.items()
        }
    return fields | _validation_state(trial)


def _validation_state(trial: Trial) -> Fields:
    """Return what is noted of validations, nothing where there are none."""
    fields: Fields = {}
    if trial.validations:
        fields["validations"] = [
            validation_fields(validation) for validation in trial.validations.values()
        ]
    if trial.validation_requests:
        fields["validation_requests"] = {
            str(index): request_fields(request)
            for index, request in trial.validation_requests.items()
        }
    if trial.checkpoint_results:
        fields["checkpoint_results"] = {
            str(index): dict(result) for index, result in trial.checkpoint_results.items()
        }
    if trial.judged_index is not None:
        fields["judged_index"] = trial.judged_index
    if trial.judged_result is not None:
        fields["judged_result"] = dict(trial.judged_result)
    if trial.dismissed_row is not None:
        fields["dismissed_row"] = trial.dismissed_row
    if trial.unjudged:
        fields["unjudged"] = {str(index): dict(each) for index, each in trial.unjudged.items()}
    if trial.late_pause is not None:
        fields["late_pause"] = reason_fields(trial.late_pause)
    return fields


def _load_validation_state(trial: Trial, fields: Mapping[str, Any]) -> None:
    for entry in fields.get("validations", ()):
        validation = validation_from(entry)
        trial.validations[validation.index] = validation
        if validation.is_open:
            trial.open_validations[validation.index] = validation
    for index, request in fields.get("validation_requests", {}).items():
        trial.validation_requests[int(index)] = request_from(request) or ValidationRequest()
    for index, result in fields.get("checkpoint_results", {}).items():
        trial.checkpoint_results[int(index)] = result
    trial.judged_index = fields.get("judged_index")
    trial.judged_result = fields.get("judged_result")
    trial.dismissed_row = fields.get("dismissed_row")
    trial.unjudged = {int(index): each for index, each in fields.get("unjudged", {}).items()}
    trial.late_pause = reason_from(fields.get("late_pause"))


def trial_from(fields: Mapping[str, Any], decode: Translate = dict) -> Trial:
    """Return the trial that `trial_fields` described.

    Args:
        fields: The description.
        decode: Brings its configurations back from JSON values.

    Raises:
        KeyError, TypeError, ValueError: If the fields are not such a description.
    """
    trial = Trial(fields["id"], decode(fields["config"]), fields["resources"], fields["tag"])
    trial.group = group_from(fields.get("group"))
    trial.labels = trial.group.labels if trial.group else fields.get("labels", {})
    trial.move_to(Status(fields["status"]))
    trial.worker = WorkerState(fields["worker"])
    trial.ending = TerminationReason(fields["ending"]) if fields["ending"] else None
    trial.reason = reason_from(fields["reason"])
    trial.intention = intention_from(fields["intention"])
    trial.owes_save = fields["owes_save"]
    trial.attempt = fields["attempt"]
    trial.num_failures = fields["num_failures"]
    trial.num_vain_attempts = fields["num_vain_attempts"]
    trial.losses = tuple((attempt, why) for attempt, why in fields.get("losses", ()))
    trial.farthest_iteration = fields["farthest_iteration"]
    trial.nodes = tuple(fields.get("nodes", ()))
    trial.gpu_ids = tuple(fields["gpu_ids"])
    trial.start_time_s = fields["start_time_s"]
    trial.summary = {
        name: MetricSummary.from_state(state) for name, state in fields["summary"].items()
    }
    if fields.get("objective"):
        trial.objective = TrackedMetric.from_state(fields["objective"])
    trial.checkpoints = [CheckpointRecord(**checkpoint) for checkpoint in fields["checkpoints"]]
    trial.uploads = {
        int(index): OpenUpload(*upload) for index, upload in fields.get("uploads", {}).items()
    }
    trial.leases = dict(fields["leases"])
    trial.exploit = exploit_from(fields["exploit"], decode) if fields["exploit"] else None
    trial.resize = fields["resize"]
    # Trials that the user holds are listed in the trial table's state.
    if _may_pause(trial) and not fields["is_to_resume"]:
        trial.waits_for |= WaitsFor.DECISION
    if trial.exploit and trial.exploit.checkpoint is None:
        trial.waits_for |= WaitsFor.DONOR
    trial.grafts = [_graft_from(graft, decode) for graft in fields["grafts"]]
    trial.num_rows = fields["num_rows"]
    if fields["last_result"]:
        # A trial that has not reported since its last exploit has its last result from the
        # configuration before.
        has_reported = not trial.grafts or trial.num_rows > trial.grafts[-1].num_rows
        trial.last_result = {
            **fields["last_result"],
            CONFIG: trial.config if has_reported else trial.grafts[-1].config,
        }
    trial.next_checkpoint = fields["next_checkpoint"]
    trial.resumed_iteration = fields["resumed_iteration"]
    trial.resumed_row = fields.get("resumed_row", 0)
    trial.reported_attempt = fields.get("reported_attempt")
    trial.superseded_attempt = fields["superseded_attempt"]
    trial.failures = [failure_from(failure) for failure in fields["failures"]]
    _load_validation_state(trial, fields)
    return trial


def _may_pause(trial: Trial) -> bool:
    return trial.status is Status.PAUSED or trial.is_pausing


def reason_fields(reason: Reason | None) -> Fields | None:
    """Return a reason as JSON values."""
    return None if reason is None else {"rule": reason.rule, "n": dict(reason.numbers)}


def reason_from(fields: Mapping[str, Any] | None) -> Reason | None:
    """Return the reason that `reason_fields` described."""
    return None if fields is None else Reason(fields["rule"], fields["n"])


def intention_fields(intention: Intention | None) -> Fields | None:
    """Return an intention as JSON values."""
    if intention is None:
        return None
    return {
        "verdict": intention.reply.value,
        "ending": intention.ending.value,
        "reason": reason_fields(intention.reason),
    }


def intention_from(fields: Mapping[str, Any] | None) -> Intention | None:
    """Return the intention that `intention_fields` described."""
    reason = reason_from(fields["reason"]) if fields else None
    return (
        Intention(ReportReply(fields["verdict"]), TerminationReason(fields["ending"]), reason)
        if fields and reason
        else None
    )


def exploit_fields(exploit: Exploit, encode: Translate = dict) -> Fields:
    """Return a decision to exploit as JSON values, with its reason's fields among them."""
    return {
        "id": exploit.trial_id,
        "donor": exploit.donor_id,
        "config": encode(exploit.config),
        "checkpoint": exploit.checkpoint,
        **(reason_fields(exploit.reason) or {}),
    }


def exploit_from(fields: Mapping[str, Any], decode: Translate = dict) -> Exploit:
    """Return the decision that `exploit_fields` described."""
    config = decode(fields["config"])
    return Exploit(
        fields["id"],
        fields["donor"],
        config,
        Reason(fields["rule"], fields["n"]),
        fields["checkpoint"],
    )


def _graft_fields(graft: AppliedExploit, encode: Translate) -> Fields:
    return {
        "attempt": graft.attempt,
        "num_rows": graft.num_rows,
        "iteration": graft.iteration,
        "config": encode(graft.config),
        "donor": graft.donor_id,
        "checkpoint": checkpoint_fields(graft.checkpoint),
        "from_iteration": graft.from_iteration,
        "first_checkpoint": graft.first_checkpoint,
        "reason": reason_fields(graft.reason),
        "is_over": graft.is_over,
    }


def _graft_from(fields: Mapping[str, Any], decode: Translate) -> AppliedExploit:
    reason = fields["reason"]
    return AppliedExploit(
        fields["attempt"],
        fields["num_rows"],
        fields["iteration"],
        decode(fields["config"]),
        fields["donor"],
        CheckpointRecord(**fields["checkpoint"]),
        fields["from_iteration"],
        fields["first_checkpoint"],
        Reason(reason["rule"], reason["n"]),
        fields["is_over"],
    )


def checkpoint_fields(checkpoint: CheckpointRecord) -> Fields:
    """Return a checkpoint's record as JSON values."""
    fields: Fields = {
        "index": checkpoint.index,
        "iteration": checkpoint.iteration,
        "time_total_s": checkpoint.time_total_s,
        "counters": dict(checkpoint.counters),
        "score": checkpoint.score,
    }
    if checkpoint.num_rows is not None:
        fields["num_rows"] = checkpoint.num_rows
    if checkpoint.name:
        fields["name"] = checkpoint.name
    if checkpoint.is_placeholder:
        fields["is_placeholder"] = True
    if checkpoint.remote:
        fields["remote"] = checkpoint.remote
    return fields


def group_fields(group: WorkerGroup) -> Fields:
    """Return a worker group as JSON values."""
    fields: Fields = {
        "num_workers": group.num_workers,
        "resources_per_worker": dict(group.resources_per_worker),
        "min_workers": group.min_workers,
        "max_workers": group.max_workers,
        "strategy": group.strategy,
    }
    if group.labels:
        fields["labels"] = dict(group.labels)
    return fields | ({"is_decided": True} if group.is_decided else {})


def group_from(fields: Mapping[str, Any] | None) -> WorkerGroup | None:
    """Return the worker group that `group_fields` described, None for None."""
    return None if fields is None else WorkerGroup(**fields)


def request_fields(request: ValidationRequest) -> Fields:
    """Return a request for a validation as JSON values; what has its default is left out."""
    fields: Fields = {}
    if request.function:
        fields["fn"] = request.function
    if request.kwargs:
        fields["kwargs"] = dict(request.kwargs)
    if request.timeout_s is not None:
        fields["timeout"] = request.timeout_s
    if request.payload:
        fields["payload"] = request.payload
    if request.takes_config:
        fields["takes_config"] = True
    return fields


def request_from(fields: Mapping[str, Any] | None) -> ValidationRequest | None:
    """Return the request that `request_fields` described, None for None."""
    if fields is None:
        return None
    return ValidationRequest(
        fields.get("fn", ""),
        fields.get("kwargs", {}),
        fields.get("timeout"),
        fields.get("payload", ""),
        fields.get("takes_config", False),
    )


def failure_fields(failure: Failure) -> Fields:
    """Return a failure as JSON values."""
    fields: Fields = {
        "kind": failure.kind,
        "message": failure.message,
        "traceback": failure.traceback,
    }
    bases = {"bases": list(failure.bases)} if failure.bases else {}
    place = {"place": failure.place} if failure.place else {}
    ranks = [[rank, failure_fields(one)] for rank, one in failure.ranks]
    return fields | bases | place | ({"ranks": ranks} if ranks else {})


def failure_from(fields: Mapping[str, Any]) -> Failure:
    """Return the failure that `failure_fields` described; old releases wrote no bases and place."""
    ranks = tuple((rank, failure_from(one)) for rank, one in fields.get("ranks", ()))
    return Failure(**{**fields, "bases": tuple(fields.get("bases", ())), "ranks": ranks})


def validation_fields(validation: Validation) -> dict[str, Any]:
    """Return a validation as JSON values; what has its default is left out."""
    fields: dict[str, Any] = {
        "checkpoint": checkpoint_fields(validation.checkpoint),
        "request": request_fields(validation.request),
        "state": validation.state.value,
        "num_try": validation.num_try,
    }
    if validation.num_failures:
        fields["num_failures"] = validation.num_failures
    if validation.result:
        fields["result"] = dict(validation.result)
    if validation.metrics is not None:
        fields["metrics"] = dict(validation.metrics)
    if validation.failure:
        fields["failure"] = failure_fields(validation.failure)
    if validation.is_open:
        fields["is_open"] = True
    if validation.state is ValidationState.RUNNING:
        fields["resources"] = dict(validation.resources)
        fields["gpu_ids"] = list(validation.gpu_ids)
        fields["is_apart"] = validation.is_apart
        fields["kill_move"] = validation.kill_move
    if validation.node:
        fields["node"] = validation.node
    if validation.losses:
        fields["losses"] = [list(loss) for loss in validation.losses]
    return fields


def validation_from(fields: Mapping[str, Any]) -> Validation:
    """Return the validation that `validation_fields` described."""
    request = request_from(fields["request"])
    return Validation(
        CheckpointRecord(**fields["checkpoint"]),
        request or ValidationRequest(),
        fields.get("result", {}),
        ValidationState(fields["state"]),
        fields["num_try"],
        fields.get("num_failures", 0),
        fields.get("metrics"),
        failure_from(fields["failure"]) if fields.get("failure") else None,
        fields.get("is_open", False),
        fields.get("resources", {}),
        tuple(fields.get("gpu_ids", ())),
        fields.get("is_apart", False),
        fields.get("kill_move"),
        fields.get("node", ""),
        tuple((num_try, why) for num_try, why in fields.get("losses", ())),
    )
