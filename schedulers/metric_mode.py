"""What has to be known before results can be compared: which metric, and which way is better."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from .scheduler import MODES, Scheduler


class DirectedScheduler(Scheduler):
    """A scheduler that compares the values of a metric, and so has to know its name and direction before the first trial."""

    _seed = 0

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over the experiment's metric, mode and seed.

        Raises:
            ValueError: If neither the scheduler nor the experiment names a metric and a mode.
        """
        if not super().set_search_properties(metric, mode, **spec):
            return False
        self.check_ready()
        self._seed = int(spec.get("seed") or 0)
        return True

    def check_ready(self) -> None:
        """Refuse to work without a direction.

        Raises:
            ValueError: If metric or mode is not known yet.
        """
        require_direction(self)

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return what has to be the same for one scheduler to go on from another's state."""

    def _check_settings(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of a scheduler that measures otherwise: what was recorded would not compare.

        Raises:
            ValueError: If it is from one.
        """
        if state["settings"] != self._settings():
            raise ValueError(
                f"state must come from a scheduler with {self._settings()}, got {state['settings']}; construct it with the same arguments"
            )


def require_direction(scheduler: Scheduler) -> str:
    """Return a scheduler's mode; refuse to work without metric and mode.

    Args:
        scheduler: Whose metric and mode are looked at.

    Returns:
        ``"min"`` or ``"max"``.

    Raises:
        ValueError: If the metric or the mode is not known.
    """
    name = type(scheduler).__name__
    if not scheduler.metric:
        raise ValueError(
            f"metric must be the name of a metric, got {scheduler.metric!r}; give it to TuneConfig or to {name}"
        )
    if scheduler.mode not in MODES:
        raise ValueError(
            f"mode must be 'min' or 'max', got {scheduler.mode!r}; give it to TuneConfig or to {name}"
        )
    return str(scheduler.mode)
