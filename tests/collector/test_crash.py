"""kill -9 at random moments: what was acknowledged is there, once; a request is whole or absent."""

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.crashes import SPANS, Clients, has_workers
from support.otlp_client import metric
from support.running import LIMIT_S, Ingester, background, eventually, join

from otel_lightning.collector.maintain.backup import back_up_by_path
from otel_lightning.collector.store import Store, StoreError, open_store

MOMENTS = ("load", "workers", "backup", "checkpoint", "recovery")
KILLS = 40
OPTIONS = ("--workers", "2")
WORKERS_S = 3
SPAN_IDS = [f"{position:016x}" for position in range(1, SPANS + 1)]


def checkpoint(writer: Store) -> None:
    """Have the ingester write its checkpoint, over and over, until it dies."""
    with suppress(StoreError), writer:
        while True:
            writer.execute("CHECKPOINT")


def back_up(running: Ingester, whole: list[Path]) -> None:
    """Back the store up, over and over, until its ingester dies; keep the last whole copy."""
    with suppress(StoreError, OSError):
        while running.process.poll() is None:
            target = running.store.with_name(f"backup-{time.time_ns()}.duckdb")
            back_up_by_path(running.store, target)
            for former in whole:
                former.unlink()
            whole[:] = [target]


def crash(
    running: Ingester, clients: Clients, moment: str, chance: random.Random, whole: list[Path]
) -> None:
    """Let the clients send for a while, then kill the ingester."""
    again = sorted(n for n in clients.unanswered if chance.random() < 0.5)
    threads = clients.start(running, again)
    if moment == "checkpoint":
        time.sleep(0.3)
        writer = open_store(running.store, create=False)
        assert writer.server, "the ingester holds the file"
        threads.append(threading.Thread(target=checkpoint, args=(writer,), daemon=True))
        threads[-1].start()
    if moment == "backup":
        threads.append(threading.Thread(target=back_up, args=(running, whole), daemon=True))
        threads[-1].start()
        eventually(lambda: bool(whole))  # the first one ends; later ones meet the kill
    if moment == "workers":
        with suppress(AssertionError):  # a slow machine stores too little for workers in this time
            eventually(lambda: has_workers(running), WORKERS_S)
    time.sleep(chance.uniform(0.05, 0.7))
    running.kill()
    join(*threads, seconds=LIMIT_S)


def crash_while_recovering(store: Path, chance: random.Random) -> None:
    """Kill an ingester somewhere between its first step and its first requests."""
    addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    command = [sys.executable, "-m", "otel_lightning.collector", "--store", str(store), *addresses]
    with background(*command, stdout=subprocess.DEVNULL):
        time.sleep(chance.uniform(0.3, 2.0))


@pytest.mark.slow
def test_no_crash_loses_repeats_or_tears_what_was_sent(
    starter: Callable[[], Ingester], tmp_path: Path
) -> None:
    chance, clients = random.Random(KILLS), Clients()  # noqa: S311  which moments, not secrets
    whole: list[Path] = []
    for moment in itertools.islice(itertools.cycle(MOMENTS), KILLS):
        if moment == "recovery":
            crash_while_recovering(tmp_path / "traces.duckdb", chance)
        else:
            crash(starter(*OPTIONS), clients, moment, chance, whole)
    last = starter(*OPTIONS)  # on a slow machine a stop leaves a rest on the spool
    eventually(lambda: metric(last.http, "lightning_loader_lag_seconds") == 0, seconds=300)
    assert last.stop() == 0
    with open_store(tmp_path / "traces.duckdb", create=False) as store:
        stored = traces(store)
        calls = store.query("SELECT trace_id FROM llm_calls")["trace_id"].to_pylist()
    assert sorted(calls) == sorted(row["trace_id"] for row in stored), "not derived, or twice"
    assert whole, "no backup was whole"
    with open_store(whole[-1], create=False) as copy:
        assert [row["trace_id"] for row in traces(copy) if row["ids"] != SPAN_IDS] == []
    found = {int(row["trace_id"], 16) for row in stored}
    print(f"{len(clients.acknowledged)} requests acknowledged, {len(clients.unanswered)} not")
    assert len(clients.acknowledged) > KILLS, "too little was sent for this to prove anything"
    assert clients.acknowledged - found == set(), "acknowledged and lost"
    assert found - clients.acknowledged - clients.unanswered == set(), "never sent"
    assert [row["trace_id"] for row in stored if row["ids"] != SPAN_IDS] == [], "torn or repeated"


def traces(store: Store) -> list[dict[str, Any]]:
    """Return the span ids of each stored trace, in order."""
    select = "SELECT trace_id, list(span_id ORDER BY span_id) AS ids FROM spans GROUP BY trace_id"
    return store.query(select).to_pylist()
