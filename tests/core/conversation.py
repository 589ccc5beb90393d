"""Tests of the state machine as a dialogue: feed events, read commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from schedulers.decisions import Decision
from schedulers.scheduler import Scheduler, TrialView
from tuner.core.commands import (
    AnswerReport,
    AskSearcher,
    CheckpointValidated,
    Command,
    KillWorker,
    Notice,
    StartValidation,
    StartWorker,
    TrialEnded,
)
from tuner.core.events import (
    CheckpointSaved,
    Event,
    NodeJoined,
    Outcome,
    ResultReported,
    SearchEnded,
    TrialSuggested,
    TurnEnded,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import NoopStopper, Stopper
from tuner.core.trial import Trial, trial_fields, trial_from
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest

BOOM = Failure("ValueError", "boom", "Traceback ...")


class ScriptedScheduler(Scheduler):
    """Answers each (trial, iteration) by the script, and records its calls."""

    def __init__(
        self,
        script: Mapping[tuple[str, int], Sequence[Decision]] | None = None,
        idle: Sequence[Sequence[Decision]] = (),
    ) -> None:
        self.script = dict(script or {})
        self.idle = list(idle)
        self.heard: list[tuple[str, str]] = []

    def on_trial_add(self, trial: TrialView) -> Sequence[Decision]:
        self.heard.append(("add", trial.trial_id))
        return self.script.get((trial.trial_id, 0), ())

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        self.heard.append(("result", trial.trial_id))
        return self.script.get((trial.trial_id, result["training_iteration"]), ())

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        self.heard.append(("complete", trial.trial_id))
        return ()

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        self.heard.append(("error", trial.trial_id))
        return ()

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        return self.idle.pop(0) if self.idle else ()


class Conversation:
    """Feeds events to an experiment, one turn each, and checks every invariant after each."""

    def __init__(
        self,
        scheduler: Scheduler | None = None,
        stopper: Stopper | None = None,
        *,
        capacity: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self.scheduler = scheduler or ScriptedScheduler()
        declared = ExperimentSettings(capacity=capacity or {"cpu": 2.0}, **settings)
        self.experiment = Experiment(declared, self.scheduler, stopper or NoopStopper())
        self.now_s = 0.0
        self.notices: list[Notice] = []
        self.decisions: list[Decision] = []
        self.remarks: list[str] = []

    def say(self, *events: Event, after_s: float = 0.0) -> list[Command]:
        """Let the events happen in one turn and return the commands."""
        self.now_s += after_s
        commands: list[Command] = []
        for event in (*events, TurnEnded()):
            outcome = self.experiment.handle(event, self.now_s)
            self.experiment.check()
            commands.extend(outcome.commands)
            self.notices.extend(outcome.notices)
            self.decisions.extend(outcome.decisions)
            self.remarks.extend(outcome.remarks)
        return commands

    def trial(self, trial_id: str) -> Trial:
        """Return a trial."""
        return self.experiment.trial_table[trial_id]

    def begin(self, num_trials: int, **resources: float) -> None:
        """Suggest `num_trials` trials, and let those that fit start and train."""
        commands = self.say()
        for _ in range(num_trials):
            asked = next(command for command in commands if isinstance(command, AskSearcher))
            commands = [command for command in commands if command is not asked]
            commands += self.say(suggest(asked.trial_id, **resources))
        for command in commands:
            if isinstance(command, StartWorker):
                self.say(WorkerStarted(command.trial_id, command.attempt, pid=1))
        if any(isinstance(command, AskSearcher) for command in commands):
            self.say(*[SearchEnded() for command in commands if isinstance(command, AskSearcher)])

    def report(
        self,
        trial_id: str,
        iteration: int,
        checkpoint: CheckpointRecord | None = None,
        **metrics: Any,
    ) -> list[Command]:
        """Let a trial report."""
        return self.say(
            result(trial_id, iteration, self.trial(trial_id).attempt, checkpoint, **metrics)
        )

    def exit(
        self, trial_id: str, outcome: Outcome, failure: Failure | None = None
    ) -> list[Command]:
        """Let a trial's worker end."""
        return self.say(WorkerExited(trial_id, self.trial(trial_id).attempt, outcome, failure))

    def saved(self, trial_id: str, index: int, iteration: int) -> list[Command]:
        """Let a trial's worker save."""
        return self.say(
            CheckpointSaved(
                trial_id, self.trial(trial_id).attempt, CheckpointRecord(index, iteration)
            )
        )

    def restore_from_snapshot(self) -> None:
        """Restore the experiment from a snapshot, and check that its state is the same."""
        before = self.experiment
        words, trials = (
            before.state_dict(),
            [trial_from(trial_fields(trial)) for trial in before.trials],
        )
        self.experiment = Experiment(before.settings, self.scheduler, NoopStopper())
        self.experiment.load_state_dict(words, trials)
        self.experiment.check()
        assert self.experiment.state_dict() == words
        for one, other in zip(before.trials, self.experiment.trials, strict=True):
            names = {each.name for each in fields(Trial)} - {"summary", "objective"}
            assert [each for each in names if getattr(one, each) != getattr(other, each)] == []


def suggest(trial_id: str, **resources: float) -> TrialSuggested:
    """Return the suggestion of a trial."""
    return TrialSuggested(trial_id, {"x": 1}, resources or {"cpu": 1.0})


