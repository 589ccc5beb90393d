"""Experiments in a world in which everything goes wrong that can, all of it from one seed.

The code that is tried is the engine's own: driver, core, schedulers, searchers, codec, journal, recovery and replay. Only the bottom is
virtual: `VirtualDisk` keeps of a crash and of a power cut what a real disk may keep; `Workers` are an executor in virtual time, whose
trials train by arithmetic; `Fate` says what goes wrong at each of thousands of occasions. A `Session` is the life of one driver, a story
all that it takes to bring one experiment to its end; a bystander writes a `Ledger`, and `invariants` hold the engine to it.
``python -m tuner.testing.faults`` runs as many of them as there is time for.
"""

from __future__ import annotations

from .campaign import Campaign, run_campaign, simulate_with_faults
from .fate import Fault
from .invariants import Violation
from .scenario import Scenario, scenario
from .story import Story, play

__all__ = [
    "Campaign",
    "Fault",
    "Scenario",
    "Story",
    "Violation",
    "play",
    "run_campaign",
    "scenario",
    "simulate_with_faults",
]
