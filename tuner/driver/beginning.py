"""How a run begins: with a new experiment, or with one that is continued."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tuner import capabilities
from tuner.callbacks.callback import Callback
from tuner.callbacks.console.silent import SilentConsole
from tuner.core.events import Event
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.execution.local import orphans
from tuner.journal.segments import START, JournalPosition
from tuner.restore.snapshot_state import ExperimentState, Restored
from tuner.spec.experiment_location import check_unused, number_remark, replace_experiment
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.spec.param_space import secret_hints
from tuner.spec.record import write_declaration
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.declaration import is_experiment
from tuner.storage.layout import NODE_PROOF_PREFIX
from tuner.storage.lock import ExperimentLock

from .checkpoint_store import CheckpointStore
from .storage_session import StorageSession

_log = logging.getLogger("tuner")


class Beginning:
    """Begins a new experiment; `ContinuedExperiment` overrides what a restore does otherwise.

    Args:
        spec: What was declared.
        directory: The directory in which the driver works.
        storage: Where the experiment is kept.

    Attributes:
        remarks: What the user is told at the start.
        steals: Whether a driver that holds the experiment is killed.
    """

    steals = False

    def __init__(self, spec: ExperimentSpec, directory: Path, storage: StorageSession) -> None:
        self.remarks = [spec.remark]
        self._spec = spec
        self._directory = directory
        self._storage = storage

    def hints(self, plain: Sequence[str], withheld: Sequence[str]) -> Iterable[str]:
        """Return what to write in place of secrets that are plain text."""
        return secret_hints(plain, withheld)

    @contextlib.contextmanager
    def opened(self, lock: ExperimentLock, settings: ExperimentSettings) -> Iterator[None]:
        """Prepare the directory, whose lock is held; on an error a new experiment is removed."""
        self._make_room()
        lock.note_segment(0, 0)  # there may be a note of an experiment that was replaced
        try:
            self._storage.begin()
            write_declaration(self._spec, settings, self._directory)
            yield
        except Exception:
            from tuner.journal.removal import withdraw  # noqa: PLC0415  (after errors only)

            with contextlib.suppress(OSError, StorageError):
                withdraw(self._directory)
            raise

    def take_over(
        self, settings: ExperimentSettings, configs: ConfigCodec
    ) -> tuple[JournalPosition, ExperimentSpec, Restored]:
        """Return where the journal goes on, the specification, and the experiment's state."""
        state = ExperimentState.new(self._spec, settings, configs)
        return START, self._spec, Restored(state, 0.0, ())

    def clean_up(self, store: CheckpointStore, trials: Sequence[Trial]) -> None:
        """Delete checkpoints that no earlier driver has deleted."""

    def first_events(
        self, spec: ExperimentSpec, settings: ExperimentSettings, restored: Restored
    ) -> list[Event]:
        """Return what the driver folds first."""
        return []

    def announce(
        self, console: SilentConsole, callbacks: Sequence[Callback], restored: Restored
    ) -> None:
        """Show what has changed, and add to log files and trackers what they lack."""

    def remark_at_end(self, spec: ExperimentSpec, trials: Sequence[Trial]) -> str:
        """Return that there was nothing to run; empty if there was."""
        return ""

    def _make_room(self) -> None:
        """Clear or check the directory, and note a remark for the user."""
        if self._spec.run.if_exists == "replace":
            self._storage.replace()
            if is_experiment(self._directory):
                # They would write into the new experiment, whose trials may have the same names.
                end_former_trials(self._directory)
            self.remarks.append(replace_experiment(self._directory))
        else:
            check_unused(self._directory)
            self.remarks.append(number_remark(self._spec, self._directory))


def end_former_trials(directory: Path) -> None:
    """Return once no trial of an earlier driver writes into the experiment's directory."""
    if any(directory.glob(f"{NODE_PROOF_PREFIX}*")):
        capabilities.await_former_nodes(directory)
    for orphan in orphans.kill_orphans(directory):
        _log.warning(
            "%s was still running, left behind by a trial of a driver that is dead; it has "
            "been killed",
            orphan,
        )