def result(
    trial_id: str,
    iteration: int,
    attempt: int = 1,
    checkpoint: CheckpointRecord | None = None,
    **metrics: Any,
) -> ResultReported:
    """Return the report of a trial."""
    return ResultReported(
        trial_id, attempt, {"training_iteration": iteration, **metrics}, checkpoint
    )


def answers(commands: Sequence[Command]) -> list[tuple[str, str, bool]]:
    """Return the answers among the commands as (trial, reply, save)."""
    return [(c.trial_id, str(c.reply), c.save) for c in commands if isinstance(c, AnswerReport)]


def starts(commands: Sequence[Command]) -> list[tuple[str, int]]:
    """Return the starts among the commands as (trial, attempt)."""
    return [(c.trial_id, c.attempt) for c in commands if isinstance(c, StartWorker)]


def kills(commands: Sequence[Command]) -> list[str]:
    """Return the trials whose workers are to be killed."""
    return [c.trial_id for c in commands if isinstance(c, KillWorker)]


def cluster(
    num_trials: int,
    scheduler: Scheduler | None = None,
    *,
    nodes: Sequence[str] = ("a", "b"),
    cpu: float = 1.0,
    **settings: Any,
) -> Conversation:
    """Return a conversation whose trials train on nodes with so many CPUs each."""
    settings = {"max_trials": num_trials, "node_wait_s": 300.0, "capacity": {}} | settings
    talk = Conversation(scheduler, **settings)
    commands = talk.say(*[NodeJoined(name, {"cpu": cpu}) for name in nodes])
    asked = [each.trial_id for each in commands if isinstance(each, AskSearcher)]
    for trial_id in asked[:num_trials]:
        for started, attempt in starts(talk.say(suggest(trial_id))):
            talk.say(WorkerStarted(started, attempt, pid=1))
    return talk


def report_to_validate(talk: Conversation, trial_id: str, iteration: int) -> ResultReported:
    """Return the report of a checkpoint that is to be validated."""
    record = CheckpointRecord(iteration - 1, iteration)
    reported = result(trial_id, iteration, talk.trial(trial_id).attempt, record)
    return replace(reported, validation=ValidationRequest())


def validate(talk: Conversation, trial_id: str, iteration: int) -> list[Command]:
    """Let a trial report a checkpoint and ask for its validation."""
    return talk.say(report_to_validate(talk, trial_id, iteration))


def remarks_of(talk: Conversation, *events: Event, after_s: float = 0.0) -> list[str]:
    """Let the events happen and return what the user has to know."""
    num_before = len(talk.remarks)
    talk.say(*events, after_s=after_s)
    return talk.remarks[num_before:]


def later_remarks_of(talk: Conversation, *events: Event, after_s: float = 0.0) -> list[str]:
    """Let the events happen and return what the user has to know when nodes had time to join."""
    assert remarks_of(talk, *events, after_s=after_s) == []
    assert remarks_of(talk, after_s=14.9) == []
    return remarks_of(talk, after_s=0.1)


class Validating(Conversation):
    """A conversation whose trials report checkpoints that are to be validated."""

    def __init__(
        self,
        *args: Any,
        num_trials: int = 1,
        capacity: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            *args, capacity=capacity or {"cpu": 4.0}, **{"metric": "acc", "mode": "max"} | settings
        )
        self.begin(num_trials)

    def validate(
        self,
        trial_id: str,
        iteration: int,
        index: int | None = None,
        *,
        request: ValidationRequest | None = None,
        **metrics: Any,
    ) -> list[Command]:
        """Report a checkpoint and ask for its validation; return the commands."""
        attempt = self.trial(trial_id).attempt
        record = CheckpointRecord(iteration - 1 if index is None else index, iteration)
        return self.say(
            ResultReported(
                trial_id,
                attempt,
                {"training_iteration": iteration, **metrics},
                record,
                validation=request or ValidationRequest(),
            )
        )

    def end(
        self,
        trial_id: str,
        index: int,
        metrics: Mapping[str, Any] | None = None,
        outcome: Outcome = Outcome.COMPLETED,
        failure: Failure | None = None,
    ) -> list[Command]:
        """Let the current try of a validation end; return the commands."""
        num_try = self.trial(trial_id).validations[index].num_try
        return self.say(ValidationEnded(trial_id, index, num_try, outcome, metrics, failure))

    def state(self, trial_id: str, index: int) -> str:
        """Return the state of a validation."""
        return self.trial(trial_id).validations[index].state

    def validated(self) -> list[tuple[str, int, str, bool]]:
        """Return (trial, checkpoint, status, delivered) of each notice."""
        return [
            (notice.trial.trial_id, notice.checkpoint.index, notice.status, notice.is_delivered)
            for notice in self.notices
            if isinstance(notice, CheckpointValidated)
        ]

    @property
    def ended(self) -> list[str]:
        """The trials of which it was announced that they have ended."""
        return [n.trial.trial_id for n in self.notices if isinstance(n, TrialEnded)]


def started(commands: Sequence[Command]) -> list[StartValidation]:
    """Return the validations that are to be started."""
    return [command for command in commands if isinstance(command, StartValidation)]
