"""Schedulers: from trials and their results to decisions such as `Stop`, `Pause` and `Exploit`.

Here are the interface (`Scheduler`), the decisions, and the algorithms: successive halving in
`halving`, population based training in `population`, the rest in modules of their own. The engine
that carries decisions out is in `tuner`, and is not imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchers.lazy_names import lazy_names

if TYPE_CHECKING:
    from .by_name import create_scheduler
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".by_name": ("create_scheduler",),
        ".decisions": (
            "Decision",
            "Exploit",
            "Pause",
            "Reason",
            "Resize",
            "Resume",
            "Save",
            "Stop",
        ),
        ".fifo": ("FIFOScheduler",),
        ".halving.asha": ("ASHAScheduler", "AsyncHyperBandScheduler"),
        ".halving.hyperband": ("HyperBandForBOHB", "HyperBandScheduler"),
        ".halving.moasha": ("MOASHAScheduler",),
        ".halving.pasha": ("PASHAScheduler",),
        ".median": ("MedianStoppingRule",),
        ".population.mf_pbt": ("MFPopulationBasedTraining",),
        ".population.patient_pbt": ("PatientPopulationBasedTraining",),
        ".population.pb2": ("PB2",),
        ".population.pbt": ("PopulationBasedTraining",),
        ".population.replay": ("PopulationBasedTrainingReplay",),
        ".resource_changing": (
            "DistributeResources",
            "DistributeResourcesToTopJob",
            "ResourceAllocation",
            "ResourceChangingScheduler",
        ),
        ".scheduler": ("ExperimentView", "Scheduler", "TrialView"),
        ".trial_scheduler": ("TrialScheduler",),
    },
)
