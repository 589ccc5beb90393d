"""What an experiment consists of between two events, how it is put into words, and how it is brought back from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedulers.decisions import Reason
from schedulers.scheduler import Scheduler

from .best_trials import BestTrials
from .checkpoints import CheckpointManager
from .commands import Outbox
from .deadlines import earliest
from .exploits import ExploitTracker
from .failure_causes import FailureTally
from .metric_watch import MetricWatch
from .policies import Policies
from .scheduler_view import LiveExperimentView
from .settings import ExperimentSettings
from .stoppers import Stopper
from .suggestion_budget import SuggestionBudget
from .timeouts import Timeouts
from .tracked_metric import TrackedMetric
from .trial import Intention, Status, TerminationReason, Trial, WorkerState
from .trial_json import intention_fields, intention_from
from .trial_table import TrialTable


@dataclass(frozen=True, slots=True)
class Report:
    """A result whose worker waits for the answer.

    Attributes:
        trial: Whose.
        result: The result, nested as reported, with ``config``; what the trial's last result is going to be.
        flat: The same flattened, without ``config``.
    """

    trial: Trial
    result: dict[str, Any]
    flat: Mapping[str, Any]


class ExperimentState:
    """What an experiment consists of, and what that says about it; `Experiment` changes it.

    Attributes:
        settings: What was declared.
        trial_table: Every trial and where it stands; read-only to others.
        best: The trials in the order of their newest values.
        suggestion_budget: The account with the searcher; read-only to others.
        policies: Scheduler and stopper, and what they have said.
        stall_reason: Why the experiment ended with work left undone; empty where it did not.
        fatal_error: Why it cannot go on as it was declared; empty where it can.
    """

    def __init__(
        self, settings: ExperimentSettings, scheduler: Scheduler, stopper: Stopper
    ) -> None:
        """Create an experiment without trials."""
        self.settings = settings
        self.trial_table = TrialTable(settings.capacity, settings.max_concurrent)
        self.exploits = ExploitTracker(self.trial_table)
        self.best = BestTrials(settings.metric, settings.mode)
        self.policies = Policies(scheduler, stopper)
        self.suggestion_budget = SuggestionBudget(settings.max_trials)
        scheduler.experiment = LiveExperimentView(
            self.trial_table, self.suggestion_budget, lambda: self.settings
        )
        self._waiting: dict[str, Report] = {}
        self._stirring: dict[str, Trial] = {}
        """Paused trials that wait for nobody's word but for a checkpoint, or not even that."""
        self._now_s = 0.0
        self._is_routine = False
        self._out = Outbox()
        self._begin_session(settings)

    def _begin_session(self, settings: ExperimentSettings) -> None:
        """Take over the settings that hold for one driver's life; no worker is alive."""
        if (settings.metric, settings.mode) != (self.settings.metric, self.settings.mode):
            self.best = BestTrials(settings.metric, settings.mode)
            for trial in self.trial_table.trials:
                trial.objective = TrackedMetric()
            self.best.recall(self.trial_table.trials)
        self._retries = settings.retries
        self.settings = settings
        self._begin_watching()
        self.stall_reason = self.fatal_error = ""
        self.trial_table.move_to(settings.capacity, settings.max_concurrent)
        self._checkpoints = CheckpointManager(settings.checkpoints)
        self.suggestion_budget.resume(settings.max_trials)
        self._timeouts = Timeouts(settings.report_timeout_s, settings.stop_grace_s)
        self.policies.time_budget_s = settings.time_budget_s
        self._typical_request = settings.default_request
        self._stopping: Intention | None = None
        self._is_unsettled = True

    def _begin_watching(self) -> None:
        """Begin to watch for a metric that is not reported and for common failures; the trials so far are of earlier sessions."""
        settings, trials = self.settings, self.trial_table.trials
        self._metric_watch = MetricWatch(
            settings.watched_metrics, is_required=settings.is_metric_required, trials=trials
        )
        self._failure_tally = FailureTally(settings.max_common_failures, trials)

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials in the order of their suggestion; live, not to be modified."""
        return self.trial_table.trials

    @property
    def is_finished(self) -> bool:
        """Whether no trial will ever run again in this session; paused ones outlast an interruption."""
        if self.trial_table.live:  # mostly, and this is asked twice in each turn
            return False
        is_interrupted = (
            self._stopping is not None and self._stopping.ending is TerminationReason.INTERRUPTED
        )
        is_at_rest = (
            not self.trial_table.num_by_status[Status.PENDING]
            if is_interrupted
            else self.trial_table.is_at_rest
        )
        # A searcher may take minutes for its answer. Where the experiment stops, what it would propose is not going to run.
        return is_at_rest and (self._stopping is not None or self.suggestion_budget.is_closed)

    @property
    def stop_reason(self) -> Reason | None:
        """Why the experiment winds down before all its trials have had their turn; None if it does not."""
        return self._stopping.reason if self._stopping else None

    def next_deadline_s(self) -> float | None:
        """Return the experiment time at which a turn is due even if nothing happens; None if there is no such time."""
        # What was admitted last and has come to nothing leaves its slot to the next one in the backlog.
        has_more_to_admit = self._is_unsettled and self.trial_table.backlog
        own_s = self._now_s if has_more_to_admit else self.policies.next_s
        return earliest(
            self._timeouts.next_s, self.trial_table.ready.next_s, None if self._stopping else own_s
        )

    def check(self) -> None:
        """Assert every invariant; for tests, since it looks at all trials."""
        self.trial_table.check()
        waiting = {
            trial_id
            for trial_id, trial in self.trial_table.live.items()
            if trial.worker is WorkerState.WAITING
        }
        assert set(self._waiting) <= waiting, "an answer owed to nobody"
        assert self.suggestion_budget.num_outstanding >= 0, "more suggestions than were asked for"

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the end of a turn as JSON values, without that of the trials, scheduler and stopper."""
        assert not self._waiting, "a turn is under way"
        return {
            "settings": self.settings.as_fields(),
            "roster": self.trial_table.state_dict(),
            "metric_watch": self._metric_watch.state_dict(),
            "failure_tally": self._failure_tally.state_dict(),
            "desk": self.suggestion_budget.state_dict(),
            "patience": self._timeouts.state_dict(),
            "typical_request": dict(self._typical_request),
            "stopping": intention_fields(self._stopping),
            "is_unsettled": self._is_unsettled,
            "stall": self.stall_reason,
            "misuse": self.fatal_error,
        }

    def load_state_dict(self, state: Mapping[str, Any], trials: Iterable[Trial]) -> None:
        """Take back all trials, in their order, and what `state_dict` returned; the experiment is new."""
        self._begin_session(ExperimentSettings.from_fields(state["settings"]))
        self.trial_table.load_state_dict(state["roster"], trials)
        self.exploits.load(self.trial_table.trials)
        self._stirring = {
            trial_id: trial
            for trial_id, trial in self.trial_table.paused.items()
            if trial.exploit or trial.is_to_resume
        }
        (self.best.recall if "best" in state else self.best.load)(
            self.trial_table.trials
        )  # earlier releases have a board of their own
        self._begin_watching()  # by the trials that are there now
        if "failure_tally" in state:
            self._failure_tally.load_state_dict(state["failure_tally"])
        if "metric_watch" in state:  # earlier releases did not look for it
            self._metric_watch.load_state_dict(state["metric_watch"], self.trial_table.__getitem__)
        self.suggestion_budget.load_state_dict(state["desk"])
        self._timeouts.load_state_dict(state["patience"])
        self._typical_request = state["typical_request"]
        self._stopping = intention_from(state["stopping"])
        self._is_unsettled = state["is_unsettled"]
        self.stall_reason = state["stall"]
        self.fatal_error = state["misuse"]
