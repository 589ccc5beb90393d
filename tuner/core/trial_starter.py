"""Starts of trials: ready ones take free slots, and the searcher is asked to fill the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from tuner.wire.declared import decode, encode

from .checkpoints import CheckpointManager
from .commands import AskSearcher, Outbox, StartWorker, TrialStarted
from .exploits import ExploitTracker
from .resources import Demand, amounts_of, demand_of
from .settings import ExperimentSettings
from .suggestion_budget import SuggestionBudget
from .timeouts import Timeouts
from .trial import Status, Trial, WorkerGroup
from .trial_table import TrialTable

_MAX_STUCK: Final = 16
"""How many trials that no node could run are suggested before others have to wait for them."""


@final
class TrialStarter:
    """Starts trials, and counts the slots that are free for others.

    A slot is what the trial that was admitted last asks for.

    Args:
        trial_table: The trials, and the resources.
        exploits: Exploits that wait for a donor to save.
        suggestion_budget: Configurations requested from the searcher.
        out: Receives the commands and notices.

    Attributes:
        typical: What the trial that was admitted last asks for.
    """

    def __init__(
        self,
        trial_table: TrialTable,
        exploits: ExploitTracker,
        suggestion_budget: SuggestionBudget,
        out: Outbox,
    ) -> None:
        self._trial_table = trial_table
        self._exploits = exploits
        self._suggestion_budget = suggestion_budget
        self._out = out
        self.typical = Demand({})
        self._max_pending = 0
        self._checkpoints: CheckpointManager
        self._timeouts: Timeouts

    def begin_session(
        self, settings: ExperimentSettings, checkpoints: CheckpointManager, timeouts: Timeouts
    ) -> None:
        """Use what belongs to a new session."""
        self.typical = settings.usual_demand
        self._max_pending = settings.max_pending
        self._checkpoints = checkpoints
        self._timeouts = timeouts

    def note_admitted(self, trial: Trial) -> None:
        """Count slots by what a trial asks for that was admitted."""
        # Nearly all trials ask for the same resources, and need no dictionary each.
        typical, labels = self.typical
        if not isinstance(typical, WorkerGroup) and trial.resources == typical:
            trial.resources = typical
        if trial.labels == labels:
            trial.labels = labels
        # Of what no node has, there are no slots to count.
        if not self._is_stuck(trial):
            self.typical = demand_of(trial)

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        return self._trial_table.num_free_slots(self.typical)

    @property
    def num_vacant(self) -> int:
        """Number of free slots less the ready trials; negative where too many are ready.

        Trials that no node present could run take no slot from those that one could.
        """
        ready = self._trial_table.ready
        if not len(ready):
            return self.num_free
        num_stuck = sum(num for trial, num in ready.num_by_first if self._is_stuck(trial))
        return self.num_free - (len(ready) - min(num_stuck, _MAX_STUCK))

    def _is_stuck(self, trial: Trial) -> bool:
        nodes = self._trial_table.nodes
        return not nodes.is_local and bool(nodes.shortage(trial.request, trial.labels))

    def start_ready(self, now_s: float) -> None:
        """Start the ready trials that fit."""
        while trial := self._trial_table.pop_startable(now_s):
            is_resumed, has_failed = trial.status is Status.PAUSED, trial.num_failures > 0
            checkpoint = self._checkpoints.lease_start(trial)
            self._trial_table.start(trial, now_s)
            trial.owes_save = self._exploits.has_waiting(trial)
            self._timeouts.expect_start(trial.trial_id, now_s)
            self._out.commands.append(StartWorker.of(trial, checkpoint))
            is_retry = has_failed and not is_resumed
            self._out.notices.append(TrialStarted(trial, is_retry=is_retry, is_resumed=is_resumed))

    def ask_searcher(self) -> None:
        """Ask the searcher for as many configurations as trials could be started with."""
        if not self._suggestion_budget.is_open:
            return
        num_wanted = self.num_vacant
        if self._max_pending:
            num_missing = self._max_pending - len(self._trial_table.backlog)
            num_wanted = max(num_wanted, 0) + num_missing
        trial_ids = self._suggestion_budget.request(num_wanted)
        self._out.commands.extend(AskSearcher(trial_id) for trial_id in trial_ids)

    def state_dict(self) -> dict[str, Any]:
        """Return the size of a slot as JSON values, under the keys of the experiment's state."""
        request, labels = self.typical
        fields: dict[str, Any] = {"typical_request": amounts_of(request)}
        if isinstance(request, WorkerGroup):
            fields["typical_group"] = encode(request)
        if labels:
            fields["typical_labels"] = dict(labels)
        return fields

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, from the state of the experiment."""
        group = state.get("typical_group")
        request = decode(WorkerGroup, group) if group else state["typical_request"]
        self.typical = Demand(request, state.get("typical_labels", {}))
