"""The trainer that the calling code runs in."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.execution.attempt import Attempt, current_attempt
from tuner.storage.checkpoints import Checkpoint

from .config import DataConfig

_running: weakref.WeakKeyDictionary[Attempt, TrainerRun] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class TrainerRun:
    """What training code can ask of its trainer.

    Attributes:
        datasets: The datasets, by name.
        data_config: Which of them are split among the workers.
        resume_from_checkpoint: The checkpoint that the trainer was given, None for none.
        shards: This worker's parts of datasets that training code has asked for, by name.
    """

    datasets: Mapping[str, Any] = field(default_factory=dict)
    data_config: DataConfig = field(default_factory=DataConfig)
    resume_from_checkpoint: Checkpoint | None = None
    shards: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def running(run: TrainerRun) -> Iterator[None]:
    """Make this what training code of the current attempt finds."""
    attempt = current_attempt()
    if attempt is None:
        raise RuntimeError(
            "a trainer's function was called outside a trial; call fit() of the trainer, or pass "
            "the trainer to Tuner"
        )
    # With shards of its own: the rank may be another one in the next attempt.
    _running[attempt] = replace(run, shards={})
    if run.resume_from_checkpoint:
        attempt.offer(run.resume_from_checkpoint.path)
    try:
        yield
    finally:
        del _running[attempt]


def current_run() -> TrainerRun | None:
    """Return the trainer that the calling code runs in, None outside trainers."""
    attempt = current_attempt()
    return None if attempt is None else _running.get(attempt)
