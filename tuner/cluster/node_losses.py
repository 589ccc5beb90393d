"""What the user is told when nodes are lost: which trials ran there, and where they go on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, final

from tuner.core.events import Outcome, WorkerExited
from tuner.core.worker_records import Failure

_log = logging.getLogger("tuner")


class _Loss(NamedTuple):
    node: str
    trial_ids: Sequence[str]
    why: str


@final
class NodeLosses:
    """Tells of each lost node in a line, once the core has decided on the trials that ran there."""

    def __init__(self) -> None:
        self._fresh: list[_Loss] = []
        self._known: list[_Loss] = []
        self._waiting: dict[str, str] = {}
        """The lost node of each trial that has not been started again."""

    def add(self, node: str, trial_ids: Sequence[str], why: str) -> None:
        """Note a loss of which the core does not know yet."""
        self._fresh.append(_Loss(node, trial_ids, why))

    def note_known(self) -> None:
        """Note that the core knows of all losses from now on."""
        self._known += self._fresh
        self._fresh = []

    def tell(self, started: Mapping[str, Sequence[str]]) -> None:
        """Tell the user of the losses that the core knows of.

        Args:
            started: The nodes on which trials have just been started, by trial.
        """
        losses, self._known = self._known, []
        for loss in losses:
            self._waiting |= dict.fromkeys(set(loss.trial_ids) - started.keys(), loss.node)
            _log.warning("%s lost: %s (%s)", loss.node, _fate(loss.trial_ids, started), loss.why)
        for trial_id in sorted(self._waiting.keys() & started.keys()):
            node = self._waiting.pop(trial_id)
            where = _places(started[trial_id])
            _log.warning("%s, which ran on %s, continues on %s", trial_id, node, where)


def as_lost(exited: WorkerExited, node: str) -> WorkerExited:
    """Return the end of an attempt that was killed while nothing was heard of a node.

    What it was killed for, such as a missing report, may have been the network's fault.
    """
    if exited.outcome is not Outcome.KILLED:
        return exited
    why = f"nothing was heard of node {node} when the trial was killed"
    if exited.failure:
        why = f"{why}: {exited.failure.message}"
    return replace(exited, outcome=Outcome.LOST, failure=Failure("lost", why))


def _fate(trial_ids: Sequence[str], started: Mapping[str, Sequence[str]]) -> str:
    """Return what becomes of trials: ``t00003, t00007 continue on n2``."""
    by_place: dict[str, list[str]] = {}
    for trial_id in sorted(trial_ids):
        place = _places(started[trial_id]) if trial_id in started else ""
        by_place.setdefault(place, []).append(trial_id)
    parts = []
    for place, those in sorted(by_place.items(), key=lambda item: (not item[0], item[0])):
        verb, be = ("continues", "is") if len(those) == 1 else ("continue", "are")
        what = f"{verb} on {place}" if place else f"{be} not running any more"
        parts.append(f"{', '.join(those)} {what}")
    return "; ".join(parts) or "nothing was running there"


def _places(nodes: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(nodes))
