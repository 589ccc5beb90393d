"""Requests for leases: who may make one, and that no time limit runs while a process waits."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from .commands import GrantLease, Outbox, RefuseLease
from .events import LeaseOwner, LeaseReleased, LeaseRequested
from .leases import LeaseQueue
from .resources import Request
from .timeouts import Timeouts
from .trial import Trial, WorkerState
from .trial_table import TrialTable
from .validation_queue import ValidationQueue


@final
class LeaseManager:
    """Handles the requests of workers and validators for leases.

    A process that waits for a lease is not late: neither the report timeout of a trial nor the time
    limit of a validation runs meanwhile.

    Args:
        trial_table: The trials.
        validations: The validations.
        out: Receives the commands.

    Attributes:
        queue: The leases.
    """

    def __init__(self, trial_table: TrialTable, validations: ValidationQueue, out: Outbox) -> None:
        self.queue = LeaseQueue(trial_table)
        self._trial_table = trial_table
        self._validations = validations
        self._out = out
        self._timeouts: Timeouts

    def begin_session(self, timeouts: Timeouts) -> None:
        """Use the timeouts of a new session."""
        self._timeouts = timeouts

    def on_requested(self, event: LeaseRequested, now_s: float) -> None:
        """Queue a request, or refuse it if it could never be granted."""
        owner = event.owner
        if owner not in self._running_owners():
            return
        trial = self._trial_table[owner.trial_id]
        if owner.index is None:
            own: Request | None = trial.request
            if trial.worker is WorkerState.TRAINING:
                self._timeouts.suspend(trial.trial_id)  # until it has its answer
        else:
            validation = trial.validations[owner.index]
            own = None if validation.is_apart else validation.resources
            self._validations.suspend_time_limit(owner.trial_id, owner.index, now_s)
        if refusal := self.queue.request(event, own):
            self._answer(refusal, now_s)

    def on_released(self, event: LeaseReleased, now_s: float) -> None:
        """End a lease, or withdraw the request."""
        owner = event.owner
        is_withdrawn = self.queue.release(owner, event.token)
        self._resume_time_limit(owner, now_s)
        trial = self._trial_table.live.get(owner.trial_id)
        if is_withdrawn and owner.index is None and trial and trial.attempt == owner.attempt:
            self._expect_report_again(trial, now_s)

    def answer_waiting(self, now_s: float, *, is_stopping: bool) -> None:
        """Grant the leases that fit; where the experiment stops, refuse all that wait."""
        if not self.queue.is_waiting:
            return
        answers = (
            self.queue.refuse_all("the experiment is stopping")
            if is_stopping
            else self.queue.grant()
        )
        for answer in answers:
            self._answer(answer, now_s)

    def resolve_deadlock(self, blocked: Collection[LeaseOwner], now_s: float) -> None:
        """Refuse a lease if every process waits for what the others hold.

        Args:
            blocked: Processes that wait for something else than a lease, see `LeaseQueue`.
            now_s: Experiment time.
        """
        if answer := self.queue.resolve_deadlock(self._running_owners(), blocked):
            self._answer(answer, now_s)

    def check(self) -> None:
        """Assert every invariant; for tests."""
        self.queue.check(self._running_owners())

    def _running_owners(self) -> list[LeaseOwner]:
        """Return all processes that may hold a lease."""
        workers = [
            LeaseOwner(trial.trial_id, trial.attempt) for trial in self._trial_table.live.values()
        ]
        return workers + [
            LeaseOwner(trial_id, self._trial_table[trial_id].validations[index].num_try, index)
            for trial_id, index in self._validations.running
        ]

    def _answer(self, answer: GrantLease | RefuseLease, now_s: float) -> None:
        self._out.commands.append(answer)
        if answer.owner.index is None:
            self._expect_report_again(self._trial_table[answer.owner.trial_id], now_s)
        self._resume_time_limit(answer.owner, now_s)

    def _expect_report_again(self, trial: Trial, now_s: float) -> None:
        """Start the report timeout of a trial that has waited for a lease, unless it still does."""
        is_waiting = self.queue.is_waiting_for(LeaseOwner(trial.trial_id, trial.attempt))
        if trial.worker is WorkerState.TRAINING and not is_waiting:
            self._timeouts.expect_report(trial.trial_id, now_s)

    def _resume_time_limit(self, owner: LeaseOwner, now_s: float) -> None:
        """Let the time limit of a validation run on unless it still waits for a lease."""
        if owner.index is not None and not self.queue.is_waiting_for(owner):
            self._validations.resume_time_limit(owner.trial_id, owner.index, now_s)
