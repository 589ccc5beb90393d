"""Rebuilds an experiment from its journal."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.core.commands import Notice, TrialAdded
from tuner.core.events import SearchEnded, SuggestionPostponed, TrialForked, TrialSuggested
from tuner.core.experiment import Experiment
from tuner.storage import records
from tuner.storage.configs import ConfigCodec
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import trial_path
from tuner.storage.past import happened

from .proposer import Proposer

_log = logging.getLogger("tuner")
_RECENT_S = 10.0
_ANSWERS: Final = (TrialSuggested, SuggestionPostponed, SearchEnded)
"""What a searcher may say to the question for a configuration."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Where a journal leaves an experiment.

    Attributes:
        elapsed_s: Its running time so far.
        recent: Trials of which something happened shortly before the end, so that the files written behind the journal may lack it.
    """

    elapsed_s: float
    recent: list[str]


def replay(
    directory: Path,
    experiment: Experiment,
    proposer: Proposer,
    configs: ConfigCodec | None = None,
    *,
    after: int = 0,
    elapsed_s: float = 0.0,
    recent_s: float = _RECENT_S,
    disk: Disk = LOCAL_DISK,
) -> Replayed:
    """Fold the journal into an experiment, and let scheduler, stopper and searcher live through it again.

    Nothing is started and nothing deleted, and callbacks hear of nothing: what the journal tells has happened. What was decided is read
    from it and not decided anew, so another scheduler, stop criterion or searcher governs the future only.

    Args:
        directory: The experiment's directory, whose journal has been recovered.
        experiment: The experiment as it was after record number `after`: without trials, with the settings it was declared with.
        proposer: The desk of the searcher, likewise.
        configs: How configurations were written down; None where they are JSON values.
        after: The last record not to be read.
        elapsed_s: The experiment's running time at that record.
        recent_s: How long ago something may have happened to a trial for it to count as recent, in seconds.
        disk: Where the journal lies.

    Raises:
        StorageError: If a configuration cannot be rebuilt.
        DamagedJournal: If the journal does not verify.
    """
    heard_of_s: dict[str, float] = {}
    untold: list[Notice] = []
    for past in happened(directory, after, elapsed_s, disk):
        elapsed_s = past.at_s
        if past.event is None:
            continue
        event, advice = (past.event, past.advice) if configs is None else records.with_configs(past.event, past.advice, configs.decode)
        if is_answer := isinstance(event, _ANSWERS):
            event = proposer.relive(event)
        elif isinstance(event, TrialForked):
            proposer.disown(event.trial_id, is_awaited=False)
        outcome = experiment.handle(event, elapsed_s, advice)
        for notice in outcome.notices:
            if isinstance(notice, TrialAdded):
                notice.trial.local_path = trial_path(directory, notice.trial.trial_id)
            heard_of_s[notice.trial.trial_id] = elapsed_s
        untold += outcome.notices
        if not is_answer:
            # What followed from one answer must not be heard before the others are given: they were asked for together.
            _tell(proposer, untold)
            untold = []
    _tell(proposer, untold)
    _say_what_has_changed(experiment, proposer)
    recent = [trial_id for trial_id, at_s in heard_of_s.items() if at_s >= elapsed_s - recent_s]
    return Replayed(elapsed_s, recent)


def _tell(proposer: Proposer, notices: Sequence[Notice]) -> None:
    for notice in notices:
        proposer.tell(notice)


def _say_what_has_changed(experiment: Experiment, proposer: Proposer) -> None:
    if num_changes := experiment.counsel.num_changes_of_mind:
        _log.info("scheduler and stop criterion would decide otherwise now in %d places; what was decided stays decided", num_changes)
    if proposer.foreign:
        _log.info(
            "the searcher proposes other configurations now for %d trials; the recorded ones are kept, and it learns nothing from them",
            len(proposer.foreign),
        )
