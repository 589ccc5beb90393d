"""Runs of searches on tables, one after the other, whose results are appended to a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from . import record
from .clock import run_peer
from .conversation import Conversation, PeerFailed
from .environments import python_of
from .methods import Ours, Peer, method_of
from .ours import run_ours
from .table import Table, read_table
from .trace import Trace

Run = Callable[[Table, int], Trace]
"""Runs a search on a table with a seed."""


def run_all(methods: Sequence[str], tasks: Sequence[str], num_seeds: int, path: Path) -> list[str]:
    """Run every search whose result is not in the file yet, and print its progress.

    Args:
        methods: Names of the searches.
        tasks: Names of the tables.
        num_seeds: Number of seeds, counted from 0.
        path: File of results.

    Returns:
        Names of the searches that could not be run.
    """
    done = {kept.key for kept in record.read(path)}
    tables = {task: read_table(task) for task in tasks}
    failed = []
    for name in methods:
        missing = [
            (tables[task], seed)
            for task in tasks
            for seed in range(num_seeds)
            if (name, task, seed) not in done
        ]
        try:
            if missing:
                _run(name, missing, path)
        except (FileNotFoundError, PeerFailed) as error:
            print(f"{name:<22} {error}", flush=True)
            failed.append(name)
    return failed


def _run(name: str, missing: Iterable[tuple[Table, int]], path: Path) -> None:
    with _opened(method_of(name)) as run:
        for table, seed in missing:
            kept = record.record_of(name, table, seed, run(table, seed))
            record.append(kept, path)
            print(
                f"{name:<22} {table.name:<20} seed {seed}  regret {kept.changes[-1][1]:.4f}  "
                f"{kept.decision_s:.2f} s",
                flush=True,
            )


@contextlib.contextmanager
def _opened(method: Ours | Peer) -> Iterator[Run]:
    if isinstance(method, Ours):
        yield lambda table, seed: run_ours(method, table, seed)
        return
    with Conversation(python_of(method.environment), f"{method.environment}_peer") as conversation:
        yield lambda table, seed: run_peer(conversation.ask, method.method, table, seed)
