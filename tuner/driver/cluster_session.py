"""The cluster's side of a run: its executor, and what the nodes have to know."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, final

from tuner import capabilities
from tuner.background import BackgroundJobs
from tuner.core.events import Event
from tuner.core.experiment import Experiment
from tuner.errors import StorageError
from tuner.execution.assignments import AssignmentBuilder
from tuner.execution.cluster.executor import ClusterExecutor
from tuner.execution.cluster.node_messages import Setup, SharedStorage, StoredElsewhere
from tuner.execution.cluster.nodes import ClusterNodes
from tuner.execution.cluster.shared_directory import SharedProof
from tuner.execution.cluster.storage_probe import StoreProof
from tuner.execution.cluster.stored_executor import StoredClusterExecutor
from tuner.execution.pickling import pickle_trainable
from tuner.execution.validation_assignment import own_validator
from tuner.spec.cluster import Cluster
from tuner.spec.experiment_spec import ExperimentSpec

from .executors import Processes
from .remote_session import RemoteSession
from .storage_session import StorageSession

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

    uploads = True

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
        self._nodes: ClusterNodes
        trainable = pickle_trainable(spec.trainable)
        pickled_validator = b"" if is_own else pickle_trainable(validator)
        engine = cluster.engine, cluster.settings(), cluster.describe()
        executor: ClusterExecutor | StoredClusterExecutor
        if remote:
            executor = self._nodes = StoredClusterExecutor(
                *engine,
                directory,
                trainable=trainable,
                validator=pickled_validator,
                seed_of=spec.seed_of,
                on_packages=on_packages,
                environ=spec.run.environ,
                liveness=self._liveness,
            )
        else:
            assign = AssignmentBuilder(
                directory.resolve(),
                directory.name,
                spec.seed_of,
                sync_checkpoints=spec.run.durability != "process",
                works_in_trial_dir=bool(spec.tune.chdir_to_trial_dir),
            )
            executor = ClusterExecutor(
                *engine,
                assign,
                trainable=trainable,
                validator=pickled_validator,
                on_packages=on_packages,
                environ=spec.run.environ,
                liveness=self._liveness,
            )
            self._nodes = executor.nodes
        super().__init__(executor)
        self._executor = executor

    def connect(self, experiment: Experiment) -> list[Event]:
        """Connect to the cluster, and return what has happened there.

        Args:
            experiment: Whose trials wait for nodes.

        Raises:
            ClusterError: If it cannot be reached.
            StorageError: If what proves that nodes use the same storage cannot be written.
        """
        self._nodes.unmet = partial(capabilities.unmet_demand, experiment)
        if isinstance(self._executor, ClusterExecutor):
            proof = self._proof = SharedProof(self._directory, self._liveness.lease_s)
            storage = SharedStorage(os.fspath(self._directory.resolve()), proof.proof)
            return self._executor.connect(self._setup(storage), proof)
        return self._connect_to_store(self._executor)

    def _connect_to_store(self, executor: StoredClusterExecutor) -> list[Event]:
        run, remote = self._spec.run, self._remote
        if remote is None:
            raise TypeError("an experiment in an object store must have a session of it")
        config, given = run.checkpoint_config, run.storage_filesystem
        proof = self._proof = StoreProof(remote.store, remote.epoch)
        storage = StoredElsewhere(
            remote.store.url,
            remote.epoch,
            proof.proof,
            filesystem=None if given is None else pickle.dumps(given),
            is_async=config is not None and config.upload == "async",
            cache_bytes=run.cache_bytes,
            retry_s=run.storage_retry_s,
        )
        events = executor.connect(
            self._setup(storage), proof, remote.checkpoints, is_async=storage.is_async
        )
        self._journal_wait.submit(partial(self._await_journal, remote, executor))
        return events

    def _setup(self, storage: SharedStorage | StoredElsewhere) -> Setup:
        run = self._spec.run
        return Setup(
            experiment_name=self._directory.name,
            storage=storage,
            environ=run.environ,
            sync_checkpoints=run.durability != "process",
            works_in_trial_dir=bool(self._spec.tune.chdir_to_trial_dir),
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

    @staticmethod
    def _await_journal(remote: RemoteSession, executor: StoredClusterExecutor) -> None:
        """Have checkpoints uploaded once the store has the journal's first record."""
        # Where the store does not take it, the driver itself ends with that error.
        try:
            remote.await_beginning()
        except StorageError:
            return
        executor.note_journal_stored()


def _module_path() -> list[str]:
    return [os.fspath(entry) for entry in sys.path]
