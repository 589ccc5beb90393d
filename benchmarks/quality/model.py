"""What a kind of model has to offer to be in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .problems import Problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of model.

    Attributes:
        family: Its name, in the plural.
        train: Returns, for a problem, configurations, a number of epochs and a seed, the validation
            metric of each configuration (rows) after each epoch (columns); NaN where training has
            diverged.
        cost_s: Returns the estimated seconds of one epoch of a configuration on one core.
    """

    family: str
    train: Callable[[Problem, Sequence[Mapping[str, Any]], int, int], NDArray[np.float64]]
    cost_s: Callable[[Problem, Mapping[str, Any]], float]
