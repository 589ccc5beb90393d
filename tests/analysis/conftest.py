import functools
from types import SimpleNamespace

import pytest

from tests.analysis.real_runs import KINDS
from tests.tiers import made_once
from tuner.core.result import flatten
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord, Failure
from tuner.storage import checkpoint_directories
from tuner.storage.layout import trial_directory
from tuner.storage.manifest import Provenance


def make_trial(
    trial_id,
    results=(),
    *,
    config=None,
    status=Status.TERMINATED,
    ending=TerminationReason.COMPLETED,
    failures=(),
):
    """Return a trial that reported these metrics, one after the other, and then ended."""
    trial = Trial(trial_id, config or {}, {"cpu": 1.0}, experiment_tag=f"tag-{trial_id}")
    trial.move_to(status)
    trial.ending = ending
    trial.failures = [Failure(kind, message, "Traceback: here") for kind, message in failures]
    for row in as_rows(trial_id, results):
        trial.last_result = {**row, "config": trial.config}
        trial.summarise(flatten(row))
    return trial


def failed_trial(trial_id, results=(), **more):
    return make_trial(
        trial_id,
        results,
        status=Status.ERROR,
        ending=TerminationReason.FAILED,
        failures=[("ValueError", "boom")],
        **more,
    )


def as_rows(trial_id, results):
    return [
        {**metrics, "training_iteration": number, "trial_id": trial_id, "done": False}
        for number, metrics in enumerate(results, start=1)
    ]


def save(experiment, trial, index, metrics, *, score=None):
    """Commit a checkpoint of the trial to the disk."""
    directory = trial_directory(experiment, trial.trial_id)
    directory.mkdir(parents=True, exist_ok=True)
    staging = checkpoint_directories.stage(directory, index, attempt=1)
    (staging / "weights").write_text(str(index))
    provenance = Provenance(trial.trial_id, 1, index, index + 1, metrics)
    checkpoint_directories.commit(staging, directory, provenance, sync=False)
    trial.checkpoints.append(CheckpointRecord(index, index + 1, score=score))


@pytest.fixture
def make():
    """Builders of trials and checkpoints."""
    return SimpleNamespace(trial=make_trial, failed=failed_trial, rows=as_rows, save=save)


@pytest.fixture(scope="session")
def experiment(tmp_path_factory):
    """Returns the grid of a kind of experiment that was really run, each once."""
    path = tmp_path_factory.mktemp("experiments")

    @functools.cache
    def made(kind):
        with made_once():
            return KINDS[kind](path)

    return made
