"""Makes the smallest scenario out of one that fails, and the command that shows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from .fault_injection import Fault
from .invariants import Violation
from .run import play
from .scenario import Scenario, scenario

_SMALLEST: Final = {"num_trials": 1, "num_iterations": 1, "num_slots": 1, "num_strikes": 0}
"""Numbers of a scenario that are made smaller, with the smallest that makes sense."""
OPTIONS: Final = {
    "num_trials": "--trials",
    "num_iterations": "--iterations",
    "num_slots": "--slots",
    "num_strikes": "--strikes",
}
"""How they are called on the command line."""


def violation_of(candidate: Scenario) -> Violation | None:
    """Return how a scenario breaks a promise; None if it does not."""
    try:
        play(candidate)
    except Violation as violation:
        return violation
    return None


def shrink(
    failing: Scenario,
    violation: Violation,
    breaks: Callable[[Scenario], Violation | None] = violation_of,
) -> Scenario:
    """Return a scenario that breaks the same promise with fewer trials, fewer reports and fewer kinds of trouble.

    Args:
        failing: The scenario.
        violation: How it fails.
        breaks: Tells how another one does.
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
    drawn = shrunk if shrunk.scheduler == "given" else scenario(shrunk.seed)
    parts = [f"python -m tests.simulation --seed {shrunk.seed}"]
    parts += [
        f"{option} {getattr(shrunk, name)}"
        for name, option in OPTIONS.items()
        if getattr(shrunk, name) != getattr(drawn, name)
    ]
    if without := shrunk.without - drawn.without:
        parts.append(f"--without {','.join(sorted(without))}")
    return " ".join(parts)
