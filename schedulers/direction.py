"""What has to be known before results can be compared: which metric, and which way is better."""

from __future__ import annotations

from .scheduler import MODES, Scheduler


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
        raise ValueError(f"metric must be the name of a metric, got {scheduler.metric!r}; give it to TuneConfig or to {name}")
    if scheduler.mode not in MODES:
        raise ValueError(f"mode must be 'min' or 'max', got {scheduler.mode!r}; give it to TuneConfig or to {name}")
    return str(scheduler.mode)
