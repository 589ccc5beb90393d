"""Schedulers: from trials and their results to decisions such as `Stop`, `Pause` and `Exploit`.

Here are the interface (`Scheduler`), the decisions, and the algorithms: successive halving in
`halving`, population based training in `population`, the rest in modules of their own. The engine
that carries decisions out is in `tuner`, and is not imported here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decisions import Decision, Exploit, Pause, Reason, Resize, Resume, Save, Stop
    from .fifo import FIFOScheduler
    from .halving.asha import ASHAScheduler, AsyncHyperBandScheduler
    from .halving.hyperband import HyperBandForBOHB, HyperBandScheduler
    from .halving.moasha import MOASHAScheduler
    from .halving.pasha import PASHAScheduler
    from .median import MedianStoppingRule
    from .population.mf_pbt import MFPopulationBasedTraining
    from .population.patient_pbt import PatientPopulationBasedTraining
    from .population.pb2 import PB2
    from .population.pbt import PopulationBasedTraining
    from .population.replay import PopulationBasedTrainingReplay
    from .resource_changing import (
        DistributeResources,
        DistributeResourcesToTopJob,
        ResourceAllocation,
        ResourceChangingScheduler,
    )
    from .scheduler import ExperimentView, Scheduler, TrialView, create_scheduler
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
    "PatientPopulationBasedTraining",
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

# Module of each public name; in a table, since the imports above are for type checkers only.
_HOMES = {
    "PB2": "population.pb2",
    "ASHAScheduler": "halving.asha",
    "AsyncHyperBandScheduler": "halving.asha",
    "Decision": "decisions",
    "DistributeResources": "resource_changing",
    "DistributeResourcesToTopJob": "resource_changing",
    "ExperimentView": "scheduler",
    "Exploit": "decisions",
    "FIFOScheduler": "fifo",
    "HyperBandForBOHB": "halving.hyperband",
    "HyperBandScheduler": "halving.hyperband",
    "MFPopulationBasedTraining": "population.mf_pbt",
    "MOASHAScheduler": "halving.moasha",
    "MedianStoppingRule": "median",
    "PASHAScheduler": "halving.pasha",
    "PatientPopulationBasedTraining": "population.patient_pbt",
    "Pause": "decisions",
    "PopulationBasedTraining": "population.pbt",
    "PopulationBasedTrainingReplay": "population.replay",
    "Reason": "decisions",
    "Resize": "decisions",
    "ResourceAllocation": "resource_changing",
    "ResourceChangingScheduler": "resource_changing",
    "Resume": "decisions",
    "Save": "decisions",
    "Scheduler": "scheduler",
    "Stop": "decisions",
    "TrialScheduler": "trial_scheduler",
    "TrialView": "scheduler",
    "create_scheduler": "scheduler",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that each experiment loads only its scheduler."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
