"""Workers that have said their last word of one attempt and wait for the next one of the same trial."""

from __future__ import annotations

from typing import final

from tuner.core.commands import StartWorker

from .remote_worker import RemoteWorker
from .wire import Birth


@final
class StayingWorkers:
    """Keeps them for as long as it takes the driver to hear that they stay and to answer with a start, and no longer.

    What a worker occupies counts as free as soon as the end of its attempt has been told.
    """

    def __init__(self) -> None:
        self._by_trial: dict[str, RemoteWorker] = {}

    def add(self, worker: RemoteWorker) -> None:
        """Take in a worker that stays."""
        self._by_trial[worker.trial_id] = worker

    def tell(self) -> None:
        """Take note that the driver hears now of all that has happened."""
        for worker in self._by_trial.values():
            worker.is_told = True

    def take(self, command: StartWorker, birth: Birth) -> RemoteWorker | None:
        """Give an attempt to the process that has stayed for it; return None if there is none, or it may use other things."""
        worker = self._by_trial.get(command.trial_id)
        if worker is None or (command.resources, command.gpu_ids) != (
            worker.command.resources,
            worker.command.gpu_ids,
        ):
            return None
        del self._by_trial[command.trial_id]
        worker.take_on(command)
        worker.end.send_birth(birth)
        return worker

    def take_overdue(self) -> list[RemoteWorker]:
        """Return those for which a start has not come although the driver has heard of them; they are no longer kept."""
        overdue = [worker for worker in self._by_trial.values() if worker.is_told]
        for worker in overdue:
            self.discard(worker)
        return overdue

    def discard(self, worker: RemoteWorker) -> bool:
        """Keep the worker no longer; return whether it was kept."""
        is_kept = self._by_trial.get(worker.trial_id) is worker
        if is_kept:
            del self._by_trial[worker.trial_id]
        return is_kept

    def clear(self) -> None:
        """Keep nobody."""
        self._by_trial.clear()
