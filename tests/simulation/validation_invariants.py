"""Invariants of validations, which hold under all faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.core.commands import StartValidation
from tuner.core.experiment import Experiment
from tuner.core.failure_causes import WORKER_LOST
from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.validation.records import ValidationState, validations_of

from .acknowledgement_log import STALE, Transcript
from .environment import Environment
from .invariants import require


def validations_run_once(env: Environment, start: StartValidation) -> None:
    """I21: what is written as validated is not validated again, nor what was not asked for."""
    key = start.trial_id, start.checkpoint.index
    require("I15", not env.is_dirty, "%s starts before its record is written", start)
    require("I21", key in env.ack_log.requested, "%s was not requested", start)
    require("I21", key not in env.ack_log.validated, "%s has been validated already", start)
    is_there = env.checkpoints.find(*key_of(start)) or env.checkpoints.is_tampered(*key_of(start))
    require("I21", is_there, "the checkpoint of %s was deleted", start)
    limit = env.scenario.settings().max_validation_losses
    num = env.ack_log.validations_lost_in_row[key]
    require("I12", limit is None or num < limit, "%s, lost %s times in a row", start, num)


def key_of(start: StartValidation) -> tuple[str, CheckpointRecord]:
    """Return trial and checkpoint of a validation."""
    return start.trial_id, start.checkpoint


def metrics_of(env: Environment, trial_id: str, index: int) -> dict[str, Any]:
    """Return what a validation returns, which tells the checkpoint that it belongs to."""
    metrics: dict[str, Any] = {"of": f"{trial_id}/{index}"}
    validating = env.scenario.validating
    if validating and validating.is_late:
        metrics["loss"] = env.ack_log.losses[trial_id, index]
    return metrics


def metrics_belong_to_their_checkpoint(
    env: Environment,
    trial: Trial,
    checkpoint: CheckpointRecord,
    metrics: Mapping[str, Any],
    result: Mapping[str, Any],
) -> None:
    """I21: what a validation returns is attached to the result of its own checkpoint."""
    require("I21", STALE not in metrics, "a late message counts as validation of %s", trial)
    require(
        "I21",
        result["training_iteration"] == checkpoint.iteration,
        "the validation of %s of %s is attached to %s",
        checkpoint,
        trial,
        result,
    )
    if metrics:
        found, wanted = result.get("of"), f"{trial.trial_id}/{checkpoint.index}"
        require("I21", found == wanted, "%s got the metrics of %s", wanted, found)
        kept = validations_of(trial).checkpoint_results.get(checkpoint.index)
        is_kept = any(each.index == checkpoint.index for each in trial.checkpoints)
        require(
            "I21",
            not is_kept or (kept is not None and kept.get("of") == wanted),
            "the metrics of %s are lost",
            wanted,
        )
    env.seen["checkpoint validated"] += bool(metrics)


def pending_checkpoints_are_kept(env: Environment, trial_id: str, index: int) -> None:
    """I21: no checkpoint is deleted while its validation is open."""
    if env.experiment is None:
        return
    trial = env.experiment.trial_table[trial_id]
    require(
        "I21",
        index not in trial.open_validations,
        "checkpoint %s of %s is deleted before it is validated",
        index,
        trial,
    )


def no_validation_is_lost(env: Environment, experiment: Experiment, left: Transcript) -> None:
    """I21: at the end every checkpoint that was to be validated has been, or has failed."""
    if env.scenario.time_budget_s is not None:
        return
    asked = {
        (record["id"], record["c"]["index"] if record["c"] else record["upload"])
        for record in left.records
        if record["k"] == "result" and record.get("v") is not None
    }
    for trial in experiment.trials:
        require("I21", not trial.open_validations, "a validation of %s is open", trial)
        for index, validation in trial.validations.items():
            kind = validation.failure.kind if validation.failure else ""
            if validation.state is ValidationState.FAILED and kind == WORKER_LOST:
                _is_lost_too_often(env, trial, index)
        for checkpoint in trial.checkpoints:
            is_asked = (trial.trial_id, checkpoint.index) in asked
            require(
                "I21",
                not is_asked or checkpoint.index in trial.validations,
                "the validation of %s of %s is lost",
                checkpoint,
                trial,
            )


def _is_lost_too_often(env: Environment, trial: Trial, index: int) -> None:
    """I12: a validation that is given up as lost was lost as often as is allowed."""
    env.seen["validation given up as lost"] += 1
    limit = env.scenario.settings().max_validation_losses
    num = env.ack_log.num_lost_validations[trial.trial_id, index]
    is_allowed = limit is not None and num >= limit
    require("I12", is_allowed, "a validation of %s is given up, lost %s times", trial, num)
