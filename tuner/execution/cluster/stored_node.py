"""What runs on a node where the experiment is in an object store: trials, as its driver commands.

The node stores their checkpoints, files and output before the driver learns of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, final

from tuner.core.commands import StartValidation, StartWorker, WorkerCommand
from tuner.core.events import ValidationEnded
from tuner.errors import StorageUnreachable
from tuner.execution.assignments import AssignmentBuilder
from tuner.execution.local import orphans
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.local.trainable_blob import PickledCode
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.process_service import HasFileno
from tuner.execution.uploading import UploadingExecutor
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.execution.validation_payloads import Payloads
from tuner.storage.object_checkpoints import ObjectCheckpoints
from tuner.storage.object_store import ObjectStore
from tuner.storage.store_calls import in_thread

from .node_files import NodeFiles
from .node_messages import Setup, StoredElsewhere
from .node_ranks import NodeRanks
from .node_service import SHUTDOWN_S, kill_left_behind
from .rank_relay import NodeStarter
from .scratch import Scratch
from .storage_probe import answer_store_proof
from .stored_messages import event_message, read_command, read_start_worker
from .stored_ranks import StoredRanks

_STORE_S: Final = 5.0
"""How long it is tried to reach an object store before the node is refused."""


class StoringHost(Protocol):
    """What a node that stores what trials make needs of its host."""

    def tell(self, message: Mapping[str, Any], /) -> None:
        """Send the driver a message."""

    @property
    def has_told_all(self) -> bool:
        """Whether the driver has acknowledged all that was sent."""

    def await_journal(self) -> None:
        """Return once the driver says that the store has a journal."""


@final
class StoredNode:
    """Runs the trials of a node, and stores what they make.

    Args:
        setup: What all trials have in common.
        code: What the user has declared.
        resources: What the node has.
        address: Under which other nodes reach it.
        host: The host.
        storage: Where the experiment is.
        store: The same.
    """

    def __init__(  # noqa: PLR0917  (what it works with, given once)
        self,
        setup: Setup,
        code: PickledCode,
        resources: Mapping[str, float],
        address: str,
        host: StoringHost,
        storage: StoredElsewhere,
        store: ObjectStore,
    ) -> None:
        self._host = host
        self._has_told_unloadable = False
        self._seeds: dict[str, int] = {}
        self._with_payload: set[tuple[str, int, int]] = set()
        self._scratch = Scratch(Path(setup.scratch_dir) if setup.scratch_dir else None)
        directory = self._scratch.path
        identity = kill_left_behind(storage.url)
        self._assign = AssignmentBuilder(
            directory,
            setup.experiment_name,
            self._seeds.__getitem__,
            sync_checkpoints=False,  # what is not stored yet is lost with the host in any case
            works_in_trial_dir=setup.works_in_trial_dir,
            stored_in=storage.url,
        )
        self._processes = ProcessExecutor(
            service := LocalProcesses(
                code,
                has_gpus=bool(resources.get("gpu")),
                kill_grace_s=setup.kill_grace_s,
                environ={**setup.environ, orphans.VARIABLE: identity},
            ),
            self._assign,
            capacity=resources,
            environ=setup.environ,
            on_packages=self._on_packages,
            assign_validation=self._assign_validation,
            # They are deleted elsewhere: the validation may be on another node.
            payloads=Payloads(are_kept=True),
            on_unloadable=self._on_unloadable,
        )
        checkpoints = ObjectCheckpoints(
            store,
            directory,
            storage.epoch,
            sync=False,
            cache_bytes=storage.cache_bytes,
            await_journal=host.await_journal,
        )
        uploading = UploadingExecutor(self._processes, checkpoints, is_async=storage.is_async)
        self._executor = NodeFiles(
            uploading,
            store,
            directory,
            host.tell,
            may_tell=lambda: host.has_told_all,
            needs_payload=lambda command: _validation_key(command) in self._with_payload,
        )
        stored = StoredRanks(directory, checkpoints, uploading, self._executor, host.tell)
        self._processes.watch(stored.jobs, stored.jobs.run_done)
        starter = NodeStarter(self._processes, service.lend, self._assign)
        self._ranks = NodeRanks(starter, host.tell, self._read_start, address, stored)

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        """See `NodeWork`."""
        self._processes.watch(readable, on_readable)

    def take(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """See `NodeWork`."""
        commands: list[WorkerCommand] = []
        for message in messages:
            if message["kind"].startswith("rank_"):
                self._ranks.on_message(message)
            else:
                commands.append(self._read(message))
        if commands:
            self._executor.carry_out(commands)

    def wait(self, timeout_s: float) -> None:
        """See `NodeWork`."""
        for event in self._executor.wait(timeout_s):
            if isinstance(event, ValidationEnded):
                self._with_payload.discard((event.trial_id, event.index, event.num_try))
            self._host.tell(event_message(event))

    def _read(self, message: Mapping[str, Any]) -> WorkerCommand:
        command = read_command(message)
        if isinstance(command, StartWorker | StartValidation):
            self._seeds[command.trial_id] = message["seed"]
        if isinstance(command, StartValidation) and message["has_payload"]:
            self._with_payload.add(_validation_key(command))
        return command

    def close(self) -> None:
        """See `NodeWork`."""
        self._ranks.close()
        self._executor.shutdown(SHUTDOWN_S)
        self._scratch.close()

    def _read_start(self, message: Mapping[str, Any]) -> StartWorker:
        self._seeds[message["trial_id"]] = message["seed"]
        return read_start_worker(message)

    def _assign_validation(self, command: StartValidation) -> ValidationAssignment:
        has_payload = _validation_key(command) in self._with_payload
        return replace(self._assign.validation(command), has_payload=has_payload)

    def _on_unloadable(self, _node: str, why: str) -> bool:
        if not self._has_told_unloadable:
            self._has_told_unloadable = True
            self._host.tell({"kind": "unloadable", "why": why})
        return False  # the driver decides that

    def _on_packages(self, versions: Mapping[str, str]) -> None:
        self._host.tell({"kind": "packages", "versions": dict(versions)})


def _validation_key(command: StartValidation) -> tuple[str, int, int]:
    return command.trial_id, command.checkpoint.index, command.num_try


def open_store(storage: StoredElsewhere) -> ObjectStore:
    """Return the experiment's directory in the store.

    Raises:
        Exception: Raised by the store's library, or when the user's file system is unpickled.
    """
    # From the driver, as is all code that runs here.
    filesystem = pickle.loads(storage.filesystem) if storage.filesystem else None  # noqa: S301
    return ObjectStore(storage.url, filesystem, retry_s=storage.retry_s)


def answer_in_time(store: ObjectStore, proof: tuple[str, str], node: str) -> str:
    """Answer the driver's proof, see `answer_store_proof`.

    Raises:
        StorageError: If the store did not answer, or refused.
    """
    patient = store.with_retry_s(_STORE_S)
    # In a thread: where a store accepts a connection and does not answer, this takes long.
    answering = in_thread(lambda: answer_store_proof(patient, proof, node))
    try:
        return answering.result(2 * _STORE_S)
    except TimeoutError:
        raise StorageUnreachable(f"{store.url} does not answer") from None
