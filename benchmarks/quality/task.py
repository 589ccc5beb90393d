"""Definition of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .grid import Grid
from .model import Model
from .problems import Problem

NUM_EPOCHS = 27


@dataclass(frozen=True, slots=True)
class Task:
    """Definition of a table: models, configurations and data.

    Attributes:
        about: Description: the models, the data and the metric, which is minimised.
        model: Kind of model to train.
        grid: All configurations.
        problem: Function that makes the problem.
        seed: Seed with which all configurations are trained.
        num_seeds: Number of seeds with which each is trained; with several, evaluations are noisy.
        num_epochs: Number of epochs of a full training.
        is_raw: Whether searches see the value of each epoch, not the best one so far.
    """

    about: str
    model: Model
    grid: Grid
    problem: Callable[[], Problem]
    seed: int
    num_seeds: int = 1
    num_epochs: int = NUM_EPOCHS
    is_raw: bool = False
