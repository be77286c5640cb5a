"""What the read-only token lets through, and what it does not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import duckdb
import pytest
from support.running import LIMIT_S, Ingester, background, cli

from otel_lightning.collector.store import (
    Server,
    Store,
    StoreError,
    open_store,
    read_server,
    write_server,
)
from otel_lightning.collector.store.clients import read_only

WRITES = """
INSERT INTO spans (trace_id, span_id) VALUES ('a', 'b')
UPDATE spans SET name = 'x'
DELETE FROM spans
TRUNCATE spans
DROP TABLE spans
ALTER TABLE spans ADD COLUMN x INTEGER
CREATE TABLE mine (i INTEGER)
CREATE TEMP TABLE mine AS SELECT 1
CREATE VIEW mine AS SELECT 1
CREATE MACRO mine() AS 1
CREATE SEQUENCE mine
CREATE TYPE mine AS ENUM ('a')
MERGE INTO spans USING (SELECT 1 AS one) s ON (true) WHEN MATCHED THEN DELETE
EXPLAIN ANALYZE DELETE FROM spans
EXPLAIN ANALYZE EXPLAIN ANALYZE DELETE FROM spans
PREPARE p AS DELETE FROM spans
EXECUTE p
SELECT 1; DELETE FROM spans
SELECT 1; SELECT 2
BEGIN
BEGIN; DELETE FROM spans; COMMIT
WITH d AS (DELETE FROM spans RETURNING *) SELECT * FROM d
CHECKPOINT
FORCE CHECKPOINT
VACUUM
ANALYZE
SELECT nextval('s')
FROM checkpoint()
FROM force_checkpoint()
PIVOT spans ON name USING count(*)
SELECT write_log('x')
""".strip().splitlines()
FILES = """
FROM read_csv('{file}')
FROM read_text('{file}')
FROM read_blob('{file}')
FROM read_json('{file}')
FROM read_parquet('{file}')
FROM parquet_metadata('{file}')
FROM sniff_csv('{file}')
FROM glob('/*')
FROM '{file}'
FROM "{file}"
DESCRIBE '{file}'
SUMMARIZE '{file}'
SELECT (SELECT content FROM read_text('{file}'))
WITH f AS (FROM read_text('{file}')) FROM f
SELECT * FROM spans, LATERAL (FROM read_text('{file}'))
FROM (SELECT 1) UNION ALL FROM (SELECT 2 WHERE EXISTS (FROM glob('/*')))
SELECT list_transform([1], lambda x: (SELECT count(*) FROM glob('/*')))
FROM (PIVOT (FROM read_text('{file}')) ON size IN (1) USING count(*))
FROM query('FROM read_text(''{file}'')')
FROM query_table('{file}')
FROM histogram('{file}', a)
FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
EXPLAIN ANALYZE FROM read_text('{file}')
COPY spans TO '{file}.copy'
COPY spans FROM '{file}'
COPY (SELECT 1) TO '{file}.copy'
EXPORT DATABASE '{file}.copy'
IMPORT DATABASE '{file}'
ATTACH '{file}.db' AS more
DETACH traces
USE temp
FROM pg_settings
FROM duckdb_logs
""".strip().splitlines()
SETTINGS = """
SET threads = 1
SET GLOBAL enable_external_access = true
RESET threads
SET VARIABLE x = 1
PRAGMA enable_profiling
PRAGMA database_list
SET GLOBAL quack_authorization_function = 'quack_nop_authorization'
LOAD httpfs
INSTALL httpfs
CREATE SECRET (TYPE quack, TOKEN 'xxxx')
CALL enable_logging()
FROM enable_logging()
FROM truncate_duckdb_logs()
FROM duckdb_settings()
FROM duckdb_secrets()
FROM quack_server_list()
FROM quack_active_connections()
FROM quack_stop('quack:localhost')
FROM quack_serve('quack:localhost:1')
FROM quack_query('quack:localhost:1', 'SELECT 1')
CALL quack_stop('quack:localhost')
SELECT quack_check_token('a', 'b', 'c')
SELECT lightning_authenticate('a', 'b', 'c')
SELECT lightning_authorize('a', 'b')
SELECT current_setting('secret_directory')
SELECT sleep_ms(100)
SELECT pg_sleep(1)
FROM read_csv('https://example.com/a.csv')
FROM 'https://example.com/a.parquet'
FROM 's3://bucket/a.parquet'
SELECT nonsense(1)
""".strip().splitlines()
READS = """
SELECT count(*) FROM spans
FROM spans SELECT name, attributes['gen_ai.request.model'] AS model WHERE kind = 'CLIENT'
DESCRIBE spans
SUMMARIZE spans
SHOW TABLES
SHOW ALL TABLES
EXPLAIN SELECT * FROM spans
EXPLAIN ANALYZE SELECT * FROM spans
WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 3) FROM r
SELECT s.name, l.body FROM spans s LEFT JOIN logs l USING (trace_id)
SELECT name, row_number() OVER (PARTITION BY kind ORDER BY start_time), lag(name) OVER () FROM spans
SELECT date_trunc('day', start_time) AS day, count(*) FROM spans GROUP BY ALL
SELECT quantile_cont(date_diff('ms', start_time, end_time), 0.9) FROM spans
SELECT json_extract_string(input_messages, '$[0].role'), input_messages ->> '$[0]' FROM llm_calls
SELECT unnest(from_json(output_messages, '["JSON"]')) FROM llm_calls
SELECT e.name FROM spans, unnest(events) AS t(e)
SELECT [x * 2 FOR x IN [1, 2] IF x > 1], list_filter([1], lambda x: x > 0), {'a': 1}, MAP {'a': 1}
FROM (PIVOT (SELECT kind, name FROM spans) ON kind IN ('CLIENT') USING count(*))
FROM range(3), generate_series(1, 2)
FROM json_each('[1]')
SELECT random() < 2, uuid() IS NOT NULL, now() IS NOT NULL, current_date IS NOT NULL
SELECT count(*) FILTER (WHERE name = 'a'), string_agg(name, ',' ORDER BY name) FROM spans
FROM information_schema.tables
FROM duckdb_columns()
FROM rollouts
FROM transitions
VALUES (1), (2)
TABLE spans
""".strip().splitlines()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Server, Path]]:
    """A served store with one span."""
    path = tmp_path_factory.mktemp("served") / "traces.duckdb"
    with open_store(path) as holder:
        holder.execute("INSERT INTO spans (trace_id, span_id, name) VALUES ('t', 's', 'kept')")
        server = holder.serve("127.0.0.1:1")
        write_server(path, server)
        yield holder, server, path


@pytest.fixture(scope="module")
def reader(served: tuple[Store, Server, Path]) -> Iterator[Store]:
    with open_store(served[2], read_only=True) as store:
        yield store


@pytest.mark.parametrize("statement", [*WRITES, *FILES, *SETTINGS])
def test_a_reader_cannot(statement: str, reader: Store, served: tuple[Store, Server, Path]) -> None:
    holder, _, path = served
    secret = path.with_name("secret.txt")
    secret.write_text("a\n1\n")
    with pytest.raises(StoreError, match=r"This token reads only|Authorization failed") as refused:
        reader.query(statement.format(file=secret))
    assert "1\\n" not in str(refused.value)
    assert {p.name for p in path.parent.iterdir()} <= {
        "traces.duckdb", "traces.duckdb.wal", "traces.duckdb.server", "traces.duckdb.tmp",
        "secret.txt",
    }  # fmt: skip
    assert holder.query("SELECT name FROM spans")["name"].to_pylist() == ["kept"]


@pytest.mark.parametrize("statement", READS)
def test_a_reader_can(statement: str, reader: Store) -> None:
    reader.query(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO remote.spans (trace_id, span_id) VALUES ('a', 'b')",
        "INSERT INTO remote.runs (run_id) SELECT range FROM range(5000)",
        "CREATE TABLE remote.mine AS SELECT 1",
        "CREATE VIEW remote.mine AS SELECT 1",
        "DROP TABLE remote.runs",
        "BEGIN; INSERT INTO remote.runs (run_id) VALUES ('a'); COMMIT",
    ],
)
def test_an_attached_reader_cannot_write(
    statement: str, reader: Store, served: tuple[Store, Server, Path]
) -> None:
    holder = served[0]
    with pytest.raises(duckdb.Error):
        reader._connection.execute(statement).fetchall()
    if "BEGIN" in statement:
        reader._connection.rollback()
    assert holder.query("SELECT run_id FROM runs").num_rows == 0
    assert holder.query("SELECT name FROM spans")["name"].to_pylist() == ["kept"]
    names = holder.query("SELECT table_name AS n FROM information_schema.tables")["n"].to_pylist()
    assert "mine" not in names


def test_a_writer_reaches_no_file_either(served: tuple[Store, Server, Path]) -> None:
    _, _, path = served
    with open_store(path) as writer:
        writer.execute("INSERT INTO policies (key, version) VALUES ('k', '1')")
        for statement in (f"FROM read_text('{path}.server')", f"COPY spans TO '{path}.copy'"):
            with pytest.raises(StoreError, match="disabled by configuration"):
                writer.execute(statement)
        for change in (
            "SET GLOBAL enable_external_access = true",
            "SET GLOBAL memory_limit = '1TB'",
            "SELECT 1; SET threads = 8",
            "RESET GLOBAL threads",
            "PRAGMA memory_limit = '1TB'",
            "PRAGMA threads = 8",
        ):
            with pytest.raises(StoreError, match="the configuration has been locked"):
                writer.execute(change)


@pytest.mark.parametrize("token", ["", "wrong", "x" * 32])
def test_without_a_token_nobody_asks(token: str, served: tuple[Store, Server, Path]) -> None:
    stranger = served[1].__class__(os.getpid(), served[1].sql, token, token, "")
    write_server(stray := served[2].with_name("stray.duckdb"), stranger)
    try:
        with pytest.raises(StoreError, match="There is no store"):
            open_store(stray, create=False)
    finally:
        stray.with_name("stray.duckdb.server").unlink()


def test_a_statement_with_nul_is_refused() -> None:
    guard = read_only.ReadOnlyGuard(read_only.Tokens("r", "w", "s"), duckdb.connect())
    assert guard.refusal("SELECT 1") is None
    assert "NUL" in str(guard.refusal("SELECT 1\0; DELETE FROM spans"))


def test_why_a_statement_could_not_be_judged_is_reported_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(*_: object, **__: object) -> str:
        raise OSError("no process can be started")

    guard = read_only.ReadOnlyGuard(read_only.Tokens("r", "w", "s"), duckdb.connect(), answer)
    runs = guard.authorize("a session of a reader", "SELECT 1")
    with pytest.raises(duckdb.Error, match="no process can be started"):
        duckdb.sql(str(runs)).fetchall()
    guard.authorize("a session of a reader", "SELECT 2")
    assert caplog.text.count("no process can be started") == 1


@pytest.mark.parametrize("deep", ["(" * 9000 + "1" + ")" * 9000, "1+" * 20_000 + "1", "[" * 900])
def test_a_deep_statement_breaks_nothing_and_is_logged_in_one_line(
    deep: str, reader: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with suppress(StoreError):
        reader.query(f"SELECT {deep}")
    assert len(caplog.text.splitlines()) <= 1
    assert reader.query("SELECT 1 AS one")["one"].to_pylist() == [1]


def test_the_sql_command_asks_with_the_token_that_only_reads(ingester: Ingester) -> None:
    store = ["--store", str(ingester.store)]
    assert cli("sql", "SELECT 1 AS one", "--format", "csv", *store).stdout == "one\n1\n"
    result = cli("sql", f"FROM read_text('{ingester.store}.server')", *store)
    assert (result.returncode, result.stdout) == (1, "")
    assert "This token reads only: the function 'read_text' is not among those" in result.stderr


def plain_duckdb(home: Path) -> dict[str, str]:
    """The environment of a user who has installed DuckDB's two extensions."""
    folder = home / ".duckdb" / "extensions" / f"v{duckdb.__version__}"
    with duckdb.connect() as connection:
        platform = connection.execute("PRAGMA platform").fetchone()
    for name in ("httpfs", "quack"):
        package = Path(str(import_module(f"duckdb_extension_{name}").__file__)).parent
        file = next(package.rglob(f"{name}.duckdb_extension"))
        (folder / str((platform or [""])[0])).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / str((platform or [""])[0]))
    return {**os.environ, "HOME": str(home)}


