"""What a worker has to know to run one attempt of a trial, and how the executor makes it.

Apart from `worker_protocol`, whose events and commands no worker needs: to define their classes
would take a third of the time in which a zygote starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tuner.storage import layout
from tuner.storage.directories import make_own_folder
from tuner.storage.urls import join_url
from tuner.wire.record import record

from .validation_assignment import ValidationAssignment

if TYPE_CHECKING:
    from tuner.core.commands import StartValidation, StartWorker


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


@final
class AssignmentBuilder:
    """Completes a `StartWorker` command to an assignment, and makes the trial's directory.

    Args:
        directory: The directory in which the experiment's trials have theirs.
        experiment_name: The experiment's name.
        seed_of: Returns the seed of a trial's random numbers.
        prepared: Makes a configuration ready for being sent to a worker; None where it is sent as
            it is.
        sync_checkpoints: Whether checkpoint files are flushed to the disk before they count.
        works_in_trial_dir: Whether trials run in their directories.
        stored_in: URL of the experiment in an object store; empty where it is in none.
        directory_on: Returns the directory on a node in which trials have theirs, which are made
            there; None where that is `directory`.
    """

    def __init__(
        self,
        directory: Path,
        experiment_name: str,
        seed_of: Callable[[str], int],
        *,
        prepared: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        sync_checkpoints: bool = True,
        works_in_trial_dir: bool = False,
        stored_in: str = "",
        directory_on: Callable[[str], Path] | None = None,
    ) -> None:
        self._directory = directory
        self._directory_on = directory_on
        self._experiment_name = experiment_name
        self._seed_of = seed_of
        self._prepared = prepared
        self._sync_checkpoints = sync_checkpoints
        self._works_in_trial_dir = works_in_trial_dir
        self._stored_in = stored_in

    def __call__(self, command: StartWorker) -> Assignment:
        """Return the assignment of the attempt that the command starts."""
        directory = self._directory_on(command.node) if self._directory_on else self._directory
        trial_dir = layout.trial_directory(directory, command.trial_id)
        if self._directory_on is None:
            make_own_folder(trial_dir)
        checkpoint = command.checkpoint
        source_dir = layout.trial_directory(directory, command.source_id or command.trial_id)
        return Assignment(
            trial_id=command.trial_id,
            attempt=command.attempt,
            config=self._ready(command.config),
            experiment_name=self._experiment_name,
            trial_dir=os.fspath(trial_dir),
            experiment_tag=command.experiment_tag,
            resources=command.resources,
            gpu_ids=command.gpu_ids,
            checkpoint_dir=os.fspath(source_dir / checkpoint.directory) if checkpoint else None,
            iteration=checkpoint.iteration if checkpoint else 0,
            time_total_s=checkpoint.time_total_s if checkpoint else 0.0,
            counters=checkpoint.counters if checkpoint else {},
            next_checkpoint=command.next_checkpoint,
            seed=self._seed_of(command.trial_id),
            sync_checkpoints=self._sync_checkpoints,
            works_in_trial_dir=self._works_in_trial_dir,
            stored_in=join_url(self._stored_in, command.trial_id) if self._stored_in else "",
            node=command.node,
        )

    def validation(self, command: StartValidation) -> ValidationAssignment:
        """Return the assignment of the validation that the command starts."""
        on_node = self._directory_on(command.node) if self._directory_on else self._directory
        trial_dir = layout.trial_path(on_node, command.trial_id)
        config, seed = self._ready(command.config), self._seed_of(command.trial_id)
        return ValidationAssignment.of(command, trial_dir, config, seed)

    def _ready(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._prepared(config) if self._prepared else config
