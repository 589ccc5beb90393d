"""The groups of an executor, and the threads that commit their checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from tuner.core.commands import StartWorker
from tuner.execution.assignment import Assignment
from tuner.execution.commit_pool import CommitPool
from tuner.execution.process_service import ProcessService
from tuner.execution.remote_process import OwnerHost, RemoteWorker

from .group import Patience, RemoteGroup
from .group_checkpoint import DirectoryStorage, GroupStorage
from .placement import place_ranks

Submit = Callable[[Callable[[], Any], Callable[[Any], None], str], None]
"""Runs a job in a thread, see `CommitPool.submit`."""

_COMMITS_S: Final = 10.0
"""How long checkpoints that are being committed may take at the end."""

_log = logging.getLogger("tuner")


@final
class Groups:
    """Makes the groups of an executor.

    Args:
        service: Starts their processes.
        environ: Environment variables of all processes of trials.
        storage: Returns where the checkpoints of a group are committed, given how jobs run in
            threads; None for their trial's directory.
        commit_pool: Creates the threads.
    """

    def __init__(
        self,
        service: ProcessService,
        environ: Mapping[str, str],
        *,
        storage: Callable[[StartWorker, Submit], GroupStorage] | None = None,
        commit_pool: Callable[[], CommitPool] = CommitPool,
    ) -> None:
        self._service = service
        self._patience = Patience.of(environ)
        self._storage = storage
        self._make_commit_pool = commit_pool
        self._commits: CommitPool | None = None

    def place(
        self, assignments: Mapping[str, Assignment], nodes: Sequence[str], address: str, port: int
    ) -> list[Assignment]:
        """Return the assignments of the workers of a group, see `place_ranks`."""
        return place_ranks(assignments, nodes, address, port)

    def make(
        self,
        command: StartWorker,
        members: Sequence[RemoteWorker],
        assignment: Assignment,
        host: OwnerHost,
    ) -> RemoteGroup:
        """Return the group of an attempt.

        Args:
            command: The command that starts it.
            members: Its workers, by rank.
            assignment: Rank 0's.
            host: The executor.
        """
        storage = (
            self._storage(command, self._submit)
            if self._storage
            else DirectoryStorage(
                Path(assignment.trial_dir), self._submit, sync=assignment.sync_checkpoints
            )
        )
        return RemoteGroup(
            command, members, assignment.trial_dir, storage, host, patience=self._patience
        )

    def close(self) -> None:
        """End the threads; what is still being committed after a while is named, and given up."""
        if self._commits and (unfinished := self._commits.close(_COMMITS_S)):
            _log.warning(
                "not stored within %g s, and given up at the end of the experiment: %s; check "
                "whether the storage still answers",
                _COMMITS_S,
                ", ".join(unfinished),
            )

    def _submit(self, job: Callable[[], Any], then: Callable[[Any], None], what: str) -> None:
        if self._commits is None:
            self._commits = self._make_commit_pool()
            self._service.watch(self._commits, self._commits.run_done)
        self._commits.submit(job, then, what)
