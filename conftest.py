"""Which files pytest reads: of the packages only those with examples in their docstrings."""

from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> object:
    """Skip doctests of a file without examples, since collecting them imports the file."""
    nodes = yield
    if file_path.suffix != ".py" or b">>>" in file_path.read_bytes():
        return nodes
    return [node for node in nodes if not isinstance(node, DoctestModule)]
