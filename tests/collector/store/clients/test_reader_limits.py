"""Readers under limits: too long or too much is refused, all else is answered as without."""

import json
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import pytest
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli, eventually, join

from otel_lightning.collector.store import Store, StoreError, open_store, write_server
from otel_lightning.collector.store.clients import reader_limits, remote_query
from otel_lightning.collector.store.clients.bounded import is_bounded
from otel_lightning.collector.store.clients.reader_limits import ReaderLimits
from otel_lightning.collector.store.connect import attach
from otel_lightning.collector.store.sql_text import quote_name

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"

JOINS = """
SELECT count(*), list(DISTINCT a.name) AS names FROM spans a JOIN spans b USING (trace_id);
SELECT repeat(name, 2) AS n, (SELECT count(*) FROM spans) AS total FROM spans ORDER BY ALL LIMIT
3;
WITH x AS (FROM spans WHERE trace_id > '5') SELECT list(x.name) AS names FROM x, x AS y WHERE
x.trace_id = y.trace_id AND x.trace_id NOT IN (SELECT trace_id FROM llm_calls);
SELECT list(spans.name) AS names FROM main.spans, llm_calls, rollouts;
SELECT repeat(rollout_id, 2) FROM rollouts JOIN rewards USING (rollout_id);
SELECT list(name) AS names FROM (FROM spans UNION ALL FROM spans);
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, spans WHERE n < 9 AND trace_id
= n::VARCHAR AND trace_id IN (SELECT trace_id FROM spans)) FROM r ORDER BY n;
WITH spans AS (SELECT 'mine' AS name) SELECT repeat(name, 2) AS n FROM spans, llm_calls;
WITH spans AS (FROM spans WHERE trace_id < '5') SELECT list(name) AS n FROM spans, (SELECT
count(*) FROM llm_calls);
SELECT (SELECT count(*) FROM llm_calls), list(name) FROM spans;
SELECT main.spans.name, list(main.llm_calls.step) AS steps FROM main.spans LEFT JOIN
main.llm_calls ON main.spans.trace_id = main.llm_calls.trace_id GROUP BY 1;
SELECT list(s.name) AS names FROM traces.main.spans s;
SELECT list(t.table_name ORDER BY ALL) AS names FROM duckdb_tables() t JOIN llm_calls ON TRUE
RIGHT JOIN (SELECT count(*) FROM spans) ON TRUE WHERE t.table_name = 'spans';
SELECT string_agg(tables.table_name, ',' ORDER BY ALL) AS names FROM information_schema.tables
WHERE table_name NOT LIKE 'answer%';
SELECT c.*, r.*, repeat('x', 2) AS x FROM spans s LEFT JOIN llm_calls c USING (trace_id) LEFT
JOIN rollouts r ON TRUE LIMIT 2
"""
"""Statements with an unbounded function and several tables."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store that is served to readers with limits."""
    path = tmp_path_factory.mktemp("served") / "traces.duckdb"
    with open_store(path) as holder:
        holder.execute("INSERT INTO spans (trace_id, span_id, name) VALUES ('t', 's', 'kept')")
        limits = ReaderLimits(seconds=LIMIT_S, rows=1000)
        write_server(path, holder.serve("127.0.0.1:1", limits=limits))
        yield path


@pytest.fixture
def reader(path: Path) -> Iterator[Store]:
    with open_store(path, read_only=True) as store:
        yield store


def test_what_takes_too_long_is_ended_and_the_next_statement_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with open_store(path) as holder:
        write_server(path, holder.serve("127.0.0.1:1", limits=ReaderLimits(seconds=1.5)))
        with open_store(path, read_only=True) as reader:
            with pytest.raises(StoreError, match=r"longer than 1\.5 seconds, the limit of this"):
                reader.query(ENDLESS)
            eventually(lambda: is_answered(reader, "SELECT 1"))


def is_answered(reader: Store, statement: str) -> bool:
    """Whether a statement is answered; on a busy machine any may take longer than its limit."""
    with suppress(StoreError):
        return bool(reader.query(statement).num_rows)
    return False


