"""Scheduler and stop criterion: questions to them, their decisions, and what they may see.

A decision is recorded with the event on which it was made. When the event is folded again, the
recorded decision counts, whatever today's scheduler would decide: a trial that was stopped stays
stopped. Scheduler and stopper are asked nevertheless, so that their own state is up to date when
the replay ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, final

from schedulers.decisions import Decision, Exploit, Pause, Reason, Resize, Resume, Save, Stop
from schedulers.scheduler import ExperimentView, NoExperiment, Scheduler, TrialView
from tuner.errors import InvalidDecision

from .failure_causes import COMMON_FAILURE
from .metric_watch import METRIC_NOT_REPORTED
from .recorded_decisions import RecordedDecision, StopExperiment
from .result import TRAINING_ITERATION
from .settings import ExperimentSettings
from .stoppers import STOP, Stopper
from .timeouts import earliest
from .trial import TerminationReason, Trial
from .trial_starter import SuggestionBudget
from .trial_table import TrialTable

TIME_BUDGET: Final = "time_budget"
"""Rule for which an experiment ends whose time budget is used up."""

BUDGET: Final = "budget"
"""Rule for which an experiment ends that has spent another budget."""

_DECISIONS: Final = (Stop, Pause, Resume, Save, Exploit, Resize)


@final
class Policies:
    """Asks scheduler and stopper, or reads what they decided before.

    Args:
        scheduler: The scheduler.
        stopper: The stop criterion.
        time_budget_s: Running time after which the experiment ends; None for no limit.

    Attributes:
        given: The decisions on the current event.
        num_deviations: How often, during a replay, one of them would have decided otherwise than is
            recorded.
    """

    def __init__(
        self, scheduler: Scheduler, stopper: Stopper, time_budget_s: float | None = None
    ) -> None:
        self.scheduler = scheduler
        self.stopper = stopper
        self.time_budget_s = time_budget_s
        self.given: list[RecordedDecision] = []
        self.num_deviations = 0
        self._recorded: Sequence[RecordedDecision] | None = None
        self._num_questions = 0

    def begin(self, recorded: Sequence[RecordedDecision] | None) -> None:
        """Begin the next event.

        Args:
            recorded: What was decided on it when it happened; None where it happens now.
        """
        self.given = []
        self._recorded = recorded
        self._num_questions = 0

    def take_remarks(self) -> Sequence[str]:
        """Return what the scheduler wants the user to know, once."""
        remarks = self.scheduler.remarks
        if remarks:
            self.scheduler.remarks = ()
        return remarks

    @property
    def next_s(self) -> float | None:
        """Experiment time at which `reason_to_end` is due without any event; None for never."""
        return earliest(self.time_budget_s, self.stopper.due_s)

    def reason_to_end(self, now_s: float, own: Reason | None = None) -> Reason | None:
        """Return why the whole experiment has to end now; None if it does not.

        Args:
            now_s: Experiment time.
            own: A reason that the experiment itself has, which counts where time budget and stop
                criterion have none; None for none.
        """
        found = self._ends(now_s) or ((StopExperiment(own),) if own else ())
        decided = self._decide(found)
        # Without a decision, as in nearly every turn, no generator is made.
        if not decided:
            return None
        return next((one.reason for one in decided if isinstance(one, StopExperiment)), None)

    def on_trial_add(self, trial: Trial) -> Sequence[Decision]:
        """See `Scheduler.on_trial_add`, as for all that follow."""
        return self._about_trials(checked(self.scheduler.on_trial_add(trial), self.scheduler))

    def on_trial_result(
        self,
        trial: Trial,
        result: Mapping[str, Any],
        flat: Mapping[str, Any],
        *,
        asks_scheduler: bool = True,
    ) -> Sequence[Decision]:
        """Ask both: the stopper sees the nested result with ``config``, the scheduler `flat`."""
        decisions: list[Decision] = []
        if self.stopper(trial.trial_id, result):
            iteration = {TRAINING_ITERATION: flat.get(TRAINING_ITERATION, 0)}
            reason = Reason(STOP, {**iteration, **self.stopper.numbers(result)})
            decisions.append(Stop(trial.trial_id, reason, is_complete=True))
        # The scheduler is asked even so, since its state depends on every result.
        if asks_scheduler:
            decisions += checked(self.scheduler.on_trial_result(trial, flat), self.scheduler)
        return self._about_trials(decisions)

    def on_trial_validated(
        self, trial: Trial, result: Mapping[str, Any], added: Collection[str]
    ) -> Sequence[Decision]:
        """Ask the stopper about a result to which a validation has added metrics.

        Args:
            trial: The trial.
            result: The result with them, nested, with ``config``.
            added: The flattened names that were not in the result when it was reported.
        """
        decisions: list[Decision] = []
        if self.stopper.on_validated(trial.trial_id, result, added):
            iteration = {TRAINING_ITERATION: result.get(TRAINING_ITERATION, 0)}
            reason = Reason(STOP, {**iteration, **self.stopper.numbers(result)})
            decisions.append(Stop(trial.trial_id, reason, is_complete=True))
        return self._about_trials(decisions)

    def on_late_result(self, trial: Trial, flat: Mapping[str, Any]) -> Sequence[Decision]:
        """Ask the scheduler about a flattened result that has its metric from a validation."""
        decisions = checked(self.scheduler.on_trial_result(trial, flat), self.scheduler)
        return self._about_trials(decisions)

    def on_trial_complete(self, trial: Trial, flat: Mapping[str, Any] | None) -> Sequence[Decision]:
        """Report a trial that has ended."""
        decisions = self.scheduler.on_trial_complete(trial, flat)
        return self._about_trials(checked(decisions, self.scheduler))

    def on_trial_error(self, trial: Trial) -> Sequence[Decision]:
        """Report a trial that has failed for good."""
        return self._about_trials(checked(self.scheduler.on_trial_error(trial), self.scheduler))

    def on_idle(self, paused: Sequence[Trial], num_free_slots: int) -> Sequence[Decision]:
        """Ask what to do with paused trials."""
        decisions = self.scheduler.on_idle(paused, num_free_slots)
        return self._about_trials(checked(decisions, self.scheduler))

    def _ends(self, now_s: float) -> Sequence[StopExperiment]:
        self.stopper.on_tick(now_s)
        if self.time_budget_s is not None and now_s >= self.time_budget_s:
            numbers = {"budget_s": self.time_budget_s, "elapsed_s": now_s}
            return (StopExperiment(Reason(TIME_BUDGET, numbers)),)
        return (StopExperiment(Reason("stopper.stop_all")),) if self.stopper.stop_all() else ()

    def _about_trials(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        decided = self._decide(decisions)
        if not decided:
            return []  # as nearly always
        return [decision for decision in decided if not isinstance(decision, StopExperiment)]

    def _decide(
        self, decisions: Sequence[Decision | StopExperiment]
    ) -> Sequence[Decision | StopExperiment]:
        """Return what counts: the decisions made just now, or those recorded for this question."""
        # Questions without an answer are counted too: they are not recorded, and a replay has to
        # match the recorded answers with the same questions.
        question = self._num_questions
        self._num_questions += 1
        counts = decisions if self._recorded is None else self._recall(question, decisions)
        if counts:
            self.given += [RecordedDecision(question, decision) for decision in counts]
        return counts

    def _recall(
        self, question: int, now: Sequence[Decision | StopExperiment]
    ) -> Sequence[Decision | StopExperiment]:
        if not (self._recorded or now):
            return ()  # as nearly always, and there are two questions to each of 20,000 records
        then = tuple(one.decision for one in self._recorded or () if one.question == question)
        self.num_deviations += list(map(_essence, then)) != list(map(_essence, now))
        return then


def termination_reason_for(reason: Reason) -> TerminationReason:
    """Return how trials end when the experiment does for this reason.

    After a budget or an error they are interrupted, since a later session may have a larger budget
    or corrected code. After a stop criterion they are stopped early.
    """
    if reason.rule in (TIME_BUDGET, BUDGET, METRIC_NOT_REPORTED, COMMON_FAILURE):
        return TerminationReason.INTERRUPTED
    return TerminationReason.STOPPED_EARLY


def _essence(decision: Decision | StopExperiment) -> tuple[object, ...]:
    """Return what is decided without the numbers, which may be NaN and not equal to themselves."""
    match decision:
        case StopExperiment(reason):
            return StopExperiment, reason.rule
        case Stop():
            return Stop, decision.trial_id, decision.is_complete, decision.reason.rule
        case _:
            return type(decision), decision.trial_id, decision.reason.rule


def checked(decisions: Sequence[Decision], scheduler: Scheduler) -> Sequence[Decision]:
    """Return what a scheduler, which may be the user's own, has returned.

    Raises:
        InvalidDecision: If it is not a list of decisions.
    """
    # The usual types come first: `isinstance` with the abstract Sequence takes ten times as long.
    if isinstance(decisions, str) or not isinstance(decisions, (tuple, list, Sequence)):
        raise InvalidDecision(
            f"{_name(scheduler)} must return a list of decisions, empty for none, "
            f"got {decisions!r:.200}"
        )
    for decision in decisions:
        if not isinstance(decision, _DECISIONS):
            raise InvalidDecision(
                f"{_name(scheduler)} must return Stop, Pause, Resume, Save, Exploit or Resize, "
                f"got {decision!r:.200}"
            )
    return decisions


def subject(decision: Decision, trial_table: TrialTable, scheduler: Scheduler) -> Trial:
    """Return the trial that a decision is about.

    Raises:
        InvalidDecision: If there is none.
    """
    trial_id = decision.trial_id
    trial = trial_table.find(trial_id) if isinstance(trial_id, str) else None
    if trial is None:
        raise InvalidDecision(
            f"{_name(scheduler)} decided {type(decision).__name__} for a trial {trial_id!r:.200}, "
            f"which does not exist; it has been shown {len(trial_table.admitted)} trials"
        )
    return trial


def _name(scheduler: Scheduler) -> str:
    return type(scheduler).__qualname__


@final
class LiveExperimentView:
    """Read-only view of a running experiment, for its scheduler.

    Args:
        trial_table: The trials.
        suggestion_budget: Configurations requested from the searcher.
        settings: Returns the current settings.
    """

    def __init__(
        self,
        trial_table: TrialTable,
        suggestion_budget: SuggestionBudget,
        settings: Callable[[], ExperimentSettings],
    ) -> None:
        self._trial_table = trial_table
        self._suggestion_budget = suggestion_budget
        self._settings = settings

    @property
    def trials(self) -> Mapping[str, TrialView]:
        """Trials by id, in the order in which they were added, without the backlog."""
        return MappingProxyType(self._trial_table.admitted)

    @property
    def max_trials(self) -> int | None:
        """How many trials there will be at most; None where that is not known."""
        return self._settings().max_trials

    @property
    def no_more_trials(self) -> bool:
        """Whether no further trial comes before one of the present ones continues."""
        budget, table = self._suggestion_budget, self._trial_table
        if table.backlog:
            return False
        can_progress = table.live or table.ready or table.held
        is_stalled = budget.is_postponed and not can_progress
        return not budget.num_outstanding and (budget.is_exhausted or is_stalled)

    @property
    def can_save_on_demand(self) -> bool:
        """Whether trials save when they are asked to."""
        return self._settings().checkpoints.can_save_on_demand

    @property
    def resources(self) -> Mapping[str, float]:
        """All that trials can occupy together."""
        nodes = self._trial_table.nodes
        return self._settings().capacity if nodes.is_local else nodes.capacity

    @property
    def node_resources(self) -> Mapping[str, float]:
        """The most of each resource that one machine has."""
        nodes = self._trial_table.nodes
        return self._settings().capacity if nodes.is_local else nodes.largest

    def __deepcopy__(self, memo: object) -> ExperimentView:
        """Return an empty view: the copy of a scheduler belongs to another experiment."""
        return NoExperiment()
