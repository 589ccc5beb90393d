"""Records of searches: one line of JSON each, so that a run can be resumed and evaluated again."""

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
    """Result of one run of a search.

    Attributes:
        method: Name of the search; see `method_of`.
        task: Name of the table.
        seed: Seed of the search.
        changes: Times at which the incumbent changed, as shares of the duration, with the regrets
            of the new incumbents.
        num_suggestions: Number of configurations that it suggested.
        num_epochs: Number of epochs that it trained.
        decision_s: CPU seconds spent inside the search.
        versions: Versions of the libraries of the search.
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
        """Method, task and seed, which identify the run."""
        return self.method, self.task, self.seed


def record_of(method: str, table: Table, seed: int, trace: Trace) -> Record:
    """Return the record of a run from its trace."""
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
    """Append a record to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a file, the latest one of each run; none if the file does not exist."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    latest: dict[tuple[str, str, int], Record] = {}
    for line in lines:
        fields = json.loads(line)
        record = Record(
            **{**fields, "changes": tuple((at, regret) for at, regret in fields["changes"])}
        )
        latest[record.key] = record
    yield from latest.values()