def test_too_many_rows_are_refused_and_as_many_as_allowed_are_not(reader: Store) -> None:
    assert reader.query("FROM range(1000)").num_rows == 1000
    with pytest.raises(StoreError, match="more than 1,000 rows"):
        reader.query("FROM range(1001)")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 AS a, 'x' AS b; -- a comment",
        "FROM range(50) ORDER BY range % 7, range DESC",
        "DESCRIBE spans",
        "SHOW TABLES",
        "WITH s AS (FROM spans) SELECT attributes['session.id'], name FROM s",
        "VALUES (1, [1, 2], {'a': NULL})",
        "EXPLAIN SELECT 1",
    ],
)
def test_what_is_within_the_limits_is_answered_as_without(statement: str, path: Path) -> None:
    with open_store(path, read_only=True) as reader, open_store(path) as writer:
        assert reader.query(statement).to_pylist() == writer.query(statement).to_pylist()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Store, Path]]:
    """A served store of this test alone."""
    path = tmp_path / "traces.duckdb"
    with open_store(path) as holder:
        limits = ReaderLimits(seconds=60, rows=1000)
        write_server(path, holder.serve("127.0.0.1:1", limits=limits))
        yield holder, path


REFUSED_IN_A_ROW = 5
"""Each with 5 % less memory, because the server may free some later."""


def use_up_memory(holder: Store, path: Path) -> None:
    """Leave so little memory that DuckDB cannot even call what judges a statement."""
    server = json.loads(path.with_name("traces.duckdb.server").read_text())
    with closing(attach(server["sql"], server["reader"])) as client:
        limit, refused = 4_000_000, 0
        while refused < REFUSED_IN_A_ROW:
            holder.limit(limit)
            limit = limit * 95 // 100
            try:
                client.execute("FROM remote.query('SELECT 1 AS one')").fetchall()
                refused = 0
            except duckdb.Error as error:
                refused = refused + 1 if "Authorization failed" in str(error) else 0


def test_a_statement_that_could_not_be_judged_for_want_of_memory_is_asked_again(
    served: tuple[Store, Path],
) -> None:
    holder, path = served
    with open_store(path, read_only=True) as reader:
        use_up_memory(holder, path)
        ended = threading.Timer(0.5, holder.limit, [512_000_000])
        ended.start()
        assert reader.query("SELECT 1 AS one")["one"].to_pylist() == [1]
        join(ended)


