"""Events: everything that can happen to an experiment.

Events are facts. The state machine can refuse one that makes no sense, but not that it occurred.
What does not follow from the state enters as an event: time (the driver stamps each event), the
searcher's answers, messages and exits of workers, and requests of the user.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final, get_args

from schedulers.decisions import Reason
from tuner.wire.declared import CONFIG, FLAT, NEVER, OPTIONAL, Key, Tagged, tagged
from tuner.wire.record import record

from .settings import ExperimentSettings
from .trial import Status, TerminationReason, Trial
from .worker_records import CheckpointRecord, Failure, ValidationRequest, WorkerGroup

TrialId = Annotated[str, Key("id")]
"""The id of a trial, as it is written in most records."""

Attempt = Annotated[int, Key("a")]
"""The number of an attempt, likewise."""

TIME_LIMIT: Final = "time_limit"
"""Rule for which the driver itself asks for a stop: the job that it runs in will soon be ended."""

USER_STOP: Final = "user.stop"
"""Rule for which trials, or the whole experiment, end that the user has asked to."""

USER_RESUME: Final = "user.resume"
"""Rule for which trials are resumed by the user."""

USER_FORK: Final = "user.fork"
"""Rule for which a trial starts as the fork of another one."""

SKIPPED: Final = "restore.skip"
"""Rule for which trials end that a restore leaves out although they were not over."""


class Outcome(enum.StrEnum):
    """How a worker ended."""

    COMPLETED = "completed"
    """The training code returned."""
    STOPPED = "stopped"
    """It obeyed a stop or a pause."""
    FAILED = "failed"
    """The training code raised, exited, or its process crashed."""
    UNSAVED = "unsaved"
    """The training code could not save the checkpoint that it was asked for."""
    KILLED = "killed"
    """The engine killed it."""
    LOST = "lost"
    """It vanished through no fault of its own, e.g. with its machine."""


class ResumeType(enum.StrEnum):
    """What a restarted driver does with trials of one kind."""

    SKIP = "skip"
    """Leaves them as they are; trials that were not over end."""
    RESUME = "resume"
    """Continues them from their latest checkpoints."""
    RESTART = "restart"
    """Restarts them from the beginning: their checkpoints and results no longer count."""


@tagged("suggested")
@record
class TrialSuggested:
    """The searcher proposed a configuration for the trial that was asked for.

    Attributes:
        trial_id: The trial.
        config: Its hyperparameters.
        resources: What it will occupy.
        experiment_tag: See `Trial.experiment_tag`.
        failure: Why the trial cannot run at all, e.g. since its resource request raised; None where
            it can.
        group: The workers over which it trains; None for a single process without ranks.
        labels: What the node of a single process must have; those of a group are its own.
        why: How the searcher came to it, see `Searcher.explain_suggestion`.
    """

    trial_id: TrialId
    config: Annotated[Mapping[str, Any], CONFIG]
    resources: Mapping[str, float]
    experiment_tag: Annotated[str, Key("tag")] = ""
    failure: Failure | None = None
    group: Annotated[WorkerGroup | None, OPTIONAL] = None
    labels: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)
    why: Annotated[str, OPTIONAL] = ""


@tagged("postponed")
@record
class SuggestionPostponed:
    """The searcher has nothing to propose before it has seen another result."""

    trial_id: TrialId


@tagged("search_ended")
@record
class SearchEnded:
    """The searcher will propose no more.

    Attributes:
        declaration: Identifies the space, the searcher and the number of samples for which that
            holds; empty where that is not known.
        why: Why it proposes no more although it could; None where it has nothing to propose.
    """

    declaration: Annotated[str, Key("declared"), OPTIONAL] = ""
    why: Annotated[Reason | None, OPTIONAL] = None


@tagged("started")
@record
class WorkerStarted:
    """The trial's worker is up and about to call the training code."""

    trial_id: TrialId
    attempt: Attempt
    pid: int


