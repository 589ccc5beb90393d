"""Status of a trial and state of its worker: every transition there is, as tables.

Two small machines, coupled by one rule, instead of one machine with the product of their states.

*The trial* is what the user sees: it waits (PENDING), trains (RUNNING), is set aside with a
committed checkpoint (PAUSED), or is over (TERMINATED, ERROR). *Why* it is over is no status but a
`TerminationReason`, kept beside it, because "interrupted" and "completed" differ only in what a
later restore may do with them.

*The worker* is the process of the trial's current attempt. Only a WAITING worker, which has
reported and is blocked on the reply, can be told anything. That is why a decision about a TRAINING
worker is an *intention*, a field of the trial that the reply to the next report carries out, and
never a message that might cross one of the worker's.

*The coupling:* a worker exists exactly while its trial is RUNNING. A trial becomes PAUSED,
TERMINATED, ERROR or PENDING only once its worker is ABSENT, so that its slot is free and its
checkpoint, if any, is committed.

::

    PENDING ──start──▶ RUNNING ──end──▶ TERMINATED
      ▲  │               │ │ └──fail──▶ ERROR
      │  └─end, fail     │ └─pause─▶ PAUSED ─start▶ RUNNING
      └──retry, requeue──┘              └─requeue, end, fail
      ▲
      └── revive ── TERMINATED, ERROR, PAUSED, by a restarted driver only

    ABSENT ─launch▶ STARTING ─begin▶ TRAINING ─report▶ WAITING
                                       ▲  ▲               │
                                       │  └────go on──────┤
                                     saved ◀─SAVING◀─save─┤
                                STOPPING ◀──leave─────────┘

What the exit of a worker means for its trial depends only on what the worker was asked to do and
how it exited, and so is a table too: `EXIT_MOVES`.

Only this module changes `Trial.status` and `Trial.worker` of a running experiment. It does not know
schedulers, resources or time. A move that the tables do not list raises `InvalidTransition` and
leaves the trial unchanged.
"""

from __future__ import annotations

import enum

from schedulers.decisions import Reason
from tuner.errors import InvalidTransition

from .events import Outcome
from .trial import NODE_DRAINING, Intention, Status, TerminationReason, Trial, WorkerState
from .worker_records import ReportReply


class TrialMove(enum.StrEnum):
    """What can happen to a trial's status."""

    START = "start"
    """There is room for it: a worker is launched."""
    PAUSE = "pause"
    """Its worker has left, and a checkpoint to continue from is committed."""
    RETRY = "retry"
    """Its attempt failed, and it may try again."""
    REQUEUE = "requeue"
    """Its worker was lost through no fault of its own or, before its first result, interrupted; or
    the exploit that it waited for failed."""
    END = "end"
    """It has done its training, or is stopped for good, or interrupted."""
    FAIL = "fail"
    """Its attempt failed, and it has no retry left; or it could never be started."""
    REVIVE = "revive"
    """A restarted driver resumes it, or starts it again from the beginning."""


class WorkerMove(enum.StrEnum):
    """What can happen to a worker."""

    LAUNCH = "launch"
    """A process is asked for."""
    BEGIN = "begin"
    """The process is up and calls the training code."""
    REPORT = "report"
    """The training code reports, and waits."""
    GO_ON = "go on"
    """It is asked to continue training."""
    SAVE = "save"
    """It is asked to save a checkpoint, and then to continue training."""
    SAVED = "saved"
    """It has committed the checkpoint, or could not."""
    LEAVE = "leave"
    """It is asked to stop or to pause."""
    KILL = "kill"
    """Its process group is killed, since it took too long or the interruption is urgent."""
    EXIT = "exit"
    """The process and its whole group are gone."""


