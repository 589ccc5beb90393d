"""Ledger of acknowledged reports, in files that the product never writes.

Each process appends to a separate file, one line in one system call, after `report` has returned. A
process killed between the two has an acknowledged result that the ledger lacks; the opposite cannot
happen, so a result that only the ledger has is truly lost. Times are those of the monotonic clock,
which all processes of a machine share.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import final

LEDGER = "ledger"
"""Name of the ledger in the directory of a bench."""
DIRECTORY = "FAULTS_LEDGER"
"""Environment variable with the ledger's directory."""
LIFE = "FAULTS_LIFE"
"""Environment variable that counts the drivers of an experiment, from 0; processes that do not
inherit it read the ledger's file of that name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """An event that a trial or the driver has recorded.

    Attributes:
        kind: ``report`` after a report has returned, ``start`` when a training function begins; the
            driver records ``imported`` and ``ended``.
        life: Number of the driver that ran then, from 0.
        at_s: Monotonic time.
        trial: The trial id, empty for the driver.
        iteration: The reported iteration.
        value: The reported value.
    """

    kind: str
    life: int
    at_s: float
    trial: str = ""
    iteration: int = 0
    value: float = 0.0


@final
class Ledger:
    """Appends to the ledger named by the environment."""

    def __init__(self) -> None:
        directory = Path(os.environ[DIRECTORY])
        self._life = int(os.environ.get(LIFE) or (directory / LIFE).read_text(encoding="utf-8"))
        path = directory / f"{self._life}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, trial: str = "", iteration: int = 0, value: float = 0.0) -> None:
        """Append a line."""
        entry = Entry(kind, self._life, time.monotonic(), trial, iteration, value)
        os.write(self._file, json.dumps(dataclasses.asdict(entry)).encode() + b"\n")


def read_ledger(directory: Path) -> list[Entry]:
    """Return the entries of all processes, in chronological order."""
    lines = [
        line
        for path in directory.glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return sorted((Entry(**json.loads(line)) for line in lines), key=lambda entry: entry.at_s)
