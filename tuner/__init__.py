"""Hyperparameter search on one machine: many training runs, stopped early, retried, analysed.

``import tuner as tune`` provides the names of Ray Tune: ``tune.Tuner``, ``tune.TuneConfig``,
``tune.report``, ``tune.uniform``. Schedulers and searchers are imported from the packages
`schedulers` and `searchers`.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from searchers.lazy_names import lazy_names

from .version import __version__ as __version__

if TYPE_CHECKING:
    import schedulers as schedulers
    import searchers
    from schedulers import create_scheduler
    from searchers import create_searcher
    from searchers.space import (
        Space,
        choice,
        grid_search,
        lograndint,
        loguniform,
        only_if,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        sample_from,
        uniform,
    )

    from . import callback as callback
    from . import error as error
    from . import experiment as experiment
    from . import logger as logger
    from . import result as result
    from . import stopper as stopper
    from . import train as train
    from . import utils as utils
    from .analysis import ExperimentAnalysis, Result, ResultGrid, points_from
    from .callbacks import (
        Callback,
        CLIReporter,
        CSVLoggerCallback,
        JsonLoggerCallback,
        JupyterNotebookReporter,
        LoggerCallback,
        ProgressReporter,
        TBXLoggerCallback,
    )
    from .cluster.cluster import Cluster, DaskCluster, RayCluster
    from .command import Command
    from .core.secret_reference import Secret
    from .core.stoppers import (
        CombinedStopper,
        ExperimentPlateauStopper,
        FunctionStopper,
        MaximumIterationStopper,
        NoopStopper,
        Stopper,
        TimeoutStopper,
        TrialPlateauStopper,
    )
    from .core.trial import Trial
    from .error import TuneError
    from .errors import TunerError
    from .execution.class_trainable import Trainable
    from .execution.resources import PlacementGroupFactory
    from .execution.session import TuneContext, checkpoint_dir, get_checkpoint, get_context, report
    from .execution.trainable import register_trainable, with_parameters, with_resources
    from .handle import Handle, attach
    from .spec.config import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, TuneConfig
    from .spec.sync_config import SyncConfig
    from .stopping.stop_search import StopSearch
    from .storage.checkpoints import Checkpoint
    from .tune_run import Experiment, run, run_experiments
    from .tuner import Tuner, rerun
    from .whatif import ShorterSearch, WhatIf, WhatIfComparison
    from .whatif.what_if import what_if

    search = searchers

# The console shows log messages, as far as ``verbose`` allows; without this handler, Python would
# print warnings to stderr as well.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_NAMES_BY_MODULE = {
    "schedulers": ("create_scheduler",),
    "searchers": ("create_searcher",),
    "searchers.space": (
        "Space", "choice", "grid_search", "lograndint", "loguniform", "only_if", "qlograndint",
        "qloguniform", "qrandint", "qrandn", "quniform", "randint", "randn", "sample_from",
        "uniform",
    ),
    "tuner.analysis": ("ExperimentAnalysis", "Result", "ResultGrid", "points_from"),
    "tuner.cluster.cluster": ("Cluster", "DaskCluster", "RayCluster"),
    "tuner.spec.config": (
        "CheckpointConfig", "FailureConfig", "ResumeConfig", "RunConfig", "TuneConfig",
    ),
    "tuner.spec.sync_config": ("SyncConfig",),
    "tuner.command": ("Command",),
    "tuner.core.secret_reference": ("Secret",),
    "tuner.core.stoppers": (
        "CombinedStopper", "ExperimentPlateauStopper", "FunctionStopper", "MaximumIterationStopper",
        "NoopStopper", "Stopper", "TimeoutStopper", "TrialPlateauStopper",
    ),
    "tuner.core.trial": ("Trial",),
    "tuner.error": ("TuneError",),
    "tuner.stopping.stop_search": ("StopSearch",),
    "tuner.errors": ("TunerError",),
    "tuner.execution.resources": ("PlacementGroupFactory",),
    "tuner.execution.session": (
        "TuneContext", "checkpoint_dir", "get_checkpoint", "get_context", "report",
    ),
    "tuner.execution.class_trainable": ("Trainable",),
    "tuner.execution.trainable": ("register_trainable", "with_parameters", "with_resources"),
    "tuner.handle": ("Handle", "attach"),
    "tuner.whatif": ("ShorterSearch", "WhatIf", "WhatIfComparison", "what_if"),
    "tuner.callbacks": (
        "CLIReporter", "CSVLoggerCallback", "Callback", "JsonLoggerCallback",
        "JupyterNotebookReporter", "LoggerCallback", "ProgressReporter", "TBXLoggerCallback",
    ),
    "tuner.storage.checkpoints": ("Checkpoint",),
    "tuner.tune_run": ("Experiment", "run", "run_experiments"),
    "tuner.tuner": ("Tuner", "rerun"),
}  # fmt: skip
_SUBMODULES = {
    **{
        name: f"tuner.{name}"
        for name in (
            "callback",
            "error",
            "experiment",
            "logger",
            "result",
            "stopper",
            "train",
            "utils",
        )
    },
    "schedulers": "schedulers",
    "search": "searchers",
}
"""Modules that are attributes of this one: ``tune.stopper.MaximumIterationStopper``."""
_NOT_PUBLIC = ("callbacks", "capabilities")
"""Modules that the engine imports by ``from tuner import``, which first asks for the name: it is
not one that the user has misspelt."""
_REPLACEMENTS = {
    "Analysis": "use ExperimentAnalysis(path)",
    "DistributedTrainableCreator": "use tuner.train.torch.TorchTrainer",
    "EarlyStopping": "use ExperimentPlateauStopper",
    "durable": "give a URL as RunConfig(storage_path=...)",
    "function": "leave it out; functions in a configuration need no wrapper",
    "get_trial_dir": "use get_context().get_trial_dir()",
    "get_trial_id": "use get_context().get_trial_id()",
    "get_trial_name": "use get_context().get_trial_name()",
    "get_trial_resources": "use get_context().get_trial_resources()",
    "is_session_enabled": "report and get_checkpoint may be called outside a trial as well",
    "register_env": "make the environment in the training code",
    "save_checkpoint": "use report(metrics, checkpoint=Checkpoint.from_directory(path))",
    "load_checkpoint": "use get_checkpoint()",
    "session": "report, get_checkpoint and get_context are functions of tuner",
    "suggest": "use tune.search",
    "track": "use report(metrics)",
}
"""Names of Ray Tune that do not exist here, each with the alternative."""

__all__ = [
    "CLIReporter",
    "CSVLoggerCallback",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "Cluster",
    "CombinedStopper",
    "Command",
    "DaskCluster",
    "Experiment",
    "ExperimentAnalysis",
    "ExperimentPlateauStopper",
    "FailureConfig",
    "FunctionStopper",
    "Handle",
    "JsonLoggerCallback",
    "JupyterNotebookReporter",
    "LoggerCallback",
    "MaximumIterationStopper",
    "NoopStopper",
    "PlacementGroupFactory",
    "ProgressReporter",
    "RayCluster",
    "Result",
    "ResultGrid",
    "ResumeConfig",
    "RunConfig",
    "Secret",
    "ShorterSearch",
    "Space",
    "StopSearch",
    "Stopper",
    "SyncConfig",
    "TBXLoggerCallback",
    "TimeoutStopper",
    "Trainable",
    "Trial",
    "TrialPlateauStopper",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "Tuner",
    "TunerError",
    "WhatIf",
    "WhatIfComparison",
    "attach",
    "checkpoint_dir",
    "choice",
    "create_scheduler",
    "create_searcher",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "lograndint",
    "loguniform",
    "only_if",
    "points_from",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_trainable",
    "report",
    "rerun",
    "run",
    "run_experiments",
    "sample_from",
    "uniform",
    "what_if",
    "with_parameters",
    "with_resources",
]


def __getattr__(name: str) -> Any:
    if name == "tune":  # ``from tuner import tune``, as Ray Tune is imported
        return sys.modules[__name__]
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    if name in _NOT_PUBLIC:
        return importlib.import_module(f"{__name__}.{name}")
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*_public(), *_SUBMODULES})


def _missing(name: str) -> AttributeError:
    from .errors import missing_name  # noqa: PLC0415  (few names are missing)

    replacements = dict(_REPLACEMENTS)
    # Python itself asks for names such as ``__path__``, and tools for ``_ipython_display_``.
    if not name.startswith("_") and name not in replacements:
        from .meant_names import hint_for  # noqa: PLC0415

        if hint := hint_for(name, __all__):
            replacements[name] = hint
    return missing_name(f"module {__name__!r}", name, replacements)


_find, _public = lazy_names(__name__, _NAMES_BY_MODULE, _missing)
