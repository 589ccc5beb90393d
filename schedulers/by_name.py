"""Schedulers by their short names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from searchers.by_name import constructed_with, found_by_name

from .scheduler import Scheduler

_CLASSES: Mapping[str, str] = {
    "fifo": "FIFOScheduler",
    "asha": "ASHAScheduler",
    "async_hyperband": "ASHAScheduler",
    "asynchyperband": "ASHAScheduler",
    "pasha": "PASHAScheduler",
    "moasha": "MOASHAScheduler",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "pbt": "PopulationBasedTraining",
    "pbt_replay": "PopulationBasedTrainingReplay",
    "pb2": "PB2",
    "patient_pbt": "PatientPopulationBasedTraining",
    "mf_pbt": "MFPopulationBasedTraining",
    "resource_changing": "ResourceChangingScheduler",
}


def scheduler_names() -> tuple[str, ...]:
    """Return all names that `create_scheduler` takes."""
    return tuple(_CLASSES)


def scheduler_class(name: str) -> type[Scheduler]:
    """Return the class of a scheduler by its short name; see `create_scheduler`.

    Raises:
        ValueError: If there is no such scheduler; suggests a similar name.
    """
    # Imported by name, so that one scheduler does not load all others.
    kind: type[Scheduler] = getattr(
        importlib.import_module(__package__), found_by_name(name, _CLASSES)
    )
    return kind


def create_scheduler(name: str, **kwargs: Any) -> Scheduler:
    """Construct a scheduler by its short name, e.g. from a command line.

    Args:
        name: ``"fifo"``; ``"asha"``, ``"async_hyperband"`` or ``"asynchyperband"``, which are the
            same; ``"pasha"``, ``"moasha"``, ``"hyperband"`` (or ``"hb_bohb"``),
            ``"median_stopping_rule"`` (or ``"medianstopping"``), ``"pbt"``, ``"pbt_replay"``,
            ``"pb2"``, ``"patient_pbt"``, ``"mf_pbt"`` or ``"resource_changing"``.
        **kwargs: The arguments of its class.

    Raises:
        TypeError: If the scheduler has no such argument.
        ValueError: If there is no such scheduler, or it refuses an argument's value.

    Example:
        >>> create_scheduler("asha", metric="loss", mode="min", max_t=10).debug_string()
        'ASHAScheduler: 0 stopped'

    Departures:
        Ray Tune silently ignores arguments that it does not know.
    """
    return constructed_with(scheduler_class(name), kwargs)
