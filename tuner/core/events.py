"""Events: everything that can happen to an experiment.

Events are facts. The state machine can refuse one that makes no sense, but not that it occurred.
What does not follow from the state enters as an event: time (the driver stamps each event), the
searcher's answers, messages and exits of workers, and requests of the user.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .settings import ExperimentSettings
from .trial import (
    CheckpointRecord,
    Failure,
    Status,
    TerminationReason,
    Trial,
    ValidationRequest,
    WorkerGroup,
)

TIME_LIMIT: Final = "time_limit"
"""Rule for which the driver itself asks for a stop: the job that it runs in will soon be ended."""


USER_STOP: Final = "user.stop"
"""Rule for which trials, or the whole experiment, end that the user has asked to."""


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


@dataclass(frozen=True, slots=True)
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

    trial_id: str
    config: Mapping[str, Any]
    resources: Mapping[str, float]
    experiment_tag: str = ""
    failure: Failure | None = None
    group: WorkerGroup | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class SuggestionPostponed:
    """The searcher has nothing to propose before it has seen another result."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class SearchEnded:
    """The searcher will propose no more.

    Attributes:
        declaration: Identifies the space, the searcher and the number of samples for which that
            holds; empty where that is not known.
    """

    declaration: str = ""


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The trial's worker is up and about to call the training code."""

    trial_id: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
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

    trial_id: str
    attempt: int
    metrics: Mapping[str, Any]
    checkpoint: CheckpointRecord | None = None
    replaced: tuple[str, ...] = field(default=(), compare=False, repr=False)
    upload: int | None = None
    validation: ValidationRequest | None = None
    rank_metrics: tuple[Mapping[str, Any], ...] = field(default=(), compare=False, repr=False)
    ignored_checkpoint: str = field(default="", compare=False, repr=False)
    row: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A callback asks for a checkpoint at the result that waits for its reply."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class CheckpointStarted:
    """The worker has begun to store a checkpoint; until it is done, no report timeout runs."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """The worker has committed the checkpoint it was asked for."""

    trial_id: str
    attempt: int
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """A checkpoint that was reported with `ResultReported.upload` has been stored.

    It comes at any time before the worker exits, in the order of the reports.
    """

    trial_id: str
    attempt: int
    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The worker could not save a checkpoint.

    The trial continues without it, unless its code lets the exception pass that `report` raises.
    """

    trial_id: str
    attempt: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class CheckpointLost:
    """A committed checkpoint is damaged or gone; the trial falls back to the one before it.

    It also follows on `ResultReported.upload` where the checkpoint could not be stored.

    Attributes:
        trial_id: The trial.
        index: Index of the checkpoint.
        why: What is wrong with it.
    """

    trial_id: str
    index: int
    why: str


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The trial's worker and its process group are gone; no more events of this attempt follow.

    Attributes:
        trial_id: The trial.
        attempt: The attempt.
        outcome: How the worker ended.
        failure: What went wrong, for every outcome but COMPLETED and STOPPED.
    """

    trial_id: str
    attempt: int
    outcome: Outcome
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
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

    trial_id: str
    index: int
    num_try: int
    outcome: Outcome
    metrics: Mapping[str, Any] | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class CheckpointsRequested:
    """Training code asks which checkpoints the trial has reported, and what they were judged.

    Attributes:
        trial_id: The trial.
        attempt: Its attempt.
        token: Chosen by the worker; the answer carries it.
        waits_for_validation: Whether the answer waits until no validation is open.
        waits_for_uploads: Whether it waits until all reported checkpoints are stored.
    """

    trial_id: str
    attempt: int
    token: str
    waits_for_validation: bool = True
    waits_for_uploads: bool = True


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The process that holds a lease: a trial's worker, or a validator.

    Attributes:
        trial_id: The trial.
        attempt: The attempt of the trial, or the try of the validation.
        index: Index of the checkpoint that is validated; None for the trial's worker.
    """

    trial_id: str
    attempt: int
    index: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """A worker or validator asks for resources for an experiment of its own.

    Attributes:
        owner: Who asks.
        token: Chosen by the owner; the answer carries it.
        group: The resources: at least `min_workers` shares, at most `max_workers`.
    """

    owner: LeaseOwner
    token: str
    group: WorkerGroup


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """A worker or validator gives a lease back; a lease also ends with its owner's process."""

    owner: LeaseOwner
    token: str


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """A node is going to leave soon: its trials have to move.

    Attributes:
        node: Its name.
        deadline_s: In how many seconds; None where that is not known.
        is_cut_off: Whether it has not announced that, but cannot be reached any more; then it
            counts as the loss of a worker, as it does without this event.
    """

    node: str
    deadline_s: float | None = None
    is_cut_off: bool = False


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """A node is gone, with all that ran on it; no more events of these attempts follow.

    Of a group that was on other nodes as well, the rest is killed, and one `WorkerExited` follows.

    Attributes:
        node: Its name.
        reason: Why, in a few words.
    """

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user wants the experiment to end: running trials are stopped and stay resumable.

    Attributes:
        rule: Who asked, as a reason's rule, e.g. ``"signal.SIGINT"``, or `TIME_LIMIT`.
        is_urgent: Kill the workers instead of asking them.
    """

    rule: str
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class TrialStopRequested:
    """The user wants a trial to end for good."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """The user wants a trial to be paused until they resume it, whatever the scheduler decides."""

    trial_id: str


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """The user wants a trial to continue, whether they or the scheduler have paused it."""

    trial_id: str


@dataclass(frozen=True, slots=True)
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

    trial_id: str
    donor_id: str
    changes: Mapping[str, Any]
    resources: Mapping[str, float]
    checkpoint: int
    group: WorkerGroup | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


ManualRequest = TrialStopRequested | PauseRequested | ResumeRequested | TrialForked
"""What the user may request for a single trial."""


@dataclass(frozen=True, slots=True)
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
    groups: Mapping[str, WorkerGroup] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    declaration: str = ""

    def treatment_of(self, trial: Trial) -> ResumeType:
        """Return what becomes of a trial, which no worker of the old driver runs any more."""
        if trial.status is Status.ERROR:
            return self.errored
        is_over = trial.is_finished and trial.ending is not TerminationReason.INTERRUPTED
        return self.finished if is_over else self.unfinished


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The driver has fed all events so far; check the time and issue commands.

    Attributes:
        is_noop: Set by the driver when it records the event: trials only continued, and at most
            the searcher was asked.
    """

    is_noop: bool = False


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
