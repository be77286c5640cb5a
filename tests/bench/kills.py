"""Kill the ingester over and over under load, while backups are made and workers derive.

Run it with `make kills KILLS=100`. Four clients send without pause, two worker processes derive,
and `lightning-ingest backup` runs again and again. After a random while the ingester is killed
(SIGKILL) and started again on the same store. Each backup that ended is opened: it must hold every
request that was acknowledged before it began, each request whole and once, and for each trace its
derived row or the mark that it has to be derived. After ten kills the store must hold each
acknowledged request whole and once, and deriving everything again must give the same rows; then a
new store is begun. The exit code is 1 if one of these does not hold.
"""

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from otel_lightning.collector.check.deep import check_deep
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.load.position import spool_position
from otel_lightning.collector.maintain.copy_store import store_waiting
from otel_lightning.collector.spool.folder import dead_letters, spool_folder
from otel_lightning.collector.store import Store, open_store

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.crashes import SPANS, Clients, has_workers
from support.otlp_client import metric
from support.running import Ingester, cli, eventually, join, start

OPTIONS = ("--workers", "2")
WORKERS_SECONDS = 20.0
"""How long to wait until workers derive before the moment of the kill is chosen."""
LEAST_SECONDS, MOST_SECONDS = 0.2, 5.0
"""The kill comes so long after workers and a backup have begun."""
KILLS_A_STORE = 10
"""After so many kills the store is checked as a whole, and a new one is begun."""
SAMPLE = 200
"""Traces of each backup that are derived again to compare."""
REST_SECONDS = 900.0
"""For the rest on the spool at the end."""
TORN = f"""
    SELECT trace_id FROM spans GROUP BY trace_id
    HAVING count(*) <> {SPANS} OR count(DISTINCT span_id) <> {SPANS}
"""
NOT_DERIVED = """
    SELECT DISTINCT trace_id FROM spans
    WHERE trace_id NOT IN (SELECT trace_id FROM llm_calls)
    AND trace_id NOT IN (SELECT trace_id FROM stale)
"""
DERIVED_TWICE = "SELECT trace_id FROM llm_calls GROUP BY trace_id HAVING count(*) > 1"


@dataclass
class Backup:
    """A backup, and the requests that were acknowledged before it began."""

    path: Path
    before: set[int]


@dataclass
class Figures:
    """What happened."""

    kills: int = 0
    with_workers: int = 0
    in_backup: int = 0
    backups: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    faults: list[str] = field(default_factory=list)


class Backups(threading.Thread):
    """A thread that runs `lightning-ingest backup` until its ingester has died."""

    def __init__(self, running: Ingester, clients: Clients, name: str) -> None:
        super().__init__(daemon=True)
        self._running, self._clients, self._prefix = running, clients, name
        self.made: list[Backup] = []
        self.faults: list[str] = []
        self.begun = threading.Event()
        self.is_running = False

    def run(self) -> None:
        """Back up again and again."""
        store, number = self._running.store, 0
        while self._running.process.poll() is None:
            number += 1
            backup = Backup(
                store.with_name(f"{self._prefix}-{number}.duckdb"), set(self._clients.acknowledged)
            )
            self.made.append(backup)
            self.is_running = True
            self.begun.set()
            told = cli("backup", str(backup.path), "--store", str(store))
            self.is_running = False
            is_killed = self._running.process.poll() is not None
            if told.returncode and not is_killed:
                self.faults.append(f"a backup failed while the ingester ran: {told.stderr}")
                return


