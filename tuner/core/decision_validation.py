"""What a scheduler must not say. Schedulers are the users' code as well, so what they return is looked at before it is obeyed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedulers.decisions import Decision, Exploit, Pause, Resize, Resume, Save, Stop
from schedulers.scheduler import Scheduler
from tuner.errors import InvalidDecision

from .trial import Trial
from .trial_table import TrialTable

_DECISIONS: Final = (Stop, Pause, Resume, Save, Exploit, Resize)


def checked(said: Sequence[Decision], scheduler: Scheduler) -> Sequence[Decision]:
    """Return what the scheduler has said.

    Raises:
        InvalidDecision: If it is not a list of decisions.
    """
    # Those that it nearly always is come first: to ask whether something is a sequence takes ten times as long.
    if isinstance(said, str) or not isinstance(said, (tuple, list, Sequence)):
        raise InvalidDecision(
            f"{_name(scheduler)} must return a list of decisions, empty for none, got {said!r:.200}"
        )
    for decision in said:
        if not isinstance(decision, _DECISIONS):
            raise InvalidDecision(
                f"{_name(scheduler)} must return Stop, Pause, Resume, Save, Exploit or Resize, got {decision!r:.200}"
            )
    return said


def subject(decision: Decision, trial_table: TrialTable, scheduler: Scheduler) -> Trial:
    """Return the trial that a decision is about.

    Raises:
        InvalidDecision: If there is none.
    """
    trial = trial_table.find(decision.trial_id) if isinstance(decision.trial_id, str) else None
    if trial is None:
        raise InvalidDecision(
            f"{_name(scheduler)} decided {type(decision).__name__} for a trial {decision.trial_id!r:.200}, of which there is none; "
            f"it was told of {len(trial_table.admitted)} trials"
        )
    return trial


def _name(scheduler: Scheduler) -> str:
    return type(scheduler).__qualname__
