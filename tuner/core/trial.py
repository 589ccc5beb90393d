"""Trial: everything that the engine knows about one training run."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, cast

from schedulers.decisions import Exploit, Reason
from tuner import capabilities
from tuner.errors import missing_name
from tuner.wire.declared import (
    CONFIG,
    LIST,
    NEVER,
    OPTIONAL,
    Body,
    Form,
    Key,
    Translate,
    decode,
    encode,
)
from tuner.wire.record import record

from . import recorded_decisions  # noqa: F401  (it says how decisions are written)
from .result import (
    AUTO_FILLED,
    TIME_THIS_ITER_S,
    TIME_TOTAL_S,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
    flatten,
)
from .result import (
    CONFIG as CONFIG_KEY,
)
from .trial_metrics import MetricSummary, TrackedMetric
from .worker_records import CheckpointRecord, Failure, ReportReply, WorkerGroup

if TYPE_CHECKING:
    from tuner.validation.records import TrialValidations, Validation
else:
    TrialValidations = Any  # it is loaded where a checkpoint is validated

_NOT_SUMMARISED = AUTO_FILLED - {
    TRAINING_ITERATION,
    TIME_THIS_ITER_S,
    TIME_TOTAL_S,
    TIMESTEPS_TOTAL,
}
_NO_NUMBERS = frozenset({bool, str, type(None)})


class Status(enum.StrEnum):
    """Status of a trial; `lifecycle` lists the possible transitions."""

    PENDING = "PENDING"
    """It waits for its first start, or for the next after a failure or an interruption."""
    RUNNING = "RUNNING"
    """It has a worker and the resources that it asked for."""
    PAUSED = "PAUSED"
    """It has no worker, and a checkpoint to continue from."""
    TERMINATED = "TERMINATED"
    """It is over, and has not failed; its `TerminationReason` tells why."""
    ERROR = "ERROR"
    """It has failed, and has no retry left."""


class WorkerState(enum.StrEnum):
    """State of a trial's worker process."""

    ABSENT = "ABSENT"
    """There is no process."""
    STARTING = "STARTING"
    """A process was asked for, and has not called the training code yet."""
    TRAINING = "TRAINING"
    """The training code runs, and can be told nothing."""
    WAITING = "WAITING"
    """It has reported, and is blocked until it is answered."""
    SAVING = "SAVING"
    """It writes the checkpoint that it was asked for."""
    STOPPING = "STOPPING"
    """It was asked to leave, or is being killed."""


class WaitsFor(enum.Flag):
    """What has to happen before a trial that is paused, or about to be, runs again.

    Once nothing is left, a paused trial is queued for its start. To learn why a trial does not
    resume, look at `Trial.waits_for`.

    ============  ========================================  =====================================
    waits for     since                                     until
    ============  ========================================  =====================================
    ``DECISION``  a pause or an exploit is decided          the scheduler or the user resumes it;
                                                            the pause was only a means, to change
                                                            its resources or to exploit a donor
                                                            that never saved; or no pause follows
    ``DONOR``     it exploits a trial that has yet to save  the donor saves, or never will
    ``USER``      the user pauses it, whatever its status   the user resumes it, or a new session
                                                            begins
    ============  ========================================  =====================================
    """

    NOTHING = 0
    DECISION = enum.auto()
    DONOR = enum.auto()
    USER = enum.auto()


class TerminationReason(enum.StrEnum):
    """Why a trial is over; kept apart from the status, so that interrupted trials can resume."""

    COMPLETED = "completed"
    STOPPED_EARLY = "stopped early"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def word(self) -> str:
        """The reason as one word, for columns and files: ``"stopped_early"``."""
        return self.value.replace(" ", "_")


CANNOT_PAUSE = Failure(
    "CannotPause",
    "the scheduler paused a trial that has no checkpoint to continue from; report one with "
    "each result at which it may be paused, "
    'or use a scheduler that only stops, e.g. ASHAScheduler(type="stopping")',
)


