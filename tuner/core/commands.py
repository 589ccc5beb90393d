"""Commands and notices: what the state machine wants done, and what it tells observers.

The driver and the executor carry out commands. Notices are facts that searcher, callbacks and
loggers receive, in the order in which they arose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Self

from schedulers.decisions import Decision, Reason
from tuner.wire.record import record

from .events import LeaseOwner
from .recorded_decisions import RecordedDecision, StopExperiment
from .trial import AppliedExploit, Trial
from .worker_records import CheckpointRecord, Failure, ReportReply, ValidationRequest, WorkerGroup


@record
class StartWorker:
    """Start a worker for the trial.

    Attributes:
        trial_id: The trial.
        attempt: Number of this start, from 1; all of the worker's messages carry it.
        config: The hyperparameters to train with.
        resources: What the worker may use.
        gpu_ids: Devices assigned to it, empty for none.
        checkpoint: Where to continue from, None for the beginning.
        source_id: Whose checkpoint that is: the trial's own, or that of the donor of an exploit.
        next_checkpoint: Index that the worker's first checkpoint gets.
        experiment_tag: See `Trial`.
        group: The workers to start, `gpu_ids` being those of all; None for a single process.
        nodes: Where to start it, see `Trial.nodes`.
    """

    trial_id: str
    attempt: int
    config: Mapping[str, Any]
    resources: Mapping[str, float]
    gpu_ids: tuple[int, ...]
    checkpoint: CheckpointRecord | None
    next_checkpoint: int
    experiment_tag: str = ""
    source_id: str = ""
    group: WorkerGroup | None = None
    nodes: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        """Name of the node of the worker, or of rank 0; empty where there is only this machine."""
        return self.nodes[0] if self.nodes else ""

    @classmethod
    def of(cls, trial: Trial, checkpoint: CheckpointRecord | None) -> Self:
        """Return the command that starts the trial's current attempt from this checkpoint."""
        return cls(
            trial_id=trial.trial_id,
            attempt=trial.attempt,
            config=trial.config,
            resources=trial.resources,
            gpu_ids=trial.gpu_ids,
            checkpoint=checkpoint,
            next_checkpoint=trial.next_checkpoint,
            experiment_tag=trial.experiment_tag,
            source_id=trial.source_id,
            group=trial.group,
            nodes=trial.nodes,
        )


@record
class Interruption:
    """Why a worker is asked to leave although its trial is not over.

    Attributes:
        rule: Rule of the decision, e.g. ``"signal.SIGTERM"``, ``"time_limit"`` or ``"user.pause"``.
        within_s: After how many seconds it is killed if it has not left.
    """

    rule: str
    within_s: float


@record
class AnswerReport:
    """Answer the worker that waits after a report.

    Attributes:
        trial_id: The trial.
        attempt: The attempt that reported.
        reply: Go on, or end for a pause or for good.
        save: Save a checkpoint first (class trainables).
        stay: The trial is going to be started again at once, with another configuration: a worker
            that can be reset may stay for that after its last message.
        interruption: Why it is paused or interrupted; None where it goes on, is stopped for good,
            or exploits another trial.
    """

    trial_id: str
    attempt: int
    reply: ReportReply
    save: bool = False
    stay: bool = False
    interruption: Interruption | None = None


@record
class KillWorker:
    """End the worker's whole process group and report its exit as KILLED.

    Attributes:
        trial_id: The trial.
        attempt: The attempt that is to end.
        reason: Why, in one line.
        term_grace_s: For how long its processes are asked to end, by SIGTERM, before they are
            killed; 0 for not at all.
        is_silent: Whether it is killed since it has not reported for too long.
    """

    trial_id: str
    attempt: int
    reason: str
    term_grace_s: float = 0.0
    is_silent: bool = False


