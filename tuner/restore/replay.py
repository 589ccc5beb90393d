"""Rebuilds an experiment from its journal."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.core.commands import Notice, TrialAdded
from tuner.core.events import (
    Event,
    SearchEnded,
    SuggestionPostponed,
    TrialForked,
    TrialSuggested,
    TurnEnded,
)
from tuner.core.experiment import Experiment
from tuner.journal import records
from tuner.journal.reader import read_events
from tuner.storage.checkpoints import locate
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import trial_path

from .search_adapter import Answer, Call, Proposer

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
        directory: The experiment's directory; a torn end of its journal is passed over.
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
    past_search = _PastSearch(experiment, proposer)
    for past in read_events(directory, after, elapsed_s, disk):
        elapsed_s = past.at_s
        if past.event is None:
            continue
        event, recorded = (
            (past.event, past.recorded)
            if configs is None
            else records.with_configs(past.event, past.recorded, configs.decode)
        )
        if isinstance(event, _ANSWERS):
            event = past_search.relive(event)
        elif isinstance(event, TrialForked):
            proposer.disown(event.trial_id, is_awaited=False)
        outcome = experiment.handle(event, elapsed_s, recorded)
        for notice in outcome.notices:
            if isinstance(notice, TrialAdded):
                locate(notice.trial, trial_path(directory, notice.trial.trial_id))
            heard_of_s[notice.trial.trial_id] = elapsed_s
        past_search.follow(event, outcome.notices)
    past_search.tell()
    _say_what_has_changed(experiment, proposer)
    recent = [trial_id for trial_id, at_s in heard_of_s.items() if at_s >= elapsed_s - recent_s]
    return Replayed(elapsed_s, recent)


class _PastSearch:
    """Calls a searcher in the order in which `SuggestionQueue` has called it.

    At the end of a turn without questions under way it was told everything, then asked what the turn had left unanswered.
    """

    def __init__(self, experiment: Experiment, proposer: Proposer) -> None:
        self._desk = experiment.suggestion_budget
        self._proposer = proposer
        self._untold: list[Call] = []
        self._num_asked = (
            self._desk.num_outstanding
        )  # a snapshot is taken just before they are asked
        self._has_refused = False

    def relive(self, recorded: Answer) -> Answer:
        """Let the searcher answer again, where it was asked: after a refusal, the rest of the questions got the same answer unasked."""
        if self._has_refused:
            return recorded
        self._has_refused = not isinstance(recorded, TrialSuggested)
        return self._proposer.relive(recorded)

    def follow(self, event: Event, notices: Sequence[Notice]) -> None:
        """Take note of an event that has been folded, and of what followed from it."""
        self._untold += filter(None, map(self._proposer.call_for, notices))
        # A restarted driver does not get the answers that the last one was waiting for.
        self._num_asked = min(
            self._num_asked - isinstance(event, _ANSWERS), self._desk.num_outstanding
        )
        if isinstance(event, TurnEnded) and self._num_asked <= 0:
            self.tell()
            self._num_asked = self._desk.num_outstanding
            self._has_refused = False

    def tell(self) -> None:
        """Let the searcher hear what it has not heard."""
        calls, self._untold = self._untold, []
        for call in calls:
            call()


def _say_what_has_changed(experiment: Experiment, proposer: Proposer) -> None:
    if num_changes := experiment.policies.num_deviations:
        _log.info(
            "scheduler and stop criterion would decide otherwise now in %d places; what was decided stays decided",
            num_changes,
        )
    if proposer.foreign:
        _log.info(
            "the searcher proposes other configurations now for %d trials; the recorded ones are kept, and it learns nothing from them",
            len(proposer.foreign),
        )
