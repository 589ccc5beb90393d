"""What an experiment came to, counted the same way for one that was run and one that was replayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from tuner.analysis.ranking import Mode, rank


@dataclass(frozen=True, slots=True)
class Moment:
    """A result that was better than all before it.

    Attributes:
        time_s: Running time of the experiment, in seconds.
        value: The metric's value.
        trial_id: Who reported it.
    """

    time_s: float
    value: float
    trial_id: str


@final
@dataclass(frozen=True, slots=True)
class Account:
    """What an experiment took and what it found.

    Attributes:
        wall_clock_s: Its running time, in seconds.
        worker_s: How long its trials had a worker, all together, in seconds.
        num_iterations: How many results its trials reported.
        progress: Each result that was better than all before it, in order; a value that is not finite is never one.
    """

    wall_clock_s: float
    worker_s: float
    num_iterations: int
    progress: Sequence[Moment]

    @property
    def best_value(self) -> float | None:
        """The best value of all; None where no result had a finite one."""
        return self.progress[-1].value if self.progress else None

    @property
    def best_trial_id(self) -> str | None:
        """Who reported it; of equal ones the first to do so."""
        return self.progress[-1].trial_id if self.progress else None


def improvements(moments: Iterable[Moment], mode: Mode) -> tuple[Moment, ...]:
    """Return the moments that were better than all before them.

    Args:
        moments: In the order of their times; with finite values.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are.

    Example:
        >>> [moment.value for moment in improvements([Moment(1, 0.5, "a"), Moment(2, 0.7, "b"), Moment(3, 0.2, "a")], "min")]
        [0.5, 0.2]
    """
    found: list[Moment] = []
    for moment in moments:
        if not found or rank(moment.value, mode) > rank(found[-1].value, mode):
            found.append(moment)
    return tuple(found)
