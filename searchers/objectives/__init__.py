"""Several metrics and constraints on them: which results are feasible, and which are better.

Pure functions of numbers, which searchers, schedulers and everything that shows results share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchers.lazy_names import lazy_names

if TYPE_CHECKING:
    from .dominance import Point, dominates, minimised, pareto_front
    from .outcome_constraint import (
        Comparisons,
        Constraints,
        OutcomeConstraint,
        comparisons,
        outcome_constraints,
    )
    from .volume import hypervolume, hypervolumes

__all__ = [
    "Comparisons",
    "Constraints",
    "OutcomeConstraint",
    "Point",
    "comparisons",
    "dominates",
    "hypervolume",
    "hypervolumes",
    "minimised",
    "outcome_constraints",
    "pareto_front",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".dominance": ["Point", "dominates", "minimised", "pareto_front"],
        ".volume": ["hypervolume", "hypervolumes"],
        ".outcome_constraint": [
            "Comparisons",
            "Constraints",
            "OutcomeConstraint",
            "comparisons",
            "outcome_constraints",
        ],
    },
)