TRIAL_TABLE: dict[tuple[Status, TrialMove], Status] = {
    (Status.PENDING, TrialMove.START): Status.RUNNING,
    (Status.PENDING, TrialMove.END): Status.TERMINATED,
    (Status.PENDING, TrialMove.FAIL): Status.ERROR,
    (Status.RUNNING, TrialMove.PAUSE): Status.PAUSED,
    (Status.RUNNING, TrialMove.RETRY): Status.PENDING,
    (Status.RUNNING, TrialMove.REQUEUE): Status.PENDING,
    (Status.RUNNING, TrialMove.END): Status.TERMINATED,
    (Status.RUNNING, TrialMove.FAIL): Status.ERROR,
    (Status.PAUSED, TrialMove.START): Status.RUNNING,
    (Status.PAUSED, TrialMove.REQUEUE): Status.PENDING,
    (Status.PAUSED, TrialMove.END): Status.TERMINATED,
    (Status.PAUSED, TrialMove.FAIL): Status.ERROR,
    # Only a restarted driver resumes trials that were over, and restarts paused ones.
    (Status.PAUSED, TrialMove.REVIVE): Status.PENDING,
    (Status.TERMINATED, TrialMove.REVIVE): Status.PENDING,
    (Status.ERROR, TrialMove.REVIVE): Status.PENDING,
}

WORKER_TABLE: dict[tuple[WorkerState, WorkerMove], WorkerState] = {
    (WorkerState.ABSENT, WorkerMove.LAUNCH): WorkerState.STARTING,
    (WorkerState.STARTING, WorkerMove.BEGIN): WorkerState.TRAINING,
    (WorkerState.STARTING, WorkerMove.KILL): WorkerState.STOPPING,
    (WorkerState.STARTING, WorkerMove.EXIT): WorkerState.ABSENT,
    (WorkerState.TRAINING, WorkerMove.REPORT): WorkerState.WAITING,
    (WorkerState.TRAINING, WorkerMove.KILL): WorkerState.STOPPING,
    (WorkerState.TRAINING, WorkerMove.EXIT): WorkerState.ABSENT,
    (WorkerState.WAITING, WorkerMove.GO_ON): WorkerState.TRAINING,
    (WorkerState.WAITING, WorkerMove.SAVE): WorkerState.SAVING,
    (WorkerState.WAITING, WorkerMove.LEAVE): WorkerState.STOPPING,
    (WorkerState.WAITING, WorkerMove.KILL): WorkerState.STOPPING,
    (WorkerState.WAITING, WorkerMove.EXIT): WorkerState.ABSENT,
    (WorkerState.SAVING, WorkerMove.SAVED): WorkerState.TRAINING,
    (WorkerState.SAVING, WorkerMove.KILL): WorkerState.STOPPING,
    (WorkerState.SAVING, WorkerMove.EXIT): WorkerState.ABSENT,
    # A worker on its way out may still save what it was asked for, and may be killed for taking too
    # long.
    (WorkerState.STOPPING, WorkerMove.SAVED): WorkerState.STOPPING,
    (WorkerState.STOPPING, WorkerMove.KILL): WorkerState.STOPPING,
    (WorkerState.STOPPING, WorkerMove.EXIT): WorkerState.ABSENT,
}

EXIT_MOVES: dict[tuple[ReportReply, Outcome], TrialMove] = {
    # It was not asked to leave. FAIL becomes RETRY where the trial has attempts left.
    (ReportReply.CONTINUE, Outcome.COMPLETED): TrialMove.END,
    (ReportReply.CONTINUE, Outcome.STOPPED): TrialMove.END,
    (ReportReply.CONTINUE, Outcome.FAILED): TrialMove.FAIL,
    (ReportReply.CONTINUE, Outcome.UNSAVED): TrialMove.FAIL,
    (ReportReply.CONTINUE, Outcome.KILLED): TrialMove.FAIL,
    (ReportReply.CONTINUE, Outcome.LOST): TrialMove.REQUEUE,
    (ReportReply.PAUSE, Outcome.COMPLETED): TrialMove.END,
    (ReportReply.PAUSE, Outcome.STOPPED): TrialMove.PAUSE,
    (ReportReply.PAUSE, Outcome.FAILED): TrialMove.FAIL,
    (ReportReply.PAUSE, Outcome.UNSAVED): TrialMove.FAIL,
    (ReportReply.PAUSE, Outcome.KILLED): TrialMove.FAIL,
    (ReportReply.PAUSE, Outcome.LOST): TrialMove.REQUEUE,
    # What it has trained is given up for another trial's checkpoint, so nothing it does on its way
    # out matters, unless it is done.
    (ReportReply.EXPLOIT, Outcome.COMPLETED): TrialMove.END,
    (ReportReply.EXPLOIT, Outcome.STOPPED): TrialMove.PAUSE,
    (ReportReply.EXPLOIT, Outcome.FAILED): TrialMove.PAUSE,
    (ReportReply.EXPLOIT, Outcome.UNSAVED): TrialMove.PAUSE,
    (ReportReply.EXPLOIT, Outcome.KILLED): TrialMove.PAUSE,
    (ReportReply.EXPLOIT, Outcome.LOST): TrialMove.PAUSE,
    # It was to end anyway: how it did so changes nothing, what went wrong is kept with the trial.
    # But for a checkpoint that was asked for and is missing: without it, what has been trained is
    # lost.
    (ReportReply.STOP, Outcome.COMPLETED): TrialMove.END,
    (ReportReply.STOP, Outcome.STOPPED): TrialMove.END,
    (ReportReply.STOP, Outcome.FAILED): TrialMove.END,
    (ReportReply.STOP, Outcome.UNSAVED): TrialMove.FAIL,
    (ReportReply.STOP, Outcome.KILLED): TrialMove.END,
    (ReportReply.STOP, Outcome.LOST): TrialMove.END,
}

