"""Tests for authors of plug-ins: contracts to inherit and experiments in virtual time.

Each contract is a class of tests for a scheduler, searcher, stopper or callback. Inherit from it in
a test module, name the class ``Test...``, and implement the method that makes the object to test;
pytest collects the rest. `simulate` runs an experiment in virtual time, and `simulate_with_faults`
checks that a scheduler survives crashes of the driver.
"""

from __future__ import annotations

from .callback_contract import CallbackContract
from .crash_check import CrashCheck, CrashCheckFailed, simulate_with_faults
from .rehearsal import Rehearsal, RehearsedTrial
from .scheduler_contract import SchedulerContract
from .searcher_contract import SearcherContract
from .simulation import Simulation, simulate
from .stopper_contract import StopperContract

__all__ = [
    "CallbackContract",
    "CrashCheck",
    "CrashCheckFailed",
    "Rehearsal",
    "RehearsedTrial",
    "SchedulerContract",
    "SearcherContract",
    "Simulation",
    "StopperContract",
    "simulate",
    "simulate_with_faults",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
