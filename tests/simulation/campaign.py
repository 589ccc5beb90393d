"""Campaigns of simulated experiments, and the shrinking of a failing one."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tuner.execution.local.process_setup import rare_garbage_collection

from .coverage import COMPARED, counted_transitions, expected
from .fault_injection import Fault
from .invariants import Violation
from .run import run_scenario
from .scenario import (
    Scenario,
    clustered_scenario,
    scenario,
    training_scenario,
    validating_scenario,
)

_SMALLEST: Final = {"num_trials": 1, "num_iterations": 1, "num_slots": 1, "num_faults": 0}
"""Numbers of a scenario that are made smaller, with the smallest that makes sense."""
OPTIONS: Final = {
    "num_trials": "--trials",
    "num_iterations": "--iterations",
    "num_slots": "--slots",
    "num_faults": "--faults",
}
"""How they are called on the command line."""


@dataclass(slots=True)
class Campaign:
    """Summary of many simulated experiments.

    Attributes:
        num_experiments: How many there were.
        num_drivers: How many drivers they took; each but the first of an experiment is a restart.
        num_turns: How many turns the drivers took.
        num_records: How many records their journals hold.
        cpu_s: Processor time it took.
        journals: Hash of all journals; like that of snapshots it stays the same unless something is
            written otherwise than before, or happens otherwise.
        snapshots: Hash of all snapshots that were taken.
        seen: How often what has occurred: faults, transitions, recoveries.
        failing: The first scenario that violated an invariant, shrunk; None without any.
        violation: The violation.
    """

    num_experiments: int = 0
    num_drivers: int = 0
    num_turns: int = 0
    num_records: int = 0
    cpu_s: float = 0.0
    journals: Any = field(default_factory=hashlib.sha256)
    snapshots: Any = field(default_factory=hashlib.sha256)
    seen: Counter[str] = field(default_factory=Counter)
    failing: Scenario | None = None
    violation: Violation | None = None

    @property
    def missing(self) -> list[str]:
        """Kinds of events that a large batch should contain and does not."""
        return sorted(expected() - set(+self.seen))

    @property
    def num_compared(self) -> int:
        """Number of experiments that were repeated without faults to compare outcomes."""
        return self.seen[COMPARED]

    @property
    def rate_per_min(self) -> float:
        """Experiments per minute of CPU time, repetitions included."""
        return 60 * (self.num_experiments + self.num_compared) / self.cpu_s if self.cpu_s else 0.0

    def summary(self) -> str:
        """Return the figures in one line."""
        num_faults = sum(num for name, num in self.seen.items() if name.startswith("fault: "))
        return (
            f"{self.num_experiments} experiments, {self.num_drivers} drivers, "
            f"{self.num_turns} turns, {self.num_records} records, "
            f"{num_faults} faults, and {self.num_compared} of them again without any, in "
            f"{self.cpu_s:.1f} CPU seconds: "
            f"{self.rate_per_min:.0f} experiments a minute"
        )


def drawn_by(seed: int) -> Scenario:
    """Return the scenario of a campaign: some are of groups, of validations, or of nodes."""
    if seed % 3 == 2:
        return training_scenario(seed)
    if seed % 6 == 3:
        return clustered_scenario(seed)
    return validating_scenario(seed) if seed % 6 == 1 else scenario(seed)


def run_campaign(
    first_seed: int = 0,
    num_experiments: int | None = None,
    *,
    seconds: float | None = None,
    shrinks: bool = True,
    draw: Callable[[int], Scenario] = drawn_by,
) -> Campaign:
    """Simulate experiments until one violates an invariant, their number is reached or time is up.

    Args:
        first_seed: Number of the first scenario; the others follow it.
        num_experiments: How many at most.
        seconds: How long at most.
        shrinks: Whether to make a failing scenario smaller, which may take a minute.
        draw: Returns the scenario of a number.
    """
    campaign, began, began_cpu = Campaign(), time.monotonic(), time.process_time()
    seeds = (
        itertools.count(first_seed)
        if num_experiments is None
        else range(first_seed, first_seed + num_experiments)
    )
    with counted_transitions(campaign.seen), rare_garbage_collection():
        for seed in seeds:
            _add(campaign, draw(seed), shrinks=shrinks)
            if campaign.failing or (seconds is not None and time.monotonic() - began > seconds):
                break
    campaign.cpu_s = time.process_time() - began_cpu
    return campaign


def _add(campaign: Campaign, drawn: Scenario, *, shrinks: bool) -> None:
    campaign.num_experiments += 1
    try:
        run = run_scenario(drawn)
    except Violation as violation:
        campaign.failing = shrink(drawn, violation) if shrinks else drawn
        campaign.violation = (violation_of(campaign.failing) if shrinks else None) or violation
        return
    campaign.num_drivers += run.num_drivers
    campaign.num_turns += run.num_turns
    campaign.num_records += run.num_records
    campaign.journals.update(run.fingerprint.encode())
    campaign.snapshots.update(run.snapshots.encode())
    campaign.seen.update(run.seen)


def report_of(campaign: Campaign) -> str:
    """Return what to print about a campaign."""
    hashes = campaign.journals.hexdigest()[:16], campaign.snapshots.hexdigest()[:16]
    lines = [campaign.summary(), "journals {}, snapshots {}".format(*hashes)]
    if campaign.failing and campaign.violation:
        lines += [f"FAILED {campaign.violation}", f"replay with: {command(campaign.failing)}"]
    return "\n".join(lines)


def violation_of(candidate: Scenario) -> Violation | None:
    """Return the violation that a scenario shows, None without one."""
    try:
        run_scenario(candidate)
    except Violation as violation:
        return violation
    return None


def shrink(
    failing: Scenario,
    violation: Violation,
    breaks: Callable[[Scenario], Violation | None] = violation_of,
) -> Scenario:
    """Return a scenario that violates the same invariant with fewer trials, reports and faults.

    Args:
        failing: The scenario.
        violation: How it fails.
        breaks: Returns the violation that a scenario shows.
    """
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _smaller(failing):
            other = breaks(candidate)
            if other is not None and other.invariant == violation.invariant:
                failing, is_smaller = candidate, True
                break
    return failing


def _smaller(failing: Scenario) -> Iterator[Scenario]:
    for fault in Fault:
        if fault not in failing.without:
            yield dataclasses.replace(failing, without=failing.without | {fault})
    for name, smallest in _SMALLEST.items():
        size = getattr(failing, name)
        for smaller in sorted({smallest, size // 2, size - 1}):
            if smallest <= smaller < size:
                yield dataclasses.replace(failing, **{name: smaller})


def command(shrunk: Scenario) -> str:
    """Return the command that replays a scenario which was drawn by its number and then changed."""
    draw = training_scenario if shrunk.training else scenario
    draw = validating_scenario if shrunk.validating else draw
    draw = clustered_scenario if shrunk.clustering else draw
    drawn = shrunk if shrunk.scheduler == "given" else draw(shrunk.seed)
    parts = [f"python -m tests.simulation --seed {shrunk.seed}"]
    parts += ["--clustered"] if shrunk.clustering else []
    parts += ["--training"] if shrunk.training and not shrunk.clustering else []
    parts += ["--validating"] if shrunk.validating else []
    parts += [
        f"{option} {getattr(shrunk, name)}"
        for name, option in OPTIONS.items()
        if getattr(shrunk, name) != getattr(drawn, name)
    ]
    if without := shrunk.without - drawn.without:
        parts.append(f"--without {','.join(sorted(without))}")
    return " ".join(parts)
