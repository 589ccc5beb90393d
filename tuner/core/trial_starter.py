"""Starts of trials: ready ones take free slots, and the searcher is asked to fill the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, final

from schedulers.decisions import Reason
from tuner.wire.declared import decode, encode

from .checkpoints import CheckpointManager
from .commands import AskSearcher, Outbox, StartWorker, TrialStarted
from .exploits import ExploitTracker
from .resources import Demand, amounts_of, demand_of
from .settings import ExperimentSettings
from .timeouts import Timeouts
from .trial import Status, Trial
from .trial_table import TrialTable
from .worker_records import WorkerGroup

_MAX_STUCK: Final = 16
"""How many trials that no node could run are suggested before others have to wait for them."""


class SuggestionBudget:
    """Counts the suggestions requested from the searcher, and decides whether to request more.

    Attributes:
        is_postponed: Whether the searcher wants to see another result first.
        num_outstanding: How many configurations were asked for and have not yet come.
        has_news: Whether there has been progress since the last one was asked for.
        why_ended: Why the search has ended although it could go on; None where it did not.
    """

    def __init__(self, max_trials: int | None) -> None:
        """Create a budget of at most `max_trials` configurations, None for no limit."""
        self._max_trials = max_trials
        self._num_asked = 0
        self._num_refused = 0
        self._has_ended = False
        self._ended_for = ""
        self.why_ended: Reason | None = None
        self._is_suspended = False
        self.has_news = False
        self.num_outstanding = 0
        self.is_postponed = False

    @property
    def is_over(self) -> bool:
        """Whether no further configuration is going to be asked for in this session."""
        return self._is_suspended or self.is_exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether no further configuration is going to be asked for, in a later session either."""
        return self._has_ended or self._num_remaining <= 0

    @property
    def is_open(self) -> bool:
        """Whether a configuration may be asked for now."""
        return not (self.is_postponed or self.is_over)

    def num_left(self, limit: int) -> int:
        """Return how many may be asked for now, counting no further than `limit`."""
        if not self.is_open:
            return 0
        return int(min(self._num_remaining, limit))

    @property
    def _num_remaining(self) -> float:
        """How many may still be asked for; a question that ended the search has used up none."""
        if self._max_trials is None:
            return math.inf
        return self._max_trials - (self._num_asked - self._num_refused)

    @property
    def is_closed(self) -> bool:
        """Whether no further configuration will come."""
        return self.is_over and not self.num_outstanding

    def request(self, num_wanted: int) -> list[str]:
        """Return the ids of the trials whose configurations are to be asked for now."""
        if not self.is_open:
            return []
        # News since the first outstanding request still count for that one.
        if not self.num_outstanding:
            self.has_news = False
        num = int(min(max(num_wanted - self.num_outstanding, 0), self._num_remaining))
        first = self._num_asked
        self._num_asked += num
        self.num_outstanding += num
        return [f"t{index:05d}" for index in range(first, first + num)]

    def on_progress(self) -> bool:
        """Record news for the searcher; return whether it had postponed its suggestion."""
        had_waited, self.is_postponed = self.is_postponed, False
        self.has_news = True
        return had_waited

    def on_suggested(self) -> None:
        """Record that a configuration has come."""
        self.num_outstanding -= 1

    def on_postponed(self) -> None:
        """Ask again only after another result, unless one has come since the searcher was asked.

        The id is given out again, so all younger ids that are still outstanding have to be
        postponed as well.
        """
        self.num_outstanding -= 1
        self._num_asked -= 1
        # A result that came while the searcher was thinking may be the one that it waits for.
        self.is_postponed = not self.has_news

    def on_search_ended(self, declaration: str = "", why: Reason | None = None) -> None:
        """Record that the searcher proposes nothing more, as it was declared."""
        self.num_outstanding -= 1
        self._num_refused += 1
        self._has_ended = True
        self._ended_for = declaration
        self.why_ended = why

    def why_ended_for(self, declaration: str) -> Reason | None:
        """Return why the search stays ended, as it is declared; None where it goes on."""
        return self.why_ended if declaration == self._ended_for else None

    def suspend(self) -> None:
        """Ask for nothing more in this session."""
        self._is_suspended = True

    def begin_session(self, max_trials: int | None, declaration: str = "") -> None:
        """Ask again, for at most `max_trials` configurations in all: another session has begun.

        What the last session asked for and has not got will never come, and its ids are given out
        again. Another declaration than that for which the search has ended may have more to
        propose.
        """
        self._max_trials = max_trials
        self._has_ended &= declaration == self._ended_for
        self.why_ended = self.why_ended_for(declaration)
        self._is_suspended = False
        self._num_asked -= self.num_outstanding
        self.num_outstanding = 0
        self.is_postponed = False

    def state_dict(self) -> dict[str, Any]:
        """Return the account as JSON values."""
        return {
            "max_trials": self._max_trials,
            "num_asked": self._num_asked,
            "num_refused": self._num_refused,
            "has_ended": self._has_ended,
            "ended_for": self._ended_for,
            "is_suspended": self._is_suspended,
            "has_heard": self.has_news,
            "num_outstanding": self.num_outstanding,
            "is_postponed": self.is_postponed,
            **({"why_ended": encode(self.why_ended)} if self.why_ended else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._max_trials = state["max_trials"]
        self._num_asked = state["num_asked"]
        self._num_refused = state["num_refused"]
        self._has_ended = state["has_ended"]
        self._ended_for = state["ended_for"]
        self._is_suspended = state["is_suspended"]
        self.has_news = state["has_heard"]
        self.num_outstanding = state["num_outstanding"]
        self.is_postponed = state["is_postponed"]
        why = state.get("why_ended")
        self.why_ended = decode(Reason, why) if why else None


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
