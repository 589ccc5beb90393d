"""Requests of training code for the list of its checkpoints, see `CheckpointsRequested`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tuner.core.commands import ListCheckpoints, Outbox
from tuner.core.events import CheckpointsRequested, LeaseOwner
from tuner.core.trial import Trial
from tuner.core.trial_table import TrialTable
from tuner.core.worker_records import COMMITTED

from .queue import ValidationQueue
from .records import TrialValidations


@final
class CheckpointRequests:
    """Answers each request once the checkpoints are as it wants them.

    Args:
        trial_table: The trials.
        validations: The validations.
        out: Receives the commands.
    """

    def __init__(self, trial_table: TrialTable, validations: ValidationQueue, out: Outbox) -> None:
        self._trial_table = trial_table
        self._validations = validations
        self._out = out
        self._waiting: list[CheckpointsRequested] = []

    def __bool__(self) -> bool:
        """Return whether any request waits."""
        return bool(self._waiting)

    def add(self, request: CheckpointsRequested) -> None:
        """Queue a request until the turn ends."""
        self._waiting.append(request)

    def clear(self) -> None:
        """Forget all requests, since the processes that made them are gone."""
        self._waiting.clear()

    def answer(self) -> None:
        """Answer the requests that need not wait; drop those of workers that have left since."""
        waiting: list[CheckpointsRequested] = []
        for request in self._waiting:
            trial = self._trial_table.live.get(request.trial_id)
            if trial is None or trial.attempt != request.attempt:
                continue
            is_open = (request.waits_for_uploads and bool(trial.uploads)) or (
                request.waits_for_validation and trial.has_open_validation
            )
            if is_open and not self._validations.is_interrupted:
                waiting.append(request)
            else:
                self._out.commands.append(_answer(request, trial))
        self._waiting = waiting

    @property
    def blocked_by_validations(self) -> set[LeaseOwner]:
        """The processes that wait for nothing but validations."""
        return {
            LeaseOwner(request.trial_id, request.attempt)
            for request in self._waiting
            # A checkpoint that is still being stored needs no lease.
            if not (request.waits_for_uploads and self._trial_table[request.trial_id].uploads)
        }

    def state_dict(self) -> list[list[Any]]:
        """Return the requests as JSON values."""
        return [
            [
                each.trial_id,
                each.attempt,
                each.token,
                each.waits_for_validation,
                each.waits_for_uploads,
            ]
            for each in self._waiting
        ]

    def load_state_dict(self, state: Sequence[Sequence[Any]]) -> None:
        """Restore what `state_dict` returned."""
        self._waiting = [CheckpointsRequested(*request) for request in state]


def _answer(request: CheckpointsRequested, trial: Trial) -> ListCheckpoints:
    known = trial.validation_part or TrialValidations()
    checkpoints = [
        (
            checkpoint,
            known.checkpoint_results.get(checkpoint.index, {}),
            known.validations[checkpoint.index].status
            if checkpoint.index in known.validations
            else COMMITTED,
        )
        for checkpoint in trial.checkpoints
    ]
    return ListCheckpoints(trial.trial_id, trial.attempt, request.token, checkpoints)
