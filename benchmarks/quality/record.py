"""What is kept of each search: one line of JSON, so that a run can be resumed and counted up again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .table import Table
from .trace import Trace, incumbents

RESULTS = Path(__file__).parent / "results.jsonl"


@dataclass(frozen=True, slots=True)
class Record:
    """One search.

    Attributes:
        method: Name in `METHODS`.
        task: The table.
        seed: The seed.
        changes: When its choice changed, as a share of its time, and the regret of the new choice.
        num_suggestions: How many configurations it proposed.
        num_epochs: How many epochs it trained.
        decision_s: CPU seconds in which it thought.
        versions: Of the libraries that searched.
    """

    method: str
    task: str
    seed: int
    changes: tuple[tuple[float, float], ...]
    num_suggestions: int
    num_epochs: int
    decision_s: float
    versions: dict[str, str]

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is a record of."""
        return self.method, self.task, self.seed


def record_of(method: str, table: Table, seed: int, trace: Trace) -> Record:
    """Return what is kept of a trace."""
    changes = tuple(
        (round(at, 5), round(regret, 6)) for at, regret in incumbents(table, trace.epochs)
    )
    num_epochs = len(trace.epochs)
    return Record(
        method,
        table.name,
        seed,
        changes,
        trace.num_suggestions,
        num_epochs,
        round(trace.decision_s, 4),
        trace.versions,
    )


def append(record: Record, path: Path) -> None:
    """Add a line to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a file, the latest where there are several of the same search; none where there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    latest: dict[tuple[str, str, int], Record] = {}
    for line in lines:
        fields = json.loads(line)
        record = Record(
            **{**fields, "changes": tuple((at, regret) for at, regret in fields["changes"])}
        )
        latest[record.key] = record
    yield from latest.values()
