"""The printed SQL works in a DuckDB of its own, offline, whether or not the ingester runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from support.otlp_client import column, send
from support.requests_by_hand import trace_request
from support.running import Ingester, cli, eventually, running

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.sql_text import quote_name

QUOTES = 'my "best" runs'
SENT = trace_request("seen").SerializeToString()


def attached(told: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(told)
    return connection


def line_for(store: Path) -> str:
    result = cli("attach", "--store", str(store))
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingester]:
    """A running ingester with one span, and a table of a user with quotes in its name."""
    path = tmp_path_factory.mktemp("served") / "traces.duckdb"
    with open_store(path):
        pass
    with duckdb.connect(path) as connection:
        connection.execute(f"CREATE TABLE {quote_name(QUOTES)} AS SELECT 1 AS one")
    with running(path) as ingester:
        assert send(ingester.http, SENT).status == 200
        eventually(lambda: column(ingester.store, "SELECT name FROM spans") == ["seen"])
        yield ingester


@pytest.fixture(scope="module")
def told(served: Ingester) -> str:
    """The SQL that is printed for it."""
    return line_for(served.store)


def assert_tables_are_shown_and_read(told: str) -> None:
    with attached(told) as connection:
        shown = {row[0] for row in connection.execute("SHOW TABLES").fetchall()}
        assert shown >= {"spans", "logs", "llm_calls", "tool_calls", "rewards", "rollouts"}
        assert connection.execute("SELECT name FROM spans").fetchall() == [("seen",)]


def test_tables_are_shown_and_read(told: str) -> None:
    assert_tables_are_shown_and_read(told)


def test_tables_are_shown_and_read_where_no_ingester_runs(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with open_store(path) as store:
        load(store, [Request("traces", 1, SENT)], dead_letters=tmp_path)
    assert_tables_are_shown_and_read(line_for(path))


def test_quotes_in_the_name_of_a_table_do_not_break_the_script(told: str) -> None:
    with attached(told) as connection:
        assert (QUOTES,) in connection.execute("SHOW TABLES").fetchall()


@pytest.mark.slow
def test_tables_are_joined_and_answers_of_others_are_not_shown(told: str) -> None:
    join = "SELECT name FROM spans LEFT JOIN llm_calls USING (trace_id) LEFT JOIN rollouts ON FALSE"
    with attached(told) as connection:
        shown = {row[0] for row in connection.execute("SHOW TABLES").fetchall()}
        assert not {name for name in shown if name.startswith("answer_")}
        assert connection.execute(join).fetchall() == [("seen",)]


def test_the_token_is_not_printed(served: Ingester, told: str) -> None:
    secrets = served.store.with_name(served.store.name + ".server").read_text()
    assert duckdb.__version__ in told
    for secret in re.findall(r'"(?:reader|token)": "(\w+)"', secrets):
        assert secret not in told