def main() -> None:
    """Kill, check, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS_A_STORE)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance, figures = random.Random(chosen.seed), Figures()  # noqa: S311  moments, not secrets
    began = time.monotonic()
    while figures.kills < chosen.kills:
        kill_some(min(KILLS_A_STORE, chosen.kills - figures.kills), chance, figures)
        print(
            f"{figures.kills} kills, {figures.acknowledged:,} requests acknowledged, "
            f"{figures.backups} backups, {len(figures.faults)} faults, "
            f"{time.monotonic() - began:,.0f} s",
            flush=True,
        )
    print(
        f"\n{figures.kills} kills, {figures.with_workers} while workers derived, "
        f"{figures.in_backup} in the middle of a backup. {figures.acknowledged:,} requests "
        f"({figures.acknowledged * SPANS:,} spans) acknowledged, {figures.unanswered:,} not. "
        f"{figures.backups} backups ended and were checked."
    )
    print("\n".join(figures.faults) or "Nothing lost, nothing twice, nothing derived otherwise.")
    raise SystemExit(1 if figures.faults else 0)


def kill_some(kills: int, chance: random.Random, figures: Figures) -> None:
    """Kill an ingester so many times on one new store, and check the store at the end."""
    clients = Clients()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "traces.duckdb"
        for _ in range(kills):
            for backup in kill_one(store, clients, chance, figures):
                if backup.path.exists():  # it gets its name when it is whole
                    figures.backups += 1
                    figures.faults += faults_of(backup, clients)
                remove(backup.path)
        figures.faults += faults_of_the_rest(store, clients)
    figures.acknowledged += len(clients.acknowledged)
    figures.unanswered += len(clients.unanswered)


def kill_one(
    store: Path, clients: Clients, chance: random.Random, figures: Figures
) -> list[Backup]:
    """Start the ingester, load it, and kill it; return the backups that were begun."""
    running = start(store, *OPTIONS)
    try:
        again = sorted(n for n in clients.unanswered if chance.random() < 0.5)
        threads = clients.start(running, again)
        backups = Backups(running, clients, f"backup-{figures.kills}")
        backups.start()
        backups.begun.wait(WORKERS_SECONDS)
        with suppress(AssertionError):  # too little was sent for workers: it is counted below
            eventually(lambda: has_workers(running), seconds=WORKERS_SECONDS)
        time.sleep(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
        figures.kills += 1
        figures.with_workers += is_deriving(running)
        figures.in_backup += backups.is_running
    finally:
        running.kill()
    join(*threads, backups)
    figures.faults += backups.faults
    return backups.made


def is_deriving(running: Ingester) -> bool:
    """Return whether a process of the ingester derives at this moment."""
    with suppress(psutil.Error):
        children = psutil.Process(running.process.pid).children()
        return any(
            "worker_process" in " ".join(child.cmdline())
            and child.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
            for child in children
        )
    return False


def faults_of(backup: Backup, clients: Clients) -> Iterator[str]:
    """Open a backup, store what waits on its spool, and yield what is wrong with it."""
    folder = spool_folder(backup.path)
    with open_store(backup.path, create=False) as copy:
        for problem in faults_of_derived(copy):
            yield f"{backup.path.name}: {problem}"
        store_waiting(copy, folder, spool_position(copy), dead_letters(backup.path))
        sent = clients.acknowledged | clients.unanswered
        for problem in faults_of_spans(copy, backup.before, sent):
            yield f"{backup.path.name}: {problem}"
        derive_all(copy, backup.path)
        for finding in check_deep(copy, backup.path, SAMPLE):
            if not finding.is_fine:
                yield f"{backup.path.name}: {finding.name}: {finding.value}"


def faults_of_the_rest(store: Path, clients: Clients) -> Iterator[str]:
    """Let an ingester store and derive what is left, stop it, and yield what is wrong."""
    last = start(store, *OPTIONS)
    try:
        lag = "lightning_loader_lag_seconds"
        eventually(lambda: metric(last.http, lag) == 0, seconds=REST_SECONDS)
        if last.stop():
            yield "the ingester did not stop in order"
    finally:
        last.kill()
    with open_store(store, create=False) as opened:
        sent = clients.acknowledged | clients.unanswered
        yield from faults_of_spans(opened, clients.acknowledged, sent)
        yield from faults_of_derived(opened)
        for finding in check_deep(opened, store):
            if not finding.is_fine:
                yield f"{finding.name}: {finding.value}"


def faults_of_spans(store: Store, needed: set[int], sent: set[int]) -> Iterator[str]:
    """Yield what is wrong with the stored spans."""
    rows = store.query("SELECT DISTINCT trace_id FROM spans")["trace_id"].to_pylist()
    found = {int(trace, 16) for trace in rows}
    yield from named("acknowledged and lost", needed - found)
    yield from named("never sent", found - sent)
    yield from named("torn or repeated", store.query(TORN)["trace_id"].to_pylist())


def faults_of_derived(store: Store) -> Iterator[str]:
    """Yield what is wrong with the derived rows."""
    for problem, select in (
        ("neither derived nor marked", NOT_DERIVED),
        ("derived twice", DERIVED_TWICE),
    ):
        yield from named(problem, store.query(select)["trace_id"].to_pylist())


def named(problem: str, which: set[int] | list[str]) -> Iterator[str]:
    """Yield one line about a problem, if there is one."""
    if which:
        yield f"{problem}: {len(which):,} requests, such as {min(which)}"


def remove(backup: Path) -> None:
    """Delete a backup and what lies beside it."""
    backup.unlink(missing_ok=True)
    backup.with_name(f".{backup.name}.partial").unlink(missing_ok=True)
    shutil.rmtree(spool_folder(backup), ignore_errors=True)


if __name__ == "__main__":
    main()
