"""Many simulated experiments in a row, and what they have shown."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from dataclasses import dataclass, field

from tuner.driver.run import rare_garbage_collection

from .coverage import UNDISTURBED, counted_transitions, expected
from .invariants import Violation
from .run import play
from .scenario import Scenario, scenario
from .shrinking import command, shrink, violation_of


@dataclass(slots=True)
class Campaign:
    """What many experiments have come to.

    Attributes:
        num_experiments: How many there were.
        num_drivers: How many drivers they took; each but the first of an experiment is a restart.
        num_turns: How many turns the drivers took.
        num_records: How many records their journals hold.
        cpu_s: Processor time it took.
        seen: How often what has occurred: faults, transitions, recoveries.
        failing: The first scenario that broke a promise, as small as it could be made; None without any.
        violation: How it broke it.
    """

    num_experiments: int = 0
    num_drivers: int = 0
    num_turns: int = 0
    num_records: int = 0
    cpu_s: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)
    failing: Scenario | None = None
    violation: Violation | None = None

    @property
    def missing(self) -> list[str]:
        """What should have occurred in a large batch and has not."""
        return sorted(expected() - set(+self.seen))

    @property
    def num_undisturbed(self) -> int:
        """How many of the experiments were run a second time, with nothing going wrong, to be compared with."""
        return self.seen[UNDISTURBED]

    @property
    def rate_per_min(self) -> float:
        """How many whole experiments were simulated in a minute of processor time, those for comparison included."""
        return (
            60 * (self.num_experiments + self.num_undisturbed) / self.cpu_s if self.cpu_s else 0.0
        )

    def summary(self) -> str:
        """Return the figures in one line."""
        num_faults = sum(num for name, num in self.seen.items() if name.startswith("fault: "))
        return (
            f"{self.num_experiments} experiments, {self.num_drivers} drivers, {self.num_turns} turns, {self.num_records} records, "
            f"{num_faults} faults, and {self.num_undisturbed} of them again without any, in {self.cpu_s:.1f} CPU seconds: "
            f"{self.rate_per_min:.0f} experiments a minute"
        )


def run_campaign(
    first_seed: int = 0,
    num_experiments: int | None = None,
    *,
    seconds: float | None = None,
    shrinks: bool = True,
) -> Campaign:
    """Simulate experiments until one breaks a promise, their number is reached or time is up.

    Args:
        first_seed: Number of the first scenario; the others follow it.
        num_experiments: How many at most.
        seconds: How long at most.
        shrinks: Whether to make a failing scenario smaller, which may take a minute.
    """
    campaign, began, began_cpu = Campaign(), time.monotonic(), time.process_time()
    seeds = (
        itertools.count(first_seed)
        if num_experiments is None
        else range(first_seed, first_seed + num_experiments)
    )
    with counted_transitions(campaign.seen), rare_garbage_collection():
        for seed in seeds:
            _add(campaign, scenario(seed), shrinks=shrinks)
            if campaign.failing or (seconds is not None and time.monotonic() - began > seconds):
                break
    campaign.cpu_s = time.process_time() - began_cpu
    return campaign


def _add(campaign: Campaign, drawn: Scenario, *, shrinks: bool) -> None:
    campaign.num_experiments += 1
    try:
        story = play(drawn)
    except Violation as violation:
        campaign.failing = shrink(drawn, violation) if shrinks else drawn
        campaign.violation = (violation_of(campaign.failing) if shrinks else None) or violation
        return
    campaign.num_drivers += story.num_drivers
    campaign.num_turns += story.num_turns
    campaign.num_records += story.num_records
    campaign.seen.update(story.seen)


def report_of(campaign: Campaign) -> str:
    """Return what to print about a campaign."""
    lines = [campaign.summary()]
    if campaign.failing and campaign.violation:
        lines += [f"FAILED {campaign.violation}", f"replay with: {command(campaign.failing)}"]
    return "\n".join(lines)
