"""``validations.json``: how the checkpoints of a trial were validated, one JSON object per line.

::

    {"checkpoint": "checkpoint_000003", "training_iteration": 4, "status": "VALIDATED",
     "metrics": {"accuracy": 0.5}, "error": "", "time": 1767225600.0}
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tuner.callbacks.log_records import Validated
from tuner.core.result import as_float
from tuner.storage.reading import LARGE_BYTES, read_file

ReportKey = tuple[str, str]
"""What a result and the validation of its checkpoint have in common: name of the checkpoint's
directory, and iteration, since an attempt may use a name again."""


def line_of(validated: Validated) -> dict[str, Any]:
    """Return the object that stands for a validation in the file."""
    return {
        "checkpoint": validated.checkpoint,
        "training_iteration": validated.iteration,
        "status": validated.status,
        "metrics": dict(validated.metrics),
        "error": validated.error,
        "time": validated.at,
    }


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
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict) and (found := _validated(fields)):
        return found
    if line.strip() and line.endswith(b"\n"):
        warnings.warn(
            f"line {number} of {path} is damaged and left out", RuntimeWarning, stacklevel=2
        )
    return None


def _validated(fields: Mapping[str, Any]) -> Validated | None:
    """Return what an object stands for; None where it was not written by `line_of`."""
    texts = [fields.get(name) for name in ("checkpoint", "status", "error")]
    checkpoint, status, error = (text if isinstance(text, str) else None for text in texts)
    metrics, iteration, at = map(fields.get, ("metrics", "training_iteration", "time"))
    if checkpoint is None or status is None or error is None:
        return None
    if not isinstance(metrics, dict) or not isinstance(iteration, int):
        return None
    seconds = as_float(at) if isinstance(at, int | float) else math.nan
    return Validated(checkpoint, iteration, None, status, metrics, error, seconds)
