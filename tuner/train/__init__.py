"""Training over several processes: trainers, and the API of training code that they run.

``from tuner import train`` provides the names of Ray Train. What needs PyTorch, Lightning,
Transformers or TensorFlow is in the modules `tuner.train.torch`, `tuner.train.lightning`,
`tuner.train.huggingface.transformers` and `tuner.train.tensorflow`, of which none is imported here.
"""

from __future__ import annotations

from tuner.analysis.result import Result
from tuner.callbacks.user_callback import TrainRunContext, UserCallback
from tuner.execution.report_options import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
)
from tuner.execution.session import checkpoint_dir
from tuner.integration.ray_train import TuneReportCallback
from tuner.spec.sync_config import SyncConfig
from tuner.storage.checkpoints import Checkpoint

from . import collective as collective
from .api import (
    TrainContext,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    report,
)
from .checkpoint_every import CheckpointEvery
from .config import (
    TRAIN_DATASET_KEY,
    BackendConfig,
    CheckpointConfig,
    DataConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationFn,
    ValidationTaskConfig,
)
from .data import DataShard
from .errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    PreemptionInfo,
    TrainingFailedError,
    WorkerGroupError,
)
from .trainer import DataParallelTrainer

__all__ = [
    "TRAIN_DATASET_KEY",
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointEvery",
    "CheckpointUploadMode",
    "ControllerError",
    "DataConfig",
    "DataParallelTrainer",
    "DataShard",
    "FailureConfig",
    "LoggingConfig",
    "NCCLHangError",
    "PreemptionError",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "TrainRunContext",
    "TrainingFailedError",
    "TuneReportCallback",
    "UserCallback",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "checkpoint_dir",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "report",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
