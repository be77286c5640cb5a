"""`lightning-ingest` as a user meets it: good files, bad files, wrong usage."""

import errno
import gzip
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from support.requests_by_hand import trace_request
from support.running import Ingester, cli, cli_here, finish

from otel_lightning.collector.files.atomic import replaced
from otel_lightning.collector.store import StoreError, open_store
from otel_lightning.collector.terminal.command_line import expected_errors

SPAN = {"traceId": "0a" * 16, "spanId": "0b" * 8, "name": "json"}
DOCUMENT = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}).encode()
"""One span in OTLP/JSON."""


def log_request() -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(event_name="e")
    record.body.string_value = "hello"
    return request.SerializeToString()


def metric_request() -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.sum.data_points.add(as_int=1)
    return request.SerializeToString()


GOOD = {
    "traces.pb": trace_request("one", "two").SerializeToString(),
    "logs.pb": log_request(),
    "traces.json": DOCUMENT,
    "traces.jsonl": DOCUMENT.replace(b"0b", b"0c") + b"\n" + DOCUMENT.replace(b"0b", b"0d") + b"\n",
    "traces.pb.gz": gzip.compress(trace_request("zipped").SerializeToString()),
    "traces.pb.zst": zstandard.compress(trace_request("zst").SerializeToString()),
}
BAD = {
    "empty.pb": (b"", "is empty"),
    "text.pb": (b"hello world", "is not OTLP"),
    "cut.pb": (trace_request("x").SerializeToString()[:-5], "is cut off"),
    "cut.json": (DOCUMENT[:-5], "is not JSON, or is cut off"),
    "other.json": (b'{"a": 1}', "has neither resourceSpans nor resourceLogs"),
    "ids.json": (DOCUMENT.replace(b"0a", b"xx"), "traceId must be 32 hex digits"),
    "cut.gz": (GOOD["traces.pb.gz"][:-4], "is damaged or cut off"),
    "metrics.pb": (metric_request(), "Metrics are not stored"),
}


def counts(store: Path) -> tuple[int, int]:
    with open_store(store) as opened:
        spans = opened.query("SELECT count(*) AS n FROM spans")["n"]
        logs = opened.query("SELECT count(*) AS n FROM logs")["n"]
    return spans[0].as_py(), logs[0].as_py()


def test_every_form_of_file_loads_and_loading_twice_changes_nothing(tmp_path: Path) -> None:
    for name, data in GOOD.items():
        (tmp_path / name).write_bytes(data)
    store = tmp_path / "t.duckdb"
    for expected in ("6 files, 8 spans and log records, 8 new.", "0 new."):
        result = cli("load", *(str(tmp_path / name) for name in GOOD), "--store", str(store))
        # A machine that is slow enough shows the progress too.
        errors = re.sub(r"Loading: \d/6 files\n", "", result.stderr)
        assert (result.returncode, errors) == (0, "")
        assert expected in result.stdout
        assert counts(store) == (7, 1)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_and_affects_no_other(name: str, tmp_path: Path) -> None:
    data, reason = BAD[name]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.pb").write_bytes(GOOD["traces.pb"])
    store = tmp_path / "t.duckdb"
    result = cli_here("load", name, "good.pb", "--store", str(store), cwd=tmp_path)
    assert result.returncode == 1
    assert name in result.stderr
    assert reason in result.stderr
    assert counts(store) == (2, 0)


