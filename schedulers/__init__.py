"""Schedulers judge results: facts in, decisions out. They never import the engine that hosts them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .allocation import DistributeResources, DistributeResourcesToTopJob, ResourceAllocation
    from .asha import ASHAScheduler, AsyncHyperBandScheduler
    from .by_name import create_scheduler
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
    from .trial_scheduler import TrialScheduler

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
    "TrialScheduler",
    "TrialView",
    "create_scheduler",
]

_HOMES = {
    "PB2": "pb2",
    "ASHAScheduler": "asha",
    "AsyncHyperBandScheduler": "asha",
    "Decision": "decisions",
    "DistributeResources": "allocation",
    "DistributeResourcesToTopJob": "allocation",
    "ExperimentView": "scheduler",
    "Exploit": "decisions",
    "FIFOScheduler": "fifo",
    "HyperBandForBOHB": "hyperband",
    "HyperBandScheduler": "hyperband",
    "MFPopulationBasedTraining": "mf_pbt",
    "MOASHAScheduler": "moasha",
    "MedianStoppingRule": "median",
    "PASHAScheduler": "pasha",
    "Pause": "decisions",
    "PopulationBasedTraining": "pbt",
    "PopulationBasedTrainingReplay": "pbt_replay",
    "Reason": "decisions",
    "Resize": "decisions",
    "ResourceAllocation": "allocation",
    "ResourceChangingScheduler": "resource_changing",
    "Resume": "decisions",
    "Save": "decisions",
    "Scheduler": "scheduler",
    "Stop": "decisions",
    "TrialScheduler": "trial_scheduler",
    "TrialView": "scheduler",
    "create_scheduler": "by_name",
}


def __getattr__(name: str) -> Any:
    """Import a scheduler when it is first used: most experiments need one, and their first trial starts a tenth of a second earlier."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
