"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# A loaded machine makes an example slow, not wrong: no test depends on the time that it takes.
SPEED = [HealthCheck.too_slow]
settings.register_profile("otel-lightning", deadline=None, suppress_health_check=SPEED)
settings.load_profile("otel-lightning")