@tagged("result")
@record
class ResultReported:
    """The training code reported, and waits for the answer.

    Attributes:
        trial_id: Who.
        attempt: In which attempt; an older one's late report is dropped.
        metrics: The result, nested as reported, with the auto-filled keys but without ``config``.
        checkpoint: The checkpoint committed with this report, if any.
        replaced: Names that were reported and that the engine has filled in instead, told once in
            an attempt; not part of the journal.
        upload: Index of the checkpoint of this result that is still being stored, which
            `CheckpointCommitted` will name; None for none.
        validation: How the result's checkpoint is to be validated; None for not at all.
        rank_metrics: What each worker of a group reported, by rank, for callbacks; not part of the
            journal. Without a group it is empty, unless names of the engine were reported.
        ignored_checkpoint: Where the checkpoint is from which the trial is to continue, if this is
            the first result of its attempt and the training code has not asked for it; not part of
            the journal.
        row: Its position among the results of the trial that count, from 1: results from there on
            that were reported before it are superseded. Set by the driver when it records the
            event; older journals lack it.
    """

    trial_id: TrialId
    attempt: Attempt
    metrics: Annotated[Mapping[str, Any], Key("m")]
    checkpoint: Annotated[CheckpointRecord | None, Key("c")] = None
    replaced: Annotated[tuple[str, ...], NEVER] = field(default=(), compare=False, repr=False)
    upload: Annotated[int | None, OPTIONAL] = None
    validation: Annotated[ValidationRequest | None, Key("v"), OPTIONAL] = None
    rank_metrics: Annotated[tuple[Mapping[str, Any], ...], NEVER] = field(
        default=(), compare=False, repr=False
    )
    ignored_checkpoint: Annotated[str, NEVER] = field(default="", compare=False, repr=False)
    row: Annotated[int | None, OPTIONAL] = None


@tagged("checkpoint_requested")
@record
class CheckpointRequested:
    """A callback asks for a checkpoint at the result that waits for its reply."""

    trial_id: TrialId


@tagged("saving")
@record
class CheckpointStarted:
    """The worker has begun to store a checkpoint; until it is done, no report timeout runs."""

    trial_id: TrialId
    attempt: Attempt


@tagged("saved")
@record
class CheckpointSaved:
    """The worker has committed the checkpoint it was asked for."""

    trial_id: TrialId
    attempt: Attempt
    checkpoint: Annotated[CheckpointRecord, Key("c")]


@tagged("checkpoint_committed")
@record
class CheckpointCommitted:
    """A checkpoint that was reported with `ResultReported.upload` has been stored.

    It comes at any time before the worker exits, in the order of the reports.
    """

    trial_id: TrialId
    attempt: Attempt
    checkpoint: Annotated[CheckpointRecord, Key("c")]


@tagged("save_failed")
@record
class CheckpointFailed:
    """The worker could not save a checkpoint.

    The trial continues without it, unless its code lets the exception pass that `report` raises.
    """

    trial_id: TrialId
    attempt: Attempt
    failure: Failure


@tagged("checkpoint_lost")
@record
class CheckpointLost:
    """A committed checkpoint is damaged or gone; the trial falls back to the one before it.

    It also follows on `ResultReported.upload` where the checkpoint could not be stored.

    Attributes:
        trial_id: The trial.
        index: Index of the checkpoint.
        why: What is wrong with it.
    """

    trial_id: TrialId
    index: int
    why: str


@tagged("exited")
@record
class WorkerExited:
    """The trial's worker and its process group are gone; no more events of this attempt follow.

    Attributes:
        trial_id: The trial.
        attempt: The attempt.
        outcome: How the worker ended.
        failure: What went wrong, for every outcome but COMPLETED and STOPPED.
    """

    trial_id: TrialId
    attempt: Attempt
    outcome: Outcome
    failure: Failure | None = None


