"""The current trial, for tracker clients in training functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.result import flatten
from tuner.execution.attempt import current_attempt
from tuner.execution.secrets import redact
from tuner.storage.declaration import read_declaration


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A trial and its experiment, as identified in a tracker.

    Attributes:
        trial_id: Its id.
        experiment_name: Name of its experiment.
        experiment_id: Identifies its experiment.
        experiment_path: Directory of its experiment.
    """

    trial_id: str
    experiment_name: str
    experiment_id: str
    experiment_path: Path

    @property
    def run_id(self) -> str:
        """Identifies its run; the same in each attempt."""
        return f"{self.experiment_id}-{self.trial_id}"


def current_trial_run() -> TrialRun | None:
    """Return the trial that the calling code runs in, None outside trials."""
    attempt = current_attempt()
    if attempt is None:
        return None
    assignment = attempt.assignment
    # Not in the assignment: only trackers need the id, and it is in the experiment's directory.
    path = Path(assignment.trial_dir).parent
    experiment_id = str(read_declaration(path)["id"])
    return TrialRun(assignment.trial_id, assignment.experiment_name, experiment_id, path)


def flat_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the configuration flattened, with secrets by name and other objects as text."""
    return {name: _shown(value) for name, value in flatten(dict(config or {})).items()}


def _shown(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | None) else redact(str(value))
