"""Trials and results as the driver would hand them to loggers."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.callbacks.scenes import new_idle_writer, progress_of, some_trials
from tuner.callbacks.files.background_writer import BatchWriter
from tuner.callbacks.files.event_file import EventEncoder
from tuner.core.progress import Progress
from tuner.core.trial import Status, Trial
from tuner.core.worker_records import CheckpointRecord, ValidationRequest

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


@pytest.fixture(scope="session", autouse=True)
def event_messages() -> None:
    """Import tensorboardX, which looks for boto3, before the first test that needs it."""
    with contextlib.suppress(ImportError):
        EventEncoder()


@pytest.fixture
def idle_writer() -> BatchWriter:
    """Return a writer that writes only in `flush` and `close`."""
    return new_idle_writer()


@pytest.fixture
def report() -> Callable[..., dict[str, Any]]:
    def make(trial: Trial, iteration: int, **metrics: Any) -> dict[str, Any]:
        trial.num_rows = iteration
        return {
            **metrics,
            "training_iteration": iteration,
            "trial_id": trial.trial_id,
            "config": trial.config,
        }

    return make


@pytest.fixture
def validated_trial(make_trial: MakeTrial) -> Trial:
    """Return a trial with three checkpoints, validated with an accuracy of 0, 1/4 and 2/4."""
    from tuner.validation.records import Validation, ValidationState, validations_of  # noqa: PLC0415

    trial = make_trial()
    trial.checkpoints = [CheckpointRecord(index, index + 1) for index in range(3)]
    for record in trial.checkpoints:
        validations_of(trial).validations[record.index] = Validation(
            record,
            ValidationRequest(),
            ValidationState.VALIDATED,
            metrics={"acc": record.index / 4},
        )
    return trial


@pytest.fixture
def trials() -> list[Trial]:
    return some_trials()


@pytest.fixture
def progress(trials: list[Trial]) -> Progress:
    return progress_of(trials)
