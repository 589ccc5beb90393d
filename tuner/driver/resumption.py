"""What continues an experiment that exists: its declaration, and what becomes of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.core.settings import ExperimentSettings
from tuner.spec.config import ResumeConfig
from tuner.spec.experiment_directory import Record


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to continue an experiment.

    Attributes:
        record: What its directory declares.
        resume: Which trials are resumed, restarted or skipped.
        changes: Differences between the recorded and the present declaration, a line each.
        steal: Whether a driver of this machine that still holds the experiment is killed.
        salvage: Whether a damaged journal is cut; checkpoints that it no longer
            contains are kept then.
    """

    record: Record
    resume: ResumeConfig = field(default_factory=ResumeConfig)
    changes: Sequence[str] = ()
    steal: bool = False
    salvage: bool = False

    @property
    def settings(self) -> ExperimentSettings:
        """The settings with which it began."""
        return self.record.settings
