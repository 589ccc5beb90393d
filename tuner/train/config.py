"""Settings of trainers; most are those of `Tuner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from tuner.spec.config import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig
from tuner.spec.training_config import (
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
        datasets_with_all_rows: Names of those whose rows all belong to a shard, so that shards may
            differ by one row. By default the last rows are left out where they are too few for all
            workers, since workers with different numbers of batches would wait for each other in
            training. A validation should count every row: name its dataset here, and add up counts
            and sums over the workers rather than averages.
        execution_options: Accepted for compatibility and not used.
        enable_shard_locality: Accepted for compatibility and not used.

    Raises:
        TypeError: If `datasets_to_split` is neither ``"all"`` nor a list of names, or
            `datasets_with_all_rows` is no list of names.
    """

    def __init__(
        self,
        datasets_to_split: Literal["all"] | Sequence[str] = "all",
        execution_options: Any = None,
        enable_shard_locality: bool = True,
        *,
        datasets_with_all_rows: Sequence[str] = (),
    ) -> None:
        if datasets_to_split != "all" and not _are_names(datasets_to_split):
            raise TypeError(
                "datasets_to_split must be 'all' or a list of names of datasets, got "
                f"{datasets_to_split!r}"
            )
        if not _are_names(datasets_with_all_rows):
            raise TypeError(
                "datasets_with_all_rows must be a list of names of datasets, got "
                f"{datasets_with_all_rows!r}"
            )
        self.datasets_to_split = datasets_to_split
        self.datasets_with_all_rows = tuple(datasets_with_all_rows)
        self.execution_options = execution_options
        self.enable_shard_locality = enable_shard_locality

    def is_split(self, name: str) -> bool:
        """Return whether the workers share the dataset of this name."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split

    def has_all_rows(self, name: str) -> bool:
        """Return whether each row of the dataset of this name is in some worker's shard."""
        return name in self.datasets_with_all_rows


def _are_names(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and all(isinstance(name, str) for name in value)
