"""Reader of the transaction logs of Weights & Biases: results, validations and end of a run.

An offline run cannot be read from the server. Its log is a sequence of blocks in LevelDB's format,
with the client's protocol buffers as records. The client flushes it in the background, so that
after a crash only the file shows which results were written.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tuner.storage.disk import LARGE_BYTES, read_file

_FILE_HEADER: Final = 7
_BLOCK: Final = 32_768
_RECORD: Final = struct.Struct("<IHB")
"""Checksum, size, and type: a whole record, or its first, middle or last part."""
_WHOLE, _FIRST, _LAST = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Trace:
    """State of a run in its transaction logs.

    Attributes:
        last_step: The last step of W&B, 0 for none.
        results: Time, in whole seconds, and training iteration of each result, and how many there
            are of each.
        exit_code: With which the run has ended; None if it has not, or was begun again.
        metrics: The latest values of each training iteration, as JSON, validations' included.
    """

    last_step: int = 0
    results: Counter[tuple[int, int]] = field(default_factory=Counter)
    exit_code: int | None = None
    metrics: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def trace_of(directory: Path, run_id: str) -> Trace:
    """Return the state of a run after all its sessions.

    Args:
        directory: The folder ``wandb`` that contains them.
        run_id: The run's id.
    """
    paths = sorted(directory.glob(f"*run-*/run-{run_id}.wandb"))
    trace = Trace()
    for path in paths:
        trace = _continued(trace, path)
    return trace


def _continued(trace: Trace, path: Path) -> Trace:
    last_step, results, exit_code = trace.last_step, trace.results.copy(), None
    metrics = {iteration: dict(row) for iteration, row in trace.metrics.items()}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            row = {
                item.key or "/".join(item.nested_key): item.value_json
                for item in record.history.item
            }
            last_step = max(last_step, record.history.step.num)
            iteration = int(json.loads(row.get("training_iteration", "0")))
            metrics.setdefault(iteration, {}).update(row)
            if "timestamp" in row and "training_iteration" in row:
                results[int(json.loads(row["timestamp"])), iteration] += 1
        if kind == "exit":
            exit_code = record.exit.exit_code
    return Trace(last_step, results, exit_code, metrics)


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a transaction log, up to a torn one.

    Raises:
        OSError: If it cannot be read.
    """
    messages = importlib.import_module("wandb.proto.wandb_internal_pb2")
    for data in _frames(read_file(path, LARGE_BYTES)):
        record = messages.Record()
        try:
            record.ParseFromString(data)
        except ValueError:  # the base class of protobuf's `DecodeError`
            return
        yield record


def _frames(data: bytes) -> Iterator[bytes]:
    at, collected = _FILE_HEADER, b""
    while at + _RECORD.size <= len(data):
        if (rest := _BLOCK - at % _BLOCK) < _RECORD.size:
            at += rest
            continue
        _, size, part = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if not part or at + size > len(data):
            return
        collected = (
            data[at : at + size] if part in (_WHOLE, _FIRST) else collected + data[at : at + size]
        )
        at += size
        if part in (_WHOLE, _LAST):
            yield collected
