"""Settings of all tests."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support.examples import EXAMPLES, THOROUGH
from support.late import IMPORTED
from support.once import once
from support.running import INSTALL_S, finish
from xdist.scheduler.loadfile import LoadFileScheduling

# A shell starts background processes with SIGINT ignored, and every process of the tests would
# inherit that: then no test could interrupt one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of processes: without compiled modules on disk each compiles them again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# One thread adds numbers in one order, so that training gives the same model on every machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A loaded machine makes an example slow, not wrong: no test depends on the time that it takes.
SPEED = [HealthCheck.too_slow]
for profile, number in EXAMPLES.items():
    settings.register_profile(
        profile, max_examples=number, deadline=None, suppress_health_check=SPEED
    )
settings.load_profile(THOROUGH)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that a user would get."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    root = Path(__file__).parent.parent

    def build(folder: Path) -> None:
        finish(*pip, folder, root, check=True, seconds=INSTALL_S)

    return next(once(tmp_path_factory, "wheel", build).glob("otel_lightning-*.whl"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the names of the packages that collecting has imported, for `test_collection.py`."""
    session.config.stash[IMPORTED] = {name for name in sys.modules if "." not in name}


TRAINS = ("tests/learner/weights/", "tests/learner/credit/test_trl.py", "tests/examples/")
"""Tests that import torch and TRL: eight CPU-seconds a process, so one process runs them all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the training, then the files of slow tests: processes end together (`-n`)."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (not item.nodeid.startswith(TRAINS), item.path not in slow))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give each process whole files (`--dist loadfile`), and all files that train to one."""
    return OneProcessTrains(config, log)


class OneProcessTrains(LoadFileScheduling):
    """Hands out files, those of `TRAINS` together."""

    def _split_scope(self, nodeid: str) -> str:
        return "training" if nodeid.startswith(TRAINS) else super()._split_scope(nodeid)
