"""Interface of a kind of model that tables are made of."""

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
        train: Function of a problem, configurations, a number of epochs and a seed. It returns the
            validation metric of each configuration (rows) after each epoch (columns); NaN where
            training has diverged.
        cost_s: Function that returns the estimated seconds of one epoch of a configuration on one
            core.
    """

    family: str
    train: Callable[[Problem, Sequence[Mapping[str, Any]], int, int], NDArray[np.float64]]
    cost_s: Callable[[Problem, Mapping[str, Any]], float]
