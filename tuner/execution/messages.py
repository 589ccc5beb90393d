"""What driver and worker say to each other.

From the worker: strict JSON objects, one a line, with the key ``kind``::

    {"kind": "started", "pid": 4711}
    {"kind": "result", "metrics": {...}, "checkpoint": null | {"index", "iteration", "time_total_s", "counters"},
     "replaced": ["pid", ...]}
    {"kind": "saving"}
    {"kind": "saved", "checkpoint": {...}}
    {"kind": "save_failed", "failure": {"kind", "message", "traceback", "bases", "place"}}
    {"kind": "exited", "outcome": "completed" | "stopped" | "failed" | "unsaved", "failure": null | {...},
     "stays": bool, "late_imports": [...], "packages": {"torch": "2.9.0"}}
    {"kind": "unfit"}

To the worker: an `Assignment` at its birth, then one answer for each ``result``: ``{"verdict": "continue" | "pause" | "exploit" | "stop",
"save": bool, "stay": bool}``. A worker sends ``saving`` before it stores a checkpoint, whether it was told to or reports one by itself,
and ``save_failed`` where the latter fails. One that is told to save sends ``saved`` before it goes on or exits; ``save_failed`` if the
storage was at fault; where the training code was, it exits as ``unsaved``. One that may stay, and says that it does, waits for the
`Assignment` of its trial's next attempt, and answers it as at its birth, or with ``unfit`` if it cannot be reset, and ends.
``late_imports`` and ``packages`` are what `late_imports` tells of. Non-finite floats travel as ``{"$float": "NaN" | "Infinity" |
"-Infinity"}``; the driver never unpickles anything from a worker. ``replaced`` names what was reported and is the engine's to fill in, each
name once in an attempt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a worker needs to know to run one attempt of a trial.

    Attributes:
        trial_id: The trial.
        attempt: Number of this start, from 1.
        config: The hyperparameters.
        experiment_name: Name of the experiment.
        trial_dir: The trial's directory, absolute.
        experiment_tag: See `Trial.experiment_tag`.
        resources: What the worker may use.
        gpu_ids: Devices assigned to it.
        checkpoint_dir: Directory to continue from, None for the beginning.
        iteration: ``training_iteration`` reached at that checkpoint, else 0; `time_total_s` and `counters` likewise.
        next_checkpoint: Index of the first checkpoint of this attempt.
        seed: Seed of the trial's own chance (``get_context().get_seed()``), the same in every attempt.
        sync_checkpoints: Whether checkpoint files are flushed to the disk before they count.
        works_in_trial_dir: Whether `trial_dir` becomes the working directory.
    """

    trial_id: str
    attempt: int
    config: Mapping[str, Any]
    experiment_name: str
    trial_dir: str | os.PathLike[str]
    experiment_tag: str
    resources: Mapping[str, float]
    gpu_ids: tuple[int, ...]
    checkpoint_dir: str | None
    iteration: int
    time_total_s: float
    counters: Mapping[str, int]
    next_checkpoint: int
    seed: int
    sync_checkpoints: bool = True
    works_in_trial_dir: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Be unpickled by the constructor: what dataclasses do instead runs ten times the code, which a forked worker pays for in pages."""
        return type(self), tuple(getattr(self, field) for field in self.__slots__)
