"""What the tests of random experiments share."""

import logging

import pytest


@pytest.fixture
def quiet(caplog):
    """Keep what the engine has to say about odd results to itself."""
    caplog.set_level(logging.ERROR, "tuner")
