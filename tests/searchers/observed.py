"""Observations of trials that all have the same configuration."""

from searchers.models.observations import Observations


def observed(curves, failed=()):
    """Return observations of values by trial and time."""
    observations = Observations()
    for name, curve in curves.items():
        observations.add(name, [0.5])
        for time, value in curve.items():
            observations.record(name, time, value)
    for name in failed:
        observations.end(name, is_failed=True)
    return observations
