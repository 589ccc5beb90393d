"""Fixtures for tests that train in groups of two workers."""

import pytest

from tuner import train
from tuner.train.trainer import DataParallelTrainer


@pytest.fixture
def run_config(tmp_path):
    """Return a function that declares where a trainer's run is stored."""

    def declare(**given):
        settings = {"name": "run", "storage_path": tmp_path, "verbose": 0}
        # Two workers have to fit on any machine.
        return train.RunConfig(**{**settings, "resources": {"cpu": 4}, **given})

    return declare


@pytest.fixture
def trainer(run_config):
    """Return a function that makes a trainer of two workers without a process group."""

    def make(loop, config=None, *, num_workers=2, kind=DataParallelTrainer, run=None, **given):
        return kind(
            loop,
            train_loop_config=config,
            scaling_config=train.ScalingConfig(num_workers),
            run_config=run_config(**(run or {})),
            **given,
        )

    return make
