"""Coverage of a simulation: which transitions, faults and recoveries have occurred."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, cast
from unittest import mock

from tuner.core import lifecycle

from .fault_injection import Fault

SEEN: Final = Counter[str]
"""How often what has occurred, by name."""
COMPARED: Final = "compared with a run without faults"


class _CountedTable(dict[Any, Any]):
    """A table of transitions that counts which of them are made."""

    def __init__(self, table: dict[Any, Any], kind: str, seen: Counter[str]) -> None:
        super().__init__(table)
        self._names = {key: f"{kind}: {key[0]} {key[1]}" for key in table}
        self._seen = seen

    def get(self, key: Any, default: Any = None) -> Any:
        if (name := self._names.get(key)) is not None:
            self._seen[name] += 1
        return super().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        self._seen[self._names[key]] += 1
        return super().__getitem__(key)


@contextlib.contextmanager
def counted_transitions(seen: Counter[str]) -> Iterator[None]:
    """Count every move of a trial or a worker while this lasts."""
    with (
        mock.patch.object(
            lifecycle,
            "TRIAL_TABLE",
            cast("Any", _CountedTable(lifecycle.TRIAL_TABLE, "trial", seen)),
        ),
        mock.patch.object(
            lifecycle,
            "WORKER_TABLE",
            cast("Any", _CountedTable(lifecycle.WORKER_TABLE, "worker", seen)),
        ),
        mock.patch.object(
            lifecycle, "EXIT_MOVES", cast("Any", _CountedTable(lifecycle.EXIT_MOVES, "exit", seen))
        ),
    ):
        yield


UNREACHED: Final = frozenset(
    {
        "trial: ERROR revive",  # needs a user who asks for failed trials to be tried again
        "trial: PAUSED revive",  # needs a user who restarts a trial from scratch
        "trial: PENDING fail",  # needs a trial that asks for more than there is
        "trial: PAUSED fail",  # needs a machine that has become smaller
        "exit: continue stopped",  # needs a worker that exits without being asked to
        "worker: WAITING kill",  # needs a stop decided after the report was answered
    }
)
"""Transitions that this simulation does not bring about, each with its reason."""


def expected() -> set[str]:
    """Return everything that has to occur in a large batch of experiments."""
    transitions = {
        *(f"trial: {status} {move}" for status, move in lifecycle.TRIAL_TABLE),
        *(f"worker: {state} {move}" for state, move in lifecycle.WORKER_TABLE),
        *(f"exit: {verdict} {outcome}" for verdict, outcome in lifecycle.EXIT_MOVES),
    }
    return (transitions - UNREACHED) | {f"fault: {fault}" for fault in Fault} | set(RECOVERIES)


RECOVERIES: Final = (
    "torn end cut off",
    "journal vanished in a power cut",
    "journal lacked what a power cut had taken",
    "journal without a segment refused",
    "journal moved away, driver stopped",
    "several segments",
    "write cut back",
    "lines written again after a failed sync",
    "killed again before anything was written",
    "opened by a driver that found nothing to do",
    "state compared with its fold",
    "snapshot taken",
    "restored from a snapshot",
    COMPARED,
    "interrupted and resumed",
    "disk failed, driver stopped",
    "plug-in raised, driver stopped",
    "log files compared with the table",
    "log files looked at by the next driver",
    "log file torn by a crash",
    "log file cut by a power cut",
    "log files verified before a crash",
    "log file refused by a full disk",
)
"""What restarts have to go through."""
