"""Rebuilds an experiment from its journal."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.core.commands import Notice
from tuner.core.events import Event, SuggestionPostponed, TrialSuggested, TurnEnded
from tuner.core.experiment import Experiment
from tuner.errors import StorageError
from tuner.storage import journal, records, strict_json
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import trial_directory

from .proposer import Answer, Proposer

_log = logging.getLogger("tuner")
_RECENT_S = 10.0
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where an object lay in memory, which its ``repr`` may tell, differs from process to process."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Where a journal leaves an experiment.

    Attributes:
        elapsed_s: Its running time so far.
        recent: Trials of which something happened shortly before the end, so that the files written behind the journal may lack it.
    """

    elapsed_s: float
    recent: list[str]


def replay(directory: Path, experiment: Experiment, proposer: Proposer, disk: Disk = LOCAL_DISK) -> Replayed:
    """Fold the journal into a fresh experiment, and let the searcher live through it again.

    Nothing is started and nothing deleted, and callbacks hear of nothing: what the journal tells has happened.

    Args:
        directory: The experiment's directory, whose journal has been recovered.
        experiment: An experiment without trials, with the settings it was declared with.
        proposer: The desk of a fresh searcher.
        disk: Where the journal lies.

    Raises:
        StorageError: If a configuration cannot be rebuilt, or the scheduler decides otherwise than it did.
        DamagedJournal: If the journal does not verify.
    """
    heard_of_s: dict[str, float] = {}
    untold: list[Notice] = []
    elapsed_s = 0.0
    for body in journal.read(directory, disk=disk):
        if not records.is_event(body):
            continue
        if (routine_end_s := body.get(records.ROUTINE_END)) is not None:
            experiment.handle(TurnEnded(), routine_end_s)
        event, elapsed_s, decided = records.decode(body)
        if not isinstance(event, Answer):
            # What followed from one answer must not be heard before the others are given: they were asked for together.
            _tell(proposer, untold)
            untold = []
        event = _relived(event, proposer)
        outcome = experiment.handle(event, elapsed_s)
        if tuple(outcome.decisions) != tuple(decided):
            raise StorageError(
                f"record {body['q']} of the journal in {str(directory)!r} tells other decisions than the scheduler takes now: "
                f"{list(decided)} then, {list(outcome.decisions)} now; restore with the scheduler that the experiment was run with"
            )
        for notice in outcome.notices:
            notice.trial.local_path = str(trial_directory(directory, notice.trial.trial_id))
            heard_of_s[notice.trial.trial_id] = elapsed_s
        untold += outcome.notices
    _tell(proposer, untold)
    recent = [trial_id for trial_id, at_s in heard_of_s.items() if at_s >= elapsed_s - _RECENT_S]
    return Replayed(elapsed_s, recent)


def _tell(proposer: Proposer, notices: Sequence[Notice]) -> None:
    for notice in notices:
        proposer.tell(notice)


def _relived(event: Event, proposer: Proposer) -> Event:
    """Let the searcher answer again, and prefer its own configuration: it holds the objects that JSON could only describe."""
    if not isinstance(event, TrialSuggested | SuggestionPostponed):
        return event
    [answer] = proposer.ask([event.trial_id])
    if not isinstance(event, TrialSuggested):
        return event
    if isinstance(answer, TrialSuggested) and _text(answer.config) == _text(event.config):
        return replace(event, config=answer.config)
    if _has_opaque(event.config):
        raise StorageError(
            f"the configuration of trial {event.trial_id} holds objects that were not stored, and the searcher proposes another one now; "
            "restore with the param_space and the searcher that the experiment was run with"
        )
    _log.warning("the searcher proposes another configuration for trial %s than it did; the recorded one is kept", event.trial_id)
    return event


def _text(config: object) -> str:
    return _ADDRESS.sub("", strict_json.dumps(config, strict_json.opaque))


def _has_opaque(value: object) -> bool:
    match value:
        case strict_json.Opaque():
            return True
        case dict():
            return any(map(_has_opaque, value.values()))
        case list():
            return any(map(_has_opaque, value))
        case _:
            return False
