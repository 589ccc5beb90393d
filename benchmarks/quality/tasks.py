"""All tasks by name. *Development* tasks are for tuning methods, *reporting* tasks for the figures alone."""

from __future__ import annotations

from collections.abc import Mapping

from .development import DEVELOPMENT
from .reporting_networks import NETWORKS
from .reporting_trees import FORESTS
from .task import NUM_EPOCHS, Task

__all__ = ["DEVELOPMENT", "NUM_EPOCHS", "REPORTING", "TASKS", "Task"]

REPORTING: Mapping[str, Task] = {**NETWORKS, **FORESTS}
TASKS: Mapping[str, Task] = {**DEVELOPMENT, **REPORTING}
