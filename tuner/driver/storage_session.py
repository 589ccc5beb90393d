"""Where a run keeps its experiment: in a directory, or also in an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tuner import capabilities
from tuner.execution.executor import Executor
from tuner.journal.writer import Journal
from tuner.spec.experiment_location import ExperimentLocation
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.storage.lock import ExperimentLock

from .control import Source

if TYPE_CHECKING:
    from tuner.stores.journal_mirror import JournalMirror
    from tuner.stores.object_checkpoints import ObjectCheckpoints


class StorageSession:
    """Keeps an experiment in its directory alone, where the driver writes everything itself.

    `RemoteSession` does what is needed beside that for an object store. Its context is entered when
    the lock of the directory is held.

    Args:
        directory: The experiment's directory.

    Attributes:
        url: Its URL in an object store; empty without one.
        checkpoints: The checkpoints in an object store; None without one.
    """

    checkpoints: ObjectCheckpoints | None = None

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = ""

    @property
    def place(self) -> str:
        """The URL or the directory, for messages."""
        return self.url or str(self._directory)

    def prepare(self) -> None:
        """Check that the storage can be used, before anything else is done.

        Raises:
            StorageError: If it cannot.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Store what is left."""

    def replace(self) -> None:
        """Remove an experiment that is to be replaced, but for its directory."""

    def begin(self) -> None:
        """Begin a new experiment in the directory, which is empty.

        Raises:
            StorageError: If there is one, or another driver has taken over.
        """

    def resume(self, lock: ExperimentLock, *, is_salvage: bool) -> None:
        """Bring the directory up to date, from which the experiment is restored.

        Args:
            lock: The lock of the directory, which is held.
            is_salvage: Whether to continue from what is before damage or a gap.
        """

    def storing(self, executor: Executor) -> Executor:
        """Return an executor whose checkpoints count once they are stored."""
        return executor

    def open_mirror(self) -> JournalMirror | None:
        """Return what copies the journal that is to be opened; None for nothing."""
        return None

    def start(self, journal: Journal, wake: Callable[[], None]) -> None:
        """Begin to copy journal and files.

        Args:
            journal: The journal, opened with the mirror.
            wake: Has the driver look whether another one has taken over.
        """

    def request_sources(self, wake: Callable[[], None]) -> Sequence[Source]:
        """Return where requests from other machines come from."""
        return ()


def storage_session(
    spec: ExperimentSpec, location: ExperimentLocation, *, steal: bool
) -> StorageSession:
    """Return where a run keeps its experiment.

    Args:
        spec: What was declared.
        location: Where the experiment is.
        steal: Whether to take over from a driver that runs.
    """
    if not location.url:
        return StorageSession(location.directory)
    session: StorageSession = capabilities.RemoteSession(location, spec.run, steal=steal)
    return session