@record
class StartValidation:
    """Start the validation of a committed checkpoint in a process of its own.

    Attributes:
        trial_id: Whose checkpoint.
        checkpoint: The checkpoint.
        num_try: Number of this start, from 1.
        request: What was asked for.
        resources: What the validator may use.
        gpu_ids: Devices assigned to it.
        config: The trial's configuration, to which the request may refer.
        is_last_try: Whether it is not tried again if it fails.
        node: Where to start it; empty where there is only this machine.
    """

    trial_id: str
    checkpoint: CheckpointRecord
    num_try: int
    request: ValidationRequest
    resources: Mapping[str, float]
    gpu_ids: tuple[int, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    is_last_try: bool = False
    node: str = ""


@record
class KillValidation:
    """End a validation's whole process group and report its end as KILLED."""

    trial_id: str
    index: int
    num_try: int
    reason: str


@record
class GrantLease:
    """Tell the owner of a lease what it has got.

    Attributes:
        owner: Who asked.
        token: Of the request.
        num_workers: How many shares.
        gpu_ids: Devices assigned to it, empty for none.
    """

    owner: LeaseOwner
    token: str
    num_workers: int
    gpu_ids: tuple[int, ...] = ()


@record
class RefuseLease:
    """Tell the owner of a lease that it will not get it.

    Attributes:
        owner: Who asked.
        token: Of the request.
        reason: Why, and what to do.
        is_deadlock: Whether all processes waited for each other's resources.
    """

    owner: LeaseOwner
    token: str
    reason: str
    is_deadlock: bool = False


@record
class ListCheckpoints:
    """Answer a `CheckpointsRequested`.

    Attributes:
        trial_id: The trial.
        attempt: The attempt that asked.
        token: Of the request.
        checkpoints: For each reported checkpoint its record, its metrics, and its validation's
            public status, see `tuner.validation.records`; oldest first.
    """

    trial_id: str
    attempt: int
    token: str
    checkpoints: Sequence[tuple[CheckpointRecord, Mapping[str, Any], str]]


@record
class DeleteCheckpoint:
    """Delete a checkpoint that retention no longer keeps."""

    trial_id: str
    checkpoint: CheckpointRecord


@record
class AskSearcher:
    """Ask the searcher for the configuration of a new trial; its answer becomes an event."""

    trial_id: str


WorkerCommand = (
    StartWorker
    | AnswerReport
    | KillWorker
    | StartValidation
    | KillValidation
    | GrantLease
    | RefuseLease
    | ListCheckpoints
)
"""Commands that an executor carries out."""
Command = WorkerCommand | DeleteCheckpoint | AskSearcher


@record
class TrialAdded:
    """A new trial waits to be started."""

    trial: Trial


@record
class TrialStarted:
    """A trial is RUNNING; `is_retry` after a failed attempt, `is_resumed` after a pause."""

    trial: Trial
    is_retry: bool = False
    is_resumed: bool = False


@record
class ResultRecorded:
    """A trial has a new result, which is its `last_result`.

    Attributes:
        trial: The trial.
        result: The result, nested as reported, with ``config``.
        flat: The same flattened, without ``config``.
        rank_metrics: What each worker of a group reported, by rank; see `ResultReported`.
    """

    trial: Trial
    result: dict[str, Any]
    flat: Mapping[str, Any]
    rank_metrics: tuple[Mapping[str, Any], ...] = ()


@record
class CheckpointRecorded:
    """A trial has a new committed checkpoint."""

    trial: Trial
    checkpoint: CheckpointRecord


@record
class CheckpointValidated:
    """A validation has ended for good.

    Attributes:
        trial: Whose checkpoint.
        checkpoint: The checkpoint, with the score that it has now.
        status: Public name of the outcome, see `tuner.validation.records`.
        metrics: What the function returned, nested; empty unless it completed.
        result: The checkpoint's result with these metrics, nested, with ``config``.
        flat: The same flattened, without ``config``.
        is_delivered: Whether scheduler, searcher and stop criterion get this result now, since it
            lacked the metric they decide by when it was reported.
        failure: What went wrong, None for nothing.
    """

    trial: Trial
    checkpoint: CheckpointRecord
    status: str
    metrics: Mapping[str, Any]
    result: dict[str, Any]
    flat: Mapping[str, Any]
    is_delivered: bool
    failure: Failure | None = None


@record
class CheckpointMissed:
    """A checkpoint that was asked for could not be saved."""

    trial: Trial
    failure: Failure


@record
class KeysReplaced:
    """A trial has reported values under names that the engine fills in.

    Attributes:
        trial: The trial.
        names: These names.
    """

    trial: Trial
    names: tuple[str, ...]


@record
class CheckpointIgnored:
    """The training code has reported without asking for the checkpoint to continue from.

    Attributes:
        trial: The trial.
        path: Where the checkpoint is.
    """

    trial: Trial
    path: str


@record
class MetricMissed:
    """No trial has ever reported the metric to optimise.

    Raised when a trial has reported many results, or has completed without any.

    Attributes:
        trial: The trial.
        metric: The metric.
        value: What was reported for it although it is no number, shortened; empty where nothing
            was.
    """

    trial: Trial
    metric: str
    value: str = ""


@record
class StartsHeld:
    """Nothing is started until it is known whether all trials fail for one cause.

    Attributes:
        trial: The trial that has failed last.
        reason: For which the experiment ends if so.
    """

    trial: Trial
    reason: Reason


@record
class TrialSilent:
    """A trial has not reported for much longer than usual, and may hang.

    Attributes:
        trial: The trial.
        silent_s: For how many seconds.
        usual_s: What is usual for it, None before its first result.
    """

    trial: Trial
    silent_s: float
    usual_s: float | None


@record
class TrialPaused:
    """A trial is PAUSED: its worker is gone and its checkpoint committed."""

    trial: Trial


@record
class ExploitApplied:
    """An exploit has been applied: a trial continues from another one's checkpoint."""

    trial: Trial
    graft: AppliedExploit


@record
class AttemptFailed:
    """An attempt failed; the trial is PENDING again where `will_retry`, else ERROR.

    Attributes:
        trial: The trial.
        failure: What went wrong.
        will_retry: Whether it is tried again.
        objection: Why it is not, although it has retries left; empty where it has none.
    """

    trial: Trial
    failure: Failure
    will_retry: bool
    objection: str = ""


@record
class TrialEnded:
    """A trial is TERMINATED."""

    trial: Trial


Notice = (
    TrialAdded
    | TrialStarted
    | ResultRecorded
    | CheckpointRecorded
    | CheckpointValidated
    | CheckpointMissed
    | KeysReplaced
    | CheckpointIgnored
    | MetricMissed
    | StartsHeld
    | TrialSilent
    | TrialPaused
    | ExploitApplied
    | AttemptFailed
    | TrialEnded
)


class Effects(NamedTuple):
    """What follows from an event.

    A named tuple, since there is one for each event, and a frozen dataclass takes three times as
    long to create.

    Attributes:
        commands: What is to be done, in order, once the event is written down.
        notices: What observers receive, in order.
        recorded: What was decided and why, to be written down with the event.
        remarks: What the scheduler wants the user to know.
        is_noop: Whether the event ended a turn in which trials only continued, and at most the
            searcher was asked.
    """

    commands: Sequence[Command] = ()
    notices: Sequence[Notice] = ()
    recorded: Sequence[RecordedDecision] = ()
    remarks: Sequence[str] = ()
    is_noop: bool = False

    @property
    def decisions(self) -> Sequence[Decision]:
        """What was decided about trials."""
        return [
            one.decision for one in self.recorded if not isinstance(one.decision, StopExperiment)
        ]


class Outbox:
    """Collects the commands and notices of an event while it is being handled.

    One serves all events, so that all that handle them can have it.

    Attributes:
        commands: See `Effects`, as for the others.
        notices: What observers receive.
        remarks: What the user has to know.
    """

    __slots__ = ("commands", "notices", "remarks")

    def __init__(self) -> None:
        """Create an empty outbox."""
        self.commands: list[Command] = []
        self.notices: list[Notice] = []
        self.remarks: Sequence[str] = ()

    def take(self, recorded: Sequence[RecordedDecision], *, is_noop: bool) -> Effects:
        """Return what was collected, and begin anew.

        Args:
            recorded: See `Effects`.
            is_noop: See `Effects`.
        """
        effects = Effects(self.commands, self.notices, recorded, self.remarks, is_noop)
        self.commands, self.notices, self.remarks = [], [], ()
        return effects

    def keep(
        self, trial: Trial, checkpoint: CheckpointRecord, superseded: Sequence[CheckpointRecord]
    ) -> None:
        """Record a new checkpoint, and delete those that it supersedes."""
        self.notices.append(CheckpointRecorded(trial, checkpoint))
        self.delete(trial, superseded)

    def delete(self, trial: Trial, checkpoints: Sequence[CheckpointRecord]) -> None:
        """Delete checkpoints of a trial; a placeholder has nothing that could be deleted."""
        self.commands.extend(
            DeleteCheckpoint(trial.trial_id, checkpoint)
            for checkpoint in checkpoints
            if not checkpoint.is_placeholder
        )
