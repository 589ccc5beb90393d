"""Storing the checkpoints that training code reports: where, how, and in a thread if asked to."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from tuner.background import BackgroundJobs
from tuner.core.worker_records import checkpoint_directory_name
from tuner.storage.checkpoint_directories import commit, commit_from, is_staged, stage
from tuner.storage.checkpoint_parts import (
    can_be_moved,
    check_chosen_name,
    commit_in_place,
    name_inside,
    stage_part,
    take_over,
)
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.layout import MANIFEST
from tuner.storage.manifest import Provenance
from tuner.storage.tree_state import TreeState, check_unchanged, state_of
from tuner.wire.record import record

from .checkpoint_part import Part, PartKind
from .report_options import CheckpointUploadMode, ReportOptions

MAX_OUTSTANDING: Final = 2
"""How many checkpoints a worker may be storing in its thread; a further report waits."""
_WARNING_INTERVAL_S: Final = 60.0
_WARNING_VARIABLE: Final = "RAY_TRAIN_CHECKPOINT_UPLOAD_WARN_INTERVAL_S"
_log = logging.getLogger("tuner")


@record
class CheckpointPlan:
    """What becomes of a reported checkpoint.

    Attributes:
        checkpoint: What was reported.
        mode: When it is stored.
        directory: Name of the directory inside the trial's that it will have.
        name: The same where training code has chosen it, else empty.
        is_placeholder: Whether nothing need be in the directory.
        deletes_local: Whether the reported directory is deleted once it is stored.
        upload: Stores it instead of the engine, see `ReportOptions`.
        seen: State of the reported directory in which it has to be when it is stored; None for any.
    """

    checkpoint: Checkpoint
    mode: CheckpointUploadMode
    directory: str
    name: str
    is_placeholder: bool
    deletes_local: bool
    upload: Callable[[Checkpoint, str], Checkpoint] | None
    seen: TreeState | None = None


def plan_checkpoint(
    checkpoint: Checkpoint, options: ReportOptions, trial_dir: str, index: int
) -> CheckpointPlan:
    """Return what becomes of a reported checkpoint.

    Args:
        checkpoint: The checkpoint.
        options: How it is to be stored.
        trial_dir: The trial's directory.
        index: Index that the checkpoint gets.

    Raises:
        ValueError: If options contradict each other, or name a directory that cannot be used.
        FileNotFoundError: If the checkpoint's directory does not exist.
    """
    mode, name = options.upload_mode, options.directory_name or ""
    if mode is CheckpointUploadMode.NO_UPLOAD:
        return _plan_in_place(checkpoint, options, trial_dir, index)
    if name:
        check_chosen_name(name, index)
        target = Path(trial_dir, name)
        if options.upload is None and target.exists() and not (target / MANIFEST).is_file():
            raise ValueError(
                f"checkpoint_dir_name must not be that of another directory, got {name!r}, and "
                f"{target} is no checkpoint; choose another name"
            )
    # Here and not in the thread, so that the line that reports it is in the traceback.
    if checkpoint.is_local and not Path(checkpoint.path).is_dir():
        with checkpoint.as_directory():
            pass
    is_deleted = options.deletes_local
    if is_deleted is None:
        is_deleted = mode is CheckpointUploadMode.ASYNC
    # A staging directory is not the user's: it is renamed, or the workers have it in common.
    # Nor is a committed checkpoint, which is reported again or was given to start from.
    is_deleted = (
        is_deleted
        and checkpoint.is_local
        and not is_staged(checkpoint.path, trial_dir)
        and not Path(checkpoint.path, MANIFEST).is_file()
    )
    if is_deleted:
        _check_deletable(checkpoint.path, trial_dir)
    return CheckpointPlan(
        checkpoint=checkpoint,
        mode=mode,
        directory=name or checkpoint_directory_name(index),
        name=name,
        is_placeholder=False,
        deletes_local=is_deleted,
        upload=options.upload,
    )


def _check_deletable(path: str, trial_dir: str) -> None:
    """Raise ValueError if a directory that would be moved or deleted is needed otherwise."""
    place = os.path.realpath(path)
    for needed in (trial_dir, os.curdir):
        if Path(os.path.realpath(needed)).is_relative_to(place):
            raise ValueError(
                "a checkpoint whose local directory is deleted once it is stored must not be the "
                "trial's directory, the working directory, or one above them, got "
                f"{path!r}; write it into a directory of its own, or pass "
                "delete_local_checkpoint_after_upload=False"
            )


def _plan_in_place(
    checkpoint: Checkpoint, options: ReportOptions, trial_dir: str, index: int
) -> CheckpointPlan:
    if options.upload is not None:
        raise ValueError(
            "checkpoint_upload_fn cannot be given with the mode NO_UPLOAD, which stores nothing; "
            "leave one of the two out"
        )
    if not checkpoint.is_local:
        raise ValueError(
            "a checkpoint that is not uploaded must lie inside the trial's directory "
            f"{trial_dir!r}, got {checkpoint.path!r}; use the mode SYNC or ASYNC to have it copied"
        )
    name = name_inside(checkpoint.path, trial_dir, index)
    if options.directory_name and options.directory_name != name:
        raise ValueError(
            f"checkpoint_dir_name must be the checkpoint's own with the mode NO_UPLOAD, got "
            f"{options.directory_name!r} for {checkpoint.path!r}; leave it out"
        )
    return CheckpointPlan(
        checkpoint=checkpoint,
        mode=options.upload_mode,
        directory=name,
        name=name,
        is_placeholder=not Path(checkpoint.path).is_dir(),
        deletes_local=False,
        upload=None,
    )


def store(
    plan: CheckpointPlan, trial_dir: str, provenance: Provenance, *, sync: bool
) -> CheckpointPlan:
    """Store the checkpoint of a single process.

    Returns:
        The plan, with the directory in which the checkpoint lies now.

    Raises:
        CheckpointError: If it could not be stored; nothing has its name then.
        ValueError: If the user's function has stored it elsewhere.
    """
    if plan.is_placeholder:
        return plan
    if plan.upload or plan.mode is CheckpointUploadMode.NO_UPLOAD:
        plan = _upload(plan, trial_dir, provenance.index)
        commit_in_place(plan.directory, trial_dir, provenance, sync=sync)
    elif staging := _taken_over(plan, trial_dir, provenance):
        commit(staging, trial_dir, provenance, sync=sync, name=plan.name)
    else:
        with plan.checkpoint.as_directory() as source:
            commit_from(source, trial_dir, provenance, sync=sync, name=plan.name, seen=plan.seen)
    delete_local(plan)
    return plan


def prepare_part(
    plan: CheckpointPlan, trial_dir: str, provenance: Provenance, *, rank: int, sync: bool
) -> Part:
    """Prepare what a worker of a group has to store of a checkpoint.

    Unless the mode is ASYNC, other workers may still be writing to the reported directory, or
    about to read it, so it is neither moved nor deleted here; see `delete_local`.

    Raises:
        CheckpointError: If it could not be written.
        ValueError: If the user's function has stored it elsewhere.
    """
    if plan.is_placeholder:
        return Part(PartKind.PLACEHOLDER, plan.directory)
    if plan.mode is not CheckpointUploadMode.ASYNC:
        plan = replace(plan, deletes_local=False)
    if plan.upload or plan.mode is CheckpointUploadMode.NO_UPLOAD:
        plan = _upload(plan, trial_dir, provenance.index)
        delete_local(plan)
        return Part(PartKind.PLACED, plan.directory)
    if staging := _taken_over(plan, trial_dir, provenance):
        name = stage_part(staging, trial_dir, provenance, rank=rank, sync=sync, is_moved=True)
    else:
        with plan.checkpoint.as_directory() as source:
            name = stage_part(source, trial_dir, provenance, rank=rank, sync=sync, seen=plan.seen)
    delete_local(plan)
    return Part(PartKind.STAGED, name)


def _upload(plan: CheckpointPlan, trial_dir: str, index: int) -> CheckpointPlan:
    """Have the user's function store the checkpoint, if there is one."""
    if plan.upload is None:
        return plan
    check_unchanged(plan.checkpoint.path, plan.seen)
    stored = plan.upload(plan.checkpoint, plan.directory)
    if not isinstance(stored, Checkpoint) or not stored.is_local:
        raise ValueError(
            "checkpoint_upload_fn must return a Checkpoint inside the trial's directory "
            f"{trial_dir!r}, got {stored!r}"
        )
    name = name_inside(stored.path, trial_dir, index)
    is_elsewhere = os.path.realpath(stored.path) != os.path.realpath(plan.checkpoint.path)
    if is_elsewhere and Path(plan.checkpoint.path).is_dir():  # it may have been moved there
        check_unchanged(plan.checkpoint.path, plan.seen)
    return replace(
        plan,
        directory=name,
        name=plan.name if name == plan.directory else name,
        deletes_local=plan.deletes_local and is_elsewhere,
    )


