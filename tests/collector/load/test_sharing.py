"""Storing and deriving share the time, and how far deriving lags is told."""

import time
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.check.counts import LONGEST_UNDERIVED_SECONDS, check
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.retention import Keeping
from otel_lightning.collector.load.sharing import MOST_OWED_SECONDS, Sharing
from otel_lightning.collector.refresh.refresh import oldest_stale, refresh
from otel_lightning.collector.spool import Spool
from otel_lightning.collector.store import Store, open_store

SECOND_NS = 1_000_000_000


def one_span() -> bytes:
    sent = ExportTraceServiceRequest()
    made = sent.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16)
    made.span_id, made.start_time_unix_nano = b"s" * 8, 1
    return sent.SerializeToString()


REQUEST = one_span()


def test_what_storing_takes_is_owed_to_deriving_until_it_was_given() -> None:
    sharing = Sharing(max_lag=30)
    sharing.stored(2.0, lag=0.0)
    assert sharing.owes
    sharing.derived(1.5)
    assert sharing.owes
    sharing.derived(0.5)
    assert not sharing.owes


def test_deriving_that_lags_gets_more_of_the_time() -> None:
    shares = [Sharing(max_lag=30).share(lag) for lag in (0, 5, 10, 13, 1_000)]
    assert shares == sorted(shares)
    assert shares[0] == 0.5
    assert shares[-1] < 1  # or nothing would be stored any more


def test_a_long_store_does_not_stop_storing_for_as_long() -> None:
    sharing = Sharing(max_lag=30)
    sharing.stored(1_000.0, lag=60.0)
    sharing.derived(MOST_OWED_SECONDS)
    assert not sharing.owes


def test_the_lag_of_deriving_is_told_until_all_is_derived(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        spool = Spool(tmp_path / "t.duckdb.spool")
        loader = Loader(store.cursor(), spool)
        spool.append("traces", REQUEST, rows=1).result(timeout=10)
        received = time.time()
        assert loader.derive_lag() == 0.0
        assert loader._load_some(0)
        assert 0 < loader.derive_lag() <= time.time() - received + 1
        loader._derive_owed()
        assert loader.derive_lag() == 0.0
        assert not len(store.query("FROM stale"))
        spool.close()


def test_without_deriving_there_is_no_lag_of_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        spool = Spool(tmp_path / "t.duckdb.spool")
        loader = Loader(store.cursor(), spool, Keeping(derive=False))
        spool.append("traces", REQUEST, rows=1).result(timeout=10)
        assert loader._load_some(0)
        assert loader.derive_lag() == 0.0
        assert oldest_stale(store) == (0, None)
        spool.close()


def test_check_names_what_is_not_derived(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        _store_at(store, tmp_path, time.time_ns() - int(2 * LONGEST_UNDERIVED_SECONDS) * SECOND_NS)
        (waits,) = [one for one in check(store, path) if one.name == "not derived"]
        assert f"{2 * LONGEST_UNDERIVED_SECONDS:.0f} seconds ago" in waits.value
        assert refresh(store)
        (waits,) = [one for one in check(store, path) if one.name == "not derived"]
        assert waits.value == "nothing waits"


def _store_at(store: Store, folder: Path, received_ns: int) -> None:
    load(store, [Request("traces", received_ns, REQUEST)], dead_letters=folder)