@tagged("validation_ended")
@record
class ValidationEnded:
    """The validation of a checkpoint has ended, and its processes are gone.

    Attributes:
        trial_id: Whose checkpoint.
        index: Index of the checkpoint.
        num_try: Which try, see `StartValidation`; an older one's late end is dropped.
        outcome: COMPLETED with metrics, FAILED, KILLED or LOST.
        metrics: What the function returned, nested; None unless it completed.
        failure: What went wrong, for FAILED and KILLED.
    """

    trial_id: TrialId
    index: int
    num_try: Annotated[int, Key("try")]
    outcome: Outcome
    metrics: Mapping[str, Any] | None = None
    failure: Failure | None = None


@tagged("checkpoints_requested")
@record
class CheckpointsRequested:
    """Training code asks which checkpoints the trial has reported, and what they were judged.

    Attributes:
        trial_id: The trial.
        attempt: Its attempt.
        token: Chosen by the worker; the answer carries it.
        waits_for_validation: Whether the answer waits until no validation is open.
        waits_for_uploads: Whether it waits until all reported checkpoints are stored.
    """

    trial_id: TrialId
    attempt: Attempt
    token: str
    waits_for_validation: Annotated[bool, Key("waits")] = True
    waits_for_uploads: Annotated[bool, Key("stored")] = True


@record
class LeaseOwner:
    """The process that holds a lease: a trial's worker, or a validator.

    Attributes:
        trial_id: The trial.
        attempt: The attempt of the trial, or the try of the validation.
        index: Index of the checkpoint that is validated; None for the trial's worker.
    """

    trial_id: TrialId
    attempt: Attempt
    index: Annotated[int | None, Key("of")] = None


@tagged("lease_requested")
@record
class LeaseRequested:
    """A worker or validator asks for resources for an experiment of its own.

    Attributes:
        owner: Who asks.
        token: Chosen by the owner; the answer carries it.
        group: The resources: at least `min_workers` shares, at most `max_workers`.
    """

    owner: Annotated[LeaseOwner, FLAT]
    token: str
    group: WorkerGroup


@tagged("lease_released")
@record
class LeaseReleased:
    """A worker or validator gives a lease back; a lease also ends with its owner's process."""

    owner: Annotated[LeaseOwner, FLAT]
    token: str


@tagged("node_joined")
@record
class NodeJoined:
    """A machine takes part in the experiment from now on.

    Attributes:
        node: Its name, unique among all that ever join under one driver. One that is present and
            joins again has lost all that ran on it.
        resources: What it has, by name.
        labels: What trials may ask for, e.g. ``{"accelerator": "A100"}``.
    """

    node: str
    resources: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)


@tagged("node_draining")
@record
class NodeDraining:
    """A node is going to leave soon: its trials have to move.

    Attributes:
        node: Its name.
        deadline_s: In how many seconds; None where that is not known.
        is_cut_off: Whether it has not announced that, but cannot be reached any more; then it
            counts as the loss of a worker, as it does without this event.
    """

    node: str
    deadline_s: Annotated[float | None, Key("within")] = None
    is_cut_off: Annotated[bool, Key("cut_off"), OPTIONAL] = False


@tagged("node_left")
@record
class NodeLeft:
    """A node is gone, with all that ran on it; no more events of these attempts follow.

    Of a group that was on other nodes as well, the rest is killed, and one `WorkerExited` follows.

    Attributes:
        node: Its name.
        reason: Why, in a few words.
    """

    node: str
    reason: Annotated[str, Key("why")]


@tagged("stop_requested")
@record
class StopRequested:
    """The user wants the experiment to end: running trials are stopped and stay resumable.

    Attributes:
        rule: Who asked, as a reason's rule, e.g. ``"signal.SIGINT"``, or `TIME_LIMIT`.
        is_urgent: Kill the workers instead of asking them.
    """

    rule: str
    is_urgent: bool = False


