"""A real `lightning-ingest` in a process of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.running import Ingester, running, start


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Callable[..., Ingester]]:
    """Start ingesters on one store; whatever still runs at the end is killed."""
    started: list[Ingester] = []

    def start_one(*options: str, files: int | None = None) -> Ingester:
        started.append(start(tmp_path / "traces.duckdb", *options, files=files))
        return started[-1]

    yield start_one
    for ingester in started:
        if ingester.process.poll() is None:
            ingester.kill()


@pytest.fixture
def ingester(starter: Callable[[], Ingester]) -> Ingester:
    """One running ingester on an empty store."""
    return starter()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingester]:
    """One ingester for all tests of a file that leave it as it was: a start takes a second."""
    with running(tmp_path_factory.mktemp("lasting") / "traces.duckdb") as ingester:
        yield ingester
