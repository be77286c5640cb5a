"""The printed SQL works in a DuckDB of its own, offline, whether or not the ingester runs."""

import re

import duckdb
import pytest
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import Ingester, cli, eventually
from support.sending import column


def attached(store: str) -> duckdb.DuckDBPyConnection:
    told = cli("attach", "--store", store)
    assert told.returncode == 0, told.stderr
    connection = duckdb.connect()
    connection.execute(told.stdout)
    return connection


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_tables_are_shown_and_read(ingester: Ingester, *, runs: bool) -> None:
    assert send(ingester.http, trace_request("seen").SerializeToString()).status == 200
    eventually(lambda: column(ingester.store, "SELECT name FROM spans") == ["seen"])
    if not runs:
        assert ingester.stop() == 0
    with attached(str(ingester.store)) as connection:
        shown = {row[0] for row in connection.execute("SHOW TABLES").fetchall()}
        assert shown >= {"spans", "logs", "llm_calls", "tool_calls", "rewards", "rollouts"}
        assert connection.execute("SELECT name FROM spans").fetchall() == [("seen",)]


def test_tables_are_joined_and_answers_of_others_are_not_shown(ingester: Ingester) -> None:
    assert send(ingester.http, trace_request("seen").SerializeToString()).status == 200
    eventually(lambda: column(ingester.store, "SELECT name FROM spans") == ["seen"])
    join = "SELECT name FROM spans LEFT JOIN llm_calls USING (trace_id) LEFT JOIN rollouts ON FALSE"
    with attached(str(ingester.store)) as connection:
        shown = {row[0] for row in connection.execute("SHOW TABLES").fetchall()}
        assert not {name for name in shown if name.startswith("answer_")}
        assert connection.execute(join).fetchall() == [("seen",)]


def test_the_token_is_not_printed(ingester: Ingester) -> None:
    told = cli("attach", "--store", str(ingester.store)).stdout
    secrets = ingester.store.with_name(ingester.store.name + ".server").read_text()
    assert duckdb.__version__ in told
    for secret in re.findall(r'"(?:reader|token)": "(\w+)"', secrets):
        assert secret not in told