@tagged("trial_stop_requested")
@record
class TrialStopRequested:
    """The user wants a trial to end for good."""

    trial_id: TrialId


@tagged("pause_requested")
@record
class PauseRequested:
    """The user wants a trial to be paused until they resume it, whatever the scheduler decides."""

    trial_id: TrialId


@tagged("resume_requested")
@record
class ResumeRequested:
    """The user wants a trial to continue, whether they or the scheduler have paused it."""

    trial_id: TrialId


@tagged("forked")
@record
class TrialForked:
    """The user has started a new trial from another one's checkpoint, with changed hyperparameters.

    Attributes:
        trial_id: The new trial.
        donor_id: The other one.
        changes: The hyperparameters that are different, by their flattened names; the others are
            the donor's.
        resources: What it will occupy.
        checkpoint: Index of the donor's checkpoint that it continues from.
        group: The workers over which it trains; None for a single process without ranks.
        labels: See `TrialSuggested`.
    """

    trial_id: TrialId
    donor_id: Annotated[str, Key("donor")]
    changes: Mapping[str, Any]
    resources: Mapping[str, float]
    checkpoint: int
    group: Annotated[WorkerGroup | None, OPTIONAL] = None
    labels: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)


ManualRequest = TrialStopRequested | PauseRequested | ResumeRequested | TrialForked
"""What the user may request for a single trial."""


@tagged("restarted")
@record
class DriverRestarted:
    """A new driver has taken over from the journal: no worker of the old one is alive.

    Attributes:
        settings: The settings from now on; the machine may be another one.
        unfinished: What becomes of trials that were not over, or only interrupted.
        errored: What becomes of trials in ERROR; those that are tried again have all their attempts
            left.
        finished: What becomes of trials that were over, those that were stopped early included.
        groups: The workers over which trials train from now on, by trial, where they are declared
            otherwise than before.
        left_out: Trials that the experiment, as it is declared now, does not have; those that never
            started are skipped.
        declaration: Identifies space, searcher and number of samples; with others than those for
            which the search has ended, it goes on.
    """

    settings: ExperimentSettings
    unfinished: ResumeType = ResumeType.RESUME
    errored: ResumeType = ResumeType.SKIP
    finished: ResumeType = ResumeType.SKIP
    groups: Annotated[Mapping[str, WorkerGroup], OPTIONAL] = field(default_factory=dict)
    left_out: Annotated[tuple[str, ...], OPTIONAL] = ()
    declaration: Annotated[str, Key("declared"), OPTIONAL] = ""

    def treatment_of(self, trial: Trial) -> ResumeType:
        """Return what becomes of a trial, which no worker of the old driver runs any more."""
        if trial.status is Status.ERROR:
            return self.errored
        is_over = trial.is_finished and trial.ending is not TerminationReason.INTERRUPTED
        return self.finished if is_over else self.unfinished


@tagged("turn")
@record
class TurnEnded:
    """The driver has fed all events so far; check the time and issue commands.

    Attributes:
        is_noop: Set by the driver when it records the event: trials only continued, and at most
            the searcher was asked.
    """

    is_noop: Annotated[bool, Key("is_routine"), OPTIONAL] = False


Event = (
    TrialSuggested
    | SuggestionPostponed
    | SearchEnded
    | WorkerStarted
    | ResultReported
    | CheckpointRequested
    | CheckpointStarted
    | CheckpointSaved
    | CheckpointCommitted
    | CheckpointFailed
    | CheckpointLost
    | WorkerExited
    | ValidationEnded
    | CheckpointsRequested
    | LeaseRequested
    | LeaseReleased
    | NodeJoined
    | NodeDraining
    | NodeLeft
    | StopRequested
    | TrialStopRequested
    | PauseRequested
    | ResumeRequested
    | TrialForked
    | DriverRestarted
    | TurnEnded
)

EVENTS: Final[Tagged[Event]] = Tagged("k", get_args(Event))
"""All events, by their kinds."""
