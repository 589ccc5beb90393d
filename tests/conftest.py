"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How fast a machine is says nothing about the code: nothing may fail because another job was using the processor.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