@record
class OpenUpload:
    """What is known of a checkpoint that has been reported and is still being stored.

    Attributes:
        score: Value of ``checkpoint_score_attribute`` in the result it belongs to, None without.
        num_rows: How many of the trial's results counted up to that one.
    """

    score: float | None
    num_rows: int


@record
class AppliedExploit:
    """An exploit that has been applied: a trial continues from its donor's checkpoint.

    Attributes:
        attempt: The trial's last attempt before it.
        num_rows: How many results of the trial count that were reported before it.
        iteration: ``training_iteration`` that the trial had reached.
        config: Its hyperparameters until then.
        donor_id: The donor.
        checkpoint: The donor's checkpoint.
        from_iteration: ``training_iteration`` after which its results continue: that of the
            checkpoint, unless it had to begin further back.
        first_checkpoint: Index that its own next checkpoint got.
        reason: Why.
        is_over: Whether the donor's checkpoint is no longer needed: the trial has saved one of its
            own, or the donor's was damaged or deleted.
    """

    attempt: int
    num_rows: int
    iteration: int
    config: Annotated[Mapping[str, Any], CONFIG]
    donor_id: Annotated[str, Key("donor")]
    checkpoint: CheckpointRecord
    from_iteration: int
    first_checkpoint: int
    reason: Reason
    is_over: bool = False


TRAINABLE_DONE: Final = "trainable.done"
"""Rule for which a trial ends whose result says that it is done."""


USER_PAUSE: Final = "user.pause"
"""Rule for which trials are paused by the user."""


NODE_DRAINING: Final = "node.draining"
"""Rule for which trials leave a node that is going to leave, to continue on another one."""


@record
class Intention:
    """A decision in flight: the worker will be asked to leave, or has been and has not left yet."""

    reply: Annotated[ReportReply, Key("verdict")]
    ending: TerminationReason
    reason: Reason

    def outweighs(self, other: Intention | None) -> bool:
        """Return whether this replaces another intention.

        An end for good outweighs an exploit, that a pause, and that an interruption. A pause that
        the scheduler wants outweighs one that the user wants, since the user may take theirs back.
        Otherwise the first intention stays. A trial that is interrupted on its way into a pause is
        paused: it continues when it is resumed, and not as soon as the experiment does. One that
        only moves to another node does anything else that is decided instead.
        """
        return other is None or _weight(self) > _weight(other)


def _weight(intention: Intention) -> int:
    if intention.reason.rule == NODE_DRAINING:
        return -1
    match intention.reply:
        case ReportReply.STOP:
            return 0 if intention.ending is TerminationReason.INTERRUPTED else 4
        case ReportReply.EXPLOIT:
            return 3
        case _:
            return 1 if intention.reason.rule == USER_PAUSE else 2


def _without_config(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != CONFIG_KEY}


_OF_VALIDATIONS: Final = frozenset({"validations", "checkpoint_results", "late_pause"})
"""Keys of what is written of a `TrialValidations`; without one of these there is no other."""


def _tracked(objective: TrackedMetric) -> list[Any] | None:
    return objective.state() if objective.metric else None


def _is_decided(waits_for: WaitsFor) -> bool:
    return WaitsFor.DECISION not in waits_for


def _undecided(is_to_resume: bool) -> WaitsFor:
    return WaitsFor.NOTHING if is_to_resume else WaitsFor.DECISION


_REPLACEMENTS: Final = {
    "error_file": "its file is error.txt in trial.local_path",
    "get_error": "use trial.failures, or result.error",
    "has_reported_at_least_once": "use bool(trial.last_result)",
    "logdir": "use trial.local_path",
    "metric_analysis": "use trial.summary[metric].min, .max and .last",
    "runner_id": "use trial.trial_id",
    "trial_name": "use str(trial)",
}
"""Names of Ray Tune's trials that do not exist here, each with the alternative."""