def test_a_statement_that_cannot_be_judged_says_why(
    served: tuple[Store, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_query, "PAUSES_SECONDS", (0.1, 0.1))
    holder, path = served
    with open_store(path, read_only=True) as reader:
        use_up_memory(holder, path)
        with pytest.raises(StoreError, match=r"larger --memory|Out of Memory Error"):
            reader.query("SELECT 1 AS one")
        holder.limit(512_000_000)


def test_answers_leave_no_threads_behind(
    served: tuple[Store, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_limits, "KEPT_SECONDS", 2.0 * LIMIT_S)
    _, path = served
    with open_store(path, read_only=True) as reader:
        reader.query("SELECT 1 AS one")
        before = {thread.ident for thread in threading.enumerate()}
        for _ in range(20):
            reader.query("SELECT 1 AS one")
        # Longer than any other thread lasts, and shorter than an answer is kept.
        eventually(lambda: {one.ident for one in threading.enumerate()} <= before)


def test_an_answer_is_dropped_in_time(
    served: tuple[Store, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, path = served
    kept = "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lightning_answers'"
    with open_store(path, read_only=True) as reader:
        assert reader.query("SELECT 1 AS one")["one"].to_pylist() == [1]
    assert holder.column(kept)[0] > 0
    monkeypatch.setattr(reader_limits, "KEPT_SECONDS", 0.1)
    eventually(lambda: holder.column(kept) == [0])


def test_answers_take_no_more_than_their_share_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_limits, "SOON_SECONDS", 0.2)
    memory, answer_bytes, path = 256_000_000, 16_000_000, tmp_path / "traces.duckdb"
    select = f"SELECT md5(range::VARCHAR) AS text FROM range({answer_bytes // 32})"
    with open_store(path) as holder:
        write_server(path, holder.serve("127.0.0.1:1", memory, ReaderLimits(seconds=60)))
        with open_store(path, read_only=True) as reader:
            for _ in range(9):
                assert reader.query(select).num_rows == answer_bytes // 32
                kept = holder.column(reader_limits.KEPT_BYTES)[0]
                assert kept < reader_limits.SHARE * memory + 2 * answer_bytes


def test_what_explains_by_running_is_refused(reader: Store) -> None:
    with pytest.raises(StoreError, match="EXPLAIN ANALYZE has no limits"):
        reader.query(f"EXPLAIN ANALYZE {ENDLESS}")


def test_a_reader_leaves_most_of_the_free_disk_to_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB itself would let it take 90 %."""
    spills = "SELECT min(t) FROM (SELECT DISTINCT md5(range::VARCHAR) AS t FROM range(4000000))"
    whole = shutil.disk_usage(tmp_path)
    free = 10**9
    monkeypatch.setattr("shutil.disk_usage", lambda _: whole._replace(free=free))
    path = tmp_path / "traces.duckdb"
    with open_store(path) as holder:
        server = holder.serve("127.0.0.1:1", 100_000_000, ReaderLimits(seconds=60))
        write_server(path, server)
        with open_store(path, read_only=True) as reader:
            assert reader.query(spills).num_rows == 1
            free = 2 * 10**8
            holder.release_memory()  # as the loader does from time to time
            with pytest.raises(StoreError, match="max_temp_directory_size"):
                reader.query(spills)
            assert reader.query("SELECT 1 AS one")["one"].to_pylist() == [1]


def test_errors_are_those_of_the_statement(reader: Store) -> None:
    with pytest.raises(StoreError, match=r"^Catalog Error: .*no_such_table does not exist") as told:
        reader.query("FROM no_such_table")
    assert "lightning_answers" not in str(told.value)  # our wrapper is not quoted


@pytest.mark.parametrize("function", ["lower", "repeat"], ids=["bounded", "in a process"])
@pytest.mark.parametrize("tables", ["spans", "spans JOIN spans AS other USING (span_id)"])
def test_an_error_while_a_statement_runs_quotes_the_statement_alone(
    function: str, tables: str, guarded: Path
) -> None:
    arguments = "'x', 3" if function == "repeat" else "'x'"
    with open_store(guarded, read_only=True) as reader, pytest.raises(StoreError) as told:
        reader.query(f"SELECT CAST({function}({arguments}) || spans.name AS INT) FROM {tables}")
    kind, quoted = str(told.value).split("\n\n")
    assert kind.startswith("Conversion Error: Could not convert string 'x")
    assert quoted.startswith("LINE 1: SELECT CAST(")
    assert "LIMIT" not in quoted


def test_who_may_write_has_no_limits(path: Path) -> None:
    with open_store(path) as writer:
        assert writer.query("FROM range(2000)").num_rows == 2000


KILLER = "SELECT max(length(repeat(repeat('x',100000000),20+range::int))) FROM range(4)"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store whose readers' statements run in processes of their own, where they must."""
    path = tmp_path_factory.mktemp("guarded") / "traces.duckdb"
    with open_store(path) as holder:
        holder.execute(
            "INSERT INTO spans (trace_id, span_id, name) SELECT range, 's', 'kept' FROM range(100)"
        )
        limits = ReaderLimits(seconds=LIMIT_S, rows=1000, memory_bytes=400_000_000)
        write_server(path, holder.serve("127.0.0.1:1", limits=limits))
        yield path


@pytest.mark.parametrize(
    "statement",
    [
        KILLER,
        "SELECT length(string_agg(repeat('x', 10000000), '')) FROM range(1000)",
        "SELECT len(range(1000000000))",
        "WITH RECURSIVE r AS (SELECT 'x' AS t UNION ALL SELECT t || t FROM r) SELECT max(t) FROM r",
    ],
)
def test_a_statement_that_takes_all_memory_ends_and_nothing_else_does(
    statement: str, guarded: Path
) -> None:
    peak = peak_bytes()
    with open_store(guarded, read_only=True) as reader:
        with pytest.raises(StoreError, match=r"(?i)memory|bytes|allocat"):
            reader.query(statement)
        assert reader.query("SELECT count(*) AS n FROM spans")["n"].to_pylist() == [100]
        again = reader.query("SELECT repeat(name, 2) AS n FROM spans LIMIT 1")
        assert again["n"].to_pylist() == ["keptkept"]
    assert peak_bytes() - peak < 200_000_000  # of the process that holds the store: this one


def test_a_process_of_its_own_writes_no_stored_text_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    path = tmp_path / "traces.duckdb"
    sorted_texts = "SELECT repeat('x', 1000) || range AS n FROM range(400000) ORDER BY md5(n)"
    with open_store(path) as holder:
        limits = ReaderLimits(memory_bytes=400_000_000)
        write_server(path, holder.serve("127.0.0.1:1", limits=limits))
        with open_store(path, read_only=True) as reader:
            with pytest.raises(StoreError, match="more than 400 MB of memory"):
                reader.query(f"SELECT max(n) FROM ({sorted_texts} LIMIT 390000)")
            assert list(here.iterdir()) == []


def test_a_process_of_its_own_answers_as_the_store_does(guarded: Path) -> None:
    statement = (
        "SELECT string_agg(trace_id, ',' ORDER BY trace_id) AS ids, list(DISTINCT name) AS names,"
        " max(start_time) AS t, any_value(attributes) AS a FROM spans"
    )
    with open_store(guarded, read_only=True) as reader, open_store(guarded) as writer:
        assert reader.query(statement).to_pylist() == writer.query(statement).to_pylist()
        with pytest.raises(StoreError, match="more than 1,000 rows"):
            reader.query("SELECT repeat('x', 2) FROM range(1001)")
        with pytest.raises(StoreError, match="no_such_table"):
            reader.query("SELECT repeat('x', 2) FROM no_such_table")


@pytest.mark.parametrize("statement", JOINS.split(";"))
def test_a_process_of_its_own_reads_several_tables(statement: str, guarded: Path) -> None:
    with open_store(guarded, read_only=True) as reader, open_store(guarded) as writer:
        assert reader.query(statement).to_pylist() == writer.query(statement).to_pylist()


@pytest.mark.parametrize("name", ["my table", "order", 'it\'s "mine"', "Größe", "a-b;--"])
@pytest.mark.parametrize(
    "select",
    [
        "SELECT count(*) AS n FROM {0}",
        "SELECT {0}.{0} AS n FROM main.{0}",
        "SELECT repeat(x.{0}, 2) AS n FROM {0} x, {0} y",
    ],
    ids=["here", "with its schema", "apart"],
)
def test_a_table_may_have_any_name_that_is_no_file(name: str, select: str, guarded: Path) -> None:
    quoted = quote_name(name)
    with open_store(guarded) as writer:
        writer.execute(f"CREATE TABLE IF NOT EXISTS main.{quoted} AS SELECT 'a' AS {quoted}")
        expected = writer.query(select.format(quoted)).to_pydict()
    with open_store(guarded, read_only=True) as reader:
        assert reader.query(select.format(quoted)).to_pydict() == expected


def test_what_takes_too_long_in_a_process_of_its_own_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with open_store(path) as holder:
        limits = ReaderLimits(seconds=2, memory_bytes=400_000_000)
        write_server(path, holder.serve("127.0.0.1:1", limits=limits))
        with open_store(path, read_only=True) as reader:
            with pytest.raises(StoreError, match="longer than 2 seconds"):
                reader.query(f"SELECT repeat(count(*)::VARCHAR, 2) FROM ({ENDLESS})")
            eventually(lambda: is_answered(reader, "SELECT repeat('x', 2)"))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT attributes['a'], count(*) FROM spans WHERE name LIKE 'x%' GROUP BY ALL", True),
        ("FROM range(5) r JOIN spans ON trace_id = r.range::VARCHAR", True),
        ("SELECT input_messages -> '$[0].parts' FROM llm_calls ORDER BY start_time LIMIT 5", True),
        ("SELECT sum(input_tokens) OVER (PARTITION BY rollout_id) FROM llm_calls", True),
        ("SELECT name || ' of ' || trace_id, [name] FROM spans", True),
        ("SELECT name || name || name || name || name || name FROM spans", False),
        ("SELECT schema_name, sql, 'table' FROM duckdb_tables()", True),
        ("SELECT range(10)", False),
        ("FROM spans WHERE length(repeat(name, 9)) > 3", False),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) FROM r", False),
        ("SELECT list_transform(map_keys(attributes), k -> k) FROM spans", False),
        ("SELECT count(*) FROM repeat('x', 5)", False),
        ("SELECT a_function_to_come(name) FROM spans", False),
    ],
)
def test_only_what_makes_no_more_than_it_reads_is_bounded(statement: str, expected: bool) -> None:  # noqa: FBT001
    with duckdb.connect() as parser:
        tree = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchall()
    assert is_bounded(json.loads(tree[0][0])) is expected


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_the_ingester_outlives_a_statement_that_takes_all_memory(ingester: Ingester) -> None:
    result = cli("sql", KILLER, "--store", str(ingester.store))
    assert result.returncode == 1
    assert "memory" in result.stderr.lower()
    assert send(ingester.http, trace_request("chat").SerializeToString()).status == 200
    assert cli("sql", "SELECT 1 AS one", "--store", str(ingester.store)).returncode == 0
