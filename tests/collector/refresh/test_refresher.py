"""Deriving in worker processes: the same tables, whatever is in batch and whoever dies."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from support.deliveries import (
    DAY_NS,
    SENT,
    TABLES,
    WITH_REWARD,
    expected,
    remember_wrong_times,
    tables,
)
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, background, eventually

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.load import deriving
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.retention import forget
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.refresh import refresher as refreshing
from otel_lightning.collector.refresh import write_rows
from otel_lightning.collector.refresh.backoff import Backoff
from otel_lightning.collector.refresh.closed_set import closed_set
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet, size_new
from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.refresh.refresher import Refresher
from otel_lightning.collector.refresh.sent_batches import SentBatches
from otel_lightning.collector.refresh.workers import message_kinds, worker_process, worker_watch
from otel_lightning.collector.refresh.workers import worker as working
from otel_lightning.collector.refresh.workers.quarantine import MOST_DEATHS
from otel_lightning.collector.refresh.workers.worker import WorkerDiedError, WorkerError
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import OutOfMemoryError, Store, StoreError, open_store

FEW = 8
"""Spans a batch, so that the recordings make many batches, most of which have to grow."""
LARGE = [Request("traces", 1, trace_request(os.urandom(500_000).hex()).SerializeToString())]
"""A batch that does not fit into a pipe."""


@pytest.fixture(autouse=True)
def _workers_for_few_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "LEAST_SPANS", 1)


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Store, Refresher]]:
    with open_store(folder / "t.duckdb") as store, closing(Refresher(store, workers=2)) as made:
        made.start()
        yield store, made


def derive_all(refresher: Refresher) -> None:
    deadline = time.monotonic() + LIMIT_S
    while refresher.step(FEW, paced=False).is_busy or refresher.wait():
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_tables_are_the_same_with_and_without_workers(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, WITH_REWARD, dead_letters=tmp_path)
        derive_all(refresher)
        assert tables(store) == expected()
        assert not len(store.query("FROM stale"))
        assert refresher.pool.restarts == 0


def test_a_worker_that_is_stopped_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_watch, "WATCH_SECONDS", 0.1)
    with opened(tmp_path) as (store, refresher):
        load(store, WITH_REWARD, dead_letters=tmp_path)
        refresher.step(FEW, paced=False)
        stopped = refresher._sent.batches[0].worker
        os.kill(stopped.pid, signal.SIGSTOP)

        def is_killed() -> bool:
            refresher.step(FEW, paced=False)  # it may have answered before, and owe nothing
            return stopped._process.poll() is not None

        # Only until it is killed: others may be slow to start.
        with monkeypatch.context() as soon:
            soon.setattr(working, "STALLED_SECONDS", 1.0)
            eventually(is_killed)
        derive_all(refresher)
        assert refresher.pool.restarts >= 1
        assert tables(store) == expected()


def test_a_worker_that_stops_reading_while_it_gets_a_batch_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_watch, "WATCH_SECONDS", 0.1)
    with opened(tmp_path) as (store, refresher), ThreadPoolExecutor(1) as threads:
        load(store, LARGE, dead_letters=tmp_path)
        workers = [*refresher.pool.idle]
        for worker in workers:
            os.kill(worker.pid, signal.SIGSTOP)
        derived = threads.submit(derive_all, refresher)
        try:
            # Only until one is killed: others may be slow to start.
            with monkeypatch.context() as soon:
                soon.setattr(working, "STALLED_SECONDS", 1.0)
                eventually(lambda: any(one._process.poll() is not None for one in workers))
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGCONT)
            derived.result(LIMIT_S)
        finally:
            for worker in workers:  # otherwise the thread would wait for ever
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
        assert refresher.pool.restarts >= 1
        assert not len(store.query("FROM stale"))


def test_a_batch_that_cannot_be_read_leaves_no_worker_behind(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, SENT, dead_letters=tmp_path)
        workers = [Path(f"/proc/{worker.pid}") for worker in refresher.pool.idle]
        assert all(worker.exists() for worker in workers)
        store.execute("ALTER TABLE logs RENAME TO away")
        with pytest.raises(StoreError, match="logs"):
            refresher.step(FEW, paced=False)
        store.execute("ALTER TABLE away RENAME TO logs")
        derive_all(refresher)
        assert not len(store.query("FROM stale"))
    assert not any(worker.exists() for worker in workers)


def test_spans_that_a_worker_does_not_get_are_an_error_and_are_found_afterwards(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, SENT, dead_letters=tmp_path)
        remember_wrong_times(store)
        with pytest.raises(StoreError, match=r"Only 0 of \d+ spans"):
            derive_all(refresher)
        with suppress(StoreError):  # the batch of the other worker was read before
            derive_all(refresher)
        derive_all(refresher)
        assert not len(store.query("FROM stale"))
        found = tables(store, TABLES)
        rebuild(store)
        derive_all(refresher)
        assert tables(store, TABLES) == found


def test_spans_that_do_not_fit_memory_are_derived_here_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_arguments: object) -> Iterator[pa.RecordBatch]:
        raise OutOfMemoryError("no room")
        yield

    with opened(tmp_path) as (store, refresher):
        load(store, SENT, dead_letters=tmp_path)
        monkeypatch.setattr(closed_set, "_read_apart", too_large)
        derive_all(refresher)
        assert not len(store.query("FROM stale"))


def test_memory_can_be_released_once_no_thread_reads_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read, read = threading.Event(), closed_set._read_apart

    def slow(*arguments: Any) -> Iterator[pa.RecordBatch]:
        assert may_read.wait(LIMIT_S)
        yield from read(*arguments)

    with opened(tmp_path) as (store, refresher):
        load(store, SENT, dead_letters=tmp_path)
        monkeypatch.setattr(closed_set, "_read_apart", slow)
        refresher.step(FEW, paced=False)
        waits = threading.Thread(target=refresher.await_sent, daemon=True)
        waits.start()
        assert waits.is_alive()
        may_read.set()
        waits.join(LIMIT_S)
        assert not waits.is_alive()
        derive_all(refresher)
        assert not len(store.query("FROM stale"))


def test_spans_are_read_while_another_connection_writes(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, SENT, dead_letters=tmp_path)
        with store.transaction():
            size_new(store, [""])
            closed = ClosedSet(store, FEW, ())
            closed.logs()
            with ThreadPoolExecutor(1) as threads:
                apart = threads.submit(list, closed.spans_apart()).result(LIMIT_S)
            assert pa.Table.from_batches(apart).equals(pa.Table.from_batches(closed.spans()))


def test_rows_whose_worker_dies_between_two_commits_are_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_rows, "BYTES_PER_COMMIT", 1)
    with opened(tmp_path) as (store, refresher):
        load(store, WITH_REWARD, dead_letters=tmp_path)
        refresher.step(paced=False)
        (batch,) = refresher._sent.batches
        worker = batch.worker
        eventually(lambda: worker.is_ready)
        while not batch.is_asked_for_rows:
            refresher._advance(batch, Backoff())
            eventually(lambda: worker.is_ready)
        first = [
            worker._answers.get(timeout=LIMIT_S) for _ in (message_kinds.NAME, message_kinds.ROWS)
        ]
        os.kill(worker.pid, signal.SIGKILL)
        while worker._answers.get(timeout=LIMIT_S)[0] != working.DIED:
            pass
        for answer in (*first, (working.DIED, b"")):  # as if it had sent no more
            worker._answers.put(answer)
        refresher._advance(batch, Backoff())
        assert refresher.pool.restarts == 1
        assert len(store.query(f"FROM {first[0][1].decode()}"))
        derive_all(refresher)
        assert tables(store) == expected()


def test_traces_that_are_given_up_again_and_again_raise_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deriving, "MAX_RETRIES", 3)
    alarms, folder = Alarms(), tmp_path / "t.duckdb.spool"
    with open_store(tmp_path / "t.duckdb") as store, closing(Spool(folder)) as spool:
        load(store, WITH_REWARD, dead_letters=tmp_path)
        loader = Loader(store, spool, LoaderSettings(workers=2), alarms)
        loader._refresher.start()  # otherwise the loader's thread would derive so few spans itself
        try:
            # A faulty rule: each batch waits for another one.
            with monkeypatch.context() as faulty:
                faulty.setattr(SentBatches, "has_to_wait", lambda *_: True)
                loader.start()
                eventually(lambda: [one.name for one in alarms.raised()] == ["retrying"])
                assert loader.derive_retries >= 3
            eventually(lambda: not alarms.raised())
        finally:
            loader.stop()
        assert loader.derive_retries == 0
        assert tables(store) == expected()


def test_what_no_worker_can_derive_is_one_alarm_that_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alarms, folder = Alarms(refuse_after=3.0), tmp_path / "t.duckdb.spool"
    with open_store(tmp_path / "t.duckdb") as store, closing(Spool(folder)) as spool:
        load(store, WITH_REWARD, dead_letters=tmp_path)
        loader = Loader(store, spool, LoaderSettings(workers=2), alarms)
        loader._refresher.start()
        store.execute("ALTER TABLE trace_keys RENAME TO away")
        loader.start()
        try:
            # Each attempt begins without an error: a batch is sent to a worker. It fails later.
            eventually(lambda: alarms.refusal() is not None)
            assert caplog.text.count("Alarm 'deriving': ") == 1
            assert "Traceback" not in caplog.text  # the alarm has the store's own words
            loader.run_between_batches(
                lambda own: own.execute("ALTER TABLE away RENAME TO trace_keys")
            )
            eventually(lambda: not alarms.raised())
        finally:
            loader.stop()
        assert tables(store) == expected()


def test_spans_that_come_while_their_trace_is_derived_are_derived_too(tmp_path: Path) -> None:
    late = random.Random(5).sample(WITH_REWARD, len(WITH_REWARD))  # noqa: S311  an order
    with opened(tmp_path) as (store, refresher):
        for at in range(0, len(late), 5):
            load(store, late[at : at + 5], dead_letters=tmp_path)
            refresher.step(FEW, paced=False)
        derive_all(refresher)
        assert tables(store) == expected()


@pytest.mark.slow
@pytest.mark.parametrize("answered", [0, -1], ids=["earliest", "latest"])
def test_batches_that_belong_together_end_whichever_is_answered_first(
    tmp_path: Path, answered: int
) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, WITH_REWARD, dead_letters=tmp_path)
        derive_all(refresher)  # so that each batch finds the keys of all others in the store
        store.execute(
            "INSERT INTO stale BY NAME SELECT DISTINCT 'trace' AS kind, trace_id AS id FROM spans"
        )
        for _ in range(20 * len(WITH_REWARD)):
            if not refresher._send_some(1, Backoff()) and not refresher.is_working:
                break
            batch = refresher._sent.batches[answered]
            eventually(lambda worker=batch.worker: worker.is_ready)  # type: ignore[misc]
            refresher._advance(batch, Backoff())
        assert not refresher.is_working
        assert tables(store) == expected()


def test_a_worker_that_dies_is_replaced_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, WITH_REWARD, dead_letters=tmp_path)
        refresher.step(FEW, paced=False)
        assert refresher.is_working
        victim = refresher._sent.batches[0].worker.pid
        os.kill(victim, signal.SIGKILL)
        derive_all(refresher)
        assert tables(store) == expected()
        assert refresher.pool.restarts == 1
        assert f"The worker process {victim} ended with status -9" in caplog.text


def test_a_trace_that_kills_each_worker_is_reported_and_holds_up_no_others(tmp_path: Path) -> None:
    ids = [os.urandom(16) for _ in range(30)]
    requests = [trace_request("chat", trace_id=one).SerializeToString() for one in ids]
    killing = ids[0].hex()
    with opened(tmp_path) as (store, refresher):
        load(store, [Request("traces", 1, one) for one in requests], dead_letters=tmp_path)
        deadline = time.monotonic() + LIMIT_S
        while len(store.query("FROM stale")) > 1 or not refresher.quarantine.holds_traces:
            assert time.monotonic() < deadline
            with suppress(WorkerDiedError):
                refresher.step(FEW, paced=False)
            # Before the next step, which would ask for the rows, and the trace would be derived.
            for batch in refresher._sent.batches:
                if killing in batch.names:
                    os.kill(batch.worker.pid, signal.SIGKILL)
            if not refresher.wait(0.05) and len(store.query("FROM stale")) > 1:
                # An innocent trace may have been in each of the batches.
                refresher.quarantine.retry_now()
        # Not even in this process, which the system might kill as well.
        assert store.column("SELECT id FROM stale") == [killing]
        refresher.give_up()  # the end of the last worker that was killed may not be known yet
        refresher.quarantine.retry_now()
        derive_all(refresher)
        assert not refresher.quarantine.holds_traces
        assert not len(store.query("FROM stale"))


def test_a_trace_that_this_process_derived_kills_no_more_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshing, "LEAST_SPANS", 10**6)  # too few wait for more workers
    with (
        open_store(tmp_path / "t.duckdb") as store,
        closing(Refresher(store, workers=2)) as refresher,
    ):
        load(store, SENT, dead_letters=tmp_path)
        names = store.column("SELECT id FROM stale")
        for _ in range(MOST_DEATHS):
            refresher.quarantine.note_death(names)
        refresher.pool.lacks_room = True  # the system has no room for another worker
        derive_all(refresher)
        assert not len(store.query("FROM stale"))
        assert not refresher.quarantine.has_deaths


def test_workers_that_end_at_their_start_are_not_started_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = "import sys\nif any('worker_process' in one for one in sys.orig_argv): sys.exit(3)\n"
    (tmp_path / "sitecustomize.py").write_text(broken)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with (
        open_store(tmp_path / "t.duckdb") as store,
        closing(Refresher(store, workers=2)) as refresher,
    ):
        load(store, SENT, dead_letters=tmp_path)
        assert refresher.step(FEW, paced=False).ids
        eventually(lambda: refresher.pool.starting[0].is_ready)
        derive_all(refresher)
        assert not len(store.query("FROM stale"))
        assert refresher.pool.restarts == 1
    assert caplog.text.count("It had not started yet") == 1


def test_the_system_ends_a_worker_before_its_owner_when_memory_runs_out(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, refresher):
        (worker, _) = refresher.pool.idle
        score = int(Path(f"/proc/{worker.pid}/oom_score_adj").read_text())
        assert score > int(Path("/proc/self/oom_score_adj").read_text())


def test_a_worker_whose_owner_has_ended_ends_without_a_word() -> None:
    command = [sys.executable, "-c", f"from {worker_process.__name__} import main; main()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with background(*command, **pipes) as worker:
        worker.stdout.close()
        text = worker.stderr.read()
        assert (worker.wait(LIMIT_S), text) == (0, b"")


def test_a_batch_that_was_given_up_is_derived_later(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, WITH_REWARD, dead_letters=tmp_path)
        refresher.step(FEW, paced=False)
        refresher.give_up()
        while refresh(store):
            pass
        assert tables(store) == expected()


def test_retention_leaves_traces_in_flight_to_its_next_run(tmp_path: Path) -> None:
    settings, now_ns = LoaderSettings(retain_seconds=1), 100 * DAY_NS
    with opened(tmp_path) as (store, refresher):
        load(store, SENT, dead_letters=tmp_path)
        refresher.step(FEW, paced=False)
        in_flight = refresher.traces_in_flight()
        assert in_flight
        assert forget(store, settings, now_ns, in_flight)
        derive_all(refresher)
        assert set(store.column("SELECT trace_id FROM spans")) == in_flight
        assert set(store.column("SELECT trace_id FROM llm_calls")) & in_flight
        assert not store.count("stale")
        assert forget(store, settings, now_ns, refresher.traces_in_flight()) == len(in_flight)
        assert not store.count("spans") + store.count("llm_calls") + store.count("stale")


@pytest.mark.parametrize("settings", [LoaderSettings(), LoaderSettings(retain_seconds=1)])
def test_retention_ends_no_worker(settings: LoaderSettings, tmp_path: Path) -> None:
    folder = tmp_path / "t.duckdb.spool"
    with open_store(tmp_path / "t.duckdb") as store, closing(Spool(folder)) as spool:
        load(store, SENT, dead_letters=tmp_path)
        loader = Loader(store, spool, replace(settings, workers=2))
        with closing(loader._refresher) as refresher:
            refresher.start()
            refresher.step(FEW, paced=False)
            workers = {batch.worker for batch in refresher._sent.batches}
            assert workers
            loader._retain()
            derive_all(refresher)
            assert workers <= set(refresher.pool.idle)
            assert all(worker._process.poll() is None for worker in workers)


def test_an_error_in_a_worker_is_raised_and_the_traces_stay_stale(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, SENT, dead_letters=tmp_path)
        refresher.step(FEW, paced=False)
        stale = store.query("SELECT DISTINCT id FROM stale ORDER BY ALL")
        worker = refresher._sent.batches[0].worker
        eventually(lambda: worker.is_ready)
        worker.keys()
        worker._send(
            message_kinds.LOGS, b"no Arrow data"
        )  # instead of what the batch is asked for next
        with pytest.raises(WorkerError, match="ArrowInvalid"):
            list(worker.rows())
        refresher.give_up()
        assert store.query("SELECT DISTINCT id FROM stale ORDER BY ALL") == stale


def test_a_batch_that_breaks_a_worker_is_derived_without_it(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, refresher):
        load(store, SENT, dead_letters=tmp_path)
        refresher.step(FEW, paced=False)
        worker = refresher._sent.batches[0].worker
        eventually(lambda: worker.is_ready)
        worker.keys()
        worker._send(
            message_kinds.LOGS, b"no Arrow data"
        )  # instead of what the batch is asked for next
        derive_all(refresher)
        assert not len(store.query("FROM stale"))


def test_workers_are_started_and_get_equal_parts_before_a_store_is_derived(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store, closing(Refresher(store, 2)) as refresher:
        load(store, WITH_REWARD, dead_letters=tmp_path)
        spans = store.count("spans")
        at_once = refresher.prepare(25_000)
        assert spans <= 2 * at_once < 3 * spans
        assert len(refresher.pool.idle) == 2
        refresher.step(at_once, paced=False)
        assert len(refresher._sent.batches) == 2
        derive_all(refresher)
        assert tables(store) == expected()


@pytest.mark.slow
def test_load_and_copy_derive_many_spans_in_workers(tmp_path: Path) -> None:
    file, store, copy = (tmp_path / name for name in ("t.pb", "t.duckdb", "copy.duckdb"))
    file.write_bytes(trace_request(*map(str, range(12_000))).SerializeToString())
    options = ["--workers", "2"]
    assert workers_of("load", file, "--store", store, *options)
    assert workers_of("copy", store, copy, *options)


def workers_of(*command: str | Path) -> bool:
    """Return whether a command of `lightning-ingest` started worker processes before it ended."""
    run = [sys.executable, "-m", "otel_lightning.collector", *command]
    with background(*run) as process:
        found = False
        while process.poll() is None and not found:
            with suppress(psutil.Error):
                children = psutil.Process(process.pid).children()
                found = any(working.__name__ in " ".join(one.cmdline()) for one in children)
            time.sleep(0.01)
        assert process.wait(LIMIT_S) == 0
    return found


def test_no_worker_is_started_for_a_store_with_little_to_derive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshing, "LEAST_SPANS", 1_000)
    with open_store(tmp_path / "t.duckdb") as store, closing(Refresher(store, 2)) as refresher:
        load(store, SENT, dead_letters=tmp_path)
        assert refresher.prepare(25_000) == 25_000
        assert not refresher.pool.idle


def test_few_spans_are_derived_without_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshing, "LEAST_SPANS", 1_000_000)
    with opened(tmp_path) as (store, refresher):
        load(store, [Request("traces", 1, SENT[0].body)], dead_letters=tmp_path)
        assert refresher.step(FEW).ids == 1
        assert not refresher.is_working


def test_a_short_burst_starts_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "START_TIMES", 1_000_000)
    with (
        open_store(tmp_path / "t.duckdb") as store,
        closing(Refresher(store, workers=2)) as refresher,
    ):
        load(store, [Request("traces", 1, SENT[0].body)], dead_letters=tmp_path)
        before = psutil.Process().children()
        assert refresher.step(FEW).ids == 1
        assert psutil.Process().children() == before


@pytest.mark.slow
@pytest.mark.parametrize("lacks", ["process", "thread"])
def test_if_no_worker_can_be_started_this_process_derives(
    lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[int] = []
    if lacks == "process":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no_python"))
    else:
        begin = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if thread.name == "worker":
                started.extend(one.pid for one in psutil.Process().children())
                raise RuntimeError("can't start new thread")
            begin(thread)

        monkeypatch.setattr(threading.Thread, "start", start)
    with (
        open_store(tmp_path / "t.duckdb") as store,
        closing(Refresher(store, workers=2)) as refresher,
    ):
        load(store, WITH_REWARD, dead_letters=tmp_path)
        derive_all(refresher)
        assert tables(store) == expected()
    assert caplog.text.count("A worker process cannot be started") == 1
    assert bool(started) == (lacks == "thread")
    assert not any(psutil.pid_exists(pid) for pid in started)


def test_until_a_worker_has_started_this_process_derives(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store, closing(Refresher(store, workers=2)) as refresher:
        load(store, WITH_REWARD, dead_letters=tmp_path)
        assert refresher.step(FEW, paced=False).ids
        assert not refresher.is_working
        derive_all(refresher)
        assert tables(store) == expected()
