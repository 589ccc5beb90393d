"""Fixtures that run short experiments."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def executor():
    """Return the executor; modules about processes override it.

    An experiment with processes takes ten times as long as one without.
    """
    return "inline"


@pytest.fixture
def rows_of():
    """Return a function that reads a trial's ``result.json``."""
    return lambda trial: [
        json.loads(line) for line in Path(trial, "result.json").read_text().splitlines()
    ]
