"""Creation of the executor, and the assignments with which it starts workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from tuner.core.commands import StartValidation, StartWorker
from tuner.core.trial import WorkerGroup
from tuner.execution.executor import Executor
from tuner.execution.inline import InlineExecutor
from tuner.execution.local import orphans
from tuner.execution.local.executor import ProcessExecutor
from tuner.execution.resources import machine_capacity
from tuner.execution.validation import ValidationAssignment
from tuner.execution.worker_protocol import Assignment
from tuner.spec.environment import EnvironmentRecorder
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.storage import layout
from tuner.storage.array_store import ArrayStore
from tuner.storage.directories import make_own_folder
from tuner.storage.urls import join_url


def leased_group(spec: ExperimentSpec) -> WorkerGroup | None:
    """Return the workers whose resources an experiment inside a trial or a validation borrows.

    They are those of one trial of a trainer, so that its trials train one after the other. None for
    single processes: they run beside the trial, as in any program that starts processes. Nor for
    those on the nodes of a cluster, which are not its own.
    """
    is_here = spec.run.executor == "process" and spec.run.cluster is None
    return spec.usual_group if is_here else None


def make_executor(
    spec: ExperimentSpec,
    directory: Path,
    objects: ArrayStore,
    environment: EnvironmentRecorder,
    resources: Mapping[str, float] | None,
    *,
    stored_in: str = "",
) -> Executor:
    """Return the executor that `RunConfig` names.

    Args:
        spec: What was declared.
        directory: The experiment's directory.
        objects: Where large constants of configurations lie.
        environment: Takes the versions of packages that trials import.
        resources: Amounts by name that replace what is found on the machine.
        stored_in: URL of the experiment in an object store; empty where it is in none.
    """
    assign = AssignmentBuilder(spec, directory, objects, stored_in)
    validator = spec.validation_config.validator if spec.validation_config else None
    if spec.run.executor == "inline":
        return InlineExecutor(
            spec.trainable,
            assign,
            capacity=machine_capacity(resources),
            assign_validation=assign.validation,
            validator=validator,
        )
    identity = str(orphans.DriverIdentity.current(directory))
    environ = {**spec.run.environ, orphans.VARIABLE: identity}
    return ProcessExecutor(
        spec.trainable,
        assign,
        capacity=resources,
        environ=environ,
        on_packages=environment.add_packages,
        assign_validation=assign.validation,
        validator=validator,
    )


@final
class AssignmentBuilder:
    """Completes a `StartWorker` command to an assignment, and makes the trial's directory."""

    def __init__(
        self, spec: ExperimentSpec, directory: Path, objects: ArrayStore, stored_in: str = ""
    ) -> None:
        self._spec = spec
        self._stored_in = stored_in
        self._directory = directory
        self._objects = objects

    def __call__(self, command: StartWorker) -> Assignment:
        """Return the assignment of the attempt that the command starts."""
        trial_dir = layout.trial_directory(self._directory, command.trial_id)
        make_own_folder(trial_dir)
        checkpoint = command.checkpoint
        source_dir = layout.trial_directory(self._directory, command.source_id or command.trial_id)
        return Assignment(
            trial_id=command.trial_id,
            attempt=command.attempt,
            config=self._light(command.config),
            experiment_name=self._directory.name,
            trial_dir=os.fspath(trial_dir),
            experiment_tag=command.experiment_tag,
            resources=command.resources,
            gpu_ids=command.gpu_ids,
            checkpoint_dir=os.fspath(source_dir / checkpoint.directory) if checkpoint else None,
            iteration=checkpoint.iteration if checkpoint else 0,
            time_total_s=checkpoint.time_total_s if checkpoint else 0.0,
            counters=checkpoint.counters if checkpoint else {},
            next_checkpoint=command.next_checkpoint,
            seed=self._spec.seed_of(command.trial_id),
            sync_checkpoints=self._spec.run.durability != "process",
            works_in_trial_dir=bool(self._spec.tune.chdir_to_trial_dir),
            stored_in=join_url(self._stored_in, command.trial_id) if self._stored_in else "",
        )

    def validation(self, command: StartValidation) -> ValidationAssignment:
        """Return the assignment of the validation that the command starts."""
        trial_dir = layout.trial_path(self._directory, command.trial_id)
        seed = self._spec.seed_of(command.trial_id)
        return ValidationAssignment.of(command, trial_dir, self._light(command.config), seed)

    def _light(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        is_carried = self._spec.run.executor == "process"
        return self._objects.lighten(config) if is_carried else config
