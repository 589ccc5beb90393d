"""What holds for every test."""

import atexit
import importlib.util

import pytest
from hypothesis import HealthCheck, settings

from searchers import NevergradSearch
from tuner.driver import signals

# How fast a machine is says nothing about the code: nothing may fail because another job was using
# the processor.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture
def nevergrad():
    """Return the library as its searcher imports it: by itself it fails beside today's bayesian-optimization, and goes with no extra."""
    if not importlib.util.find_spec("nevergrad"):
        pytest.skip("Nevergrad is not installed")
    return NevergradSearch._module()


def pytest_sessionfinish():
    """Let the exit code be that of the tests, and not that of a script in which a test has pressed Ctrl-C."""
    atexit.unregister(signals._leave)
