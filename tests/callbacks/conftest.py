"""Trials and results as the driver would hand them to loggers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.callbacks.scenes import progress_of, some_trials
from tuner.callbacks.files.background_writer import BatchWriter
from tuner.core.progress import Progress
from tuner.core.trial import Status, Trial

MakeTrial = Callable[..., Trial]


@pytest.fixture
def make_trial(tmp_path: Path) -> MakeTrial:
    def make(trial_id: str = "t00000", **config: Any) -> Trial:
        trial = Trial(trial_id, config or {"lr": 0.1}, {"cpu": 1.0})
        trial.local_path = str(tmp_path / trial_id)
        trial.move_to(Status.RUNNING)
        trial.attempt = 1
        return trial

    return make


@pytest.fixture
def idle_writer() -> BatchWriter:
    """Return a writer that writes only in `flush` and `close`."""
    return BatchWriter(period_s=1e6)


@pytest.fixture
def report() -> Callable[..., dict[str, Any]]:
    def make(trial: Trial, iteration: int, **metrics: Any) -> dict[str, Any]:
        return {
            **metrics,
            "training_iteration": iteration,
            "trial_id": trial.trial_id,
            "config": trial.config,
        }

    return make


@pytest.fixture
def trials() -> list[Trial]:
    return some_trials()


@pytest.fixture
def progress(trials: list[Trial]) -> Progress:
    return progress_of(trials)
