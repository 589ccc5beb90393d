"""What a worker has to know to run one attempt of a trial.

Apart from `worker_protocol`, whose events and commands no worker needs: to define their classes
would take a third of the time in which a zygote starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tuner.wire.record import record


@record
class Rank:
    """The place of a process among the workers of a group.

    Attributes:
        world_rank: Its number in the group, from 0.
        world_size: How many workers the group has.
        local_rank: Its number among those on this machine.
        local_world_size: How many workers of the group run on this machine.
        node_rank: Number of this machine among those of the group.
        master_addr: Address at which rank 0 listens for the others.
        master_port: The port.
        run_id: Identifies the group among all others of the experiment.
    """

    world_rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    master_addr: str
    master_port: int
    run_id: str

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field) for field in self.__match_args__)


@record
class Assignment:
    """What a worker has to know to run one attempt of a trial.

    Attributes:
        trial_id: The trial.
        attempt: Number of this start, from 1.
        config: The hyperparameters.
        experiment_name: Name of the experiment.
        trial_dir: The trial's directory, absolute.
        experiment_tag: See `Trial.experiment_tag`.
        resources: What the worker may use.
        gpu_ids: Devices assigned to it.
        checkpoint_dir: Directory to continue from, None for the beginning.
        iteration: ``training_iteration`` at that checkpoint, else 0.
        time_total_s: Training time in seconds up to that checkpoint, else 0.
        counters: ``timesteps_total`` and ``episodes_total`` at that checkpoint, if counted.
        next_checkpoint: Index of the first checkpoint of this attempt.
        seed: Seed of the trial's random numbers, the same in every attempt.
        sync_checkpoints: Whether checkpoint files are flushed to the disk before they count.
        works_in_trial_dir: Whether `trial_dir` becomes the working directory.
        rank: The worker's place in its group, None for a single process without ranks.
        stored_in: URL of the trial's directory in an object store; empty where it is in none.
        node: The machine that the worker is to run on; empty for this one.
    """

    trial_id: str
    attempt: int
    config: Mapping[str, Any]
    experiment_name: str
    trial_dir: str | os.PathLike[str]
    experiment_tag: str
    resources: Mapping[str, float]
    gpu_ids: tuple[int, ...]
    checkpoint_dir: str | None
    iteration: int
    time_total_s: float
    counters: Mapping[str, int]
    next_checkpoint: int
    seed: int
    sync_checkpoints: bool = True
    works_in_trial_dir: bool = False
    rank: Rank | None = None
    stored_in: str = ""
    node: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        # To unpickle with the constructor: the default for dataclasses with slots runs ten times as
        # much code, for which a forked worker would have to copy pages.
        return type(self), tuple(getattr(self, field) for field in self.__match_args__)
