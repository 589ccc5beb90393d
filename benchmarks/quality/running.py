"""Runs searches on tables, one after the other, and keeps what they came to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from . import record
from .clock import run_peer
from .conversation import Conversation
from .environments import python_of
from .methods import METHODS, Ours, Peer
from .ours import run_ours
from .table import Table, read_table
from .trace import Trace

Run = Callable[[Table, int], Trace]
"""Searches a table with a seed."""


def run_all(methods: Sequence[str], tasks: Sequence[str], num_seeds: int, path: Path) -> None:
    """Run every search that is not in the file yet, and say how it went."""
    done = {kept.key for kept in record.read(path)}
    for name in methods:
        missing = [(task, seed) for task in tasks for seed in range(num_seeds) if (name, task, seed) not in done]
        if not missing:
            continue
        with _opened(METHODS[name]) as run:
            for task, seed in missing:
                table = read_table(task)
                kept = record.record_of(name, table, seed, run(table, seed))
                record.append(kept, path)
                print(f"{name:<22} {task:<20} seed {seed}  regret {kept.changes[-1][1]:.4f}  {kept.decision_s:.2f} s", flush=True)


@contextlib.contextmanager
def _opened(method: Ours | Peer) -> Iterator[Run]:
    if isinstance(method, Ours):
        yield lambda table, seed: run_ours(method.searcher, method.scheduler, table, seed)
        return
    with Conversation(python_of(method.environment), f"{method.environment}_peer") as conversation:
        yield lambda table, seed: run_peer(conversation.ask, method.method, table, seed)
