"""The assignments with which an executor starts workers and validators, made from its commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from tuner.core.commands import StartValidation, StartWorker
from tuner.storage import layout
from tuner.storage.directories import make_own_folder
from tuner.storage.urls import join_url

from .assignment import Assignment
from .validation_assignment import ValidationAssignment


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
