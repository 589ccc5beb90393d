"""Fixtures that run short experiments."""

import itertools
import json
from pathlib import Path

import pytest

from tuner.execution.process_executor import ProcessExecutor


@pytest.fixture
def executor():
    """Return the executor; modules about processes override it.

    An experiment with processes takes ten times as long as one without.
    """
    return "inline"


@pytest.fixture
def short_time(monkeypatch):
    """Let 10 ms pass with each look at the clock of an inline experiment, however long it takes.

    A time budget ends after as many turns of the driver on any machine.
    """
    looks = itertools.count()
    monkeypatch.setattr(ProcessExecutor, "clock", lambda self: next(looks) / 100)


@pytest.fixture
def rows_of():
    """Return a function that reads a trial's ``result.json``."""
    return lambda trial: [
        json.loads(line) for line in Path(trial, "result.json").read_text().splitlines()
    ]


@pytest.fixture
def url(tmp_path):
    """Return the URL of a directory that stands for an object store."""
    return f"file://{tmp_path}/store"


@pytest.fixture
def in_store(build, tmp_path, url):
    """Return a function that declares an experiment in the store, to minimise the loss."""

    def declare(train, space, *, local="local", **run):
        return build(
            train,
            space,
            tune={"metric": "loss", "mode": "min", "seed": 3},
            **{"storage_path": url, "local_dir": tmp_path / local, **run},
        )

    return declare
