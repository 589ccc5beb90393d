"""All tasks by name, in two sets: *development*, on which methods may be tuned, and *confirmation*.

Confirmation tasks serve only for the figures that are published; those of slow starters, which are
apart, for none so far. The first 34 tasks are for
development, since they have been looked at. Of the later ones, a hash of the name decides: SHA-256,
as an integer, modulo 3; 0 is development. So a task must not be renamed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from .development import DEVELOPMENT as FIRST
from .development_networks import NETWORKS
from .development_trees import FORESTS
from .hashed import HASHED
from .slow_starters import SLOW_STARTERS
from .task import NUM_EPOCHS, Task

__all__ = [
    "CONFIRMATION",
    "DEVELOPMENT",
    "NUM_EPOCHS",
    "SLOW_CONFIRMATION",
    "SLOW_DEVELOPMENT",
    "TASKS",
    "Task",
    "is_for_confirmation",
]


def is_for_confirmation(name: str) -> bool:
    """Return whether the hash of a name puts a later task into confirmation.

    Example:
        >>> is_for_confirmation("fair_prepared"), is_for_confirmation("mode_choice")
        (False, True)
    """
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 != 0


DEVELOPMENT: Mapping[str, Task] = {
    **FIRST,
    **NETWORKS,
    **FORESTS,
    **{name: task for name, task in HASHED.items() if not is_for_confirmation(name)},
}
CONFIRMATION: Mapping[str, Task] = {
    name: task for name, task in HASHED.items() if is_for_confirmation(name)
}
SLOW_DEVELOPMENT: Mapping[str, Task] = {
    name: task for name, task in SLOW_STARTERS.items() if not is_for_confirmation(name)
}
SLOW_CONFIRMATION: Mapping[str, Task] = {
    name: task for name, task in SLOW_STARTERS.items() if is_for_confirmation(name)
}
TASKS: Mapping[str, Task] = {
    **DEVELOPMENT,
    **CONFIRMATION,
    **SLOW_DEVELOPMENT,
    **SLOW_CONFIRMATION,
}
