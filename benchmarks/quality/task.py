"""What a task is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .grid import Grid
from .model import Model
from .problems import Problem

NUM_EPOCHS = 27


@dataclass(frozen=True, slots=True)
class Task:
    """Where a table comes from.

    Attributes:
        about: What is trained on what, by which metric; all metrics are minimised.
        model: What is trained.
        grid: All configurations.
        problem: Makes the problem.
        seed: With which all configurations are trained.
    """

    about: str
    model: Model
    grid: Grid
    problem: Callable[[], Problem]
    seed: int
