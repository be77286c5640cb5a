"""Settings of all tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A shell starts background processes with SIGINT ignored, and every process of the tests would
# inherit that: then no test could interrupt one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One thread adds numbers in one order, so that training gives the same model on every machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A loaded machine makes an example slow, not wrong: no test depends on the time that it takes.
SPEED = [HealthCheck.too_slow]
settings.register_profile("otel-lightning", deadline=None, suppress_health_check=SPEED)
settings.load_profile("otel-lightning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files of slow tests, so that processes end together (`pytest -n`)."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
