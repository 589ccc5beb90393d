"""What holds for every test."""

import atexit

from hypothesis import HealthCheck, settings

from tuner import interrupts

# How fast a machine is says nothing about the code: nothing may fail because another job was using the processor.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


def pytest_sessionfinish():
    """Let the exit code be that of the tests, and not that of a script in which a test has pressed Ctrl-C."""
    atexit.unregister(interrupts._leave)
