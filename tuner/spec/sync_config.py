"""Ray Tune's `SyncConfig`, for scripts that construct one."""

from __future__ import annotations

import functools
import warnings
from typing import Any, final


@final
class SyncConfig:
    """How Ray Tune copies the files of trials; accepted without effect.

    Here, what a trial writes stays in its directory, or is copied to the object store that
    `RunConfig.storage_path` names.

    Args:
        upload_dir: Must be None: the place is `RunConfig.storage_path`.
        **ignored: Ray Tune's other arguments.

    Raises:
        ValueError: If `upload_dir` is given.
    """

    def __init__(self, upload_dir: str | None = None, **ignored: Any) -> None:
        if upload_dir is not None:
            raise ValueError(
                f"upload_dir must be None, got {upload_dir!r}; write "
                f"RunConfig(storage_path={upload_dir!r})"
            )
        vars(self).update(ignored)
        _warn()


@functools.cache
def _warn() -> None:
    warnings.warn(
        "SyncConfig has no effect, since results and checkpoints are stored in "
        "RunConfig(storage_path=...) as they come; leave it out",
        stacklevel=3,
    )
