"""What another scheduler would have made of a recorded experiment.

`recording` reads what was recorded, `replay` runs it once more under the scheduler, in virtual time, and `what_if` compares the two.
"""

from .answer import Fate, TrialOutcome, WhatIf, WhatIfComparison
from .replay import Account, Moment
from .what_if import what_if

__all__ = ["Account", "Fate", "Moment", "TrialOutcome", "WhatIf", "WhatIfComparison", "what_if"]
