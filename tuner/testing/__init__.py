"""Contract tests for people who write schedulers, searchers and stoppers.

Each contract is a class of tests. Inherit from it in a test module, name the class ``Test...``, and say how to make the thing; pytest
collects the rest. A plug-in that fulfils its contract fits the engine.
"""

from __future__ import annotations

from .rehearsal import Rehearsal, RehearsedTrial
from .scheduler_contract import SchedulerContract
from .searcher_contract import SearcherContract
from .stopper_contract import StopperContract

__all__ = ["Rehearsal", "RehearsedTrial", "SchedulerContract", "SearcherContract", "StopperContract"]
