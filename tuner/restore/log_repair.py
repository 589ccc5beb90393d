"""Repair of log files at a restore: rows that the journal has and they lack are written again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tuner.callbacks import Callback, TrialFileLogger
from tuner.callbacks.trackers.tracker import TrackerCallback
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.journal.rows import Rows


def repair_logs(
    callbacks: Iterable[Callback], trials: Sequence[Trial], rows: Rows, recent: Collection[str]
) -> None:
    """Rewrite log files that lack rows, since the driver was killed or the disk was full.

    The files of trials that may go on are looked at now, before anything is added to them; those of
    all others in the background.

    Args:
        callbacks: Those of the experiment; the others are left alone.
        trials: The trials as the journal leaves them.
        rows: The results that the journal holds.
        recent: Ids of trials whose files are written anew wherever it is not certain that they are
            complete.
    """
    # Rows are written in the background, up to seconds after their records. So files of trials with
    # recent records may lack rows even if their last line is whole.
    unsettled = [trial for trial in trials if _may_go_on(trial) or trial.trial_id in recent]
    settled = [trial for trial in trials if not (_may_go_on(trial) or trial.trial_id in recent)]
    for logger in callbacks:
        if isinstance(logger, TrackerCallback):
            logger.catch_up(
                [
                    trial
                    for trial in trials
                    if trial.trial_id in recent or not trial.is_finished or logger.is_behind(trial)
                ],
                rows.of,
            )
        if not isinstance(logger, TrialFileLogger):
            continue
        for trial in unsettled:
            if not (
                logger.has_verified_size(trial)
                or (trial.trial_id not in recent and logger.is_complete(trial))
            ):
                logger.rewrite(trial, rows.of(trial.trial_id))
        logger.audit(settled, rows.of)


def _may_go_on(trial: Trial) -> bool:
    return (
        not trial.is_finished
        or trial.has_open_validation
        or trial.status is Status.ERROR
        or trial.ending is TerminationReason.INTERRUPTED
    )
