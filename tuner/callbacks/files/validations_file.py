"""``validations.json``: how the checkpoints of a trial were validated, one JSON object per line.

::

    {"checkpoint": "checkpoint_000003", "training_iteration": 4, "status": "VALIDATED",
     "metrics": {"accuracy": 0.5}, "error": "", "time": 1767225600.0}
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.callbacks.log_records import Validated
from tuner.core.result import as_float
from tuner.storage.disk import LARGE_BYTES, read_file
from tuner.wire.declared import decode

ReportKey = tuple[str, str]
"""What a result and the validation of its checkpoint have in common: name of the checkpoint's
directory, and iteration, since an attempt may use a name again."""


def read_validations(path: str | Path) -> list[Validated]:
    """Return the validations in a file, the last one of each checkpoint, in their order.

    A damaged line is left out with a warning, a torn last one without; a file that is not there
    holds none.

    Raises:
        OSError: If it cannot be read.
    """
    try:
        lines = read_file(path, LARGE_BYTES).splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return latest(
        validated
        for number, line in enumerate(lines, start=1)
        if (validated := _parsed(path, number, line))
    )


def metrics_by_report(validations: Iterable[Validated]) -> dict[ReportKey, Mapping[str, Any]]:
    """Return the metrics of validations that have some, by the `report_key` of their results."""
    return {
        report_key(one.checkpoint, one.iteration): one.metrics for one in validations if one.metrics
    }


def report_key(checkpoint: object, iteration: object) -> ReportKey:
    """Return the key of a result by its checkpoint and its ``training_iteration``."""
    return str(checkpoint), str(iteration)


def latest(validations: Iterable[Validated]) -> list[Validated]:
    """Return the last validation of each checkpoint, since a restore may repeat one."""
    return list({(one.checkpoint, one.iteration): one for one in validations}.values())


def _parsed(path: str | Path, number: int, line: bytes) -> Validated | None:
    try:
        found = decode(Validated, json.loads(line), is_whole=False)
    except (ValueError, RecursionError):
        if line.strip() and line.endswith(b"\n"):
            warnings.warn(
                f"line {number} of {path} is damaged and left out", RuntimeWarning, stacklevel=2
            )
        return None
    return replace(found, at=as_float(found.at))
