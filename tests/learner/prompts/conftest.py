from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.prompt_server import prompt_server
from support.prompted_flag import TEXT, Serve


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(TEXT)
    return path


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(prompt_server(script))