class _Answer(int):
    """A truth value that may be called: what are properties here are methods in Ray Tune."""

    __slots__ = ()

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


_YES: Final = cast("bool", _Answer(True))
_NO: Final = cast("bool", _Answer(False))


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Trial:
    """One training run with one configuration.

    The same object stands for the trial from its suggestion to its end, through pauses and retries,
    and hashes by identity, so it can be the key of a user's dictionary. To users and plug-ins it is
    read-only; the core alone changes it.

    Attributes:
        trial_id: Unique in the experiment, e.g. ``t00017``; also the name of its directory.
        number: Its position in the order of creation, from 0.
        config: Its hyperparameters.
        resources: What it occupies while it runs, e.g. ``{"cpu": 1.0, "gpu": 0.5}``.
        group: The workers over which it trains; None for a single process without ranks.
        labels: What the nodes must have that run it, e.g. ``{"accelerator": "A100"}``; without
            effect where there is only this machine.
        experiment_tag: Index and searched parameters in one line, e.g. ``"17_lr=0.0100"``.
        local_path: The trial's directory, empty until the driver has laid it out.
        trainable_name: Name of what is trained, empty where it is not known.
        open_checkpoint: Makes of a checkpoint's directory what users see as `checkpoint`; None
            where there is no disk.
        status: See `Status`.
        worker: State of its worker process.
        ending: Why it is over, None while it is not.
        reason: The decision that stopped it early or last paused it, with its numbers.
        attempt: How often it has been started, pauses included.
        superseded_attempt: The last attempt whose results no longer count, since the trial was
            restarted after it; 0 for none.
        num_failures: How many attempts have failed.
        last_result: The latest result, nested as reported, with ``config``; empty before the first.
        summary: Running statistics of each of its metrics.
        objective: The newest and the best value of the metric that the experiment optimises, with
            their iterations.
        checkpoints: Checkpoints that retention keeps, oldest first.
        uploads: Checkpoints that the current attempt has reported and is still storing, by index.
        leases: Indices of checkpoints that retention keeps for a reader, by the reader: the id of a
            trial that exploits this one, or ``""`` for the trial itself, just started from it.
        next_checkpoint: Index that the next checkpoint gets.
        resumed_iteration: ``training_iteration`` from which the current attempt continued; later
            results are reported again.
        resumed_row: How many results count up to there.
        reported_attempt: The last attempt that has reported a result; None where an earlier release
            has not noted it.
        intention: A decision that the worker has not yet carried out.
        exploit: A decided exploit that is not yet applied, since the worker is still there or the
            donor's checkpoint is not; None for none.
        resize: What the trial will occupy once its worker has left for that; None for no change.
        waits_for: What has to happen before it runs again, once it is paused; see `WaitsFor`.
        grafts: The exploits that have been applied, oldest first.
        num_rows: How many of its results count, those from before exploits included.
        owes_save: Whether the next reply has to ask the worker for a checkpoint.
        nodes: Names of the nodes of the current or the latest attempt: one where all its processes
            are on the same, otherwise one for each worker, by rank; empty where there is only this
            machine, and before the first attempt.
        gpu_ids: Devices assigned to the current attempt, each of the node of its worker.
        start_time_s: Experiment time at which the current attempt was started.
        failures: What went wrong in each failed attempt.
        validation_part: What is known of the validations of its checkpoints; None where none is
            validated and a single process trains.
        farthest_iteration: The largest ``training_iteration`` of all attempts.
        num_vain_attempts: How many attempts in a row have failed before they got any farther.
        losses: The attempts that were lost since it got any farther, each with the reason; empty
            where `ExperimentSettings.max_losses` sets no limit.
    """

    trial_id: Annotated[str, Key("id")]
    config: Annotated[Mapping[str, Any], CONFIG]
    resources: Mapping[str, float]
    experiment_tag: Annotated[str, Key("tag")] = ""
    _status: Annotated[Status, Key("status")] = Status.PENDING
    worker: WorkerState = WorkerState.ABSENT
    ending: TerminationReason | None = None
    reason: Reason | None = None
    intention: Intention | None = None
    owes_save: bool = False
    attempt: int = 0
    num_failures: int = 0
    num_vain_attempts: int = 0
    farthest_iteration: int = 0
    gpu_ids: tuple[int, ...] = ()
    start_time_s: float = 0.0
    last_result: Annotated[dict[str, Any], Form(_without_config, dict)] = field(
        default_factory=dict
    )
    summary: dict[
        str, Annotated[MetricSummary, Form(MetricSummary.state, MetricSummary.from_state)]
    ] = field(default_factory=dict)
    objective: Annotated[TrackedMetric, Form(_tracked, TrackedMetric.from_state)] = field(
        default_factory=TrackedMetric
    )
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    leases: dict[str, int] = field(default_factory=dict)
    exploit: Exploit | None = None
    resize: Mapping[str, float] | None = None
    # Which of its flags are written, and as what, depends on the others, see `trial_fields`.
    waits_for: Annotated[WaitsFor, Key("is_to_resume"), Form(_is_decided, _undecided)] = (
        WaitsFor.NOTHING
    )
    grafts: list[AppliedExploit] = field(default_factory=list)
    num_rows: int = 0
    next_checkpoint: int = 0
    resumed_iteration: int = 0
    resumed_row: int = 0
    reported_attempt: int | None = -1
    superseded_attempt: int = 0
    failures: list[Failure] = field(default_factory=list)
    group: Annotated[WorkerGroup | None, OPTIONAL] = None
    nodes: Annotated[tuple[str, ...], OPTIONAL] = ()
    labels: Annotated[Mapping[str, str], OPTIONAL] = field(default_factory=dict)
    losses: Annotated[tuple[tuple[int, str], ...], OPTIONAL] = ()
    uploads: Annotated[dict[int, Annotated[OpenUpload, LIST]], OPTIONAL] = field(
        default_factory=dict
    )
    # What follows is written otherwise, or known otherwise.
    validation_part: Annotated[TrialValidations | None, NEVER] = None
    number: Annotated[int, NEVER] = 0
    local_path: Annotated[str, NEVER] = ""
    trainable_name: Annotated[str, NEVER] = ""
    open_checkpoint: Annotated[Callable[[str], Any] | None, NEVER] = None
    PENDING, RUNNING, PAUSED, TERMINATED, ERROR = Status

    @property
    def status(self) -> Status:
        """Where the trial stands."""
        return self._status

    @status.setter
    def status(self, status: object) -> NoReturn:
        raise AttributeError(
            f"the status of trial {self.trial_id} cannot be assigned, got {status!r}; to end "
            "a trial, give RunConfig(stop=...) a function "
            "(trial_id, result) -> bool, use a scheduler, or call stop_trial(trial_id) of the "
            "handle that Tuner.start() returns"
        )

    def move_to(self, status: Status) -> None:
        """Change the status; for the engine alone, which checks moves in `lifecycle`."""
        self._status = status

    @property
    def node(self) -> str:
        """Name of the node of its worker, or of rank 0; empty where there is only this machine."""
        return self.nodes[0] if self.nodes else ""

    @property
    def request(self) -> Mapping[str, float] | WorkerGroup:
        """What its next attempt asks for."""
        return self.group or self.resources

    @property
    def is_pausing(self) -> bool:
        """Whether its worker has been, or will be, asked to leave for a pause or an exploit."""
        return self.intention is not None and self.intention.reply in (
            ReportReply.PAUSE,
            ReportReply.EXPLOIT,
        )

    def restart(self) -> list[CheckpointRecord]:
        """Discard what the attempts so far have led to; return the checkpoints to delete."""
        dropped = list(self.checkpoints)
        self.checkpoints.clear()
        self.leases.pop("", None)
        if self.grafts:
            self.config = self.grafts[0].config
            self.grafts.clear()
        self.exploit = self.resize = None
        self.waits_for = WaitsFor.NOTHING
        self.last_result = {}
        self.summary = {}
        self.objective = TrackedMetric()
        self.num_rows = 0
        self.num_failures = self.num_vain_attempts = self.farthest_iteration = (
            self.resumed_iteration
        ) = self.resumed_row = 0
        self.losses = ()
        self.superseded_attempt = self.attempt
        self.reason = None
        self.validation_part = None
        return dropped

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a committed checkpoint to continue from; may be called as well."""
        return _NO if self.latest_checkpoint is None else _YES

    @property
    def latest_checkpoint(self) -> CheckpointRecord | None:
        """What is noted of the latest committed checkpoint from which it can continue."""
        return next((kept for kept in reversed(self.checkpoints) if not kept.is_placeholder), None)

    @property
    def checkpoint(self) -> Any:
        """The latest committed checkpoint as a `Checkpoint`; None for none."""
        latest = self.latest_checkpoint
        return (
            self.open_checkpoint(f"{self.local_path}/{latest.directory}")
            if latest and self.open_checkpoint
            else None
        )

    @property
    def path(self) -> str:
        """The trial's directory, the same as `local_path`."""
        return self.local_path

    @property
    def graft(self) -> AppliedExploit | None:
        """The latest applied exploit while the trial has saved nothing since; None for none."""
        return self.grafts[-1] if self.grafts and not self.grafts[-1].is_over else None

    @property
    def source(self) -> CheckpointRecord | None:
        """The checkpoint from which the next attempt continues; None for the beginning.

        After an exploit it is the donor's, until the trial has saved one of its own.
        """
        if self.graft:
            return self.graft.checkpoint
        return self._latest_behind(self.grafts[-1]) if self.grafts else self.latest_checkpoint

    def _latest_behind(self, graft: AppliedExploit) -> CheckpointRecord | None:
        """Return the latest checkpoint of its own since an exploit.

        Where all of those are lost, an older one counts if it leaves no gap in the trial's results.
        """
        is_free = self.num_rows == graft.num_rows
        fit = (
            kept
            for kept in reversed(self.checkpoints)
            if not kept.is_placeholder
            and (
                is_free
                or kept.index >= graft.first_checkpoint
                or kept.iteration <= graft.from_iteration
            )
        )
        return next(fit, None)

    def go_back_to_source(self) -> None:
        """Let the next attempt continue from `source`; later results will be reported again."""
        self.resumed_iteration = self.source.iteration if self.source else 0
        self.resumed_row = self.source_row

    @property
    def source_row(self) -> int:
        """How many of its results stay when it continues from `source`."""
        source, graft = self.source, self.grafts[-1] if self.grafts else None
        if source is None or (graft and (self.graft or source.index < graft.first_checkpoint)):
            return graft.num_rows if graft else 0
        if source.num_rows is not None:
            return source.num_rows
        return self._row_without_gaps(source.iteration)

    @property
    def source_id(self) -> str:
        """Whose checkpoint `source` is."""
        return self.graft.donor_id if self.graft else self.trial_id

    @property
    def validations(self) -> Mapping[int, Validation]:
        """The validation of each checkpoint for which one was requested, by its index.

        Oldest first; also of checkpoints that retention has deleted since.
        """
        return self.validation_part.validations if self.validation_part else {}

    @property
    def open_validations(self) -> Mapping[int, Validation]:
        """Those of them whose outcome has not been passed on yet."""
        return self.validation_part.open_validations if self.validation_part else {}

    @property
    def has_open_validation(self) -> bool:
        """Whether the outcome of a validation is yet to come."""
        return bool(self.open_validations)

    @property
    def leased(self) -> set[int]:
        """Indices of checkpoints that are about to be read, which retention therefore keeps."""
        leased = set(self.leases.values()) | self.open_validations.keys()
        # Where schedulers see the latest, retention keeps it anyway.
        judged = None if self.judged_index is None else self.judged_checkpoint
        return leased | {judged.index} if judged else leased

    @property
    def judged_index(self) -> int | None:
        """Index of the newest checkpoint for which scheduler and searcher know the metric.

        That is the metric that they decide by; -1 for none, None where it is always the latest.
        """
        return self.validation_part.judged_index if self.validation_part else None

    @property
    def judged_checkpoint(self) -> CheckpointRecord | None:
        """The newest checkpoint for which scheduler and searcher know the metric.

        It is the latest, unless the metric comes from validations; None for none.
        """
        index = self.judged_index
        if index is None:
            return self.latest_checkpoint
        judged = (
            kept
            for kept in reversed(self.checkpoints)
            if kept.index <= index and not kept.is_placeholder
        )
        return next(judged, None)

    @property
    def judged(self) -> Mapping[str, Any]:
        """The newest result in which scheduler and searcher know the metric; empty for none.

        It is the latest, unless the metric comes from validations.
        """
        late = self.validation_part.judged_result if self.validation_part else None
        return self.last_result if late is None else late

    @property
    def checkpoint_index(self) -> int | None:
        """Index of the committed checkpoint that schedulers see, None without one.

        That is `judged_checkpoint`: the score that they know is that of these weights.
        """
        judged = self.judged_checkpoint
        return judged.index if judged else None

    @property
    def checkpoint_iteration(self) -> int | None:
        """``training_iteration`` of the checkpoint that schedulers see, None without one."""
        judged = self.judged_checkpoint
        return judged.iteration if judged else None

    @property
    def iteration(self) -> int:
        """``training_iteration`` of the latest result, 0 before the first."""
        return int(self.last_result.get(TRAINING_ITERATION, 0))

    @property
    def is_finished(self) -> bool:
        """Whether the trial will never run again in this experiment; may be called as well."""
        return _YES if self.status in (Status.TERMINATED, Status.ERROR) else _NO

    def summarise(self, flat: Mapping[str, Any]) -> None:
        """Take a flattened result's numbers into the summary."""
        iteration = flat.get(TRAINING_ITERATION, 0)
        self._count_row(iteration)
        if iteration > self.farthest_iteration:
            self.farthest_iteration, self.num_vain_attempts, self.losses = iteration, 0, ()
        summaries = self.summary
        for name, value in flat.items():
            if (
                value.__class__ in _NO_NUMBERS
                or name in _NOT_SUMMARISED
                or not isinstance(value, (int, float))
            ):
                continue
            summary = summaries.get(name)
            if summary is None:
                summary = summaries[name] = MetricSummary()
            summary.add(value)

    def correct_summary(self, reported: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
        """Take what a validation has added to an earlier result, or changed in it.

        Args:
            reported: The result as it was summarised, flattened.
            merged: The same with what the validation has returned.
        """
        for name, value in merged.items():
            if (
                value.__class__ in _NO_NUMBERS
                or name in _NOT_SUMMARISED
                or not isinstance(value, (int, float))
            ):
                continue
            summary = self.summary.setdefault(name, MetricSummary())
            known = reported.get(name)
            if name not in reported or not isinstance(known, (int, float)):
                summary.add(value)
            elif known != value:
                summary.replace(known, value)

    def forget_checkpoints(self, indices: Collection[int]) -> None:
        """Forget what was noted of checkpoints that are gone."""
        self.objective.unmark(indices)
        if self.validation_part:
            self.validation_part.forget_checkpoints(indices)

    def _count_row(self, iteration: int) -> None:
        """Count a result.

        With the first one of an attempt, results that earlier ones reported after its checkpoint no
        longer count.
        """
        if self.grafts:
            # Results go on from where the first attempt since the exploit did, or further back.
            graft = self.grafts[-1]
            if self.num_rows == graft.num_rows or self.resumed_iteration < graft.from_iteration:
                self.grafts[-1] = replace(graft, from_iteration=self.resumed_iteration)
        if self.reported_attempt == self.attempt:
            self.num_rows += 1
        elif self.reported_attempt is None:
            self.num_rows = self._row_without_gaps(iteration)
        else:
            self.num_rows = self.resumed_row + 1
        self.reported_attempt = self.attempt

    def _row_without_gaps(self, iteration: int) -> int:
        """Return how many results count up to an iteration that is numbered without gaps."""
        graft = self.grafts[-1] if self.grafts else None
        return graft.num_rows + iteration - graft.from_iteration if graft else iteration

    def config_at(self, row: int) -> Mapping[str, Any]:
        """Return the configuration in force at a result.

        Args:
            row: The position of the result among those that count, see `num_rows`; 0 for now.
        """
        return next(
            (graft.config for graft in self.grafts if 0 < row <= graft.num_rows), self.config
        )

    @property
    def evaluated_params(self) -> dict[str, Any]:
        """The configuration with nested keys flattened to ``"a/b"``."""
        return flatten(self.config)

    if not TYPE_CHECKING:  # checkers are to see which names exist

        def __getattr__(self, name: str) -> Any:
            raise missing_name(f"{type(self).__name__!r} object", name, _REPLACEMENTS)

    def __str__(self) -> str:
        """Return the name that training code gets from ``get_context().get_trial_name()``."""
        return f"{self.trainable_name}_{self.trial_id}" if self.trainable_name else self.trial_id

    def __repr__(self) -> str:
        """Return id, status and worker state."""
        return (
            f"Trial({self.trial_id}, {self.status}, worker={self.worker}, "
            f"attempt={self.attempt}, iteration={self.iteration})"
        )


def trial_fields(trial: Trial, translate: Translate = dict) -> Body:
    """Return the state of a trial as JSON values, without the path of its directory.

    Args:
        trial: The trial.
        translate: Puts its configurations into JSON values.
    """
    fields = encode(trial, translate)
    fields["is_to_resume"] = _may_pause(trial) and fields["is_to_resume"]
    if trial.group:
        fields.pop("labels", None)
    if trial.validation_part:
        fields |= encode(trial.validation_part)
    return fields


def trial_from(fields: Mapping[str, Any], translate: Translate = dict) -> Trial:
    """Return the trial that `trial_fields` described.

    Args:
        fields: The description.
        translate: Brings its configurations back from JSON values.

    Raises:
        KeyError, TypeError, ValueError: If the fields are not such a description.
    """
    trial = decode(Trial, fields, translate, is_whole=False)
    if "reported_attempt" not in fields:
        trial.reported_attempt = None
    if trial.group:
        trial.labels = trial.group.labels
    if trial.objective is None:
        trial.objective = TrackedMetric()
    # Trials that the user holds are listed in the trial table's state.
    if not _may_pause(trial):
        trial.waits_for = WaitsFor.NOTHING
    if trial.exploit and trial.exploit.checkpoint is None:
        trial.waits_for |= WaitsFor.DONOR
    if trial.last_result:
        # A trial that has not reported since its last exploit has its last result from the
        # configuration before.
        has_reported = not trial.grafts or trial.num_rows > trial.grafts[-1].num_rows
        trial.last_result[CONFIG_KEY] = trial.config if has_reported else trial.grafts[-1].config
    if not _OF_VALIDATIONS.isdisjoint(fields):
        trial.validation_part = decode(capabilities.TrialValidations, fields, is_whole=False)
    return trial


def _may_pause(trial: Trial) -> bool:
    return trial.status is Status.PAUSED or trial.is_pausing
