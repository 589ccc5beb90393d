"""Invariant of log files (I19), which are parsed without the code that writes them."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import google_crc32c

from tuner.core.trial import Trial
from tuner.journal.rows import MemoryRows

from .invariants import Violation, require

_STEP: Final = "training_iteration"
_EVENT_STEP, _EVENT_SUMMARY, _EVENT_SESSION = 2, 5, 7
_SESSION_START: Final = 1


def log_files_are_the_table(
    directory: Path, trials: Sequence[Trial], table: MemoryRows, *, has_tensorboard: bool
) -> None:
    """I19: when an experiment has ended, each log file holds the rows of the result table."""
    for trial in trials:
        rows, home = table.of(trial.trial_id), directory / trial.trial_id
        _compare(
            trial,
            "progress.csv",
            rows,
            [
                {name: _number(row.get(name)) for name in row}
                for row in _csv_rows(home / "progress.csv")
            ],
        )
        given = [row | {"config": _config_at(trial, number)} for number, row in enumerate(rows)]
        _compare(trial, "result.json", given, _json_rows(home / "result.json"))
        _compare_parameters(trial, home / "params.json")
        if has_tensorboard:
            curve = [{_STEP: row[_STEP], "loss": _rounded(row["loss"])} for row in rows]
            _compare(trial, "TensorBoard's file", curve, _curve(home))


def _config_at(trial: Trial, number: int) -> Mapping[str, Any]:
    """Return the configuration with which a row was reported."""
    return next((graft.config for graft in trial.grafts if number < graft.num_rows), trial.config)


def _compare(
    trial: Trial, what: str, rows: Sequence[Mapping[str, Any]], told: Sequence[Mapping[str, Any]]
) -> None:
    owed, found = [row[_STEP] for row in rows], [row.get(_STEP) for row in told]
    require(
        "I19",
        owed == found,
        "of %s the table has the iterations %s, and %s has %s",
        trial,
        owed,
        what,
        found,
    )
    for row, line in zip(rows, told, strict=True):
        # Callbacks may have added metrics, which are not in the journal.
        same = {name: line.get(name) for name in row}
        require("I19", same == row, "of %s the table has %s, and %s has %s", trial, row, what, same)


def _compare_parameters(trial: Trial, path: Path) -> None:
    if trial.attempt == (trial.grafts[-1].attempt if trial.grafts else 0):
        return  # it was never started with this configuration
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError) as reason:
        raise Violation("I19", f"{path.name} of {trial} cannot be read: {reason}") from reason
    require(
        "I19",
        known == trial.config,
        "%s trains with %s, and params.json has %s",
        trial,
        trial.config,
        known,
    )


def _csv_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, strict=True))


def _number(text: str | None) -> float | str | None:
    try:
        return float(text or "")
    except ValueError:
        return text


def _json_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as reason:
        raise Violation("I19", f"{path} has a line that is no JSON: {reason}") from reason


def _curve(home: Path) -> list[dict[str, Any]]:
    """Return step and loss of the points that TensorBoard shows after its session starts."""
    points: list[dict[str, Any]] = []
    files = sorted(home.glob("events.out.tfevents.*"))
    require("I19", len(files) <= 1, "%s has several event files", home.name)
    for message in _messages(files[0].read_bytes()) if files else ():
        event = _fields(message)
        step = event.get(_EVENT_STEP, [0])[0]
        if _EVENT_SESSION in event:
            is_start = _fields(event[_EVENT_SESSION][0]).get(1) == [_SESSION_START]
            points = [point for point in points if not is_start or point[_STEP] < step]
        for value in _fields(event[_EVENT_SUMMARY][0])[1] if _EVENT_SUMMARY in event else ():
            named = _fields(value)
            if named[1] == [b"loss"]:
                points.append({_STEP: step, "loss": struct.unpack("<f", named[2][0])[0]})
    return points


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of an event file, which is in TensorFlow's record format."""
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        require(
            "I19",
            _verifies(head, data[at + 8 : at + 12]),
            "an event file is damaged at byte %s of %s",
            at,
            len(data),
        )
        size = struct.unpack("<Q", head)[0]
        message = data[at + 12 : at + 12 + size]
        require(
            "I19",
            _verifies(message, data[at + 12 + size : at + 16 + size]),
            "an event file is damaged at byte %s",
            at + 12,
        )
        yield message
        at += 16 + size


def _verifies(data: bytes, checksum: bytes) -> bool:
    crc = google_crc32c.value(data)
    return checksum == struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Return the fields of a Protocol Buffers message, by their numbers."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value: Any
        match key & 7:
            case 0:
                value, at = _varint(message, at)
            case 1:
                value, at = message[at : at + 8], at + 8
            case 5:
                value, at = message[at : at + 4], at + 4
            case _:
                size, at = _varint(message, at)
                value, at = message[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number, at, shift = number | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _rounded(value: float) -> float:
    """Return a number as TensorBoard keeps it, in single precision."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
