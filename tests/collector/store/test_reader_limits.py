"""Readers under limits: too long or too much is refused, all else is answered as without."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_lightning.collector.store import Store, StoreError, open_store, write_server
from otel_lightning.collector.store.reader_limits import ReaderLimits

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store that is served to readers with limits."""
    path = tmp_path_factory.mktemp("served") / "traces.duckdb"
    with open_store(path) as holder:
        holder.execute("INSERT INTO spans (trace_id, span_id, name) VALUES ('t', 's', 'kept')")
        limits = ReaderLimits(seconds=1.5, rows=1000)
        write_server(path, holder.serve("127.0.0.1:1", limits=limits))
        yield path


@pytest.fixture
def reader(path: Path) -> Iterator[Store]:
    with open_store(path, read_only=True) as store:
        yield store


def test_what_takes_too_long_is_ended_and_the_next_statement_is_answered(reader: Store) -> None:
    with pytest.raises(StoreError, match=r"longer than 1\.5 seconds, the limit of this token"):
        reader.query(ENDLESS)
    assert reader.query("SELECT name FROM spans")["name"].to_pylist() == ["kept"]


def test_too_many_rows_are_refused_and_as_many_as_allowed_are_not(reader: Store) -> None:
    assert reader.query("FROM range(1000)").num_rows == 1000
    with pytest.raises(StoreError, match="more than 1000 rows"):
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


def test_what_explains_by_running_is_refused(reader: Store) -> None:
    with pytest.raises(StoreError, match="EXPLAIN ANALYZE has no limits"):
        reader.query(f"EXPLAIN ANALYZE {ENDLESS}")


def test_errors_are_those_of_the_statement(reader: Store) -> None:
    with pytest.raises(StoreError, match="no_such_table does not exist"):
        reader.query("FROM no_such_table")


def test_who_may_write_has_no_limits(path: Path) -> None:
    with open_store(path) as writer:
        assert writer.query("FROM range(2000)").num_rows == 2000
