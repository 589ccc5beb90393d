"""Contract tests for people who write schedulers, searchers, stoppers, callbacks and executors, and experiments in virtual time.

Each contract is a class of tests. Inherit from it in a test module, name the class ``Test...``, and say how to make the thing; pytest
collects the rest. A plug-in that fulfils its contract fits the engine. What it is worth there, `simulate` shows in a moment, and
`simulate_with_faults` whether it comes through crashes, power cuts and full disks.
"""

from __future__ import annotations

from .callback_contract import CallbackContract
from .executor_contract import ExecutorContract
from .faults import simulate_with_faults
from .rehearsal import Rehearsal, RehearsedTrial
from .scheduler_contract import SchedulerContract
from .searcher_contract import SearcherContract
from .simulation import Simulation, simulate
from .stopper_contract import StopperContract

__all__ = [
    "CallbackContract",
    "ExecutorContract",
    "Rehearsal",
    "RehearsedTrial",
    "SchedulerContract",
    "SearcherContract",
    "Simulation",
    "StopperContract",
    "simulate",
    "simulate_with_faults",
]
