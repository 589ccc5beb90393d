"""Invariants between trials, and between trials and their scheduler: leases, exploits and pauses.

One function each, as in `invariants`, which says when they are checked.
"""

from __future__ import annotations

from typing import Final

from tuner.core.commands import StartWorker
from tuner.core.experiment import Experiment
from tuner.core.trial import Status, TerminationReason, Trial, WorkerState
from tuner.core.worker_records import ReportReply

from .environment import Environment
from .invariants import require

_TO_BE: Final = " to be"


def leases_have_readers(experiment: Experiment) -> None:
    """I16: a lease belongs to a trial that starts, or may still start, from the checkpoint."""
    for donor in experiment.trials:
        kept = {checkpoint.index for checkpoint in donor.checkpoints}
        for reader, index in donor.leases.items():
            require(
                "I16",
                index in kept,
                "%r has leased checkpoint %s, which %s does not have",
                reader,
                index,
                donor,
            )
            trial = experiment.trial_table.find(reader.removesuffix(_TO_BE)) if reader else None
            if trial is None:
                continue
            owed = _origin(trial) if reader == trial.trial_id else _aim(trial)
            require(
                "I16",
                owed == (donor.trial_id, index),
                "%r keeps checkpoint %s of %s and has no use for it",
                reader,
                index,
                donor,
            )


def _origin(trial: Trial) -> tuple[str, int | None]:
    return (trial.graft.donor_id, trial.graft.checkpoint.index) if trial.graft else ("", None)


def _aim(trial: Trial) -> tuple[str, int | None]:
    return (trial.exploit.donor_id, trial.exploit.checkpoint) if trial.exploit else ("", None)


def no_trial_waits_for_an_existing_checkpoint(experiment: Experiment) -> None:
    """I9: a trial waits for its donor's checkpoint only while there is none, or a newer one is due.

    A donor that was told to leave may save first, and its checkpoint is used after its exit.
    """
    for trial in experiment.trials:
        if trial.exploit is None:
            continue
        require("I9", not trial.is_finished, "%s is over and waits for a checkpoint", trial)
        is_on_its_way = trial.status is Status.PAUSED or trial.intention is not None
        require(
            "I9", is_on_its_way, "%s is never told to continue from its donor's checkpoint", trial
        )
        if trial.exploit.checkpoint is not None:
            continue
        donor = experiment.trial_table[trial.exploit.donor_id]
        # With the others it goes on, and may be waited for.
        is_over = donor.is_finished and donor.ending is not TerminationReason.INTERRUPTED
        require("I9", not is_over, "%s waits for %s, which is over", trial, donor)
        is_idle = donor.status is not Status.PENDING and not _is_about_to_save(donor)
        require(
            "I9",
            not (donor.has_checkpoint and is_idle),
            "%s waits for %s, which has a checkpoint",
            trial,
            donor,
        )


def _is_about_to_save(donor: Trial) -> bool:
    is_to_leave = donor.intention is not None and donor.intention.reply in (
        ReportReply.PAUSE,
        ReportReply.EXPLOIT,
    )
    return (
        donor.owes_save or is_to_leave or donor.worker in (WorkerState.SAVING, WorkerState.STOPPING)
    )


def exploits_start_as_decided(env: Environment, start: StartWorker) -> None:
    """I6: after an exploit a trial trains with the configuration that the scheduler has chosen."""
    trial = env.experiment.trial_table[start.trial_id] if env.experiment else None
    if trial is None or not trial.grafts:
        return
    latest = trial.grafts[-1]
    wanted = env.ack_log.exploits.get((trial.trial_id, str(latest.reason)), [])
    require(
        "I6",
        start.config in wanted,
        "%s trains with %s, and should with one of %s",
        trial,
        start.config,
        wanted,
    )
    own = [
        checkpoint
        for checkpoint in trial.checkpoints
        if checkpoint.index >= latest.first_checkpoint
    ]
    require(
        "I5",
        start.source_id == trial.trial_id or not own,
        "%s starts from %s's checkpoint and has %s",
        trial,
        start.source_id,
        own,
    )


def record_paused_trials(env: Environment) -> None:
    """Log which trials are paused at the end of a turn."""
    paused = env.experiment.trial_table.paused.values() if env.experiment else ()
    env.ack_log.paused = {trial.trial_id: trial.attempt for trial in paused if trial.source}


def paused_trials_survive_an_interruption(env: Environment, trial: Trial) -> None:
    """I20: a trial that is paused when the experiment is interrupted stays paused."""
    was_paused = env.ack_log.paused.get(trial.trial_id) == trial.attempt
    require(
        "I20",
        trial.ending is not TerminationReason.INTERRUPTED or not was_paused,
        "%s lay paused and was interrupted",
        trial,
    )


def paused_trials_are_resumed(env: Environment, experiment: Experiment) -> None:
    """I9: every paused trial is resumed by its scheduler, unless the scheduler is a user's."""
    for trial in experiment.trials:
        is_left = (
            trial.status is Status.TERMINATED
            and trial.reason is not None
            and trial.reason.rule == "idle"
        )
        require(
            "I9", env.scenario.scheduler == "given" or not is_left, "%s was never resumed", trial
        )
