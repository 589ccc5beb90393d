"""Runs of searches, one after the other, whose results are appended to a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from . import record
from .clock import run_peer
from .conversation import Conversation, PeerFailed
from .environments import python_of
from .methods import Ours, method_of
from .ours import run_ours
from .record import Record
from .table import Table, read_table


class Named(Protocol):
    """What is searched: a table, or a function with a number of workers."""

    @property
    def name(self) -> str:
        """Its name in records."""


Searched = TypeVar("Searched", bound=Named)


def run_all(methods: Sequence[str], tasks: Sequence[str], num_seeds: int, path: Path) -> list[str]:
    """Run every search on tables whose result is not in the file yet, and print its progress.

    Args:
        methods: Names of the searches.
        tasks: Names of the tables.
        num_seeds: Number of seeds, counted from 0.
        path: File of results.

    Returns:
        Names of the searches that could not be run.
    """
    return run_missing(methods, [read_table(task) for task in tasks], num_seeds, path, _opened)


def run_missing(
    methods: Sequence[str],
    tasks: Sequence[Searched],
    num_seeds: int,
    path: Path,
    opened: Callable[[str], AbstractContextManager[Callable[[Searched, int], Record]]],
) -> list[str]:
    """Run every search whose result is not in the file yet, and print its progress.

    Args:
        methods: Names of the searches.
        tasks: What they search.
        num_seeds: Number of seeds, counted from 0.
        path: File of results.
        opened: Starts the search with a name, and returns the function that runs it on a task with
            a seed.

    Returns:
        Names of the searches that could not be run.
    """
    done = {kept.key for kept in record.read(path)}
    failed = []
    for name in methods:
        missing = [
            (task, seed)
            for task in tasks
            for seed in range(num_seeds)
            if (name, task.name, seed) not in done
        ]
        if not missing:
            continue
        try:
            with opened(name) as run:
                for task, seed in missing:
                    kept = run(task, seed)
                    record.append(kept, path)
                    print(
                        f"{name:<22} {task.name:<26} seed {seed:<3} "
                        f"regret {kept.changes[-1][1]:.4f}  {kept.decision_s:.2f} s",
                        flush=True,
                    )
        except (FileNotFoundError, PeerFailed) as error:
            print(f"{name:<22} {error}", flush=True)
            failed.append(name)
    return failed


@contextlib.contextmanager
def _opened(name: str) -> Iterator[Callable[[Table, int], Record]]:
    method = method_of(name)
    if isinstance(method, Ours):
        yield lambda table, seed: record.record_of(name, table, seed, run_ours(method, table, seed))
        return
    with Conversation(python_of(method.environment), f"{method.environment}_peer") as conversation:
        yield lambda table, seed: record.record_of(
            name, table, seed, run_peer(conversation.ask, method.method, table, seed)
        )
