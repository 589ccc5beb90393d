"""The API of training code that runs in several processes; see `report`."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tuner.core.worker_records import CheckpointRecord
from tuner.execution import session
from tuner.execution.assignment import Assignment
from tuner.execution.attempt import current_attempt
from tuner.execution.report_options import (
    NO_OPTIONS,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    ReportOptions,
    ValidationTask,
)
from tuner.execution.session import TuneContext
from tuner.spec.training_config import ValidationTaskConfig
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.urls import join_url

from .data import DataShard, shard_named
from .errors import PreemptionInfo
from .running import current_run

TrainContext = TuneContext
"""What `get_context` returns."""


def report(  # noqa: PLR0917  (Ray Train's signature)
    metrics: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
    validation: bool | ValidationTaskConfig = False,
    *,
    validate_fn: Callable[..., Mapping[str, Any]] | None = None,
    validate_config: Mapping[str, Any] | None = None,
) -> None:
    """Report one result of the training and wait for the engine's answer.

    All workers of a group have to call it equally often: it returns when all have called it. The
    metrics that count are those of rank 0. Files of the checkpoints of all workers are merged into
    one checkpoint; of files with equal names and different contents the highest rank's is kept,
    with a warning.

    To stop the trial, `report` raises an exception in all workers that is not an `Exception`, so
    that ``finally`` clauses and context managers run; do not catch it. Outside a trial it warns
    once and does nothing.

    Args:
        metrics: Numbers by name, see `tuner.report`.
        checkpoint: What this worker adds to the state of the training at this result; None for
            nothing.
        checkpoint_dir_name: Name of the checkpoint's directory inside the trial's; None, the
            default, for ``checkpoint_<number>``. It must be another one for each checkpoint, and
            the same on all workers.
        checkpoint_upload_mode: When the checkpoint is stored: before this returns (SYNC), by a
            thread (ASYNC), or not at all, since it already lies in the trial's directory
            (NO_UPLOAD).
        delete_local_checkpoint_after_upload: Whether the local directory is deleted once it has
            been stored; None, the default, for only with ASYNC. If several workers report the same
            directory, it is deleted when all of them have reported and it is stored. It must not
            be the working directory.
        checkpoint_upload_fn: Stores the checkpoint in place of the engine. It is called with the
            checkpoint and the name of its directory, and returns a checkpoint that lies in the
            trial's directory.
        validation: Whether the checkpoint is validated by the function that was declared in a
            `ValidationConfig`; a `ValidationTaskConfig` gives it arguments, which count before
            the declared ones. Without a checkpoint it is ignored, so that all workers, and reports
            with and without one, may write the same.
        validate_fn: Function to validate the checkpoint with, called as
            ``validate_fn(checkpoint, validate_config)``: the older form of `validation`.
        validate_config: Second argument of `validate_fn`; None for an empty dictionary.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If arguments contradict each other, or the workers have given different ones.
        CheckpointError: If the checkpoint cannot be stored, see `tuner.report`.
        RuntimeError: After the end of the trial, and in processes that it has started.

    Example:
        >>> import tuner as tune
        >>> from tuner import train
        >>> def loop(config):
        ...     for epoch in range(3):
        ...         train.report({"epoch": epoch})
        >>> run_config = tune.RunConfig(storage_path=getfixture("tmp_path"), verbose=0)
        >>> tune.Tuner(loop, run_config=run_config).fit()[0].metrics["epoch"]
        2

    Departures:
        Ray Train merges equal names without a word, and takes the validation of the lowest rank
        with a checkpoint where workers ask for different ones.
    """
    options = _checked(
        ReportOptions(
            checkpoint_dir_name,
            checkpoint_upload_mode,
            delete_local_checkpoint_after_upload,
            checkpoint_upload_fn,
            _validation_task(validation, validate_fn, validate_config, checkpoint),
        )
    )
    if checkpoint is None:  # they have no effect without one
        options = NO_OPTIONS
    attempt = current_attempt()
    if attempt is None:
        session.report(dict(metrics), checkpoint)  # warns that there is no trial
        return
    attempt.report(metrics, checkpoint, options)


def get_checkpoint() -> Checkpoint | None:
    """Return the latest checkpoint of the trial, from which a later attempt has to continue.

    Returns:
        The checkpoint; None at the first start of a trial, and outside a trial. With
        ``resume_from_checkpoint`` of a trainer it is that one until the trial has its own.
    """
    return session.get_checkpoint() or _inherited_checkpoint()


def get_context() -> TrainContext:
    """Return information about this worker: its rank, the size of the group, names and places.

    Raises:
        RuntimeError: Outside a trial.
    """
    return session.get_context()


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Return the checkpoints of the trial that are kept, oldest first, with their metrics.

    It is no barrier: each worker may call it whenever it wants.

    Args:
        consistency_mode: What to wait for: that all reported checkpoints are stored, or also that
            no validation is open.
        timeout_s: How many seconds to wait at most; None, the default, for no limit. Afterwards the
            checkpoints are returned as they are, with the status ``PENDING_VALIDATION``.

    Raises:
        TypeError: If `consistency_mode` is no `CheckpointConsistencyMode`.
        RuntimeError: Outside a trial.
    """
    if not isinstance(consistency_mode, CheckpointConsistencyMode):
        raise TypeError(
            f"consistency_mode must be a CheckpointConsistencyMode, got {consistency_mode!r}"
        )
    attempt = current_attempt()
    if attempt is None:
        raise RuntimeError(
            "get_all_reported_checkpoints was called outside a trial; after the training, use "
            "Result.best_checkpoints"
        )
    listed = attempt.list_checkpoints(
        consistency_mode is CheckpointConsistencyMode.VALIDATED, timeout_s
    )
    return [
        ReportedCheckpoint(
            _reported(attempt.assignment, record),
            dict(metrics),
            ReportedCheckpointStatus(status),
        )
        for record, metrics, status in listed
    ]


