"""The ledger: what the trials know to be acknowledged, kept where no code of the product ever writes.

Each process appends to a file of its own, one line in one system call, after `report` has returned.
A process that is killed between the two has an acknowledged result that the ledger lacks, so the
ledger never accuses wrongly. Times are those of the monotonic clock, which all processes of a
machine share.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import final

DIRECTORY = "FAULTS_LEDGER"
"""Environment variable with the ledger's directory."""
LIFE = "FAULTS_LIFE"
"""Environment variable that counts the drivers of an experiment, from 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A line of the ledger.

    Attributes:
        kind: ``report`` when one has returned, ``start`` when a training function has been entered;
            the driver notes what it has done.
        life: Which driver of the experiment this was under.
        at_s: Monotonic time.
        trial: The trial, empty for the driver.
        iteration: The iteration that was reported.
        value: The value that was reported.
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
        self._life = int(os.environ[LIFE])
        path = Path(os.environ[DIRECTORY], f"{self._life}-{os.getpid()}.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, trial: str = "", iteration: int = 0, value: float = 0.0) -> None:
        """Append a line."""
        entry = Entry(kind, self._life, time.monotonic(), trial, iteration, value)
        os.write(self._file, json.dumps(dataclasses.asdict(entry)).encode() + b"\n")


def read_ledger(directory: Path) -> list[Entry]:
    """Return what all processes have written, in the order of time."""
    lines = [
        line
        for path in directory.iterdir()
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return sorted((Entry(**json.loads(line)) for line in lines), key=lambda entry: entry.at_s)
