"""While the ids of a large store are read after a crash, requests are taken, and it is told."""

import json
import sys
from pathlib import Path

from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, background, cli_here, eventually, written_by

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.receive.http.health import READING_IDS
from otel_lightning.collector.store import open_store

SLOWLY = """
import sys, time
from pathlib import Path
from otel_lightning.collector.store.deduplication import bloom_filter

add = bloom_filter.BloomFilter.add

def add_when_asked(self, keys):
    while not go.exists():
        time.sleep(0.01)
    add(self, keys)

go = Path(sys.argv.pop())
bloom_filter.BloomFilter.add = add_when_asked
from otel_lightning.collector.__main__ import main
main()
"""
"""Serves a store; its ids are read only when the file that the last argument names is there."""


def test_requests_are_taken_and_counted_while_the_ids_of_the_store_are_read(tmp_path: Path) -> None:
    store, go = tmp_path / "t.duckdb", tmp_path / "go"
    with open_store(store) as opened:
        stored = [Request("traces", 1, trace_request(*"abc").SerializeToString())]
        assert load(opened, stored, dead_letters=tmp_path) == len("abc")
    words = [sys.executable, "-c", SLOWLY, "serve", "--store", store, "--grpc", "none"]
    with background(*words, "--http", "127.0.0.1:0", go) as process:
        http = json.loads(written_by(process, tmp_path / "t.duckdb.server"))["http"]
        assert send(http, path="/readyz", method="GET").body.decode() == "ready\n"
        assert send(http, trace_request("new").SerializeToString()).status == 200
        eventually(lambda: metric(http, "lightning_ids_to_read") == len("abc"))
        assert send(http, trace_request("newer").SerializeToString()).status == 200
        assert metric(http, "lightning_accepted_records_total") == len(("new", "newer"))
        assert metric(http, "lightning_spool_backlog_bytes") > 0
        ready = send(http, path="/readyz", method="GET")
        assert (ready.status, ready.body.decode()) == (200, f"ready\n{READING_IDS}")
        result = cli_here("check", "--store", str(store))
        assert "of 3 rows are left, as after a crash" in result.stdout
        go.touch()
        eventually(lambda: column(store, "SELECT count(*) FROM spans") == [len("abc") + 2])
        assert metric(http, "lightning_ids_to_read") == 0
        process.terminate()
        assert process.wait(LIMIT_S) == 0