def test_a_folder_without_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "exported" / "empty").mkdir(parents=True)
    result = cli_here("load", "exported", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "No file is in 'exported'" in result.stderr
    assert not (tmp_path / "traces.duckdb").exists()


def test_files_load_through_a_running_ingester(ingester: Ingester, tmp_path: Path) -> None:
    (tmp_path / "t.pb").write_bytes(GOOD["traces.pb"])
    result = cli("load", str(tmp_path / "t.pb"), "--store", str(ingester.store))
    assert (result.returncode, result.stderr) == (0, "")
    assert counts(ingester.store) == (2, 0)
    checked = cli_here("check", "--store", str(ingester.store))
    assert checked.returncode == 0
    assert f"process {ingester.process.pid}" in checked.stdout
    assert checked.stdout.endswith("\nNo faults were found.\n")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = cli(
            "--store", str(tmp_path / "t.duckdb"), "--http", address, "--grpc", "127.0.0.1:0"
        )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {address} is in use.")
    assert not list(tmp_path.iterdir())


def test_control_c_during_a_statement_ends_without_a_traceback() -> None:
    def stopped() -> None:
        """What DuckDB raises when Ctrl-C comes while a statement runs."""
        try:
            raise KeyboardInterrupt  # noqa: TRY301  as DuckDB chains it
        except KeyboardInterrupt as pressed:
            raise RuntimeError("Query interrupted") from pressed

    with pytest.raises(click.Abort), expected_errors():
        stopped()
    with pytest.raises(RuntimeError, match="other"), expected_errors():
        raise RuntimeError("other")


OPTIONS_OF_SERVE = """
import sys
from otel_lightning.collector.cli import main
main.commands["serve"].make_context("serve", ["--max-size", "1GB", "--memory", "1GB"])
print(*sys.modules)
"""


def test_options_of_serve_are_read_before_arrow_is_loaded() -> None:
    """`serve` first keeps pandas and OpenBLAS's threads out: a third of the CPU of its start."""
    loaded = finish(sys.executable, "-c", OPTIONS_OF_SERVE, check=True).stdout.split()
    assert "otel_lightning.collector.cli" in loaded
    assert {"numpy", "pyarrow", "duckdb"}.isdisjoint(loaded)


def test_a_second_ingester_on_one_store_is_sent_to_the_first(ingester: Ingester) -> None:
    result = cli("--store", str(ingester.store), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    assert result.returncode == 1
    assert f"already served by process {ingester.process.pid}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["sql", "SELECT 1"], 1, "There is no store at"),
        (["sql", "SELEC 1"], 1, "syntax error"),
        (["sql", "DROP TABLE spans"], 2, "Only one SELECT"),
        (["sql", "SELECT 1", "--format", "parquet"], 2, "--output FILE"),
        (["check"], 1, "There is no store at"),
        (["load"], 2, "Missing argument"),
        (["--http", "nonsense"], 2, "--http: 'nonsense' is not HOST:PORT"),
        (["--http"], 2, "Option '--http' requires an argument"),
        (["--store", "a b", "check"], 2, "lightning-ingest check --store 'a b'\n"),
        (["--insecure", "sql", "SELECT 1"], 2, "lightning-ingest sql --insecure 'SELECT 1'\n"),
        (["--store", "check", "--stor", "x"], 2, "No such option '--stor'"),
        (["--max-lag", "soon"], 2, "--max-lag: 'soon' is not a number above 0 and a unit"),
    ],
)
def test_errors_say_what_is_wrong(
    arguments: list[str], code: int, reason: str, tmp_path: Path
) -> None:
    result = cli_here(*arguments, cwd=tmp_path)
    assert (result.returncode, reason in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("around", "exit_code", "written"),
    [
        ('"$@" "SELECT 1 AS one"', 0, "one\n---\n  1\n"),
        ('"$@" "SELECT 1 AS one" >&-', 0, ""),
        ('"$@" "SELECT 1 AS one" <&-', 0, "one\n---\n  1\n"),
        ('"$@" <&-', 2, ""),  # no query
        ('PYTHONIOENCODING=latin-1 "$@" "SELECT chr(8594) AS a"', 0, "a\n-\n\\u2192\n"),
    ],
)
def test_streams_that_are_closed_or_lack_a_character_are_no_error(
    around: str, exit_code: int, written: str, tmp_path: Path
) -> None:
    open_store(tmp_path / "traces.duckdb").close()
    program = (sys.executable, "-m", "otel_lightning.collector", "sql")
    result = finish("sh", "-c", around, "sh", *program, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (exit_code, written)
    assert "Traceback" not in result.stderr


def test_answers_come_as_table_json_csv_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(DOCUMENT)
    cli_here("load", "t.json", cwd=tmp_path)
    ask = ["sql", "SELECT name, 1.5 AS x, NULL AS nothing FROM spans"]
    assert json.loads(cli_here(*ask, "--format", "json", cwd=tmp_path).stdout)[0]["name"] == "json"
    assert cli_here(*ask, "--format", "csv", cwd=tmp_path).stdout == "name,x,nothing\njson,1.5,\n"
    assert cli_here(*ask, cwd=tmp_path).stdout.splitlines()[2].split() == ["json", "1.5"]
    file = tmp_path / "answer.parquet"
    assert (
        cli_here(*ask, "--format", "parquet", "--output", str(file), cwd=tmp_path).returncode == 0
    )
    import pyarrow.parquet as pq

    assert pq.read_table(file)["name"].to_pylist() == ["json"]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_without_a_format_the_name_of_the_output_chooses_it(form: str, tmp_path: Path) -> None:
    open_store(tmp_path / "traces.duckdb").close()
    ask = ("sql", "SELECT 'a' AS x, 7 AS y")
    named, chosen = tmp_path / f"named.{form.upper()}", tmp_path / "chosen.txt"
    assert cli_here(*ask, "--output", str(named), cwd=tmp_path).returncode == 0
    cli_here(*ask, "--format", form, "--output", str(chosen), cwd=tmp_path)
    assert named.read_bytes() == chosen.read_bytes()
    cli_here(*ask, "--output", str(chosen), cwd=tmp_path)
    assert chosen.read_text() == "x  y\n-  -\na  7\n"
    cli_here(*ask, "--format", "table", "--output", str(named), cwd=tmp_path)
    assert named.read_text() == "x  y\n-  -\na  7\n"


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_pipe_whose_reader_has_ended_ends_the_command_without_a_word(
    form: str, tmp_path: Path
) -> None:
    open_store(tmp_path / "traces.duckdb").close()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        asked = (sys.executable, "-m", "otel_lightning.collector", "sql", "FROM range(100000)")
        streams = {"capture_output": False, "stdout": writer, "stderr": subprocess.PIPE}
        result = finish(*asked, "--format", form, cwd=tmp_path, **streams)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_connection_that_breaks_is_still_reported() -> None:
    with pytest.raises(click.ClickException, match="Broken pipe"), expected_errors():
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def test_a_file_in_place_of_the_spool_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "t.duckdb.spool").write_text("not a folder")
    result = cli(
        "serve",
        "--store",
        "t.duckdb",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        cwd=tmp_path,
    )
    assert (result.returncode, "'t.duckdb.spool'" in result.stderr) == (1, True), result.stderr
    assert "move it away" in result.stderr