def _reported(assignment: Assignment, record: CheckpointRecord) -> Checkpoint:
    """Return a checkpoint of the trial: its local copy, or where that was deleted, the stored one.

    The engine deletes local copies of what an object store holds when they take too much space.
    """
    local = Path(assignment.trial_dir, record.directory)
    if record.remote and assignment.stored_in and not local.exists():
        return Checkpoint(join_url(assignment.stored_in, record.remote))
    return Checkpoint(local)


def get_dataset_shard(dataset_name: str | None = None) -> DataShard:
    """Return this worker's part of a dataset that the trainer was given.

    Args:
        dataset_name: Its name in ``datasets``; None, the default, for the only one, or else
            ``"train"``.

    Raises:
        KeyError: If there is no dataset of that name.
        RuntimeError: Outside a trainer.
    """
    shard: DataShard = shard_named(dataset_name)
    return shard


def get_preemption_info() -> PreemptionInfo | None:
    """Return why the workers have to leave before their training is over, None if they do not.

    It is known as soon as `report` has told the workers to leave, since the experiment is
    interrupted by a signal or its time limit, or the trial is paused: in ``finally`` clauses and
    context managers, through which the exception passes that `report` raises. All workers of a
    group get the same. What they reported with that call has been stored, and the trial continues
    from it.

    Departures:
        In Ray Train it is a barrier, and known before the next report, so that training code saves
        a checkpoint in time; here the report that tells of it is the last one. With signals and
        the time limit, have each report save what the training continues from, or report more
        often (`CheckpointEvery`).

    Example:
        >>> get_preemption_info() is None
        True
    """
    attempt = current_attempt()
    if attempt is None or attempt.interruption is None:
        return None
    rank = attempt.assignment.rank
    return PreemptionInfo(
        deadline_ms=attempt.interruption["deadline_ms"],
        preempted_node_to_ranks={platform.node(): list(range(rank.world_size if rank else 1))},
        reason=attempt.interruption["rule"],
    )


def _inherited_checkpoint() -> Checkpoint | None:
    run = current_run()
    return run.resume_from_checkpoint if run else None


def _checked(options: ReportOptions) -> ReportOptions:
    mode, upload = options.upload_mode, options.upload
    if not isinstance(mode, CheckpointUploadMode):
        raise TypeError(f"checkpoint_upload_mode must be a CheckpointUploadMode, got {mode!r}")
    if not isinstance(options.deletes_local, bool | None):
        raise TypeError(
            "delete_local_checkpoint_after_upload must be True, False or None, got "
            f"{options.deletes_local!r}"
        )
    if upload is not None and not callable(upload):
        raise TypeError(
            f"checkpoint_upload_fn must be a function of a checkpoint and a name, got {upload!r}"
        )
    if options.directory_name is not None:
        _check_directory_name(options.directory_name)
    if mode is CheckpointUploadMode.NO_UPLOAD:
        for name, value in (
            ("checkpoint_upload_fn", upload),
            ("delete_local_checkpoint_after_upload", options.deletes_local or None),
            ("checkpoint_dir_name", options.directory_name),
        ):
            if value is not None:
                raise ValueError(
                    f"{name} must not be given with CheckpointUploadMode.NO_UPLOAD, got {value!r}; "
                    "the checkpoint stays where it is"
                )
    return options


def _check_directory_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"checkpoint_dir_name must be a name, got {name!r}")
    if name in ("", ".", "..") or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(
            "checkpoint_dir_name must be the name of a directory inside the trial's, without "
            f"slashes and not beginning with a dot, got {name!r}"
        )


def _validation_task(
    validation: Any, function: Any, config: Any, checkpoint: Checkpoint | None
) -> ValidationTask | None:
    if not isinstance(validation, bool | ValidationTaskConfig):
        raise TypeError(
            f"validation must be True, False or a ValidationTaskConfig, got {validation!r}"
        )
    if function is not None and validation:
        raise ValueError(
            "validation and validate_fn must not both be given; use validation with "
            "ValidationConfig(fn=...), or validate_fn alone"
        )
    if config is not None and function is None:
        raise ValueError(
            "validate_config must not be given without validate_fn; pass arguments of a declared "
            "function with validation=ValidationTaskConfig(fn_kwargs=...)"
        )
    if function is not None and not callable(function):
        raise TypeError(
            f"validate_fn must be a function of a checkpoint and a dictionary, got {function!r}"
        )
    if not isinstance(config, Mapping | None):
        raise TypeError(f"validate_config must be a dictionary, got {config!r}")
    if checkpoint is None or (function is None and not validation):
        return None
    if function is None:
        given = validation if isinstance(validation, ValidationTaskConfig) else None
        return ValidationTask(
            kwargs=dict(given.fn_kwargs or {}) if given else None,
            timeout_s=given.timeout_s if given else None,
        )
    return ValidationTask(function, dict(config or {}), takes_config=True)
