from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import running
from support.prompt_server import prompt_server
from support.prompted_flag import TEXT, Serve


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of a store that a running ingester serves."""
    ingester = running.start(tmp_path_factory.mktemp("served") / "traces.duckdb")
    yield ingester.store
    ingester.stop()


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(TEXT)
    return path


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(prompt_server(script))
