"""The cluster's side of a run: its executor, and what the nodes have to know."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, final

from tuner.background import BackgroundJobs
from tuner.cluster.cluster import Cluster
from tuner.cluster.executor import ClusterExecutor
from tuner.cluster.files_on_nodes import FilesOnNodes
from tuner.cluster.node_messages import Setup, SharedStorage, StoredElsewhere
from tuner.cluster.node_processes import NodeProcesses
from tuner.cluster.shared_directory import SharedProof
from tuner.cluster.storage_probe import StoreProof
from tuner.cluster.stored_parts import StoredParts
from tuner.core.commands import StartWorker
from tuner.core.events import Event
from tuner.core.experiment import Experiment
from tuner.driver.executors import Processes
from tuner.driver.storage_session import StorageSession
from tuner.errors import StorageError
from tuner.execution.assignment import AssignmentBuilder
from tuner.execution.executor import Executor
from tuner.execution.pickling import pickle_trainable
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.validation_assignment import own_validator
from tuner.execution.validation_payloads import Payloads
from tuner.groups.groups import Groups, Submit
from tuner.nodes.unmet_demand import unmet_demand
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.remote_session import RemoteSession

_NUM_SHOWN: Final = 5
"""How many of the nodes that are not used are named in an error."""


@final
class ClusterSession(Processes):
    """Runs the trials of an experiment on the nodes of a cluster.

    Args:
        cluster: The cluster.
        spec: What was declared.
        directory: The directory in which the driver works.
        on_packages: Takes the versions of packages that trials import.
        storage: Where the experiment is kept.

    Attributes:
        executor: The executor, which is not connected yet.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec: ExperimentSpec,
        directory: Path,
        on_packages: Callable[[Mapping[str, str]], None],
        storage: StorageSession,
    ) -> None:
        cluster.check_installed()
        # Without an object store all nodes share the directory.
        remote = storage if isinstance(storage, RemoteSession) else None
        validator = spec.validation_config.validator if spec.validation_config else None
        is_own = validator is None or own_validator(spec.trainable)
        self._spec = spec
        self._directory = directory
        self._remote = remote
        self._liveness = cluster.liveness
        self._scratch_dir = cluster.node_scratch_dir
        self._proof: SharedProof | StoreProof | None = None
        self._journal_wait = BackgroundJobs("tuner-first-record")
        self._files: FilesOnNodes | None = None
        self._nodes = nodes = NodeProcesses(
            cluster,
            trainable=pickle_trainable(spec.trainable),
            validator=b"" if is_own else pickle_trainable(validator),
        )
        assign = AssignmentBuilder(
            directory.resolve(),
            directory.name,
            spec.seed_of,
            # What a store does not have yet is lost with the node in any case.
            sync_checkpoints=spec.run.durability != "process" and remote is None,
            works_in_trial_dir=bool(spec.tune.chdir_to_trial_dir),
            stored_in=storage.url,
            directory_on=nodes.directory_of if remote else None,
        )
        processes = ProcessExecutor(
            nodes,
            assign,
            capacity={},
            environ=spec.run.environ,
            on_packages=on_packages,
            on_unloadable=nodes.gives_up_unloadable,
            assign_validation=assign.validation,
            payloads=Payloads(are_kept=True) if remote else None,
            groups=partial(Groups, storage=self._group_storage) if remote else None,
        )
        self._executor = ClusterExecutor(nodes, processes)
        super().__init__(self._executor)

    def storing(self, storage: StorageSession) -> Executor:
        inner = self._executor.inner
        self._executor.inner = (
            self._remote.storing(inner, self._make_files)
            if self._remote
            else storage.storing(inner)
        )
        return self._executor

    def _make_files(self, checkpoints: ObjectCheckpoints) -> FilesOnNodes:
        self._files = self._nodes.files = FilesOnNodes(self._nodes, checkpoints, self._directory)
        return self._files

    def _group_storage(self, command: StartWorker, submit: Submit) -> StoredParts:
        if self._remote is None or self._files is None:
            raise TypeError("checkpoints of a group on nodes need a session of their store")
        return StoredParts(
            (command.trial_id, command.attempt),
            command.nodes,
            self._files,
            submit,
            is_async=self._remote.is_async,
        )

    def connect(self, experiment: Experiment) -> list[Event]:
        """Connect to the cluster, and return what has happened there.

        Args:
            experiment: Whose trials wait for nodes.

        Raises:
            ClusterError: If it cannot be reached.
            StorageError: If what proves that nodes use the same storage cannot be written.
        """
        self._nodes.unmet = partial(unmet_demand, experiment)
        storage: SharedStorage | StoredElsewhere
        if remote := self._remote:
            given = self._spec.run.storage_filesystem
            self._proof = StoreProof(remote.store, remote.epoch)
            storage = StoredElsewhere(
                remote.store.url,
                remote.epoch,
                self._proof.proof,
                filesystem=None if given is None else pickle.dumps(given),
                cache_bytes=self._spec.run.cache_bytes,
                retry_s=self._spec.run.storage_retry_s,
            )
            self._journal_wait.submit(partial(self._await_journal, remote))
        else:
            self._proof = SharedProof(self._directory, self._liveness.lease_s)
            storage = SharedStorage(os.fspath(self._directory.resolve()), self._proof.proof)
        return self._executor.connect(self._setup(storage), self._proof)

    def _setup(self, storage: SharedStorage | StoredElsewhere) -> Setup:
        run = self._spec.run
        return Setup(
            storage=storage,
            environ=run.environ,
            sys_path=_module_path(),
            argv=sys.argv,
            lease_s=self._liveness.lease_s,
            scratch_dir=self._scratch_dir,
        )

    @property
    def why_refused(self) -> str:
        """Which nodes are not used, and why, to be added to an error; empty for none."""
        refusals = self._nodes.refusals
        if not refusals:
            return ""
        more = len(refusals) - _NUM_SHOWN
        shown = [*refusals[:_NUM_SHOWN], *([f"{more} more"] if more > 0 else [])]
        return f"; not used: {'; '.join(shown)}"

    def close(self) -> None:
        """Remove the proof; that in a shared directory says that nodes may be working there."""
        self._journal_wait.close(0.0)
        if self._proof and (self._remote or self._nodes.has_ended_all):
            self._proof.close()

    def _await_journal(self, remote: RemoteSession) -> None:
        """Have checkpoints uploaded once the store has the journal's first record."""
        # Where the store does not take it, the driver itself ends with that error.
        try:
            remote.await_beginning()
        except StorageError:
            return
        if self._files:
            self._files.note_journal_stored()


def _module_path() -> list[str]:
    return [os.fspath(entry) for entry in sys.path]
