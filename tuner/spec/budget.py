"""Checks of the budgets that users declare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def check_budget(budget: Any) -> None:
    """Raise TypeError or ValueError unless the value maps units to positive numbers."""
    accepted = "budget must map units to positive numbers, such as {'gpu_hours': 20}"
    if not isinstance(budget, Mapping):
        raise TypeError(f"{accepted}, got {budget!r}; None is for no limit")
    for unit, amount in budget.items():
        if not isinstance(unit, str) or not (
            unit == "iterations" or unit.removesuffix("_hours") not in ("", unit)
        ):
            raise ValueError(
                "budget must be in 'iterations', 'trial_hours', or hours of a resource such as "
                f"'gpu_hours', got {unit!r}; write the resource's name with _hours behind it"
            )
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise TypeError(f"{accepted}, got {amount!r} for {unit!r}")
        if not 0 < amount < math.inf:
            raise ValueError(
                f"{accepted}, got {amount!r} for {unit!r}; leave a unit out that has no limit"
            )


def check_spent(
    budget: Iterable[str], requested: Mapping[str, float], validation: Mapping[str, float]
) -> None:
    """Raise ValueError if a budget limits what no process spends.

    Args:
        budget: Its units.
        requested: What a trial occupies.
        validation: What a validation does.
    """
    occupied = [name for name, amount in [*requested.items(), *validation.items()] if amount]
    spent = ["iterations", "trial_hours", *(f"{name}_hours" for name in dict.fromkeys(occupied))]
    for unit in budget:
        if unit not in spent:
            raise ValueError(
                f"budget limits {unit!r}, of which trials with the resources {dict(requested)} "
                f"spend nothing; give {', '.join(map(repr, spent))}, or let trials ask for it "
                "by tune.with_resources"
            )
