"""Readers of an experiment's files that share no code with the product.

They are written from the documentation of the formats alone: lines of ``<crc32, 8 hex digits>
<JSON>`` in the journal, JSON lines, CSV, and the event files of TensorBoard, which TensorBoard
itself reads.
"""

from __future__ import annotations

import csv
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

Reported = tuple[str, int, float]
"""Trial, iteration and value."""


def journal_bytes(experiment: Path) -> list[bytes]:
    """Return the content of the journal's segments, oldest first; empty if there is no journal."""
    return [path.read_bytes() for path in sorted(experiment.glob("journal/*.log"))]


def reported_in(segments: Iterable[bytes]) -> set[Reported]:
    """Return the results in a journal, of all attempts; lines with a wrong checksum are skipped."""
    records = (record for segment in segments for record in _records(segment))
    return {
        (record["id"], record["m"]["training_iteration"], record["m"]["loss"])
        for record in records
        if record.get("k") == "result"
    }


def numbers_in(segments: Iterable[bytes]) -> list[int]:
    """Return the sorted record numbers in a journal; lines with a wrong checksum are skipped."""
    return sorted(
        {record["q"] for segment in segments for record in _records(segment) if "q" in record}
    )


def _records(segment: bytes) -> Iterable[dict[str, Any]]:
    for line in segment.split(b"\n"):
        checksum, _, body = line.partition(b" ")
        if body and checksum == b"%08x" % zlib.crc32(body):
            yield json.loads(body)


def json_iterations(trial: Path) -> list[int]:
    """Return the iterations in ``result.json``, in file order."""
    return [
        json.loads(line)["training_iteration"]
        for line in (trial / "result.json").read_text(encoding="utf-8").splitlines()
    ]


def csv_iterations(trial: Path) -> list[int]:
    """Return the iterations in ``progress.csv``, in file order."""
    with (trial / "progress.csv").open(newline="", encoding="utf-8") as file:
        return [int(row["training_iteration"]) for row in csv.DictReader(file)]


def tensorboard_iterations(trial: Path) -> list[int]:
    """Return the steps of the loss curve as TensorBoard shows it.

    TensorBoard drops the steps that a new attempt reports again.
    """
    # Where this module is there, TensorBoard reads files without TensorFlow, which takes seconds.
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("notf"))
    # Its import takes a second.
    from tensorboard.backend.event_processing import event_accumulator  # noqa: PLC0415

    shown = event_accumulator.EventAccumulator(str(trial), size_guidance={"scalars": 0}).Reload()
    return [scalar.step for scalar in shown.Scalars("loss")]


LOGS: Mapping[str, Callable[[Path], list[int]]] = {
    "JSON": json_iterations,
    "CSV": csv_iterations,
    "TensorBoard": tensorboard_iterations,
}
"""Functions that return the iterations in a trial's log file, by log format."""


def doubles_and_holes(iterations: Iterable[int], expected: int) -> tuple[int, int]:
    """Return how many rows are duplicates, and how many of 1 to `expected` are missing."""
    counts = Counter(iterations)
    return sum(count - 1 for count in counts.values()), sum(
        iteration not in counts for iteration in range(1, expected + 1)
    )
