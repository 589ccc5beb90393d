"""One line for users of an experiment of which every validation has failed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tuner.core.trial import Trial, ValidationState
from tuner.storage.layout import validation_log


def why_none_validated(trials: Iterable[Trial]) -> str:
    """Return how many validations failed, with the cause and the log file of the first.

    Returns:
        Empty where one has succeeded, or none has ended.
    """
    ended = [
        (trial, validation)
        for trial in trials
        for validation in trial.validations.values()
        if not validation.is_unfinished
    ]
    states = {validation.state for _, validation in ended}
    if not ended or ValidationState.VALIDATED in states:
        return ""
    trial, first = ended[0]
    log = Path(trial.local_path, validation_log(first.index))
    return f"{len(ended)} of {len(ended)} validations failed: {first.failure}, {log}"
