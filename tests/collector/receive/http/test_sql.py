"""SELECTs over HTTP: for who has the writer token, on this machine, and only to read."""

import gzip
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import Ingester, eventually

from otel_lightning.collector.ingester_client.sql import PATH, SqlClient, sql_client
from otel_lightning.collector.store import StoreError, read_server


def asked(ingester: Ingester, token: str, **headers: str) -> int:
    sent = {"Authorization": f"Bearer {token}", "Content_Type": "application/sql", **headers}
    return send(ingester.http, b"SELECT 1", path=PATH, **sent).status


def client_of(ingester: Ingester) -> SqlClient:
    client = sql_client(ingester.store)
    assert client is not None
    return client


def test_rows_are_those_of_the_store(ingester: Ingester) -> None:
    assert send(ingester.http, trace_request("é").SerializeToString()).status == 200
    client = client_of(ingester)
    eventually(lambda: client.rows("SELECT name, 2 AS two FROM spans") == [{"name": "é", "two": 2}])
    assert client.rows("SELECT name FROM spans WHERE FALSE") == []
    # What JSON does not have is text.
    assert client.rows("SELECT DATE '2026-01-02' AS day") == [{"day": "2026-01-02"}]
    exact = "2026-01-02 03:04:05.123456789"
    assert client.rows(f"SELECT TIMESTAMP_NS '{exact}' AS at") == [{"at": exact}]
    nested = f"SELECT [{{'at': TIMESTAMP_NS '{exact}'}}] AS times"
    assert client.rows(nested) == [{"times": [{"at": exact}]}]


def test_it_needs_the_writer_token(starter: Callable[..., Ingester]) -> None:
    ingester = starter("--token", "of-senders")
    server = read_server(ingester.store)
    assert server is not None
    tokens = {"of-senders": 401, server.reader: 401, "": 401, server.token: 200}
    assert {token: asked(ingester, token) for token in tokens} == tokens
    elsewhere = {"Origin": "http://elsewhere.example"}
    assert asked(ingester, server.token, **elsewhere) == 403


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM spans", "SELECT 1; DROP TABLE spans", "nonsense", "SET threads = 4", ""],
)
def test_it_only_reads(lasting: Ingester, statement: str) -> None:
    client = client_of(lasting)
    with pytest.raises(StoreError):
        client.rows(statement)
    assert client.rows("SELECT count(*) AS n FROM spans") == [{"n": 0}]


def test_a_store_that_nobody_serves_has_no_client(tmp_path: Path) -> None:
    assert sql_client(tmp_path / "t.duckdb") is None


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux only")
def test_the_ingester_loads_no_pandas(ingester: Ingester) -> None:
    """Arrow and DuckDB would load it, where it is installed, at the first request."""
    assert send(ingester.http, trace_request("a").SerializeToString()).status == 200
    client = client_of(ingester)
    eventually(lambda: client.rows("SELECT count(*) AS n FROM spans") == [{"n": 1}])
    eventually(lambda: client.rows("SELECT count(*) AS n FROM stale") == [{"n": 0}])
    server = read_server(ingester.store)
    assert server is not None
    loaded = Path(f"/proc/{server.pid}/maps").read_text()
    assert "duckdb" in loaded
    assert f"{os.sep}pandas{os.sep}" not in loaded


ENDLESS = "SELECT count(*) AS n FROM range(1_000_000_000_000) t(i) WHERE i % 7 = 1"


def test_long_statements_hold_up_no_request_and_no_end(ingester: Ingester) -> None:
    client = client_of(ingester)
    body = gzip.compress(trace_request("compressed").SerializeToString())
    with ThreadPoolExecutor(40) as threads:
        asked = [threads.submit(client.rows, ENDLESS) for _ in range(40)]
        for _ in range(20):
            assert send(ingester.http, body, Content_Encoding="gzip").status == 200
        assert not any(one.done() for one in asked)
        assert ingester.stop() == 0
        assert all(one.exception() for one in asked)