def test_an_error_of_a_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(click.ClickException, match=r"/folder': Is a directory"), expected_errors():
        (tmp_path / "folder").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_names_the_file_that_was_wanted_and_the_remedy(tmp_path: Path) -> None:
    wanted = tmp_path / "rows.jsonl"
    told = r"/rows\.jsonl': No space left on device\. Make room on that disk, and give"
    with pytest.raises(click.ClickException, match=told), expected_errors(), replaced(wanted):
        Path("/dev/full").write_text("a row")
    assert not list(tmp_path.iterdir())
    duckdb_says = 'Failed to commit: Could not write file "a.wal": No space left on device'
    with pytest.raises(click.ClickException, match=r"device\. Make room on"), expected_errors():
        raise StoreError(duckdb_says)


def test_text_that_is_not_utf8_is_reported_with_its_file(tmp_path: Path) -> None:
    store, file = tmp_path / "t.duckdb", tmp_path / "latin.sql"
    open_store(store).close()
    file.write_bytes("SELECT 'é'".encode("latin-1"))
    for command in (["sql", "--file", str(file)], ["prices", str(file)]):
        result = cli_here(*command, "--store", str(store), cwd=tmp_path)
        assert result.returncode == 1
        assert f"Error: '{file}' is not UTF-8 text" in result.stderr
        assert "Save it as UTF-8." in result.stderr
    for command in ("sql", "show"):
        words = (sys.executable, "-m", "otel_lightning.collector", command, "--store", store)
        names = ("-",) if command == "show" else ()
        piped = finish(*words, *names, input=b"SELECT '\xe9'", text=False)
        assert piped.returncode == 1
        assert b"Error: Standard input is not UTF-8 text" in piped.stderr
    word = (*words[:3], "sql", b"SELECT '\xe9'", "--store", store)
    typed = finish(*word, text=False)  # type: ignore[arg-type]
    assert typed.returncode == 1
    assert b"Error: 'SELECT '\\udce9'' is not UTF-8 text. Write it as UTF-8." in typed.stderr


@pytest.mark.parametrize("command", ["load", "open"])
def test_a_client_certificate_without_its_key_is_refused_before_anything_else(
    command: str, tmp_path: Path
) -> None:
    cert = tmp_path / "cert.pem"
    cert.write_text("any")
    store = tmp_path / "traces.duckdb"
    given = [str(cert)] if command == "load" else []
    result = cli_here(command, *given, "--client-cert", str(cert), "--store", str(store))
    assert result.returncode == 2
    assert "A certificate needs its key" in result.stderr
    assert not store.exists()
