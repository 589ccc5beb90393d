"""TensorFlow in several processes: `TensorflowTrainer`, which tells each where the others are."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.execution.attempt import current_attempt
from tuner.spec.config import RunConfig
from tuner.spec.training_config import ScalingConfig, ValidationConfig
from tuner.storage.checkpoints import Checkpoint
from tuner.train.config import BackendConfig, DataConfig
from tuner.train.exchange import gather, own_address
from tuner.train.trainer import DataParallelTrainer

__all__ = ["TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]


@dataclass(frozen=True, slots=True)
class TensorflowConfig(BackendConfig):
    """Sets ``TF_CONFIG`` for ``tf.distribute.MultiWorkerMirroredStrategy`` in each worker.

    Worker 0 is the chief. Nothing is set where there is only one worker.
    """

    def on_start(self) -> None:
        """Tell this worker where the others listen, and keep their ports apart."""
        attempt = current_attempt()
        rank = attempt.assignment.rank if attempt else None
        if rank and rank.world_size > 1:
            address = own_address(rank)
            is_ipv6 = ":" in address
            # Bound until all addresses are known, so that no two workers choose the same port;
            # TensorFlow binds it itself, at once.
            with socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET) as listening:
                listening.bind((address, 0))
                port = listening.getsockname()[1]
                addresses = gather(f"[{address}]:{port}" if is_ipv6 else f"{address}:{port}")
            task = {"type": "worker", "index": rank.world_rank}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})


class TensorflowTrainer(DataParallelTrainer):
    """Runs a training function of TensorFlow in several processes.

    Each process finds ``TF_CONFIG``, with which
    ``tf.distribute.MultiWorkerMirroredStrategy()`` connects them.

    Args:
        train_loop_per_worker: The training function, called in each process, without arguments or
            with the configuration.
        train_loop_config: The configuration; None for an empty one.
        tensorflow_config: How the processes are connected.
        scaling_config: How many processes, and what each of them occupies.
        run_config: Where the run is stored, and how it is run.
        datasets: Datasets by name, see `get_dataset_shard`.
        dataset_config: Which of them are split.
        metadata: Must be None.
        validation_config: How reported checkpoints are validated beside the training.
        resume_from_checkpoint: What `get_checkpoint` returns until the run has a checkpoint of its
            own.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is not supported.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        if not isinstance(tensorflow_config, TensorflowConfig | None):
            raise TypeError(
                f"tensorflow_config must be a TensorflowConfig, got {tensorflow_config!r:.200}"
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=tensorflow_config or TensorflowConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            metadata=metadata,
            validation_config=validation_config,
            resume_from_checkpoint=resume_from_checkpoint,
        )


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """Return a ``tf.data.Dataset`` that TensorFlow does not split among the workers again.

    It also prepares batches ahead.

    Args:
        tf_dataset_shard: This worker's part of the data.

    Raises:
        ImportError: If TensorFlow is not installed.
    """
    import tensorflow as tf  # noqa: PLC0415  (only workers need it)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf.data.AUTOTUNE)
