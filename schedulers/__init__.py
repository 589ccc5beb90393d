"""Schedulers judge results: facts in, decisions out. They never import the engine that hosts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchers.declaration import constructed_with, found_by_name

from .allocation import DistributeResources, DistributeResourcesToTopJob, ResourceAllocation
from .asha import ASHAScheduler, AsyncHyperBandScheduler
from .decisions import Decision, Exploit, Pause, Reason, Resize, Resume, Save, Stop
from .fifo import FIFOScheduler
from .hyperband import HyperBandForBOHB, HyperBandScheduler
from .median import MedianStoppingRule
from .mf_pbt import MFPopulationBasedTraining
from .moasha import MOASHAScheduler
from .pasha import PASHAScheduler
from .pb2 import PB2
from .pbt import PopulationBasedTraining
from .pbt_replay import PopulationBasedTrainingReplay
from .resource_changing import ResourceChangingScheduler
from .scheduler import ExperimentView, Scheduler, TrialView

__all__ = [
    "PB2",
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "Decision",
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "ExperimentView",
    "Exploit",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MFPopulationBasedTraining",
    "MOASHAScheduler",
    "MedianStoppingRule",
    "PASHAScheduler",
    "Pause",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "Reason",
    "Resize",
    "ResourceAllocation",
    "ResourceChangingScheduler",
    "Resume",
    "Save",
    "Scheduler",
    "Stop",
    "TrialView",
    "create_scheduler",
]

_BY_NAME: Mapping[str, type[Scheduler]] = {
    "fifo": FIFOScheduler,
    "asha": ASHAScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "pasha": PASHAScheduler,
    "moasha": MOASHAScheduler,
    "hyperband": HyperBandScheduler,
    "hb_bohb": HyperBandForBOHB,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "pb2": PB2,
    "mf_pbt": MFPopulationBasedTraining,
    "resource_changing": ResourceChangingScheduler,
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
    return constructed_with(found_by_name(name, _BY_NAME), kwargs)
