"""All tasks by name.

Methods may be tuned on *development* tasks; *reporting* tasks serve only for the figures.
"""

from __future__ import annotations

from collections.abc import Mapping

from .development import DEVELOPMENT
from .reporting_networks import NETWORKS
from .reporting_trees import FORESTS
from .task import NUM_EPOCHS, Task

__all__ = ["DEVELOPMENT", "NUM_EPOCHS", "REPORTING", "TASKS", "Task"]

REPORTING: Mapping[str, Task] = {**NETWORKS, **FORESTS}
TASKS: Mapping[str, Task] = {**DEVELOPMENT, **REPORTING}