EVACUATION_MOVES: dict[Outcome, TrialMove] = {
    # It was asked to leave since its node is going to, and continues on another one.
    Outcome.COMPLETED: TrialMove.END,
    Outcome.STOPPED: TrialMove.REQUEUE,
    Outcome.FAILED: TrialMove.FAIL,
    Outcome.UNSAVED: TrialMove.FAIL,
    # Had it not been asked to leave, it would not have been killed for taking too long.
    Outcome.KILLED: TrialMove.REQUEUE,
    Outcome.LOST: TrialMove.REQUEUE,
}

LIVE_WORKERS = frozenset(WorkerState) - {WorkerState.ABSENT}


def move_trial(trial: Trial, move: TrialMove) -> None:
    """Change the trial's status as the table says.

    Raises:
        InvalidTransition: If the table has no such move; the trial is untouched.
    """
    after = TRIAL_TABLE.get((trial.status, move))
    if after is None:
        raise _refusal(trial, move)
    trial.move_to(after)


def move_worker(trial: Trial, move: WorkerMove) -> None:
    """Change the state of the trial's worker as the table says.

    Raises:
        InvalidTransition: If the table has no such move; the trial is untouched.
    """
    after = WORKER_TABLE.get((trial.worker, move))
    if after is None:
        raise _refusal(trial, move)
    trial.worker = after


def can_move_worker(trial: Trial, move: WorkerMove) -> bool:
    """Return whether the table lists this move for the worker's state."""
    return (trial.worker, move) in WORKER_TABLE


def exit_move(trial: Trial, outcome: Outcome) -> TrialMove:
    """Return what the exit of its worker means for the trial; FAIL also where it may retry."""
    if trial.intention and trial.intention.reason.rule == NODE_DRAINING:
        return EVACUATION_MOVES[outcome]
    reply = trial.intention.reply if trial.intention else ReportReply.CONTINUE
    return EXIT_MOVES[reply, outcome]


def exit_termination(
    intention: Intention | None, outcome: Outcome
) -> tuple[TerminationReason, Reason | None]:
    """Return why a trial is over whose worker exited with this intention.

    A trial whose training code returned is completed, even if it was about to be interrupted.
    """
    if intention is None or (
        outcome is Outcome.COMPLETED and intention.ending is TerminationReason.INTERRUPTED
    ):
        return TerminationReason.COMPLETED, None
    return intention.ending, intention.reason


def is_coupled(trial: Trial) -> bool:
    """Return whether a worker exists exactly if the trial is RUNNING."""
    return (trial.status is Status.RUNNING) == (trial.worker in LIVE_WORKERS)


def _refusal(trial: Trial, move: TrialMove | WorkerMove) -> InvalidTransition:
    failures = "; ".join(str(failure) for failure in trial.failures) or "none"
    return InvalidTransition(
        f"{move!s} is not possible for trial {trial.trial_id}, which is {trial.status} with "
        f"its worker {trial.worker} "
        f"(attempt {trial.attempt}, iteration {trial.iteration}, intention {trial.intention}, "
        f"failures: {failures})"
    )
