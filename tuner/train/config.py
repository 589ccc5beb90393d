"""Settings of trainers; most are those of `Tuner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from tuner.spec.config import CheckpointConfig, FailureConfig, RunConfig
from tuner.spec.training_config import (
    LoggingConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationTaskConfig,
)

from .backend import BackendConfig

__all__ = [
    "TRAIN_DATASET_KEY",
    "BackendConfig",
    "CheckpointConfig",
    "DataConfig",
    "FailureConfig",
    "LoggingConfig",
    "RunConfig",
    "ScalingConfig",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
]

TRAIN_DATASET_KEY: Final = "train"
"""The name under which a trainer is usually given its training data."""
ValidationFn = Callable[..., Mapping[str, Any]]
"""A validation function: called with a checkpoint and keyword arguments, returns metrics."""


class DataConfig:
    """Which datasets of a trainer are split among its workers.

    Args:
        datasets_to_split: ``"all"``, the default, or the names of those that are split; each worker
            gets the whole of the others.
        execution_options: Accepted for compatibility and not used.
        enable_shard_locality: Accepted for compatibility and not used.

    Raises:
        TypeError: If `datasets_to_split` is neither ``"all"`` nor a list of names.
    """

    def __init__(
        self,
        datasets_to_split: Literal["all"] | Sequence[str] = "all",
        execution_options: Any = None,
        enable_shard_locality: bool = True,
    ) -> None:
        is_list = isinstance(datasets_to_split, Sequence) and not isinstance(datasets_to_split, str)
        if datasets_to_split != "all" and not (
            is_list and all(isinstance(name, str) for name in datasets_to_split)
        ):
            raise TypeError(
                "datasets_to_split must be 'all' or a list of names of datasets, got "
                f"{datasets_to_split!r}"
            )
        self.datasets_to_split = datasets_to_split
        self.execution_options = execution_options
        self.enable_shard_locality = enable_shard_locality

    def is_split(self, name: str) -> bool:
        """Return whether the workers share the dataset of this name."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split
