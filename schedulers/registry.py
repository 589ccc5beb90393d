"""Schedulers by their short names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from searchers.recorded_arguments import constructed_with, found_by_name

from .scheduler import Scheduler

_CLASSES: Mapping[str, str] = {
    "fifo": "FIFOScheduler",
    "asha": "ASHAScheduler",
    "async_hyperband": "AsyncHyperBandScheduler",
    "asynchyperband": "AsyncHyperBandScheduler",
    "pasha": "PASHAScheduler",
    "moasha": "MOASHAScheduler",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "pbt": "PopulationBasedTraining",
    "pbt_replay": "PopulationBasedTrainingReplay",
    "pb2": "PB2",
    "mf_pbt": "MFPopulationBasedTraining",
    "resource_changing": "ResourceChangingScheduler",
}


def create_scheduler(name: str, **kwargs: Any) -> Scheduler:
    """Construct a scheduler by its short name, e.g. from a command line.

    Args:
        name: ``"fifo"``; ``"asha"``, ``"async_hyperband"`` or ``"asynchyperband"``, which are the same; ``"pasha"``, ``"moasha"``,
            ``"hyperband"`` (or ``"hb_bohb"``), ``"median_stopping_rule"`` (or ``"medianstopping"``), ``"pbt"``, ``"pbt_replay"``,
            ``"pb2"``, ``"mf_pbt"`` or ``"resource_changing"``.
        **kwargs: The arguments of its class.

    Raises:
        TypeError: If the scheduler has no such argument.
        ValueError: If there is no such scheduler, or it refuses an argument's value.

    Example:
        >>> create_scheduler("asha", metric="loss", mode="min", max_t=10).debug_string()
        'AsyncHyperBandScheduler: 0 stopped'

    Departures:
        Ray Tune drops arguments it does not know without a word.
    """
    # Only the one that is named is imported.
    kind: type[Scheduler] = getattr(
        importlib.import_module(__package__), found_by_name(name, _CLASSES)
    )
    return constructed_with(kind, kwargs)
