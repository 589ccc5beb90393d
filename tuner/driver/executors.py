"""Creation of the executor, and the assignments with which it starts workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner import capabilities
from tuner.core.events import Event
from tuner.core.experiment import Experiment
from tuner.core.worker_records import WorkerGroup
from tuner.execution.assignment import AssignmentBuilder
from tuner.execution.executor import Executor
from tuner.execution.local import orphans
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.process_service import ProcessService
from tuner.execution.resources import machine_capacity
from tuner.spec.environment import EnvironmentRecorder
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.storage.array_store import ArrayStore

from .storage_session import StorageSession


class Processes:
    """Where the trials of a run are: on this machine.

    `ClusterSession` runs them on the nodes of a cluster.

    Args:
        executor: The executor.

    Attributes:
        executor: As given.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def storing(self, storage: StorageSession) -> Executor:
        """Return an executor whose checkpoints count once they are where the experiment is kept."""
        return storage.storing(self.executor)

    @property
    def why_refused(self) -> str:
        """Which nodes are not used, and why, to be added to an error; empty for none."""
        return ""

    def connect(self, experiment: Experiment) -> list[Event]:
        """Begin to work for an experiment, and return what has happened so far."""
        return []

    def close(self) -> None:
        """Clean up when the executor has been shut down."""


def processes_for(  # noqa: PLR0917  (what a run has set up by then)
    spec: ExperimentSpec,
    directory: Path,
    objects: ArrayStore,
    environment: EnvironmentRecorder,
    resources: Mapping[str, float] | None,
    storage: StorageSession,
) -> Processes:
    """Return where the trials of a run are.

    Args:
        spec: What was declared.
        directory: The experiment's directory.
        objects: Where large constants of configurations lie.
        environment: Takes the versions of packages that trials import.
        resources: Amounts by name that replace what is found on the machine.
        storage: Where the experiment is kept.
    """
    if spec.run.cluster:
        on_nodes: Processes = capabilities.ClusterSession(
            spec.run.cluster, spec, directory, environment.add_packages, storage
        )
        return on_nodes
    return Processes(
        make_executor(spec, directory, objects, environment, resources, stored_in=storage.url)
    )


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
    assign = assignment_builder(spec, directory, objects, stored_in)
    validator = spec.validation_config.validator if spec.validation_config else None
    capacity = machine_capacity(resources)
    service: ProcessService
    if spec.run.executor == "inline":
        from tuner.execution.inline_processes import InlineProcesses  # noqa: PLC0415  (seldom)

        service = InlineProcesses(spec.trainable, validator)
    else:
        identity = str(orphans.DriverIdentity.current(directory))
        service = LocalProcesses(
            spec.trainable,
            validator,
            has_gpus=bool(capacity.get("gpu")),
            environ={**spec.run.environ, orphans.VARIABLE: identity},
            keeps_zygote=True,
        )
    return ProcessExecutor(
        service,
        assign,
        capacity=capacity,
        environ=spec.run.environ,
        on_packages=environment.add_packages,
        assign_validation=assign.validation,
    )


def assignment_builder(
    spec: ExperimentSpec, directory: Path, objects: ArrayStore, stored_in: str = ""
) -> AssignmentBuilder:
    """Return what makes the assignments of an experiment.

    Args:
        spec: What was declared.
        directory: The experiment's directory.
        objects: Where large constants of configurations lie.
        stored_in: URL of the experiment in an object store; empty where it is in none.
    """
    is_carried = spec.run.executor == "process"
    return AssignmentBuilder(
        directory,
        directory.name,
        spec.seed_of,
        prepared=objects.lighten if is_carried else None,
        sync_checkpoints=spec.run.durability != "process",
        works_in_trial_dir=bool(spec.tune.chdir_to_trial_dir),
        stored_in=stored_in,
    )
