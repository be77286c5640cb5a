"""Opening a store, directly and through the process that holds it."""

import os
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.running import background, eventually, finish, join, running

from otel_lightning.collector.store import (
    Store,
    StoreError,
    is_select,
    open_store,
    server_file,
    sql_server,
    write_server,
)
from otel_lightning.collector.store.opening import _why_not

LISTED = "SELECT len(list(range)) AS n FROM range(4_000_000)"  # takes over 16 MB
SLOWLY = f"SELECT * FROM {{rows}} WHERE ({LISTED}) > 0"


def runs() -> pa.Table:
    return pa.table({"run_id": ["a", "b"], "command": ["policy", None]})


def test_a_new_store_has_every_documented_table(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        names = store.query("SELECT table_name AS n FROM information_schema.tables")["n"]
    documented = {
        "spans", "logs", "llm_calls", "tool_calls", "agent_runs", "rewards", "arms", "rollouts",
        "transitions", "runs", "policies",
    }  # fmt: skip
    assert documented <= set(names.to_pylist())


SETTING = """
import sys
from otel_lightning.collector.store import open_store
with open_store(sys.argv[1], read_only=sys.argv[2] == "reads") as store:
    print(store.rows("SELECT current_setting('enable_progress_bar') AS bar"))
"""
ATTACHED = """
import sys, pathlib
from otel_lightning.collector.store import read_server
from otel_lightning.collector.store.connect import attach
server = read_server(pathlib.Path(sys.argv[1]))
print(attach(server.sql, server.token).sql("SELECT current_setting('enable_progress_bar') AS bar"))
"""


def test_a_program_given_to_python_gets_no_progress_bar_between_its_lines(tmp_path: Path) -> None:
    """DuckDB takes it for a shell, and would print one to its standard output."""
    path = tmp_path / "t.duckdb"

    def told(program: str, *arguments: str) -> str:
        return str(finish(sys.executable, "-c", program, str(path), *arguments, check=True).stdout)

    assert told(SETTING, "writes") == told(SETTING, "reads") == "[{'bar': False}]\n"
    with running(path):
        assert "false" in told(ATTACHED)


def test_the_number_of_threads_of_a_served_store_never_changes(tmp_path: Path) -> None:
    # A change waits for the worker threads, and one of them may wait for the change.
    with open_store(tmp_path / "t.duckdb") as store:
        store.threads = 2
        store.serve("127.0.0.1:1")
        assert store.threads == 1
        with pytest.raises(StoreError, match="locked"):
            store.cursor().threads = 2


def test_a_served_store_lets_go_of_what_it_cached_and_keeps_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = (
        "SELECT sum(memory_usage_bytes)::BIGINT AS n, current_setting('memory_limit') AS at_most"
        " FROM duckdb_memory() WHERE tag = 'BASE_TABLE'"
    )
    monkeypatch.setattr("otel_lightning.collector.store.connection.CACHE_BYTES", 1_000_000)
    with open_store(tmp_path / "t.duckdb") as store:
        store.serve("127.0.0.1:1", memory_bytes=400_000_000)
        store.execute(
            "INSERT INTO spans (trace_id, span_id) SELECT md5(range::VARCHAR), range::VARCHAR"
            " FROM range(200_000)"
        )
        store.checkpoint()
        store.query("SELECT count(DISTINCT trace_id) AS n FROM spans")
        (before,) = store.query(cached).to_pylist()
        store.cursor().release_memory()
        (after,) = store.query(cached).to_pylist()
        assert after["n"] < 2_000_000 < before["n"]
        assert after["at_most"] == before["at_most"]


@pytest.mark.slow
def test_no_client_fails_while_the_server_lets_go_of_its_cache(tmp_path: Path) -> None:
    path, over = tmp_path / "t.duckdb", threading.Event()
    with open_store(path) as holder:
        write_server(path, holder.serve("127.0.0.1:1", memory_bytes=400_000_000))
        evicting = holder.cursor()

        def evict() -> None:
            while not over.is_set():
                evicting.release_memory()

        thread = threading.Thread(target=evict, daemon=True)
        thread.start()
        try:
            with open_store(path) as client:
                for number in range(8):
                    assert client.query(LISTED)["n"][0].as_py() == 4_000_000
                    lists = list(client.stream(f"{LISTED} WHERE range <> {number}", 1))
                    assert lists[0]["n"][0].as_py() == 3_999_999
                    client.replace("runs", runs(), select=SLOWLY)
        finally:
            over.set()
            join(thread)


def test_a_client_is_not_alone_until_it_has_read_its_answer_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as holder:
        write_server(path, holder.serve("127.0.0.1:1", memory_bytes=400_000_000))
        with open_store(path) as client:
            rows = client.stream("FROM range(3_000_000)", 1_000)
            next(rows)
            eventually(lambda: not alone(holder))
            assert sum(map(len, rows)) == 2_999_000
            eventually(lambda: alone(holder))


def alone(holder: Store) -> bool:
    with holder.sql_server.guard.alone(holder._connection) as is_alone:
        return is_alone


def test_a_store_of_a_newer_schema_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        store.execute("INSERT INTO schema_migrations VALUES (99, now()::TIMESTAMP, '')")
    with pytest.raises(StoreError, match=r"has schema 99.*pip install -U otel-lightning"):
        open_store(path)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    path.write_text("hello")
    with pytest.raises(StoreError, match="is not a DuckDB file"):
        open_store(path)
    assert path.read_text() == "hello"
    other = tmp_path / "t.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.commit()
    with pytest.raises(StoreError, match="is not a DuckDB file"):
        open_store(other)


@pytest.mark.parametrize("name", ["flags.json", "tasks.csv", "tasks.parquet"])
def test_a_data_file_that_duckdb_could_query_is_refused(tmp_path: Path, name: str) -> None:
    # DuckDB opens these as a database in memory: what was written was lost, without an error.
    path = tmp_path / name
    duckdb.sql("SELECT 1 AS a").write_parquet(str(path)) if name.endswith("parquet") else (
        path.write_text('{"a": 1}' if name.endswith("json") else "a,b\n1,2\n")
    )
    for read_only in (False, True):
        with pytest.raises(StoreError, match=f"{name}' is not a DuckDB file"):
            open_store(path, read_only=read_only)


def test_a_missing_store_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no store"):
        open_store(tmp_path / "t.duckdb", read_only=True)
    assert not list(tmp_path.iterdir())


def test_a_file_held_by_a_silent_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    code = f"""
import duckdb, time
held = duckdb.connect({str(path)!r})
print("up", flush=True)
time.sleep(60)
"""
    with background(sys.executable, "-c", code, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreError, match="held by another process"):
            open_store(path)


def test_a_failed_replace_leaves_everything_as_it_was(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        store.insert("runs", runs())
        with pytest.raises(StoreError):
            store.replace("runs", pa.table({"run_id": ["c"], "no_such_column": [1]}))
        assert store.query("SELECT run_id FROM runs ORDER BY 1")["run_id"].to_pylist() == ["a", "b"]


class Noted:
    """Counts how often it was cleared."""

    def __init__(self) -> None:
        self.clears = 0

    def clear(self) -> None:
        self.clears += 1


def test_a_rollback_that_failed_does_not_make_all_later_transactions_fail(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        store._connection.begin()
        with pytest.raises(StoreError):
            store.execute("SELECT error('as for lack of memory')")
        with store.transaction():
            store.insert("runs", runs())
        assert store.count("runs") == 2
        nested = pytest.raises(StoreError, match="within a transaction")
        with store.transaction(), nested, store.transaction():
            pass


def test_a_cache_of_a_store_is_cleared_when_a_transaction_is_undone_for_whatever_reason(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "t.duckdb") as store, closing(store.cursor()) as other:
        store.execute("CREATE TABLE mine (n INTEGER PRIMARY KEY)")
        noted = store.cache(Noted)
        with store.transaction():
            store.execute("INSERT INTO mine VALUES (1)")
        assert (store.cache(Noted), noted.clears) == (noted, 0)
        assert other.cache(Noted) is not noted
        with pytest.raises(KeyboardInterrupt), store.transaction():
            raise KeyboardInterrupt
        assert noted.clears == 1
        with ExitStack() as undone:
            undone.enter_context(pytest.raises(StoreError, match="PRIMARY KEY"))
            undone.enter_context(store.transaction())
            store.execute("INSERT INTO mine VALUES (2)")
            other.execute("INSERT INTO mine VALUES (2)")  # so that the commit fails
        assert noted.clears == 2


def test_another_process_reads_and_writes_through_the_server(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as holder:
        write_server(path, holder.serve("127.0.0.1:1"))
        assert server_file(path).stat().st_mode & 0o777 == 0o600
        code = f"""
import pyarrow as pa
from otel_lightning.collector.store import StoreError, open_store
with open_store({str(path)!r}) as store:
    assert store.server
    store.insert("runs", pa.table({{"run_id": ["a", "it's"]}}))
    store.replace("runs", pa.table({{"run_id": ["c"]}}), where="run_id = 'a'")
    try:
        store.replace("runs", pa.table({{"nope": ["d"]}}))
    except StoreError:
        pass
    print(store.query("SELECT run_id FROM runs ORDER BY 1")["run_id"].to_pylist())
"""
        process = finish(sys.executable, "-c", code, check=True)
        assert process.stdout == "['c', \"it's\"]\n"
        tables = holder.query("SELECT table_name AS n FROM duckdb_tables()")["n"].to_pylist()
        assert not [name for name in tables if name.startswith("staging")]
    server_file(path).unlink()


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT 1", True),
        ("FROM spans", True),
        ("WITH a AS (SELECT 1) FROM a", True),
        ("EXPLAIN SELECT 1", True),
        ("DROP TABLE spans", False),
        ("COPY spans TO 'x'", False),
        ("SELECT 1; DROP TABLE spans", False),
    ],
)
def test_only_a_single_reading_statement_is_a_select(sql: str, reads: bool) -> None:  # noqa: FBT001
    assert is_select(sql) is reads


def test_a_damaged_file_is_called_damaged_and_not_held_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        store.execute("INSERT INTO runs (run_id) SELECT md5(range::VARCHAR) FROM range(10_000)")
    content = bytearray(path.read_bytes())
    for place in range(12_288, len(content), 1_000):  # behind the headers: in blocks
        content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged or not a store") as refused, open_store(path):
        pass
    assert "held by" not in str(refused.value)


def test_a_folder_is_not_called_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"), open_store(tmp_path):
        pass


def test_a_full_disk_is_not_called_a_damaged_file(tmp_path: Path) -> None:
    # Opening a store with a log writes a checkpoint. DuckDB's words on a full tmpfs:
    told = (
        "FATAL Error: Detached database 'a', but CHECKPOINT during DETACH failed. \nFailed to"
        ' create checkpoint because of error: Could not write file "a": No space left on device'
    )
    why = _why_not(tmp_path / "a.duckdb", duckdb.FatalException(told))
    assert "is full" in why
    assert "damaged" not in why
    assert "backup" not in why


@pytest.mark.parametrize("name", [":memory:", "md:x", "sqlite:x"])
def test_a_name_that_means_something_to_duckdb_is_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(name) as store:
        store.insert("runs", pa.table({"run_id": ["a"]}))
    assert (tmp_path / name).exists()
    with open_store(name, read_only=True) as store:
        assert store.column("SELECT run_id FROM runs") == ["a"]


def test_a_question_mark_in_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has a question mark"):
        open_store(tmp_path / "a?b.duckdb")
    assert not list(tmp_path.iterdir())


MODES = """
import os, pathlib, sys
import pyarrow as pa
from otel_lightning.collector.store import keep_files_private, open_store
path = pathlib.Path(sys.argv[1])
os.umask(0o022)
if sys.argv[2] == "for all":
    keep_files_private()
with open_store(path) as store:
    writes = [
        lambda: store.insert("runs", pa.table({"run_id": ["a"]})),
        lambda: store.execute("DELETE FROM runs"),
        lambda: store.replace("runs", pa.table({"run_id": ["b"]})),
    ]
    for write in writes:
        assert store.checkpoint()  # deletes the log
        write()
        assert path.with_name("t.duckdb.wal").exists()
        files = sorted(file for file in path.parent.iterdir() if file.is_file())
        print([oct(file.stat().st_mode & 0o777) for file in files])
path.with_name("other").touch()
print(oct(path.with_name("other").stat().st_mode & 0o777))
"""


@pytest.mark.parametrize(("umask", "others"), [("for all", "0o600"), ("for the store", "0o644")])
def test_a_new_store_and_its_log_can_be_read_by_their_user_only(
    umask: str, others: str, tmp_path: Path
) -> None:
    process = finish(sys.executable, "-c", MODES, tmp_path / "t.duckdb", umask, check=True)
    assert process.stdout == "['0o600', '0o600']\n" * 3 + f"{others}\n"


def test_the_log_of_a_store_that_was_opened_to_a_group_is_open_to_it(tmp_path: Path) -> None:
    path, log = tmp_path / "t.duckdb", tmp_path / "t.duckdb.wal"
    open_store(path).close()
    path.chmod(0o640)
    former = os.umask(0o022)
    try:
        with open_store(path) as store:
            store.insert("runs", runs())
            assert log.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(former)


KILLED_IN_A_CHECKPOINT = """
import os, sys
from otel_lightning.collector.store import StoreError, open_store
store = open_store(sys.argv[1])
store.execute("CREATE TABLE mine (n INTEGER)")
store.checkpoint()
store.execute("INSERT INTO mine FROM range(10)")
store.execute("SET debug_checkpoint_abort = 'before_header'")
try:
    store.checkpoint()
except StoreError:
    os._exit(0)
"""


def test_opening_to_write_ends_the_log_of_a_checkpoint_that_was_cut_off(tmp_path: Path) -> None:
    # DuckDB 1.5.5 would write on behind the mark of that checkpoint, and refuse the log after
    # another kill: https://github.com/duckdb/duckdb/pull/24260
    path, log = tmp_path / "t.duckdb", tmp_path / "t.duckdb.wal"
    finish(sys.executable, "-c", KILLED_IN_A_CHECKPOINT, path, check=True)
    assert log.exists()
    with open_store(path) as store:
        assert not log.exists()
        assert store.count("mine") == 10


def test_a_statement_that_fails_for_another_reason_than_a_name_runs_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        store.execute("INSERT INTO spans (trace_id, span_id) VALUES ('t', 's')")
        store.execute("CREATE SEQUENCE runs_of_it")
        with pytest.raises(StoreError, match="stop"):
            store.query(
                "SELECT attributes['error.type'], nextval('runs_of_it'), error('stop') FROM spans"
            )
        assert store.query("SELECT nextval('runs_of_it') AS n")["n"].to_pylist() == [2]


def test_a_port_that_is_taken_meanwhile_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        real, offered = sql_server._free_port, [taken.getsockname()[1]]
        monkeypatch.setattr(sql_server, "_free_port", lambda: offered.pop() if offered else real())
        with open_store(tmp_path / "t.duckdb") as store:
            assert store.serve("127.0.0.1:1").sql.startswith("quack:localhost:")
        assert not offered


def test_a_served_store_and_its_clients_load_no_unsigned_extension(tmp_path: Path) -> None:
    """Our own two extensions are loaded without a check of their signature, and no other."""
    import duckdb
    import duckdb_extension_quack

    from otel_lightning.collector.store.connect import attach

    original = next(
        Path(str(duckdb_extension_quack.__file__)).parent.rglob("*.duckdb_extension")
    ).read_bytes()
    changed = tmp_path / "changed.duckdb_extension"
    changed.write_bytes(bytes([original[0] ^ 1]) + original[1:])
    setting = "SELECT current_setting('allow_unsigned_extensions') AS allowed"
    with open_store(tmp_path / "t.duckdb") as store:
        assert store.rows(setting) == [{"allowed": False}]
    with open_store(tmp_path / "t.duckdb", to_serve=True) as store:
        server = store.serve("127.0.0.1:0")
        assert store.rows(setting) == [{"allowed": False}]
        with attach(server.sql, server.token) as client:
            for tried in (f"LOAD '{changed}'", "SET allow_unsigned_extensions = true"):
                with pytest.raises(duckdb.Error, match=r"signature|while database is running"):
                    client.execute(tried)


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE mine (id INT PRIMARY KEY); CREATE TABLE b (id INT REFERENCES mine (id))",
        "CREATE SEQUENCE mine; CREATE TABLE b (id INT DEFAULT nextval('mine'))",
    ],
    ids=["foreign_key", "sequence"],
)
def test_a_table_with_which_duckdb_attaches_no_served_store_is_named(
    tmp_path: Path, table: str
) -> None:
    path = tmp_path / "t.duckdb"
    with running(path):
        with open_store(path) as writer:
            writer.execute(table)
        with pytest.raises(StoreError) as told:
            open_store(path, read_only=True)
    assert "its SQL cannot be reached" in str(told.value)
    assert "a foreign key, or a default from a sequence" in str(told.value)
    with open_store(path) as store:  # the way out
        store.execute("DROP TABLE b")
    with running(path), open_store(path, read_only=True) as reader:
        assert reader.count("spans") == 0
