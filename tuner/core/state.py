"""What an experiment consists of between two events, how it is put into words, and how it is brought back from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedulers.decisions import Reason
from schedulers.scheduler import Scheduler

from .best_trials import Leaderboard
from .checkpoints import CheckpointKeeper
from .commands import Outbox
from .deadlines import earliest
from .exploits import ExploitDesk
from .failure_causes import FailureTally
from .metric_watch import MetricWatch
from .policies import Counsel
from .scheduler_view import ExperimentWindow
from .settings import ExperimentSettings
from .stoppers import Stopper
from .suggestion_budget import SearchDesk
from .timeouts import Patience
from .tracked_metric import TrackedMetric
from .trial import Ending, Intention, Status, Trial, WorkerState
from .trial_json import intention_fields, intention_from
from .trial_table import Roster


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
        roster: Every trial and where it stands; read-only to others.
        best: The trials in the order of their newest values.
        desk: The account with the searcher; read-only to others.
        counsel: Scheduler and stopper, and what they have said.
        stall: Why the experiment ended with work left undone; empty where it did not.
        misuse: Why it cannot go on as it was declared; empty where it can.
    """

    def __init__(
        self, settings: ExperimentSettings, scheduler: Scheduler, stopper: Stopper
    ) -> None:
        """Create an experiment without trials."""
        self.settings = settings
        self.roster = Roster(settings.capacity, settings.max_concurrent)
        self.exploits = ExploitDesk(self.roster)
        self.best = Leaderboard(settings.metric, settings.mode)
        self.counsel = Counsel(scheduler, stopper)
        self.desk = SearchDesk(settings.max_trials)
        scheduler.experiment = ExperimentWindow(self.roster, self.desk, lambda: self.settings)
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
            self.best = Leaderboard(settings.metric, settings.mode)
            for trial in self.roster.trials:
                trial.objective = TrackedMetric()
            self.best.recall(self.roster.trials)
        self._retries = settings.retries
        self.settings = settings
        self._begin_watching()
        self.stall = self.misuse = ""
        self.roster.move_to(settings.capacity, settings.max_concurrent)
        self._keeper = CheckpointKeeper(settings.checkpoints)
        self.desk.resume(settings.max_trials)
        self._patience = Patience(settings.report_timeout_s, settings.stop_grace_s)
        self.counsel.time_budget_s = settings.time_budget_s
        self._typical_request = settings.default_request
        self._stopping: Intention | None = None
        self._is_unsettled = True

    def _begin_watching(self) -> None:
        """Begin to watch for a metric that is not reported and for common failures; the trials so far are of earlier sessions."""
        settings, trials = self.settings, self.roster.trials
        self._metric_watch = MetricWatch(
            settings.watched_metrics, is_required=settings.is_metric_required, trials=trials
        )
        self._failure_tally = FailureTally(settings.max_common_failures, trials)

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials in the order of their suggestion; live, not to be modified."""
        return self.roster.trials

    @property
    def is_finished(self) -> bool:
        """Whether no trial will ever run again in this session; paused ones outlast an interruption."""
        if self.roster.live:  # mostly, and this is asked twice in each turn
            return False
        is_interrupted = self._stopping is not None and self._stopping.ending is Ending.INTERRUPTED
        is_at_rest = (
            not self.roster.num_by_status[Status.PENDING]
            if is_interrupted
            else self.roster.is_at_rest
        )
        # A searcher may take minutes for its answer. Where the experiment stops, what it would propose is not going to run.
        return is_at_rest and (self._stopping is not None or self.desk.is_closed)

    @property
    def stop_reason(self) -> Reason | None:
        """Why the experiment winds down before all its trials have had their turn; None if it does not."""
        return self._stopping.reason if self._stopping else None

    def next_deadline_s(self) -> float | None:
        """Return the experiment time at which a turn is due even if nothing happens; None if there is no such time."""
        # What was admitted last and has come to nothing leaves its slot to the next one in the backlog.
        has_more_to_admit = self._is_unsettled and self.roster.backlog
        own_s = self._now_s if has_more_to_admit else self.counsel.next_s
        return earliest(
            self._patience.next_s, self.roster.ready.next_s, None if self._stopping else own_s
        )

    def check(self) -> None:
        """Assert every invariant; for tests, since it looks at all trials."""
        self.roster.check()
        waiting = {
            trial_id
            for trial_id, trial in self.roster.live.items()
            if trial.worker is WorkerState.WAITING
        }
        assert set(self._waiting) <= waiting, "an answer owed to nobody"
        assert self.desk.num_outstanding >= 0, "more suggestions than were asked for"

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the end of a turn as JSON values, without that of the trials, scheduler and stopper."""
        assert not self._waiting, "a turn is under way"
        return {
            "settings": self.settings.as_fields(),
            "roster": self.roster.state_dict(),
            "metric_watch": self._metric_watch.state_dict(),
            "failure_tally": self._failure_tally.state_dict(),
            "desk": self.desk.state_dict(),
            "patience": self._patience.state_dict(),
            "typical_request": dict(self._typical_request),
            "stopping": intention_fields(self._stopping),
            "is_unsettled": self._is_unsettled,
            "stall": self.stall,
            "misuse": self.misuse,
        }

    def load_state_dict(self, state: Mapping[str, Any], trials: Iterable[Trial]) -> None:
        """Take back all trials, in their order, and what `state_dict` returned; the experiment is new."""
        self._begin_session(ExperimentSettings.from_fields(state["settings"]))
        self.roster.load_state_dict(state["roster"], trials)
        self.exploits.load(self.roster.trials)
        self._stirring = {
            trial_id: trial
            for trial_id, trial in self.roster.paused.items()
            if trial.exploit or trial.is_to_resume
        }
        (self.best.recall if "best" in state else self.best.load)(
            self.roster.trials
        )  # earlier releases have a board of their own
        self._begin_watching()  # by the trials that are there now
        if "failure_tally" in state:
            self._failure_tally.load_state_dict(state["failure_tally"])
        if "metric_watch" in state:  # earlier releases did not look for it
            self._metric_watch.load_state_dict(state["metric_watch"], self.roster.__getitem__)
        self.desk.load_state_dict(state["desk"])
        self._patience.load_state_dict(state["patience"])
        self._typical_request = state["typical_request"]
        self._stopping = intention_from(state["stopping"])
        self._is_unsettled = state["is_unsettled"]
        self.stall = state["stall"]
        self.misuse = state["misuse"]
