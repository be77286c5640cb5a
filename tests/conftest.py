"""Settings of all tests."""

import os

from hypothesis import HealthCheck, settings

# One thread adds numbers in one order, so that training gives the same model on every machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A loaded machine makes an example slow, not wrong: no test depends on the time that it takes.
SPEED = [HealthCheck.too_slow]
settings.register_profile("otel-lightning", deadline=None, suppress_health_check=SPEED)
settings.load_profile("otel-lightning")
