"""What another scheduler would have made of a recorded experiment.

`recording` reads what was recorded, `replay` runs it once more under the scheduler, in virtual
time, and `what_if` compares the two.
"""

from .answer import ReplayEnding, TrialOutcome, WhatIf, WhatIfComparison
from .replay import RunTotals, TimedValue
from .what_if import what_if

__all__ = [
    "ReplayEnding",
    "RunTotals",
    "TimedValue",
    "TrialOutcome",
    "WhatIf",
    "WhatIfComparison",
    "what_if",
]
