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
    result = cli("sql", "SELECT 1", "--store", str(ingester.store))
    assert result.returncode == 1
    assert "is served by an otel-lightning of another version" in result.stderr
    change(ingester.store, pid=2**22 + 1)  # no process has that id: the file was left
    result = cli("sql", "SELECT 1", "--store", str(ingester.store))
    assert "held by another process that answers no SQL" in result.stderr


def test_a_process_of_an_older_version_is_told_as_that_before_tables_are_missed(
    ingester: Ingester, tmp_path: Path
) -> None:
    change(ingester.store, schema=None)  # release 0.1.0 wrote none
    commands = (
        ("check",),
        ("doctor",),
        ("backup", str(tmp_path / "copy.duckdb")),
        ("forget", "--trace", "00"),
    )
    for command in commands:
        result = cli(*command, "--store", str(ingester.store))
        assert result.returncode == 1, command
        said = result.stdout + result.stderr
        assert f"process {ingester.process.pid}, which is of an older version" in said, command
        assert "restart lightning-ingest with this version" in said, command
    result = cli("sql", "SELECT 1 AS one", "--store", str(ingester.store))
    assert result.returncode == 0, result.stderr  # what it can answer, it answers
    change(ingester.store, schema=2**31)
    result = cli("check", "--store", str(ingester.store))
    assert result.returncode == 1
    assert "which is of a newer version" in result.stdout
