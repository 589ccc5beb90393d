"""Options of a reported checkpoint: how it is stored, named and validated."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from tuner.storage.checkpoints import Checkpoint
from tuner.wire.record import record


class CheckpointUploadMode(enum.Enum):
    """When a reported checkpoint is stored.

    ``SYNC`` stores it before `report` returns. ``ASYNC`` stores it in a thread, in the order of the
    reports, and then deletes the local directory; the metrics count at once, the checkpoint once it
    is stored. ``NO_UPLOAD`` leaves it where it is, which has to be inside the trial's directory.
    """

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        """Return whether the local directory is deleted after it has been stored, by default."""
        return self is CheckpointUploadMode.ASYNC


class CheckpointConsistencyMode(enum.Enum):
    """What `get_all_reported_checkpoints` waits for.

    ``COMMITTED`` waits until every reported checkpoint is stored, ``VALIDATED`` also until no
    validation is open.
    """

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(enum.Enum):
    """Whether a stored checkpoint has been validated."""

    COMMITTED = "COMMITTED"
    """No validation was requested."""
    PENDING_VALIDATION = "PENDING_VALIDATION"
    """The validation waits for resources, or runs."""
    VALIDATED = "VALIDATED"
    """The metrics contain what the validation function returned."""
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    """The validation took too long and was killed; the metrics are those reported."""
    VALIDATION_FAILED = "VALIDATION_FAILED"
    """The validation raised, died or returned no metrics; the metrics are those reported."""


@record
class ReportedCheckpoint:
    """A checkpoint that the trial has reported.

    Attributes:
        checkpoint: The checkpoint.
        metrics: The metrics that it was reported with, and over them those of its validation.
        status: Whether it has been validated.
    """

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus


@record
class ValidationTask:
    """The validation that a report asks for.

    Attributes:
        function: The function, None for the one declared with the experiment.
        kwargs: Its keyword arguments, which count before the declared ones.
        timeout_s: Seconds after which it is killed, None for the declared limit.
        takes_config: Whether it is called as ``function(checkpoint, kwargs)``, the older form.
    """

    function: Callable[..., Mapping[str, Any]] | None = None
    kwargs: Mapping[str, Any] | None = None
    timeout_s: float | None = None
    takes_config: bool = False


@record
class ReportOptions:
    """How a reported checkpoint is stored and validated.

    Attributes:
        directory_name: Name of its directory inside the trial's, None for the numbered one.
        upload_mode: When it is stored.
        deletes_local: Whether the local directory is deleted once it is stored; None for only in
            the mode ASYNC.
        upload: Stores it instead of the engine: called with the checkpoint and the name of the
            directory, returns a checkpoint inside the trial's directory. None for the engine.
        validation: How it is validated, None for not at all.
    """

    directory_name: str | None = None
    upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC
    deletes_local: bool | None = None
    upload: Callable[[Checkpoint, str], Checkpoint] | None = None
    validation: ValidationTask | None = None


NO_OPTIONS: Final = ReportOptions()
