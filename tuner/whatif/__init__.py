"""Estimates how a recorded experiment would have gone under another scheduler.

`recording` reads the recorded experiment, `replay` runs it again under the scheduler in virtual
time, `answer` compares the two, and `what_if` is what users call. Nothing is trained or written.
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
