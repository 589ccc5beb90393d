"""Names of directories of checkpoints, and of those in which workers stage them."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Final

from .layout import MANIFEST, STAGING_PREFIX, STDERR, STDOUT, TRIAL_FILES, VALIDATION_PREFIX

_STAGING: Final = re.compile(re.escape(STAGING_PREFIX) + r"(\d{6,18})-(\d+)-[\w-]{1,60}")
_COMMON: Final = "common"
_MAX_NAME_BYTES: Final = 200


def check_directory_name(name: str) -> str:
    """Return the name of a checkpoint's directory if it is safe inside the trial's.

    Raises:
        ValueError: If it leads out of the trial's directory, or belongs to the engine.
    """
    parts = PurePosixPath(name).parts
    is_plain = bool(parts) and "/".join(parts) == name and "\0" not in name
    if (
        not is_plain
        or not {"..", "/"}.isdisjoint(parts)
        or len(os.fsencode(name)) > _MAX_NAME_BYTES
        or parts[0].startswith((STAGING_PREFIX, VALIDATION_PREFIX))
        or parts[0].startswith((f"{STDOUT}.rank", f"{STDERR}.rank"))
        or name in TRIAL_FILES
        or MANIFEST in parts
    ):
        raise ValueError(
            f"the name of a checkpoint's directory must be a path inside the trial's directory of "
            f"at most {_MAX_NAME_BYTES} bytes that the engine does not use itself, got {name!r}; "
            'use one like "epoch_3"'
        )
    return name


def is_staging_name(name: str, attempt: int) -> bool:
    """Return whether a worker of this attempt may have staged a part under this name."""
    found = _STAGING.fullmatch(name)
    return found is not None and int(found[2]) == attempt


def common_token(report: int, number: int) -> str:
    """Return the token of a staging directory that the workers of a group have in common.

    Args:
        report: How many reports all of them have made.
        number: How many such directories each has asked for since.
    """
    return f"{_COMMON}{report}x{number}"


def is_in_common(name: str) -> bool:
    """Return whether a staging directory of this name is one that workers have in common."""
    return name.rpartition("-")[2].startswith(_COMMON)
