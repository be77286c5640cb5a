"""The server file as another version of otel-lightning wrote it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from support.running import Ingester, cli_here

from otel_lightning.collector.store.files.server_file import read_server, server_file


def change(store: Path, **values: object) -> None:
    """Change the server file; None takes a value out."""
    file = server_file(store)
    told = json.loads(file.read_text()) | values
    file.write_text(json.dumps({n: value for n, value in told.items() if value is not None}))


def leave(store: Path, **values: object) -> None:
    """Let the server file be one that an earlier process has left, which has ended."""
    file = server_file(store)
    left = file.with_name("left")
    left.write_text(json.dumps(json.loads(file.read_text()) | values))
    left.replace(file)


def test_what_a_newer_version_adds_to_the_server_file_is_left_out(ingester: Ingester) -> None:
    before = read_server(ingester.store)
    change(ingester.store, something="new")
    assert read_server(ingester.store) == before is not None
    assert cli_here("check", "--store", str(ingester.store)).returncode == 0


def test_a_server_file_that_lacks_something_is_told_as_of_another_version(
    ingester: Ingester,
) -> None:
    change(ingester.store, reader=None)
    result = cli_here("sql", "SELECT 1", "--store", str(ingester.store))
    assert result.returncode == 1
    assert "is served by an otel-lightning of another version" in result.stderr
    leave(ingester.store)
    result = cli_here("sql", "SELECT 1", "--store", str(ingester.store))
    assert "lightning-ingest that starts or stops, and has answered no SQL for 10" in result.stderr


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
        result = cli_here(*command, "--store", str(ingester.store))
        assert result.returncode == 1, command
        output = result.stdout + result.stderr
        assert f"process {ingester.process.pid}, which is of an older version" in output, command
        assert "restart lightning-ingest with this version" in output, command
    result = cli_here("sql", "SELECT 1 AS one", "--store", str(ingester.store))
    assert result.returncode == 0, result.stderr  # what it can answer, it answers
    change(ingester.store, schema=2**31)
    result = cli_here("check", "--store", str(ingester.store))
    assert result.returncode == 1
    assert "which is of a newer version" in result.stdout


def test_a_file_that_a_killed_process_left_counts_for_nothing_although_its_number_is_in_use(
    starter: Callable[[], Ingester],
) -> None:
    """In a container each process that is started by itself has the number 1."""
    killed = starter()
    killed.kill()
    change(killed.store, pid=os.getpid())
    assert read_server(killed.store) is None
    old, new = str(killed.store), str(killed.store.with_name("copy.duckdb"))
    forgotten = cli_here("forget", "--trace", "00", "--store", old)
    assert "No trace or rollout in the store matches the options" in forgotten.stderr
    copied = cli_here("copy", old, new)
    assert copied.returncode == 0, copied.stderr


def test_a_copy_of_a_server_file_is_not_taken_for_that_of_a_running_process(
    ingester: Ingester, tmp_path: Path
) -> None:
    copied = tmp_path / "copied.duckdb"
    server_file(copied).write_text(server_file(ingester.store).read_text())
    assert read_server(copied) is None
    assert read_server(ingester.store)
