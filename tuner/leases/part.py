"""Requests for leases: who may make one, and that no time limit runs while a process waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from tuner.core.commands import GrantLease, RefuseLease
from tuner.core.events import LeaseOwner, LeaseReleased, LeaseRequested
from tuner.core.part import Part
from tuner.core.resources import Request
from tuner.core.trial import Trial, WorkerState

from .queue import LeaseQueue

if TYPE_CHECKING:
    from tuner.core.experiment import Experiment


@final
class Leases(Part):
    """Handles the requests of workers and validators for leases.

    A process that waits for a lease is not late: neither the report timeout of a trial nor the time
    limit of a validation runs meanwhile.

    Args:
        core: The state machine.
    """

    def __init__(self, core: Experiment) -> None:
        super().__init__(core)
        self._queue = LeaseQueue(core.trial_table)

    def end_processes(self) -> None:
        """End all leases."""
        self._queue.clear()

    def handle(self, event: LeaseRequested | LeaseReleased) -> None:
        """Queue, refuse or withdraw a request, or end a lease."""
        if isinstance(event, LeaseRequested):
            self._on_requested(event)
        else:
            self._on_released(event)

    def claim(self) -> None:
        """Grant the leases that fit; where the experiment stops, refuse all that wait."""
        if not self._queue.is_waiting:
            return
        answers = (
            self._queue.refuse_all("the experiment is stopping")
            if self._core.is_stopping
            else self._queue.grant()
        )
        for answer in answers:
            self._answer(answer)

    def reserve(self) -> None:
        """Keep new trials from taking what the next lease waits for."""
        self._queue.reserve()

    def resolve_deadlock(self) -> None:
        """Refuse a lease if every process waits for what the others hold."""
        if not self._queue.is_waiting:
            return
        blocked = self._core.unanswered.owners.union(*(part.blocked for part in self._core.parts))
        if answer := self._queue.resolve_deadlock(self._running_owners(), blocked):
            self._answer(answer)

    @property
    def stuck(self) -> set[LeaseOwner]:
        """Processes that wait for a lease."""
        return self._queue.waiting_owners

    def end_process(self, owner: LeaseOwner) -> None:
        """End all leases of a process that is gone, and withdraw its requests."""
        self._queue.end_owner(owner)

    def add_state(self, fields: dict[str, Any]) -> None:
        """Add all leases."""
        if leases := self._queue.state_dict():
            fields["leases"] = leases

    def load_state(self, fields: Mapping[str, Any]) -> None:
        """Restore all leases."""
        self._queue.load_state_dict(fields["leases"])

    def check(self) -> None:
        """Assert every invariant."""
        self._queue.check(self._running_owners())

    def _on_requested(self, event: LeaseRequested) -> None:
        owner = event.owner
        if owner not in self._running_owners():
            return
        trial = self._core.trial_table[owner.trial_id]
        if owner.index is None:
            own: Request | None = trial.request
            if trial.worker is WorkerState.TRAINING:
                self._core.timeouts.suspend(trial.trial_id)  # until it has its answer
        else:
            validation = trial.validations[owner.index]
            own = None if validation.is_apart else validation.resources
            for part in self._core.parts:
                part.suspend_time_limit(owner)
        if refusal := self._queue.request(event, own):
            self._answer(refusal)

    def _on_released(self, event: LeaseReleased) -> None:
        owner = event.owner
        is_withdrawn = self._queue.release(owner, event.token)
        self._resume_time_limit(owner)
        trial = self._core.trial_table.live.get(owner.trial_id)
        if is_withdrawn and owner.index is None and trial and trial.attempt == owner.attempt:
            self._expect_report_again(trial)

    def _running_owners(self) -> Sequence[LeaseOwner]:
        """Return all processes that may hold a lease."""
        owners = [
            LeaseOwner(trial.trial_id, trial.attempt)
            for trial in self._core.trial_table.live.values()
        ]
        for part in self._core.parts:
            owners += part.processes
        return owners

    def _answer(self, answer: GrantLease | RefuseLease) -> None:
        self._core.out.commands.append(answer)
        if answer.owner.index is None:
            self._expect_report_again(self._core.trial_table[answer.owner.trial_id])
        self._resume_time_limit(answer.owner)

    def _expect_report_again(self, trial: Trial) -> None:
        """Start the report timeout of a trial that has waited for a lease, unless it still does."""
        is_waiting = self._queue.is_waiting_for(LeaseOwner(trial.trial_id, trial.attempt))
        if trial.worker is WorkerState.TRAINING and not is_waiting:
            self._core.timeouts.expect_report(trial.trial_id, self._core.now_s)

    def _resume_time_limit(self, owner: LeaseOwner) -> None:
        """Let the time limit of a validation run on unless it still waits for a lease."""
        if owner.index is not None and not self._queue.is_waiting_for(owner):
            for part in self._core.parts:
                part.resume_time_limit(owner)
