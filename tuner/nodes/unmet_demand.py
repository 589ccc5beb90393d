"""Unmet demand: what waits for room, for those who can add nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, final

from tuner.core.resources import Demand, Machine, demand_of
from tuner.core.worker_records import WorkerGroup

from .nodes import matches

if TYPE_CHECKING:
    from tuner.core.experiment import Experiment

UnmetDemand = tuple[Mapping[str, float], Mapping[str, str], int]
"""What one process asks for, the labels that its node must have, and how many such processes."""

_MOST: Final = 64
"""As far as trials that are yet to be suggested are counted, and validations."""


def unmet_demand(core: Experiment) -> list[UnmetDemand]:
    """Return what waits for room on nodes after a turn, to be asked for.

    It is nothing where there is only this machine, and where nothing is started any more.

    It is trials that are ready and do not fit, what parts would start, such as validations, and
    trials that the searcher would be asked for. Groups count as their workers, as many as they make
    use of; those that have to be on one node count as one process, with what the fewest workers ask
    for. It costs as much as there are different requests, however many trials wait.
    """
    trial_table, suggestion_budget = core.trial_table, core.suggestion_budget
    if trial_table.nodes.is_local or (trial_table.live and core.suspected_failure):
        return []
    tally = _Tally(trial_table.nodes)
    left = trial_table.num_may_start
    for trial, num in trial_table.ready.num_by_first:
        num_counted = num if left is None else min(num, left)
        left = None if left is None else left - num_counted
        tally.add(demand_of(trial), num_counted)
    most = _MOST if left is None else min(_MOST, left)
    num_suggested = len(trial_table.backlog) + suggestion_budget.num_outstanding
    num_more = num_suggested + suggestion_budget.num_left(_MOST)
    tally.add(core.starter.typical, min(num_more, most))
    for part in core.parts:
        tally.add(*part.demand(_MOST))
    return tally.unmet


class _Wanted(NamedTuple):
    """So many processes that ask for the same.

    Attributes:
        share: What each of them asks for.
        labels: What its node must have.
        num: How many they are.
        num_per_node: How many of them may be on one node; None for any number.
    """

    share: Mapping[str, float]
    labels: Mapping[str, str]
    num: int
    num_per_node: int | None


@final
class _Tally:
    """Counts processes by what they ask for.

    Args:
        nodes: The nodes, on which some of them may fit.
    """

    def __init__(self, nodes: Machine) -> None:
        self._nodes = nodes
        self._wanted: dict[tuple[object, ...], _Wanted] = {}

    def add(self, demand: Demand, num: int) -> None:
        """Add so many demands."""
        request, labels = demand
        share: Mapping[str, float]
        num_per_node = None
        if not isinstance(request, WorkerGroup):
            share = request
        elif request.strategy == "STRICT_PACK":
            share = request.resized(request.fewest).total
        else:
            num_per_node = num if request.strategy == "STRICT_SPREAD" else None
            share, num = request.resources_per_worker, num * request.most
        if num > 0 and any(share.values()):
            key = (*Demand(share, labels).shape, num_per_node)
            num_before = self._wanted[key].num if key in self._wanted else 0
            self._wanted[key] = _Wanted(share, labels, num_before + num, num_per_node)

    @property
    def unmet(self) -> list[UnmetDemand]:
        """Those that do not fit now."""
        unmet = [
            (dict(wanted.share), dict(wanted.labels), wanted.num - self._num_fitting(wanted))
            for wanted in self._wanted.values()
        ]
        return [demand for demand in unmet if demand[2] > 0]

    def _num_fitting(self, wanted: _Wanted) -> int:
        limit = wanted.num if wanted.num_per_node is None else wanted.num_per_node
        return sum(
            node.pool.num_fitting(wanted.share, limit)
            for node in self._nodes.usable
            if matches(node.labels, wanted.labels)
        )
