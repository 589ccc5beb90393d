"""All problems by name, for development and for confirmation."""

from __future__ import annotations

from collections.abc import Mapping

from . import compression, decisions, digit_models, engineering
from .problem import Problem, is_confirmation

PROBLEMS: Mapping[str, Problem] = {
    problem.name: problem
    for module in (engineering, digit_models, decisions, compression)
    for problem in module.PROBLEMS
}
"""All problems, by name."""

DEVELOPMENT = tuple(name for name in PROBLEMS if not is_confirmation(name))
"""Problems on which settings are chosen."""
CONFIRMATION = tuple(name for name in PROBLEMS if is_confirmation(name))
"""Problems that serve only for the figures."""
