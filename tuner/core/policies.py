"""Those whose word the fold follows, the scheduler and the stop criterion, and what they have said.

Their word is a fact. It is written down with the event on which it was given, and when the event is folded again it is read from there:
a trial that was stopped stays stopped, also where today's scheduler would let it go on. They hear of the past nevertheless, so that they
know it when the future begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from schedulers.decisions import Decision, Reason, Stop
from schedulers.scheduler import Scheduler

from .deadlines import earliest
from .decision_validation import checked
from .failure_causes import COMMON_FAILURE
from .metric_watch import METRIC_NOT_REPORTED
from .result import TRAINING_ITERATION
from .stoppers import STOP, Stopper
from .trial import TerminationReason, Trial

TIME_BUDGET: Final = "time_budget"
"""Rule for which an experiment ends whose time is up."""


@dataclass(frozen=True, slots=True)
class StopExperiment:
    """End the experiment.

    Attributes:
        reason: Why.
    """

    reason: Reason


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """One decision, and the question it answers.

    Attributes:
        question: Which question of the event it was, from 0: an event may raise several, and what is asked depends on the answers before.
        decision: What was decided.
    """

    question: int
    decision: Decision | StopExperiment


@final
class Policies:
    """Asks scheduler and stopper, or reads what they have said before.

    Args:
        scheduler: The scheduler.
        stopper: The stop criterion.
        time_budget_s: Running time after which the experiment ends; None for no limit.

    Attributes:
        given: What has been said on the current event.
        num_deviations: How often, while the past was folded again, one of them would have decided otherwise than was recorded.
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
        """Turn to the next event.

        Args:
            recorded: What was said on it when it happened; None where it happens now.
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
        """Experiment time at which `reason_to_end` is worth asking even if nothing happens; None for no such time."""
        return earliest(self.time_budget_s, self.stopper.due_s)

    def reason_to_end(self, now_s: float, own: Reason | None = None) -> Reason | None:
        """Return why the whole experiment is to end now; None if it is not.

        Args:
            now_s: Experiment time.
            own: A reason that the experiment itself has, beside those of time budget and stop criterion; None for none.
        """
        said = self._settle(self._ends(now_s) or ((StopExperiment(own),) if own else ()))
        return (
            next((one.reason for one in said if isinstance(one, StopExperiment)), None)
            if said
            else None
        )

    def on_trial_add(self, trial: Trial) -> Sequence[Decision]:
        """See `Scheduler.on_trial_add`, as for all that follow."""
        return self._decided(checked(self.scheduler.on_trial_add(trial), self.scheduler))

    def on_trial_result(
        self, trial: Trial, result: Mapping[str, Any], flat: Mapping[str, Any]
    ) -> Sequence[Decision]:
        """Ask both: the stop criterion sees the result as it was reported, with ``config``, the scheduler `flat`."""
        said: list[Decision] = []
        if self.stopper(trial.trial_id, result):
            numbers = {
                TRAINING_ITERATION: flat.get(TRAINING_ITERATION, 0),
                **self.stopper.numbers(result),
            }
            said.append(Stop(trial.trial_id, Reason(STOP, numbers), is_complete=True))
        said += checked(self.scheduler.on_trial_result(trial, flat), self.scheduler)
        return self._decided(said)

    def on_trial_complete(self, trial: Trial, flat: Mapping[str, Any] | None) -> Sequence[Decision]:
        """Tell that the trial is over."""
        return self._decided(checked(self.scheduler.on_trial_complete(trial, flat), self.scheduler))

    def on_trial_error(self, trial: Trial) -> Sequence[Decision]:
        """Tell that the trial has failed for good."""
        return self._decided(checked(self.scheduler.on_trial_error(trial), self.scheduler))

    def on_idle(self, paused: Sequence[Trial], num_free_slots: int) -> Sequence[Decision]:
        """Ask what to do with paused trials."""
        return self._decided(
            checked(self.scheduler.on_idle(paused, num_free_slots), self.scheduler)
        )

    def _ends(self, now_s: float) -> Sequence[StopExperiment]:
        self.stopper.on_tick(now_s)
        if self.time_budget_s is not None and now_s >= self.time_budget_s:
            return (
                StopExperiment(
                    Reason(TIME_BUDGET, {"budget_s": self.time_budget_s, "elapsed_s": now_s})
                ),
            )
        return (StopExperiment(Reason("stopper.stop_all")),) if self.stopper.stop_all() else ()

    def _decided(self, said: Sequence[Decision]) -> Sequence[Decision]:
        return [
            decision for decision in self._settle(said) if not isinstance(decision, StopExperiment)
        ]

    def _settle(
        self, said: Sequence[Decision | StopExperiment]
    ) -> Sequence[Decision | StopExperiment]:
        """Return what counts: what was said just now, or what was said when the event happened."""
        question = self._num_questions
        self._num_questions += 1
        counts = said if self._recorded is None else self._recall(question, said)
        if counts:
            self.given += [RecordedDecision(question, decision) for decision in counts]
        return counts

    def _recall(
        self, question: int, now: Sequence[Decision | StopExperiment]
    ) -> Sequence[Decision | StopExperiment]:
        if not (self._recorded or now):
            return ()  # as nearly always, and there are two questions to each of 20,000 records
        recorded = tuple(
            recorded.decision for recorded in self._recorded or () if recorded.question == question
        )
        self.num_deviations += [_gist(decision) for decision in recorded] != [
            _gist(decision) for decision in now
        ]
        return recorded


def termination_reason_for(reason: Reason) -> TerminationReason:
    """Return what it means to a trial to be ended for this: more time may be given and an error mended, a stop criterion has decided."""
    return (
        TerminationReason.INTERRUPTED
        if reason.rule in (TIME_BUDGET, METRIC_NOT_REPORTED, COMMON_FAILURE)
        else TerminationReason.STOPPED_EARLY
    )


def _gist(decision: Decision | StopExperiment) -> tuple[object, ...]:
    """Return what is decided without the numbers, which need not be equal to themselves."""
    match decision:
        case StopExperiment(reason):
            return StopExperiment, reason.rule
        case Stop():
            return Stop, decision.trial_id, decision.is_complete, decision.reason.rule
        case _:
            return type(decision), decision.trial_id, decision.reason.rule