def _taken_over(plan: CheckpointPlan, trial_dir: str, provenance: Provenance) -> Path | None:
    """Return the staging directory into which the checkpoint could be moved, None if it could not.

    Only what is to be deleted is moved.
    """
    if not plan.deletes_local:
        return None
    check_unchanged(plan.checkpoint.path, plan.seen)
    staging = stage(trial_dir, provenance.index, provenance.attempt)
    if take_over(plan.checkpoint.path, staging):
        return staging
    staging.rmdir()
    return None


def delete_local(plan: CheckpointPlan) -> None:
    """Delete the reported directory of a stored checkpoint, if that is asked for."""
    # The user's function may have stored the checkpoint where it lies.
    if plan.deletes_local and not Path(plan.checkpoint.path, MANIFEST).is_file():
        shutil.rmtree(plan.checkpoint.path, ignore_errors=True)


def source_of(plan: CheckpointPlan, node_rank: int) -> str:
    """Return a text that is the same for all workers that report the same local directory."""
    place = Path(plan.checkpoint.path).stat()
    return f"{node_rank}-{place.st_dev}-{place.st_ino}"


def keep_from_deletion(plan: CheckpointPlan) -> CheckpointPlan:
    """Return the plan with a directory that its owner cannot delete before it is stored.

    Code like ``with TemporaryDirectory() as directory: report(..., ASYNC)`` would delete it while
    the thread still reads it. So it is renamed at once, in its place, where the system lets it.
    """
    source = Path(plan.checkpoint.path)
    if plan.upload is None and can_be_moved(source):
        with suppress(OSError):
            own = source.with_name(f".{source.name.lstrip('.')}-{secrets.token_hex(4)}")
            source.rename(own)
            return replace(plan, checkpoint=Checkpoint(own))
    return plan


def watch_for_changes(plan: CheckpointPlan) -> CheckpointPlan:
    """Return the plan such that it fails if the directory is written to before it is stored.

    Training code that reports the same directory each time, and does not wait until it is stored,
    would otherwise mix two states in a checkpoint that looks intact.
    """
    if plan.is_placeholder or not plan.checkpoint.is_local:
        return plan
    with suppress(OSError):  # storing it will say so
        return replace(plan, seen=state_of(plan.checkpoint.path))
    return plan


def _warning_interval_s() -> float:
    """Return after how many seconds of waiting to warn, as Ray Train's variable says."""
    with suppress(ValueError):
        interval_s = float(os.environ.get(_WARNING_VARIABLE, ""))
        if interval_s > 0:
            return interval_s
    return _WARNING_INTERVAL_S


def wait_for_uploads(uploads: BackgroundJobs, *, num_left: int = 0) -> None:
    """Wait until at most so many checkpoints are still being stored."""
    began_s = time.monotonic()
    while not uploads.wait(_warning_interval_s(), num_left=num_left):
        _log.warning(
            "training waits since %.0f s for a checkpoint that is being stored; "
            "report fewer or smaller ones, or use a faster disk",
            time.monotonic() - began_s,
        )
