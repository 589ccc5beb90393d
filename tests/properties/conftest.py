"""What the tests of random experiments share."""

import logging

import pytest


@pytest.fixture
def quiet(caplog, monkeypatch):
    """Keep what the engine has to say about odd results to itself, and let experiments go on that never report their metric."""
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    caplog.set_level(logging.ERROR, "tuner")
