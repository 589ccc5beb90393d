"""Estimates how a recorded experiment would have gone under another scheduler, or if it had ended.

`recording` reads the recorded experiment, `replay` runs it again under the scheduler in virtual
time, `answer` compares the two, `trade_off` their Pareto fronts, and `what_if` is what users call.
`shorter_search` finds where a criterion would have ended the search. Nothing is trained or written.
"""

from .answer import ReplayEnding, TrialOutcome, WhatIf, WhatIfComparison
from .replay import RunTotals, TimedValue
from .shorter_search import SearchTotals, ShorterSearch
from .trade_off import TradeOff
from .what_if import what_if

__all__ = [
    "ReplayEnding",
    "RunTotals",
    "SearchTotals",
    "ShorterSearch",
    "TimedValue",
    "TradeOff",
    "TrialOutcome",
    "WhatIf",
    "WhatIfComparison",
    "what_if",
]