def test_the_printed_line_attaches_a_plain_duckdb(tmp_path: Path) -> None:
    options = ["--store", str(tmp_path / "it's.duckdb"), "--grpc", "127.0.0.1:0"]
    command = [sys.executable, "-m", "otel_lightning.collector", *options, "--http", "127.0.0.1:0"]
    environment = plain_duckdb(tmp_path / "home")
    with background(*command, stdout=subprocess.PIPE, text=True) as ingester:
        try:
            lines = iter(ingester.stdout or ())
            line = next(line for line in lines if "ATTACH" in line).partition("read-only: ")[2]
            server = read_server(tmp_path / "it's.duckdb")
            script = (
                "import duckdb\nduckdb.sql('SET enable_progress_bar = false')\n"
                f"duckdb.sql({line!r})\n"
                "print(duckdb.sql('SELECT count(*) FROM traces.spans').fetchone())\n"
                "duckdb.sql('INSERT INTO traces.runs (run_id) VALUES (1)')\n"
            )
            process = subprocess.run(
                [sys.executable, "-c", script],
                env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
        finally:
            ingester.terminate()
            ingester.communicate(timeout=LIMIT_S)
    assert process.stdout == "(0,)\n", process.stderr
    assert "Authorization failed" in process.stderr
    assert server is not None
    assert server.reader not in line, "secrets do not belong in logs"
    assert server.token not in line


@pytest.mark.parametrize(
    ("sql", "quicker"),
    [
        ("SELECT attributes['gen_ai.request.model'] FROM spans", True),
        ("SELECT count(*) FROM spans s WHERE s.attributes['gen_ai.request.model'] = 'm'", True),
        ("SELECT attributes['a.key.of.mine'] FROM spans", False),
        ("SELECT attributes['gen_ai.request.model'] FROM logs", False),
        ("WITH spans AS (FROM logs) SELECT attributes['gen_ai.request.model'] FROM spans", False),
    ],
)
def test_readers_are_answered_from_promoted_columns_where_they_exist(
    sql: str,
    quicker: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    guard = read_only.ReadOnlyGuard(
        read_only.Tokens("reader", "writer", "scanner"), duckdb.connect()
    )
    runs = guard.authorize("a session of a reader", sql)
    assert runs is not None
    assert (runs != sql) is quicker
    with open_store(tmp_path / "t.duckdb") as store:
        store.execute(
            'INSERT INTO spans (trace_id, span_id, attributes, "gen_ai.request.model")'
            " VALUES ('a', 'b', MAP {'gen_ai.request.model': 'm'}, 'm')"
        )
        assert store.query(runs).to_pydict() == store.query(sql).to_pydict()
