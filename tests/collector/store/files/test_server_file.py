"""The server file as another version of otel-lightning wrote it."""

import json
from pathlib import Path

from support.running import Ingester, cli

from otel_lightning.collector.store.files.server_file import read_server, server_file


def change(store: Path, **values: object) -> None:
    """Change the server file; None takes a value out."""
    file = server_file(store)
    told = json.loads(file.read_text()) | values
    file.write_text(json.dumps({n: value for n, value in told.items() if value is not None}))


def test_what_a_newer_version_adds_to_the_server_file_is_left_out(ingester: Ingester) -> None:
    before = read_server(ingester.store)
    change(ingester.store, something="new")
    assert read_server(ingester.store) == before is not None
    assert cli("check", "--store", str(ingester.store)).returncode == 0


def test_a_server_file_that_lacks_something_is_told_as_of_another_version(
    ingester: Ingester,
) -> None:
    change(ingester.store, reader=None)
    told = cli("sql", "SELECT 1", "--store", str(ingester.store))
    assert told.returncode == 1
    assert "is served by an otel-lightning of another version" in told.stderr
    change(ingester.store, pid=2**22 + 1)  # no process has that id: the file was left
    told = cli("sql", "SELECT 1", "--store", str(ingester.store))
    assert "held by another process that answers no SQL" in told.stderr
