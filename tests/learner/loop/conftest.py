from collections.abc import Iterator
from pathlib import Path

import pytest
from support import running


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of a store that a running ingester serves."""
    ingester = running.start(tmp_path_factory.mktemp("served") / "traces.duckdb")
    yield ingester.store
    ingester.stop()
